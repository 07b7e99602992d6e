"""What a site has beside its pages' text. For readers: what a page rests on, at its end (its notebook,
all rows of its machine and the kernels that measured them, to download), and how to read a verdict.
For other programs: OpenGraph for those that show links, and a sitemap."""

from __future__ import annotations

import html
import json
import re
import shutil
import textwrap
import zipfile
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin

import vl_convert
from docutils import nodes
from markupsafe import Markup
from sphinx.application import Sphinx

from tlb.machine import host
from tlb.measure.store import Store, data_root
from tlb.report.card import machine_display_name
from tlb.report.publish import first_figure_of
from tlb.report.render import format_each_as_html
from tlb.system.reasons import Unavailable

THIS = "this computer"
FOLDER = "_sources"  # where Sphinx puts the notebooks
_AT_ALL_TIMES = (1980, 1, 1, 0, 0, 0)  # the first that a zip can say: two builds are the same bytes


VERDICTS = 'class="tlb-verdicts"'  # tlb/report/verdicts.py
HOW_TO_JUDGE = (
    "Open a verdict to see its test. To judge by other limits, pass them to <code>judge</code> in the "
    "notebook."
)


class Files(NamedTuple):
    """A chapter's machine as a page calls it, the folder of its rows, and its kernels' sources."""

    machine: str
    rows: Path
    kernels: list[Path]


def files_of(notebook: Path, kernels: Path) -> Files | None:
    """Return what an executed notebook rests on, or None if it measures nothing or has no rows.
    kernels: the folder of their sources."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    if not any("parameters" in cell["metadata"].get("tags", []) for cell in content["cells"]):
        return None
    name, store = notebook.stem, Store(data_root())
    given = content["metadata"].get("papermill", {}).get("parameters", {})
    machine = given.get("machine", "reference")
    try:
        if machine == "this":
            store, machine = store.own, host.machine_id(host.inspect_machine())
        else:
            machine = store.resolve(machine, experiment=name)
        used = store.kernels(machine, name)
    except Unavailable:  # the page itself says why
        return None
    rows = store.root / machine
    sources = [path for kernel in used if (path := kernels / f"{kernel}.c").is_file()]
    # Copies of a disk image have one id: another may be published.
    shown = THIS if store.root.name == "own" else machine_display_name(store, machine)
    return Files(shown, rows, sources) if rows.is_dir() else None


def pack(rows: Path, archive: Path) -> None:
    """A machine's folder as a zip, the same bytes for the same rows; once a build."""
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(rows.rglob("*")):
            if path.suffix in (".json", ".parquet", ".sqlite", ".md"):
                packed.writestr(
                    zipfile.ZipInfo(f"{rows.name}/{path.relative_to(rows)}", _AT_ALL_TIMES),
                    path.read_bytes(),
                    zipfile.ZIP_DEFLATED,
                )


_CARD = re.compile(r'href="\.\./_sources/([a-z0-9-]{1,64})\.txt"')
OWN_CARD = "this-computer"


def write_cards(body: str, out: Path) -> None:
    """Put the data cards that a page links to (overview/machines_tables.py) beside its notebook, as
    text."""
    data = Store(data_root())
    for name in _CARD.findall(body):
        folder = data.root / name
        if name == OWN_CARD:
            folder = data.own.root / host.machine_id(host.inspect_machine())
        if (card := folder / "README.md").is_file():
            out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(card, out / f"{name}.txt")


def strip_outputs(app: Sphinx, error: Exception | None) -> None:
    """Take the outputs out of the notebooks that the pages offer: each page shows its own, and they
    are nine tenths of a notebook's size."""
    for path in (Path(app.outdir) / FOLDER).rglob("*.ipynb"):
        content = json.loads(path.read_text(encoding="utf-8"))
        for cell in content["cells"]:
            if cell["cell_type"] == "code":
                cell |= {"outputs": [], "execution_count": None}
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")


def add_files(
    app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None
) -> None:
    """Put the files beside the page, and links to them at its end."""
    if doctree is None or (notebook := Path(app.env.doc2path(page))).suffix != ".ipynb":
        return
    out, to = Path(app.outdir) / FOLDER, context["pathto"]

    def link(path: str, text: str) -> Markup:
        return Markup('<a download href="{}">{}</a>').format(to(f"{FOLDER}/{path}", 1), text)

    write_cards(context["body"], out)
    lines = [Markup("The notebook: {}.").format(link(context["sourcename"], notebook.name))]
    if files := files_of(notebook, Path(app.srcdir) / "kernels"):
        is_own = files.machine == THIS
        archive = "this-computer.zip" if is_own else f"{files.rows.name}.zip"
        pack(files.rows, out / archive)
        rows = Markup("All rows of {}, of every page, with the computer's description: {}.")
        lines.append(rows.format(files.machine, link(archive, archive)))
        reference = Store(data_root()).reference(notebook.stem)
        if files.machine != machine_display_name(
            Store(data_root()), reference
        ):  # the text is about it
            pack(data_root() / reference, out / f"{reference}.zip")
            lines.append(
                rows.format("the reference machine", link(f"{reference}.zip", f"{reference}.zip"))
            )
        links = []
        for kernel in files.kernels:
            (out / "kernels").mkdir(exist_ok=True)
            shutil.copyfile(kernel, out / "kernels" / kernel.name)
            links.append(link(f"kernels/{kernel.name}", kernel.name))
        if links:
            lines.append(Markup("What measured them: {}.").format(Markup(", ").join(links)))
    if VERDICTS in context["body"]:
        lines.append(Markup(HOW_TO_JUDGE))
    box = Markup('<div class="tlb-files"><p class="rubric">Files of this page</p><ul>{}</ul></div>')
    context["body"] += str(box.format(format_each_as_html("<li>{}</li>", lines)))


PICTURE = "_static/first_figure.png"
MOST_SHOWN = 200  # characters that programs which show links have room for


def address(app: Sphinx, path: str) -> str:
    """Return the address of a file of a site whose own address is set (html.baseurl), else ""."""
    base = app.config.html_baseurl
    return base and urljoin(base.rstrip("/") + "/", path)


@cache
def picture(page: Path) -> tuple[str, bytes] | None:
    """Return (alternative text, PNG) of a notebook's first figure, or None if it has none."""
    try:
        words, svg = first_figure_of(page)
    except (LookupError, ValueError):  # ValueError: a page of Markdown
        return None
    return words, vl_convert.svg_to_png(svg, scale=2)


def of_first_page(app: Sphinx) -> tuple[str, bytes] | None:
    """Return the picture of all links to the book, which needs a whole address; else None."""
    return picture(Path(app.env.doc2path(app.config.root_doc))) if app.config.html_baseurl else None


def describe(
    app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None
) -> None:
    """Add the title of a page and the beginning of its text as OpenGraph tags."""
    if doctree is None:  # search.html has no text
        return
    found = doctree.findall(nodes.paragraph)
    paragraphs = (node.astext() for node in found if isinstance(node.parent, nodes.section))
    start = " ".join(islice(paragraphs, 3))  # a chapter's first is a short question
    words = textwrap.shorten(start, MOST_SHOWN, placeholder=" …")
    tags = {
        "og:type": "website" if page == app.config.root_doc else "article",
        "og:site_name": app.config.html_title,
        "og:title": app.env.titles[page].astext(),
        "og:description": words,
        "og:url": address(app, app.builder.get_target_uri(page)),
    }
    if shown := of_first_page(app):
        image = {"image": address(app, PICTURE), "image:type": "image/png", "image:alt": shown[0]}
        tags |= {f"og:{name}": text for name, text in image.items()}
    lines = [f'<meta name="description" content="{html.escape(words)}">']
    for name, text in tags.items():
        if text:
            lines.append(f'<meta property="{name}" content="{html.escape(text)}">')
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def write_files(app: Sphinx, error: Exception | None) -> None:
    """Write the picture and sitemap.xml (sitemaps.org) of a site whose own address is set."""
    if error or app.builder.name != "html" or not app.config.html_baseurl:
        return
    if shown := of_first_page(app):
        (Path(app.outdir) / PICTURE).write_bytes(shown[1])
    pages = (address(app, app.builder.get_target_uri(page)) for page in sorted(app.env.found_docs))
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        f"{''.join(f'<url><loc>{html.escape(page)}</loc></url>{chr(10)}' for page in pages)}"
        "</urlset>\n"
    )
    (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", add_files)
    app.connect("build-finished", strip_outputs)
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
