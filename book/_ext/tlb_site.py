"""The Sphinx side of the site: Vega on the pages that hold a chart, what the search finds, and the
pages for old and for wrong addresses."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections import Counter
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

import vl_convert
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.builders.html._assets import _JavaScript
from sphinx.environment import BuildEnvironment
from sphinx.highlighting import PygmentsBridge
from sphinx.util.docutils import SphinxRole

from tlb.report.render import CHART_THEME, CompactCodeFormatter, escape_json
from tlb.system.files import ROOT
from tlb.system.units import count_with_verb, list_in_words

FOLDER = Path(__file__).parent
PACKAGE = "every-load-is-two-loads"
CHART_MARK = 'class="tlb-spec"'  # tlb/report/render.py writes it into every figure
MODEL_MARK = 'class="tlb-model"'  # a chapter's own HTML, brought to life by models.js


def bundle_name() -> str:
    """File name of the Vega bundle; the version in it is the cache's key, here and in browsers."""
    version: str = vl_convert.__version__  # type: ignore[attr-defined]  # not in its stub
    return f"vega-{version}.js"


def make_bundle(app: Sphinx) -> None:
    """Put Vega, Vega-Lite and Vega-Embed as one script among the static files, and the charts'
    theme. Made once a version, in 2 s.

    In a function of its own, because its top-level names collide with those of Sphinx's scripts.
    """
    if app.builder.format != "html":
        return
    cache = Path(app.outdir).parent / "vega" / bundle_name()
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial = cache.with_suffix(".partial")
        # Its stub lacks the default of its argument.
        partial.write_text(vl_convert.javascript_bundle(), encoding="utf-8")  # type: ignore[call-arg]
        partial.replace(cache)
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    bundle = cache.read_text(encoding="utf-8")
    (static / cache.name).write_text(f"(() => {{{bundle}}})();\n", encoding="utf-8")
    (static / "theme.js").write_text(
        f"const TLB_THEME = {escape_json(CHART_THEME)};\n", encoding="utf-8"
    )


def holds(doctree: nodes.document | None, mark: str) -> bool:
    """Return whether a page's raw HTML has this mark, by which a script finds what it enlivens."""
    return doctree is not None and any(mark in raw.astext() for raw in doctree.findall(nodes.raw))


def add_scripts(
    app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None
) -> None:
    """Load what this page's charts and models need; Sphinx forgets it before the next page."""
    if page == "search":
        app.add_js_file("search.js", loading_method="defer")  # after Sphinx's own
    if holds(doctree, CHART_MARK):
        for script in (bundle_name(), "theme.js", "figures.js"):
            app.add_js_file(script)
    if holds(doctree, MODEL_MARK):
        app.add_js_file("models.js")


# What later scripts, written into the page, change.
_AT_ONCE = "documentation_options.js"
# (HTML, what it should be): a label that is not what is read, and roles of a list that is none
# (ARIA 1.2 has no doc-biblioentry).
_MENDED = (
    ('<summary aria-label="Toggle hidden content">', "<summary>"),
    ('role="doc-biblioentry"', 'role="listitem"'),
)


def defer_scripts(
    app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None
) -> None:
    """Let every script of a page of text wait until it has been read, so that none stands between
    the reader and the text."""
    if doctree is None:
        return
    scripts = context["script_files"]
    for place, script in enumerate(scripts):
        if script.filename and not str(script.filename).endswith(_AT_ONCE):
            how = {**script.attributes, "defer": "defer"}
            scripts[place] = _JavaScript(script.filename, priority=script.priority, **how)


def mend(
    app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None
) -> None:
    """Give other people's HTML the names and roles that a reader without eyes needs."""
    for wrong, right in _MENDED:
        context["body"] = context.get("body", "").replace(wrong, right)


def page_link(app: Sphinx, page: str) -> str:
    """A link to a page of the book under its title, relative to the site's root."""
    address, title = app.builder.get_target_uri(page), app.env.titles[page].astext()
    return f'<a href="{html.escape(address)}">{html.escape(title)}</a>'


def write_page(app: Sphinx, name: str, to: str = "", **values: str) -> None:
    """Write a page that needs no other file, from the template of a name, by default under that
    name; `values` are HTML."""
    page = Template((FOLDER / name).read_text(encoding="utf-8")).substitute(
        language=html.escape(app.config.language),
        title=html.escape(app.config.html_title),
        **values,
    )
    (Path(app.outdir) / (to or name)).write_text(page, encoding="utf-8")


def write_entrances(app: Sphinx, error: Exception | None) -> None:
    """Write the pages of two addresses without a chapter: index.html, the site's root, leads to the
    first.

    404.html answers at any depth; its links start at html_baseurl.
    """
    if error or app.builder.format != "html":
        return
    root = app.config.root_doc
    chapters = [root, *app.env.toctree_includes.get(root, [])]
    base = urlsplit(app.config.html_baseurl).path.rstrip("/") + "/"
    first = html.escape(app.builder.get_target_uri(root))
    write_page(app, "index.html", link=page_link(app, root), address=first)
    links = "\n".join(f"<li>{page_link(app, page)}</li>" for page in chapters)
    write_page(app, "404.html", base=html.escape(base), chapters=links)


def write_moved(app: Sphinx, error: Exception | None) -> None:
    """Write a page at each address of `tlb_moved` (_config.yml) whose page is gone, which leads to
    the page that took its place."""
    if error or app.builder.format != "html":
        return
    pages = app.env.found_docs
    for old, new in app.config.tlb_moved.items():
        if new not in pages or old in pages:  # a book of other pages, as a test makes
            continue
        here = app.builder.get_target_uri(old)
        address = html.escape(app.builder.get_relative_uri(old, new))
        title = html.escape(app.env.titles[new].astext())
        link = f'<a href="{address}">{title}</a>'
        write_page(app, "index.html", here, link=link, address=address)


# --- a chapter's first screen


def parts_of(node: nodes.Node) -> list[str]:
    """Return what of a notebook's cell the page shows: "cell_code_source", "cell_code_output", both
    or, for another node, nothing."""
    if not isinstance(node, nodes.container) or node.get("nb_element") != "cell_code":
        return []
    return [part["nb_element"] for part in node.children if isinstance(part, nodes.container)]


EXPERIMENT = "the-experiment"  # of the section that shows how a page's first figure was made


def put_figure_first(app: Sphinx, doctree: nodes.document) -> None:
    """Put a page's first figure, and the text below it, before the code that makes them.

    A notebook runs from top to bottom, so the code stands first there, with what it prints. On a
    page with a section *The experiment…* it follows the mechanism: there, or in an earlier section
    that shows code, and before that code, which goes on with its variables. On other pages it
    follows the text. The figure's own cell is divided; a figure whose code is folded or not shown
    stays where it is.
    """
    if (page := doctree.next_node(nodes.section)) is None:
        return
    shown = list(page.children)
    cells = [node for node in shown if isinstance(node, nodes.container) and parts_of(node)]
    figure = next((cell for cell in cells if cell.next_node(nodes.figure)), None)
    if figure is None or len(parts_of(figure)) < 2 or figure.get("hide_mode"):
        return
    place = shown.index(figure)
    source = figure.copy()  # the cell without its parts
    source += figure.pop(0)
    code = [node for node in shown[:place] if "cell_code_source" in parts_of(node)] + [source]
    end = place + 1
    for node in shown[end:]:
        if "cell_code_source" in parts_of(node):
            code.append(node)
            end += 1
        else:
            end += parts_of(node) == ["cell_code_output"]  # the text below the figure
            break
    first = [node for node in shown[:end] if node not in code]
    sections = [node for node in shown[end:] if isinstance(node, nodes.section)]
    has_experiment = any(map(_is_experiment, sections))
    page.children = []
    page.extend([*first, *([] if has_experiment else code), *shown[end:]])
    if has_experiment:
        place_of_code = next(node for node in sections if _is_experiment(node) or _shows_code(node))
        parts = place_of_code.children
        before = next((n for n, part in enumerate(parts) if _shows_code(part)), len(parts))
        place_of_code.insert(before, code)


SUMMARY = "tag_first-figure"  # of a cell whose figure sums up the sections before it


def put_summary_first(app: Sphinx, doctree: nodes.document) -> None:
    """Put the figure of a cell with the tag `first-figure`, and the text below it, after the page's
    first words. The cell's code stays behind the sections that make its data."""
    cells = list(filter(parts_of, doctree.findall(nodes.container)))
    summary = next((cell for cell in cells if SUMMARY in cell["classes"]), None)
    page = doctree.next_node(nodes.section)
    if page is None or summary is None or len(parts_of(summary)) < 2:
        return
    figure = summary.copy()  # the cell without its parts
    figure += summary.pop(1)
    later = cells[cells.index(summary) + 1 :]
    text = next(cell for cell in later if parts_of(cell) == ["cell_code_output"])
    text.parent.remove(text)
    place = next(n for n, node in enumerate(page.children) if parts_of(node))
    page.insert(place, [figure, text])


def _is_experiment(section: nodes.section) -> bool:
    return " ".join(section["ids"]).startswith(EXPERIMENT)


def _shows_code(node: nodes.Node) -> bool:
    """Return whether it is, or has in it, a cell whose code is not folded."""
    return any(
        "cell_code_source" in parts_of(cell) and not cell.get("hide_mode")
        for cell in node.findall(nodes.container)
    )


def _folded_cells(section: nodes.section) -> list[nodes.container]:
    """Return the cells of a section, without its subsections, whose code alone is folded."""
    cells = (node for node in section.children if isinstance(node, nodes.container))
    folded = (cell for cell in cells if cell.get("hide_mode") == "input")
    return [cell for cell in folded if "cell_code_source" in parts_of(cell)]


def gather_folded_code(app: Sphinx, doctree: nodes.document) -> None:
    """Put the folded code of each section into one fold behind its text, each cell under its own
    prompt, so that no fold stands between a sentence and the figure or the table that it announces.
    """
    for section in list(doctree.findall(nodes.section)):
        if not (cells := _folded_cells(section)):
            continue
        code = nodes.container(nb_element="cell_code_source")
        for cell in cells:
            code += nodes.paragraph("", cell["prompt_show"], classes=["tlb-code-name"])
            code += cell.pop(0)
            if cell.children:
                del cell["hide_mode"]
            else:
                section.remove(cell)
        fold = nodes.container(nb_element="cell_code", classes=["cell", "tag_hide-input"])
        prompts = {"prompt_show": "Folded code of this section", "prompt_hide": "Hide"}
        fold.attributes |= {"hide_mode": "input", **prompts}
        fold += code
        parts = enumerate(section.children)
        end = next((n for n, part in parts if isinstance(part, nodes.section)), len(section))
        section.insert(end, fold)


def put_head_line_first(app: Sphinx, doctree: nodes.document) -> None:
    """Put the line that says whose numbers a page has (tlb/report/page.py) below its title."""
    page = doctree.next_node(nodes.section)
    for line in list(doctree.findall(nodes.raw)):
        if page is not None and 'class="tlb-head-line"' in line.astext():
            line.parent.remove(line)
            page.insert(1, line)


# The words of a verdict, as in its cell, by its style's class, in the order of the sentence.
_VERDICT_WORDS = {
    "holds": "holds",
    "fails": "fails",
    "elsewhere": "fails here",
    "unknown": "cannot tell",
    "untestable": "not testable here",
    "recomputed": "recomputed",
}
# tlb/report/verdicts.py writes these
_VERDICT = re.compile(r"tlb-verdict-(\w+)\"")
_RECOMPUTED_VERDICT = re.compile(r">recomputed</span>: (\w+)")
_OWN_CLAIMS = re.compile(r'data-whose="(.+?)" data-claims="(\d+)"')


def count_verdicts(app: Sphinx, doctree: nodes.document) -> None:
    """Say above a folded table of verdicts how many of its claims hold and how many fail."""
    for table in list(doctree.findall(nodes.raw)):
        found, own = Counter(_VERDICT.findall(table.astext())), _OWN_CLAIMS.search(table.astext())
        cell = table.parent
        while cell is not None and not parts_of(cell):
            cell = cell.parent
        if (found or own) and cell is not None and cell.get("hide_mode"):
            counts = [
                f"{words} {found[css]}" for css, words in _VERDICT_WORDS.items() if found[css]
            ]
            recomputed = Counter(_RECOMPUTED_VERDICT.findall(table.astext()))
            if recomputed:
                each = [f"{word} {number}" for word, number in recomputed.most_common()]
                counts[-1] += f" ({list_in_words(each)})"
            words = f"Verdicts on these {found.total()} claims: {list_in_words(counts)}."
            if own:
                fail = found["fails"] + found["elsewhere"]
                decided = found["holds"] + fail
                both = count_with_verb(found["holds"], "hold"), count_with_verb(fail, "fail")
                counted = f": {', '.join(both)}" if decided else ""
                if again := found["recomputed"]:
                    verb = "is" if again == 1 else "are"
                    counted += f"; {again} {verb} recomputed without a measurement"
                words = f"{own[1]} decides {decided} of {own[2]} claims{counted}."
            cell.parent.insert(cell.parent.index(cell), nodes.paragraph("", words))


# --- what the search finds

# In other people's HTML: code, and the words in a drawing.
_NO_TEXT = re.compile(r"<(pre|svg)\b.*?</\1>", re.DOTALL)


def number_figures_by_page(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Start the figures of each page without a number at 1: Sphinx counts them through all such pages,
    and "Figure 15" beside "Figure 3.1" says nothing. Return no page to be read again."""
    for by_type in env.toc_fignumbers.values():
        for numbers in by_type.values():
            if numbers and all(len(number) == 1 for number in numbers.values()):
                before = min(number[0] for number in numbers.values()) - 1
                for id, (number,) in numbers.items():
                    numbers[id] = (number - before,)
    return []


def without_code(doctree: nodes.document) -> nodes.document:
    """Return a copy of a page without code, folded or not, and without the words of drawings."""
    copy = doctree.deepcopy()
    is_code = ("cell_input", "tlb-listing")
    for node in list(copy.findall(nodes.Element)):
        if isinstance(node, nodes.literal_block) or any(
            name in node.get("classes", ()) for name in is_code
        ):
            if node.parent is not None:
                node.parent.remove(node)
        elif isinstance(node, nodes.raw):
            text = _NO_TEXT.sub(" ", node.astext())
            node.rawsource, node.children = text, [nodes.Text(text)]
    return copy


def index_text_alone(app: Sphinx) -> None:
    """Keep code out of the search's index."""
    builder = app.builder
    if not isinstance(builder, StandaloneHTMLBuilder):
        return
    index_page = builder.index_page

    def index_text(pagename: str, doctree: nodes.document, title: str) -> None:
        index_page(pagename, without_code(doctree), title)

    builder.index_page = index_text  # type: ignore[method-assign]


def link_repository(app: Sphinx) -> None:
    """Show where the sources are on every page once `repository: url:` of _config.yml says it."""
    options = app.config.html_theme_options
    options["use_repository_button"] = bool(options.get("repository_url"))
    with suppress(PackageNotFoundError):
        about = f"{app.config.html_title}, version {version(PACKAGE)}."
        options["extra_footer"] = f"{html.escape(about)} {options.get('extra_footer', '')}"


def source_archive(app: Sphinx) -> Path:
    """Return where the site keeps the archive of its sources, if it has one."""
    return Path(app.outdir) / "_static" / f"{PACKAGE}-source.tar.gz"


def add_source_archive(app: Sphinx) -> None:
    """Put the last commit's files into the site while no `repository: url:` says where they are: a
    reader who has only the site can then build the book and measure. Not outside a clone."""
    archive = source_archive(app)
    archive.unlink(missing_ok=True)
    if app.config.html_theme_options.get("repository_url") or app.builder.format != "html":
        return
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]  # another user's clone too
    files = ["archive", "--format=tar.gz", f"--prefix={PACKAGE}/", f"--output={archive}", "HEAD"]
    subprocess.run([*git, *files], check=True)


class Repository(SphinxRole):
    """{repository}`words`: a link to the book's repository, to the archive of its sources that the
    site carries, or the words alone."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        uri = self.config.html_theme_options.get("repository_url")
        if (archive := source_archive(self.env.app)).exists():
            uri = f"{'../' * self.env.docname.count('/')}_static/{archive.name}"
        if uri:
            return [nodes.reference(self.rawtext, self.text, refuri=uri)], []
        return [nodes.Text(self.text)], []


def remove_source_maps(app: Sphinx, exception: Exception | None) -> None:
    """Remove what only a developer of the theme's scripts and styles would load, a quarter of the
    site."""
    for source_map in Path(app.outdir).glob("_static/**/*.map"):
        source_map.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    PygmentsBridge.html_formatter = CompactCodeFormatter
    app.add_role("repository", Repository())
    # before the theme reads its options
    app.connect("builder-inited", link_repository, priority=100)
    app.connect("builder-inited", make_bundle)
    app.connect("builder-inited", add_source_archive)
    app.connect("builder-inited", index_text_alone)
    app.add_config_value("tlb_moved", {}, "html", dict)
    app.connect("doctree-read", put_figure_first)
    app.connect("doctree-read", put_summary_first)
    app.connect("doctree-read", gather_folded_code)
    app.connect("doctree-read", put_head_line_first)
    app.connect("doctree-read", count_verdicts)
    # after Sphinx has numbered them in the same event
    app.connect("env-get-updated", number_figures_by_page, priority=900)
    app.connect("html-page-context", add_scripts)
    app.connect("html-page-context", defer_scripts, priority=900)  # after all who add some
    app.connect("html-page-context", mend)
    # Before sphinx_external_toc, which writes a page without title and icon where there is no
    # index.html.
    app.connect("build-finished", write_entrances, priority=400)
    app.connect("build-finished", write_moved)
    app.connect("build-finished", remove_source_maps)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
