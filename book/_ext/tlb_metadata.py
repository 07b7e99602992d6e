"""What a site tells other programs: OpenGraph for those that show links to it, and a sitemap."""

from __future__ import annotations

import html
import textwrap
from functools import cache
from itertools import islice
from pathlib import Path
from urllib.parse import urljoin

import vl_convert
from docutils import nodes
from sphinx.application import Sphinx

from tlb.report.publish import first_figure_of

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
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
