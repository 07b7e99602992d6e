"""What tests of pages share: cells that run without Jupyter, a chart like those of the chapters, the
elements of a piece of HTML, and how far two colours stand apart."""

from html.parser import HTMLParser
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from tlb.report import charts, page
from tlb.report.render import Figure

FRAME = pd.DataFrame(
    {
        "working_set_bytes": [2**16, 2**24, 2**32] * 2,
        "ns_per_access": [1.2345678, 17.25, 127.1, 1.2, 5.5, 8.0],
        "layout": ["spread"] * 3 + ["packed"] * 3,
    }
)


def cliff(frame: pd.DataFrame = FRAME, title: str = "") -> alt.Chart:
    """A chart that uses what the chapters use: clipped lines, points, both axes, a selection,
    tooltips."""
    return (
        alt.Chart(frame, title=title)
        .mark_line(point=True, clip=True)
        .encode(
            x=alt.X("working_set_bytes:Q", scale=charts.log_scale(), axis=charts.bytes_axis()),
            y=alt.Y("ns_per_access:Q", axis=charts.ns_axis()),
            color=alt.Color("layout:N", legend=charts.line_legend()),
            tooltip=["layout:N", "ns_per_access:Q"],
        )
        .add_params(alt.selection_point(fields=["layout"], bind="legend"))
    )


def figure(
    name: str = "cliff", frame: pd.DataFrame = FRAME, title: str = "", alt_text: str = "A cliff."
) -> Figure:
    return Figure(cliff(frame, title), alt_text, frame, name)


def run_cells(shown: page.Page, names: dict[str, Any]) -> None:
    """Run the code cells of a page's notebook. names: their globals."""
    page.open_page(shown)
    for cell in page.notebook_cells(shown.notebook):
        shown.cell = cell.number
        if cell.kind == "code":
            exec(compile(cell.source, shown.place, "exec"), names)


class Elements(HTMLParser):
    """The elements and the text of a piece of HTML, as a browser's tokenizer sees them."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def linear(colour: str) -> np.ndarray:
    """Linear RGB of "#rrggbb", 0 to 1 (IEC 61966-2-1)."""
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours (WCAG 2.2)."""
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (a, b))
    return (high + 0.05) / (low + 0.05)
