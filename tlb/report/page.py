"""What a notebook writes on its page, and its cells run without Jupyter.

`say` renders a text with numbers. A cell of a notebook that defines a name (`price = spread -
packed`) is its only definition; code that needs the name elsewhere runs the page's cells (`run`).
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd
from IPython import get_ipython
from IPython.display import display

from tlb.report.quantities import LACKING
from tlb.report.render import Html, lacking_note
from tlb.stats.intervals import Interval
from tlb.system.files import ROOT
from tlb.system.prose import escape_markdown, in_words, listed
from tlb.system.reasons import Unavailable, required
from tlb.system.units import format_size

BOOK = ROOT / "book"
ABSENT = Html('<p class="tlb-absent">–</p>', "–")  # in the place of what a machine lacks
_MARKDOWN = "text/markdown"
PAGE = "_page"  # the name of a notebook's Page among its globals


class PageError(Exception):
    """A mistake in a notebook's own cells; the message names notebook and cell."""

    def _render_traceback_(self) -> list[str]:
        return [f"PageError: {self}"]


class Text(NamedTuple):
    """Markdown for the page, in MyST's dialect."""

    markdown: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {_MARKDOWN: self.markdown, "text/plain": self.markdown}


@dataclass
class Page:
    """Shows what the cells of a notebook make, unless it runs them for their definitions alone.

    is_reference: whether it is about the reference machine, as committed. Another machine's page
    has the same text, which is about the reference, and a dash in the place of what it lacks.
    """

    notebook: str
    put: Callable[[Any], object] = display
    only_defines: bool = False
    cell: int | None = None  # the number of the cell that runs; None asks IPython
    is_reference: bool = True
    reasons: set[str] = field(default_factory=set)  # each is given once on a page
    texts: set[int | str] = field(default_factory=set)  # cells whose committed text was shown

    @property
    def place(self) -> str:
        return f"{self.notebook}.ipynb, cell {self._cell}"

    @property
    def _cell(self) -> int | str:
        shell = get_ipython()
        return self.cell or (shell.execution_count if shell else "?")

    def show_committed_text(self) -> None:
        """Show, once for each cell, the texts that it has in the committed notebook."""
        if self.only_defines or self._cell in self.texts:
            return
        self.texts.add(self._cell)
        shell = get_ipython()
        source = shell.user_ns["In"][-1].strip() if shell else ""
        for cell in cells(self.notebook):
            if cell.number == self.cell or (cell.kind == "code" and cell.source.strip() == source):
                for text in cell.texts:
                    self.put(Text(text))

    def show(
        self, make: Callable[[], Any], instead: Callable[[str], Any] = lambda reason: None
    ) -> None:
        """Show what `make` returns. If it raises Unavailable, give the reason once a page, and show
        `instead` of the reason, which is empty if it is given elsewhere."""
        if self.only_defines:
            return
        try:
            made = make()
        except Unavailable as why:
            reason = "" if str(why) in self.reasons else str(why)
            self.reasons.add(str(why))
            made = instead(reason)
            if made is None and self.is_reference and reason:
                made = lacking_note(reason)
        if made is not None:
            self.put(made)


def current_page() -> tuple[Page, dict[str, Any]]:
    """Return the page of the cell that called a function of this module, and its globals."""
    names = sys._getframe(2).f_globals
    return names.get(PAGE) or Page(str(names.get("__name__", "notebook"))), names


# --- text with numbers


def _number(value: Any) -> float | Interval:
    """Raises Unavailable("too-few-points") for NaN, which is what too few processes give."""
    if isinstance(value, Unavailable):
        raise TypeError(f"a number is needed where there is a reason: {value.code}")
    if isinstance(value, bool) or value is None:
        raise TypeError(f"{value!r} is no number")
    known = value.value if isinstance(value, Interval) else value
    if math.isnan(known):
        raise Unavailable("too-few-points", "too few for a number of this page")
    if math.isinf(known):
        raise TypeError(f"{value!r} is no number")
    return value if isinstance(value, Interval) else float(value)


def _num(value: Any, decimals: int = 0, unit: str = "") -> str:
    """1234.5 as "1,234"; an Interval as "1.5 (1.4 to 1.6)"."""
    return f"{_number(value):z,.{decimals}f}{unit}"


FILTERS: dict[str, Callable[..., str]] = {
    "num": _num,
    "digits": lambda value, digits=3: f"{_number(value):z.{digits}g}",  # 0.01234 as "0.0123"
    "ns": lambda value, decimals=0: _num(value, decimals, " ns"),
    "ratio": lambda value, decimals=1: _num(value, decimals, "x"),
    "share": lambda value, decimals=0: f"{_number(value):z.{decimals}%}",  # 0.123 as "12%"
    "size": lambda value: format_size(int(_number(value))),  # type: ignore[arg-type]
    "words": lambda value: in_words(int(_number(value))),  # type: ignore[arg-type]
    "listed": listed,
    "plain": escape_markdown,  # of a machine's own words
}


class _Absent(jinja2.StrictUndefined):
    """An error for a name that no cell defines; for an entry that a table of measurements lacks,
    the reason that it was not measured."""

    __slots__ = ()

    def __init__(self, hint: str | None = None, obj: Any = None, name: Any = None, **more: Any):
        if isinstance(obj, (dict, list, pd.Series, pd.DataFrame)):
            raise Unavailable("too-few-points", f"{name} was not measured")
        super().__init__(hint, jinja2.utils.missing if obj is None else obj, name, **more)


_JINJA = jinja2.Environment(
    undefined=_Absent, trim_blocks=True, lstrip_blocks=True, autoescape=False
)
_JINJA.filters |= FILTERS
_JINJA.globals |= {"required": required, "set": set}


def say(template: str) -> None:
    """Show a text with numbers: MyST Markdown as a Jinja2 template over the page's names, `{{
    price.last | ns(1) }}`.

    The text is about the reference machine: on the page of another it is the committed one. Raises
    PageError for an undefined name, a filter on something else than a number, and a template that
    Jinja cannot read.
    """
    page, names = current_page()
    if page.is_reference:
        _render(page, names, template)
    else:
        page.show_committed_text()


def describe(template: str) -> None:
    """Show the facts of a page's own machine (its settings, what was measured) as `say` shows a
    text."""
    page, names = current_page()
    _render(page, names, template)


def _render(page: Page, names: dict[str, Any], template: str) -> None:
    def text() -> Text | None:
        markdown = _JINJA.from_string(template).render(names).strip()
        if LACKING in markdown:
            raise PageError(
                f"{page.place}: the text needs a number that was not recorded: {markdown}"
            )
        return Text(markdown) if markdown else None

    try:
        page.show(text)
    except (jinja2.TemplateError, TypeError, ValueError, NameError) as error:
        raise PageError(f"{page.place}: {error}") from error


# --- the cells of a notebook


class Cell(NamedTuple):
    number: int  # from 1, of the code cells
    kind: str
    source: str
    metadata: dict[str, Any]
    outputs: tuple[dict[str, Any], ...] = ()  # as committed

    @property
    def texts(self) -> list[str]:
        """The Markdown among its outputs."""
        found = ("".join(out.get("data", {}).get(_MARKDOWN, "")) for out in self.outputs)
        return [text for text in found if text]


@cache
def _cells(path: Path, changed_ns: int) -> tuple[Cell, ...]:
    """changed_ns: when the file changed, so that a changed one is read again."""
    number, cells = 0, []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        number += cell["cell_type"] == "code"
        source, outputs = "".join(cell["source"]), tuple(cell.get("outputs", ()))
        cells.append(Cell(number, cell["cell_type"], source, cell["metadata"], outputs))
    return tuple(cells)


def cells(notebook: str) -> tuple[Cell, ...]:
    """Return the cells of a notebook of the book, in their order."""
    path = BOOK / f"{notebook}.ipynb"
    return _cells(path, path.stat().st_mtime_ns)


def check(notebook: str) -> None:
    """Raise PageError for a figure whose cell's metadata lack a caption or a unique name."""
    named: dict[str, int] = {}
    for cell in cells(notebook):
        if cell.kind != "code" or not re.search(r"^(figure|show_chart)\(", cell.source, re.M):
            continue
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        place, name = f"{notebook}.ipynb, cell {cell.number}", figure.get("name")
        if not name or not figure.get("caption"):
            raise PageError(f"{place}: set name and caption of the figure in mystnb: figure")
        if name in named:
            raise PageError(f"{place}: cell {named[name]} has a figure of the name {name} already")
        named[name] = cell.number


def run(page: Page, names: dict[str, Any], within: tuple[Cell, ...] | None = None) -> None:
    """Run the code cells of a page's notebook but those for its parameters and its rows.

    names: the globals of the cells. within: other cells in place of the notebook's.
    """
    names[PAGE] = page
    for cell in within or cells(page.notebook):
        page.cell = cell.number
        sets_up = {"parameters", "injected-parameters"} & {*cell.metadata.get("tags", ())}
        if cell.kind == "code" and not sets_up and "begin(" not in cell.source:
            exec(compile(cell.source, page.place, "exec"), names)
