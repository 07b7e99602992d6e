"""A page of its own in the book's style, in one file: it loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup

from tlb.report.render import Figure, data_table, join_html
from tlb.system.files import ROOT

STYLE = ROOT / "book" / "assets" / "figures.css"
# What the site's theme defines for figures.css, and this page does not load.
_THEME = """:root { --pst-color-background: #fff; --pst-color-border: #d0d7de;
  --pst-color-shadow: #ccc; --pst-color-text-base: #1f2933; --pst-color-text-muted: #46525e;
  --pst-color-link: #0072b2; }
body { margin: 0; color: var(--pst-color-text-base); font-family: var(--pst-font-family-base); }
main { max-width: 45rem; margin: 0 auto; padding: 2rem 1rem; }
td, th { padding: 0.3rem 1rem 0.3rem 0; text-align: left; }
figure { margin: 1.6rem 0; }
h1, code { overflow-wrap: anywhere; }"""
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\
<title>{}</title><style>{}</style></head>
<body><main class="bd-article">{}</main></body></html>
"""
# What a script does on the site: the keyboard reaches boxes that scroll, and they have a name.
_BOXES = {
    '<div class="tlb-table tlb-data">': ' role="group" tabindex="0" aria-label="Table">',
    '<div class="tlb-chart" role="img"': ' tabindex="0"',
}


def page(title: str, body: Markup) -> str:
    """Return the page as HTML. title: text; body: escaped by its maker."""
    for box, attributes in _BOXES.items():  # no text contains them, for in text `<` is escaped
        body = Markup(str(body).replace(box, box.removesuffix(">") + attributes))
    style = Markup(STYLE.read_text(encoding="utf-8") + _THEME)
    return str(Markup(_PAGE).format(title, style, body))


def figure(drawn: Figure | None, caption: str) -> Markup:
    """Return a figure with its caption, or nothing without a figure."""
    if drawn is None:
        return Markup("")
    markup = Markup("<figure>{}<figcaption>{}</figcaption></figure>")
    return markup.format(Markup(drawn.html()), caption)


def table(frame: pd.DataFrame) -> Markup:
    return Markup(data_table(frame).markup)


def paragraphs(sentences: Sequence[str]) -> Markup:
    return join_html("<p>{}</p>", sentences)
