"""What a notebook writes on its page, and its cells run without Jupyter.

`say` renders a text with numbers. A cell of a notebook that defines a name (`price = spread -
packed`) is its only definition; code that needs the name elsewhere runs the page's cells (`run`).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd
from IPython import get_ipython
from IPython.display import DisplayHandle, display

from tlb.report.render import Html, lacking_note
from tlb.stats.intervals import Interval
from tlb.system.files import ROOT
from tlb.system.prose import escape_markdown, in_words, listed
from tlb.system.reasons import Unavailable, explain, required
from tlb.system.units import format_size

BOOK = ROOT / "book"
PAGE = "_page"  # the name of a notebook's Page among its globals


class PageError(Exception):
    """A mistake in a notebook's own cells; the message names notebook and cell."""

    def _render_traceback_(self) -> list[str]:
        return [f"PageError: {self}"]


class Text(NamedTuple):
    """Markdown for the page, in MyST's dialect."""

    markdown: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/markdown": self.markdown, "text/plain": self.markdown}


@dataclass
class Page:
    """Shows what the cells of a notebook make, unless it runs them for their definitions alone.

    box: lists what the machine lacks at the head of the page; without it, each reason is shown once
    in the place of what is lacking.
    """

    notebook: str
    put: Callable[[Any], object] = display
    only_defines: bool = False
    cell: int | None = None  # the number of the cell that runs; None asks IPython
    box: LackingBox | None = None
    reasons: set[str] = field(default_factory=set)  # each is given once on a page

    @property
    def place(self) -> str:
        shell = get_ipython()
        cell = self.cell or (shell.execution_count if shell else "?")
        return f"{self.notebook}.ipynb, cell {cell}"

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
            reason = "" if self.box or str(why) in self.reasons else str(why)
            self.reasons.add(str(why))
            if self.box:
                self.box.add(why)
            made = instead(reason) or (lacking_note(reason) if reason else None)
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

    A number that this machine lacks shows its reason in the text's place, once a page. Raises
    PageError for an undefined name, a filter on something else than a number, and a template that
    Jinja cannot read.
    """
    page, names = current_page()

    def text() -> Text | None:
        markdown = _JINJA.from_string(template).render(names).strip()
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


@cache
def _cells(path: Path, changed_ns: int) -> tuple[Cell, ...]:
    """changed_ns: when the file changed, so that a changed one is read again."""
    number, cells = 0, []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        number += cell["cell_type"] == "code"
        cells.append(Cell(number, cell["cell_type"], "".join(cell["source"]), cell["metadata"]))
    return tuple(cells)


def cells(notebook: str) -> tuple[Cell, ...]:
    """Return the cells of a notebook of the book, in their order."""
    path = BOOK / f"{notebook}.ipynb"
    return _cells(path, path.stat().st_mtime_ns)


def check(notebook: str) -> None:
    """Raise PageError for a figure whose cell's metadata lack a caption or a unique name."""
    named: dict[str, int] = {}
    for cell in cells(notebook):
        if cell.kind != "code" or "figure(" not in cell.source:
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


# --- the box at the head of a page: what the machine lacks, each reason once, and what to run

# What measuring again may remove.
_MEASURABLE = frozenset({"no-data", "no-time", "too-few-points"})
_MOST_DETAILS = 3  # of one reason


class LackingBox:
    """A box that grows while the cells below it run. advice: what to run if measuring may help."""

    def __init__(self, handle: DisplayHandle, advice: str):
        self._handle, self._advice = handle, advice
        self._details: dict[str, list[str]] = {}  # by reason code

    def add(self, why: Unavailable) -> None:
        """List a reason; of several with one code, the sentence once and up to three details."""
        details = self._details.setdefault(why.code, [])
        if why.detail and why.detail not in details:
            details.append(why.detail)
        self._handle.update(lacking_note(*self._reasons()))

    def _reasons(self) -> list[str]:
        reasons = []
        for code, details in self._details.items():
            # Of missing results the details are names of files.
            shown = "; ".join(details[:_MOST_DETAILS]) if code != "no-data" else ""
            if shown and (more := len(details[_MOST_DETAILS:])):
                shown += f"; and {more} more"
            reasons.append(explain(code, shown))
        return reasons + [self._advice] * bool(self._details.keys() & _MEASURABLE)


def box_here(advice: str) -> LackingBox | None:
    """Show a box, invisible while it lists nothing; None outside a notebook."""
    if get_ipython() is None:
        return None
    return LackingBox(display(Html("", ""), display_id=True), advice)
