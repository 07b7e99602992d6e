"""The Sphinx side of publishing: what a link to a page shows, the list of pages for search engines, and the page that is printed."""

from __future__ import annotations

import html
import textwrap
from itertools import islice
from pathlib import Path
from urllib.parse import urljoin

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.singlehtml import SingleFileHTMLBuilder

MOST_SHOWN = 200  # characters: what those that show links have room for


class OnePage(SingleFileHTMLBuilder):
    """Sphinx's singlehtml, but for links into another chapter: they stay `#document-CHAPTER#ID`.

    Sphinx cuts the chapter off, and ids of sections and citations are the same in many chapters. experiments/article/press.py
    makes each id one of its own.
    """

    def fix_refuris(self, tree: nodes.Node) -> None:
        pass


def address(app: Sphinx, page: str) -> str:
    """Where a page will be, of a site whose own address is set (html.baseurl); "" of another."""
    base = app.config.html_baseurl
    return base and urljoin(base.rstrip("/") + "/", app.builder.get_target_uri(page))


def describe(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Say by OpenGraph what a link to this page shows: its title, and how its text begins."""
    if doctree is None:  # of search.html there is nothing to say
        return
    paragraphs = (found.astext() for found in doctree.findall(nodes.paragraph) if isinstance(found.parent, nodes.section))
    words = textwrap.shorten(" ".join(islice(paragraphs, 3)), MOST_SHOWN, placeholder=" …")  # a chapter's first is a short question
    said = {"og:type": "website" if page == app.config.root_doc else "article", "og:site_name": app.config.html_title,
            "og:title": app.env.titles[page].astext(), "og:description": words, "og:url": address(app, page)}
    tags = [f'<meta name="description" content="{html.escape(words)}">',
            *(f'<meta property="{name}" content="{html.escape(text)}">' for name, text in said.items() if text)]
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


def write_sitemap(app: Sphinx, error: Exception | None) -> None:
    """sitemap.xml (sitemaps.org), where the site's address is known: it holds whole addresses alone."""
    if error or app.builder.name != "html" or not app.config.html_baseurl:
        return
    places = [f"<url><loc>{html.escape(address(app, page))}</loc></url>\n" for page in sorted(app.env.found_docs)]
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{"".join(places)}</urlset>\n'
    (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_builder(OnePage, override=True)
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_sitemap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
