"""The Sphinx side of publishing: what a link to a page shows, the list of pages for search engines,
and the page that is printed."""

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
from sphinx.builders.singlehtml import SingleFileHTMLBuilder

from tlb.report.readme import drawing

PICTURE = "_static/first_figure.png"
MOST_SHOWN = 200  # characters: what those that show links have room for


class OnePage(SingleFileHTMLBuilder):
    """Sphinx's singlehtml, but for links into another chapter: they stay `#document-CHAPTER#ID`.

    Sphinx cuts the chapter off, and ids of sections and citations are the same in many chapters.
    tlb/report/press.py makes each id one of its own.
    """

    def fix_refuris(self, tree: nodes.Node) -> None:
        pass


def address(app: Sphinx, page: str) -> str:
    """Where a page will be, of a site whose own address is set (html.baseurl); "" of another."""
    base = app.config.html_baseurl
    return base and urljoin(base.rstrip("/") + "/", app.builder.get_target_uri(page))


@cache
def picture(page: Path) -> tuple[str, bytes] | None:
    """(what it says, a PNG: few that show links draw an SVG) of the first figure of a notebook;
    None where it has none."""
    try:
        words, svg = drawing(page)
    except (LookupError, ValueError):  # ValueError: a page of Markdown
        return None
    return words, vl_convert.svg_to_png(svg, scale=2)


def of_first_page(app: Sphinx) -> tuple[str, bytes] | None:
    """The picture of all links to this book, of a site whose own address is set: whoever shows one
    asks for it by its whole address."""
    return picture(Path(app.env.doc2path(app.config.root_doc))) if app.config.html_baseurl else None


def describe(
    app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None
) -> None:
    """Say by OpenGraph what a link to this page shows: its title, and how its text begins."""
    if doctree is None:  # of search.html there is nothing to say
        return
    paragraphs = (
        found.astext()
        for found in doctree.findall(nodes.paragraph)
        if isinstance(found.parent, nodes.section)
    )
    words = textwrap.shorten(
        " ".join(islice(paragraphs, 3)), MOST_SHOWN, placeholder=" …"
    )  # a chapter's first is a short question
    said = {
        "og:type": "website" if page == app.config.root_doc else "article",
        "og:site_name": app.config.html_title,
        "og:title": app.env.titles[page].astext(),
        "og:description": words,
        "og:url": address(app, page),
    }
    if shown := of_first_page(app):
        place = urljoin(app.config.html_baseurl.rstrip("/") + "/", PICTURE)
        said |= {"og:image": place, "og:image:type": "image/png", "og:image:alt": shown[0]}
    tags = [
        f'<meta name="description" content="{html.escape(words)}">',
        *(
            f'<meta property="{name}" content="{html.escape(text)}">'
            for name, text in said.items()
            if text
        ),
    ]
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


def write_picture(app: Sphinx, error: Exception | None) -> None:
    """Beside the other files that all pages share."""
    if not error and app.builder.name == "html" and (shown := of_first_page(app)):
        (Path(app.outdir) / PICTURE).write_bytes(shown[1])


def write_sitemap(app: Sphinx, error: Exception | None) -> None:
    """sitemap.xml (sitemaps.org), where the site's address is known: it holds whole addresses
    alone."""
    if error or app.builder.name != "html" or not app.config.html_baseurl:
        return
    places = [
        f"<url><loc>{html.escape(address(app, page))}</loc></url>\n"
        for page in sorted(app.env.found_docs)
    ]
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{"".join(places)}</urlset>\n'
    (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_builder(OnePage, override=True)
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_picture)
    app.connect("build-finished", write_sitemap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
