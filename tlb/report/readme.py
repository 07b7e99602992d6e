"""The book's figure where it is spoken of: the first page's first one, in the README and as the
picture of a link."""

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
# there is no stylesheet that repaints its ink on a dark page
_PAPER = '<rect width="100%" height="100%" fill="#fff"/>'
_SHOWN = re.compile(rf"!\[[^]]*\]\({re.escape(FILE)}\)")


def drawing(page: Path) -> tuple[str, str]:
    """(its alternative text, an SVG on paper) of the first figure in a notebook's outputs.
    LookupError without one."""
    notebook = nbformat.read(page, as_version=4)
    shown = (
        "".join(output.get("data", {}).get("text/html", ""))
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )
    found = next(filter(None, map(_FIGURE.search, shown)), None)
    if found is None:
        raise LookupError(f"{page.name} shows no figure")
    return html.unescape(found[1]), f"{found[2]}{_PAPER}{found[3]}\n"


def figure() -> tuple[str, str]:
    """(what the README says, the drawing) of the first figure of the first page's committed
    outputs. LookupError without one."""
    words, svg = drawing(BOOK / f"{table_of_contents()[0]}.ipynb")
    return f"![{words}]({FILE})", svg


def refresh() -> None:
    """Put the figure and its words into the README as they are now."""
    words, svg = figure()
    readme = ROOT / "README.md"
    with disk_errors(readme):
        (ROOT / FILE).write_text(svg, encoding="utf-8")
        readme.write_text(
            _SHOWN.sub(lambda _: words, readme.read_text(encoding="utf-8")), encoding="utf-8"
        )
