"""The first figure of the first page, which the README and links to the book show."""

from __future__ import annotations

import html
import re
from pathlib import Path

import nbformat

from tlb.report.parameters import BOOK, table_of_contents
from tlb.system.files import ROOT, disk_errors

FILE = ".github/first_figure.svg"
_FIGURE = re.compile(
    r'<div class="tlb-chart" role="img" aria-label="([^"]*)">(<svg [^>]*>)(.*?</svg>)', re.DOTALL
)
_PAPER = '<rect width="100%" height="100%" fill="#fff"/>'  # no style sheet repaints it in the dark
_SHOWN = re.compile(rf"!\[[^]]*\]\({re.escape(FILE)}\)")


def drawing(page: Path) -> tuple[str, str]:
    """Return (alternative text, SVG on white) of a notebook's first figure. Raises LookupError."""
    for cell in nbformat.read(page, as_version=4).cells:
        for output in cell.get("outputs", []):
            if found := _FIGURE.search("".join(output.get("data", {}).get("text/html", ""))):
                return html.unescape(found[1]), f"{found[2]}{_PAPER}{found[3]}\n"
    raise LookupError(f"{page.name} shows no figure")


def figure() -> tuple[str, str]:
    """Return (Markdown for the README, SVG) of the first page's first figure."""
    words, svg = drawing(BOOK / f"{table_of_contents()[0]}.ipynb")
    return f"![{words}]({FILE})", svg


def refresh() -> None:
    """Update the figure and its text in the README."""
    words, svg = figure()
    readme = ROOT / "README.md"
    with disk_errors(readme):
        (ROOT / FILE).write_text(svg, encoding="utf-8")
        text = readme.read_text(encoding="utf-8")
        readme.write_text(_SHOWN.sub(lambda _: words, text), encoding="utf-8")
