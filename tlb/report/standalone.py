"""A page of its own in the book's style, in one file: nothing in it is loaded, and nothing in it
runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup

from tlb.report.render import Figure, data_table
from tlb.system.files import ROOT

STYLE = ROOT / "book" / "assets" / "figures.css"
# What the site's theme gives its pages, and this one does not have.
_THEME = """:root { --pst-color-background: #fff; --pst-color-border: #d0d7de; --pst-color-shadow: #ccc; --pst-color-text-base: #1f2933;
  --pst-color-text-muted: #46525e; --pst-color-link: #0072b2; }
body { margin: 0; color: var(--pst-color-text-base); font-family: var(--pst-font-family-base); }
main { max-width: 45rem; margin: 0 auto; padding: 2rem 1rem; }
td, th { padding: 0.3rem 1rem 0.3rem 0; text-align: left; }
figure { margin: 1.6rem 0; }
h1 { overflow-wrap: anywhere; }
code { overflow-wrap: anywhere; }"""
# What scrolls in a box of its own is reached by keyboard, and says what it is: on the site a script
# sees to that.
_BOXES = {
    '<div class="tlb-table tlb-data">': '<div class="tlb-table tlb-data" role="group" tabindex="0" aria-label="Table">',
    '<div class="tlb-chart" role="img"': '<div class="tlb-chart" role="img" tabindex="0"',
}


def page(title: str, body: Markup) -> str:
    """HTML. title: text; body: what stands below the style, escaped by its maker."""
    for box, reached in _BOXES.items():  # no text has these, for in text `<` is escaped
        body = Markup(str(body).replace(box, reached))
    # The style is this book's own file, and so is not escaped.
    style = Markup(STYLE.read_text(encoding="utf-8") + _THEME)
    return str(
        Markup(
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            '<title>{}</title><style>{}</style></head>\n<body><main class="bd-article">{}</main></body></html>\n'
        ).format(title, style, body)
    )


def figure(drawn: Figure | None, caption: str) -> Markup:
    """A figure with its caption; nothing of none."""
    return (
        Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(
            Markup(drawn.html()), caption
        )
        if drawn
        else Markup("")
    )


def table(frame: pd.DataFrame) -> Markup:
    return Markup(data_table(frame).markup)


def paragraphs(sentences: Sequence[str]) -> Markup:
    return Markup("").join(Markup("<p>{}</p>").format(sentence) for sentence in sentences)
