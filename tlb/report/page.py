"""What a notebook writes on its page, and its cells run without Jupyter.

`say` renders a text with numbers, `figure` and `table` show what a function makes of the page's
Analysis. A cell of a notebook that defines a name (`price = spread - packed`) is its only
definition: who needs the name elsewhere runs the page's cells (`definitions`).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
import pandas as pd
from IPython import get_ipython
from IPython.display import display

from tlb.inference.intervals import Interval
from tlb.prose import escape_markdown, in_words, listed
from tlb.reasons import Unavailable, required
from tlb.report.render import Figure, Html, lacking_note
from tlb.system.files import ROOT
from tlb.units import format_size

if TYPE_CHECKING:
    from tlb.report.analysis import Analysis

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
    """Where the cells of a notebook put what they show. A page that only defines shows nothing."""

    notebook: str
    put: Callable[[Any], object] = display
    only_defines: bool = False
    cell: int | None = None  # the number of the cell that runs; None asks IPython
    reasons: set[str] = field(default_factory=set)  # each is given once on a page

    @property
    def place(self) -> str:
        shell = get_ipython()
        return (
            f"{self.notebook}.ipynb, cell {self.cell or (shell.execution_count if shell else '?')}"
        )

    def lacking(self, why: Unavailable, in_its_place: bool = False) -> None:
        """Put a reason on the page, once; again only where something has to stand in its place, and
        then without its words."""
        if str(why) not in self.reasons:
            self.reasons.add(str(why))
            self.put(lacking_note(str(why)))
        elif in_its_place:
            self.put(lacking_note("For the reason given above."))


def _caller() -> dict[str, Any]:
    """Return the globals of the cell that called a function of this module."""
    return sys._getframe(2).f_globals


def _page(names: Mapping[str, Any]) -> Page:
    return names.get(PAGE) or Page(str(names.get("__name__", "notebook")))


# --- text with numbers


def _number(value: Any) -> float | Interval:
    if isinstance(value, Unavailable):
        raise TypeError(f"a number is needed where there is a reason: {value.code}")
    if isinstance(value, Interval):
        return value
    if isinstance(value, bool) or value is None or not math.isfinite(value):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _num(value: Any, decimals: int = 0) -> str:
    """1234.5 as "1,234"; of an Interval "1.5 (1.4 to 1.6)"."""
    return f"{_number(value):z,.{decimals}f}"


def _digits(value: Any, digits: int = 3) -> str:
    """0.01234 as "0.0123": so many significant digits."""
    return f"{_number(value):z.{digits}g}"


def _share(value: Any, decimals: int = 0) -> str:
    """0.123 as "12%"."""
    return f"{_number(value):z.{decimals}%}"


FILTERS: dict[str, Callable[..., str]] = {
    "num": _num,
    "digits": _digits,
    "ns": lambda value, decimals=0: f"{_num(value, decimals)} ns",
    "cycles": lambda value, decimals=0: f"{_num(value, decimals)} cycles",
    "ratio": lambda value, decimals=1: f"{_num(value, decimals)}x",
    "share": _share,
    "size": lambda value: format_size(int(_number(value))),  # type: ignore[arg-type]
    "words": lambda value: in_words(int(_number(value))),  # type: ignore[arg-type]
    "listed": listed,
    "plain": escape_markdown,  # of a machine's own words
}


class _Absent(jinja2.StrictUndefined):
    """A name that no cell defines is an error; an entry that a table of measurements lacks was not
    measured."""

    __slots__ = ()

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = None,
        name: Any = None,
        exc: type = jinja2.UndefinedError,
    ) -> None:
        if isinstance(obj, (dict, list, pd.Series, pd.DataFrame)):
            raise Unavailable("too-few-points", f"{name} was not measured")
        super().__init__(hint, jinja2.utils.missing if obj is None else obj, name, exc)


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
    names = _caller()
    page = _page(names)
    if page.only_defines:
        return
    try:
        text = _JINJA.from_string(template).render(names).strip()
    except Unavailable as why:
        page.lacking(why)
    except (jinja2.TemplateError, TypeError, ValueError, NameError) as error:
        raise PageError(f"{page.place}: {error}") from error
    else:
        if text:
            page.put(Text(text))


# --- figures and tables


def figure(make: Callable[[Any], Figure], a: Any) -> None:
    """Show a figure, drawn by a function of the Analysis; in its place the reason where it raises
    Unavailable. Number, name and caption stand in the cell's metadata, `mystnb: {figure: {name,
    caption}}`."""
    from tlb.report.overlay import with_reference  # which runs pages

    page = _page(_caller())
    if page.only_defines:
        return
    try:
        page.put(with_reference(make, a, make(a), is_own=a.about.is_this).named(make.__name__))
    except Unavailable as why:
        page.lacking(why, in_its_place=True)  # of a figure with a number, to which text may refer


def table(make: Callable[[Any], Html], a: Any) -> None:
    """Show a table or another block of HTML made of the Analysis; in its place the reason where it
    raises Unavailable."""
    page = _page(_caller())
    if page.only_defines:
        return
    try:
        page.put(make(a))
    except Unavailable as why:
        page.lacking(why)


def judge(module: ModuleType, a: Analysis, **bands: dict[str, Any]) -> None:
    """Show a chapter's claims as a table, and leave for the page's listings what source measured
    its rows.

    bands: for a predicate by its name, keywords in place of its defaults, as in `judge(claims, a,
    price_is_flat={"most": 1.1})`.
    """
    from tlb.report import sources
    from tlb.report.verdicts import elsewhere, verdict_table, verdicts

    page = _page(_caller())
    if page.only_defines:
        return
    judged = verdict_table(verdicts(module, a, **bands), elsewhere(a.chapter))
    short = [note.text for note in a.notes if note.code == "no-time"]
    page.put(lacking_note(*short, title="Not all was measured") + judged if short else judged)
    if measured_by := sources.measured_by(a.frame):
        page.put(sources.MeasuredBy(measured_by))


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
    """Raise PageError for a cell that shows a figure without a name or a caption, or with a name
    that another one has."""
    named: dict[str, int] = {}
    for cell in cells(notebook):
        if cell.kind != "code" or "figure(" not in cell.source:
            continue
        given = cell.metadata.get("mystnb", {}).get("figure", {})
        place = f"{notebook}.ipynb, cell {cell.number}"
        if not given.get("name") or not given.get("caption"):
            raise PageError(
                f"{place}: a figure has a name and a caption in the cell's metadata, mystnb: figure"
            )
        if other := named.get(given["name"]):
            raise PageError(
                f"{place}: cell {other} has a figure of the name {given['name']} already"
            )
        named[given["name"]] = cell.number


_SETS_UP = ("parameters", "injected-parameters")


def _run(
    notebook: str, page: Page, names: dict[str, Any], within: tuple[Cell, ...] | None = None
) -> Iterator[Cell]:
    """Run the code cells of a notebook but those for its parameters and its rows, and give each
    cell when it is done.

    within: other cells in the place of the notebook's.
    """
    names[PAGE] = page
    for cell in within or cells(notebook):
        page.cell = cell.number
        if (
            cell.kind == "code"
            and not {*cell.metadata.get("tags", ())} & {*_SETS_UP}
            and "begin(" not in cell.source
        ):
            exec(compile(cell.source, f"{notebook}.ipynb, cell {cell.number}", "exec"), names)
        yield cell


def definitions(notebook: str, a: Analysis, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the cells of a notebook define, run over the rows of an Analysis; nothing is
    shown. names: where they are put."""
    names = {} if names is None else names
    names |= {"a": a, "chapter": a.about}
    for _ in _run(notebook, Page(notebook, only_defines=True), names):
        pass
    return names


def written(notebook: str, make: Callable[[dict[str, Any]], Analysis]) -> str:
    """Return the text of a notebook's page about the rows of an Analysis: its Markdown, and what
    its cells show, as text.

    make: gives the Analysis over the names of the page.
    """
    parts: list[str] = []
    names: dict[str, Any] = {}
    a = make(names)
    names |= {"a": a, "chapter": a.about}
    page = Page(notebook, lambda shown: parts.append(_as_text(shown)))
    for cell in _run(notebook, page, names):
        if cell.kind == "markdown":
            parts.append(cell.source)
    return "\n\n".join(parts)


def _as_text(shown: Any) -> str:
    bundle = shown._repr_mimebundle_()
    texts: Mapping[str, str] = bundle[0] if isinstance(bundle, tuple) else bundle
    return texts.get("text/markdown") or texts["text/plain"]
