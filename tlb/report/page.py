"""What a notebook writes on its page: the line at its head, texts with numbers; and the cells of a
committed notebook."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from IPython import get_ipython
from IPython.display import display

from tlb.measure.store import Store
from tlb.report.card import machine_display_name
from tlb.report.quantities import ABSENT_TEXT_MARK, FEW_MAPPINGS_MARK, Quantities
from tlb.report.render import FEW_MAPPINGS_NOTE, Html, inline_html
from tlb.stats.intervals import without_bounds_of_few
from tlb.system.files import ROOT

BOOK_FOLDER = ROOT / "book"
_MARKDOWN = "text/markdown"


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
    """The page that the cells of a notebook write.

    is_reference: whether it is about the reference machine, as committed. Another machine's page
    has the same text, which is about the reference, and a dash in the place of what it lacks.
    is_this: whether it is about this computer. few_mappings: how many mappings its points have,
    if too few to show intervals, else ""; has_few_mappings: whether some have
    fewer than decide. beside: the page about another machine that is shown in grey; None for the
    reference. machine: its name on pages. base_pages: the size of its base pages and of those of
    the machine in grey, where these differ. head: the line at the head, if it has one.
    tables, quantities: what its charts draw, by the drawing function, and what its table shows.
    """

    notebook: str
    put: Callable[[Any], object] = display
    cell: int | None = None  # the number of the cell that runs; None asks IPython
    is_reference: bool = True
    is_this: bool = False
    few_mappings: str = ""
    has_few_mappings: bool = False
    machine: str = ""
    base_pages: tuple[str, str] = ("", "")
    head: CompletenessLine | None = None
    beside: Page | None = None
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    quantities: Quantities | None = None
    texts: set[int | str] = field(default_factory=set)  # cells whose committed text was shown
    printed: set[int | str] = field(default_factory=set)  # cells that printed under `heading`

    @property
    def place(self) -> str:
        return f"{self.notebook}.ipynb, cell {self._cell}"

    @property
    def _cell(self) -> int | str:
        shell = get_ipython()
        return self.cell or (shell.execution_count if shell else "?")

    @property
    def heading(self) -> str:
        """The machine at the beginning of a line."""
        return self.machine[:1].upper() + self.machine[1:]

    @property
    def output_heading(self) -> str:
        """The line above what a cell prints or shows as a table."""
        few = " (some may be of fewer than five mappings)" if self.has_few_mappings else ""
        if self.few_mappings:
            few = f" ({self.few_mappings}: no intervals, may be far off)"
        return f"{self.heading}{few}:"

    def committed_cell(self) -> Cell | None:
        """Return the cell that runs as the committed notebook has it; None if that lacks it."""
        shell = get_ipython()
        source = shell.user_ns["In"][-1].strip() if shell else ""
        for cell in notebook_cells(self.notebook):
            if cell.number == self.cell or (cell.kind == "code" and cell.source.strip() == source):
                return cell
        return None

    def print(self, *values: object, **how: Any) -> None:
        """Print as `print` does, in each cell below a line that says whose numbers these are."""
        if self._cell not in self.printed:
            self.printed.add(self._cell)
            print(self.output_heading)
        print(*values, **how)

    def show_committed_text(self) -> None:
        """Show, once for each cell, the texts that it has in the committed notebook."""
        if self._cell in self.texts:
            return
        self.texts.add(self._cell)
        if cell := self.committed_cell():
            for text in cell.texts:
                self.put(Text(text))


_open: list[Page] = []  # the page of the notebook that runs in this process, if one does


def open_page(page: Page) -> None:
    """Make a page the one that cells write on: `begin` does."""
    _open[:] = [page]


def current_page() -> Page:
    """Return the page that cells write on. Raises PageError before `begin`."""
    if not _open:
        raise PageError("A page begins with `chapter = begin(NAME, globals())`.")
    return _open[0]


_MACHINE = "machine"  # the column or index that names each row's machine


def name_frames() -> None:
    """Let a frame that a cell shows say whose numbers it has, on the page of another machine than
    the reference."""
    if (shell := get_ipython()) is None:
        return
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.pop(pd.DataFrame, None)
    if not current_page().is_reference:
        formatter.for_type(pd.DataFrame, _named_frame)


def _named_frame(frame: pd.DataFrame) -> str:
    """Return a frame as HTML below the name of its machine, unless it is the committed one, of
    published machines, or names a machine in each row. Rows and columns of which nothing is known
    are left out."""
    shown = current_page()
    if _names_machines(frame, shown.machine):
        return _frame_of_machines(frame, shown)
    outputs = cell.outputs if (cell := shown.committed_cell()) else ()
    committed = ["".join(one.get("data", {}).get("text/html", "")) for one in outputs]
    if frame.to_html(notebook=True) in committed:
        return _frame_html(frame)
    known = _without_ratios(frame) if shown.few_mappings else frame
    known = without_bounds_of_few(known).dropna(how="all").dropna(how="all", axis="columns")
    heading, html = shown.output_heading, _frame_html(known)
    if known.empty:
        heading, html = f"{shown.heading}: too little is known for this table.", ""
    return f'<p class="tlb-beside" role="note">{heading}</p>{html}'


_RATIOS = "ratios"  # of a frame's attributes: the labels of rows and columns that compare two times


def mark_ratios(frame: pd.DataFrame, *labels: str) -> pd.DataFrame:
    """Return a frame to show whose rows or columns of these labels compare two times, all without a
    label: where there are too few mappings to compare, a page leaves them out."""
    frame.attrs[_RATIOS] = labels or (*frame.columns,)
    return frame


def _without_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    ratios = [*frame.attrs.get(_RATIOS, ())]
    return frame.drop(index=ratios, columns=ratios, errors="ignore")


def _frame_html(frame: pd.DataFrame) -> str:
    return without_bounds_of_few(frame).to_html(na_rep="–", notebook=True)


def _names_machines(frame: pd.DataFrame, machine: str) -> bool:
    """Return whether a frame names a machine in each row: in a column or an index of that name, or
    in an index that has this one among others."""
    is_named = _MACHINE in {*frame.columns, *frame.index.names}
    return is_named or bool(frame.index.to_frame().isin([machine]).to_numpy().any())


def _frame_of_machines(frame: pd.DataFrame, shown: Page) -> str:
    """Return a frame that names a machine in each row as HTML. Of too few mappings, the page's own
    machine is marked, unless the frame has counts alone, which one mapping settles."""
    if not shown.few_mappings or frame.select_dtypes("float").empty:
        return _frame_html(frame)
    marked = {shown.machine: f"{shown.machine}{FEW_MAPPINGS_MARK}"}
    named = frame.rename(index=marked)
    if _MACHINE in frame:
        named[_MACHINE] = named[_MACHINE].replace(marked)
    html, plain = _frame_html(named), _frame_html(frame)
    return html if html == plain else html + FEW_MAPPINGS_NOTE.markup


def say(text: str) -> None:
    """Show a text with numbers: MyST Markdown, an f-string over quantities.

    The text is about the reference machine: on the page of another it is the committed one. Raises
    PageError for a quantity that the reference lacks.
    """
    page = current_page()
    if not page.is_reference:
        page.show_committed_text()
        return
    if ABSENT_TEXT_MARK in text:
        raise PageError(f"{page.place}: the text needs a number that was not recorded: {text}")
    page.put(Text(text.strip()))


def show_facts(text: str) -> None:
    """Show facts of the page's own machine (its settings, what was measured), as `say` shows a
    text; nothing for an empty one."""
    if text.strip():
        current_page().put(Text(text.strip()))


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


def notebook_cells(notebook: str) -> tuple[Cell, ...]:
    """Return the cells of a notebook of the book, in their order."""
    path = BOOK_FOLDER / f"{notebook}.ipynb"
    return _cells(path, path.stat().st_mtime_ns)


def check(notebook: str) -> None:
    """Raise PageError for a figure whose cell's metadata lack a caption or a unique name."""
    named: dict[str, int] = {}
    for cell in notebook_cells(notebook):
        if cell.kind != "code" or not re.search(r"^show_chart\(", cell.source, re.M):
            continue
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        place, name = f"{notebook}.ipynb, cell {cell.number}", figure.get("name")
        if not name or not figure.get("caption"):
            raise PageError(f"{place}: set name and caption of the figure in mystnb: figure")
        if name in named:
            raise PageError(f"{place}: cell {named[name]} has a figure of the name {name} already")
        named[name] = cell.number


class CompletenessLine:
    """The line at the head of a page about another machine than the reference: whose the text is,
    and how much was measured. Stands where it is made, and is put right when more was measured.
    Outside a notebook it shows nothing.

    chapter: its name. shown: whose the figures are, as Markdown. beside: the machine in grey, ""
    for the reference. few_mappings: as of a Page. base_page: the size of the machine's base pages,
    if the reference has others. namesake: what texts call a published machine, if this computer has
    the same microarchitecture. has_rows: whether any row of the machine was read.
    """

    def __init__(
        self,
        chapter: str,
        shown: str,
        beside: str = "",
        *,
        few_mappings: str = "",
        base_page: str = "",
        namesake: str = "",
    ):
        self._chapter, self._shown, self._beside = chapter, shown, beside
        self._namesake = namesake
        self._is_empty, self._few_mappings, self._base_page = False, few_mappings, base_page
        self.has_rows = False
        self._handle = display(self._line({}), display_id=True) if get_ipython() else None

    def update(self, left_out: Mapping[str, tuple[int, int]]) -> None:
        """left_out: by grid, the measurements that are missing, and of how many."""
        if self._handle:
            self._handle.update(self._line(left_out))

    def say_nothing_is_measured(self) -> None:
        """Say so in place of where the numbers of the machine are: the page shows none."""
        self._is_empty = True
        self.update({})

    def _line(self, left_out: Mapping[str, tuple[int, int]]) -> Html:
        missing, every = (sum(count[side] for count in left_out.values()) for side in (0, 1))
        done = [f"base pages of {self._base_page}"] if self._base_page else []
        done += [f"{every - missing:,} of {every:,} measurements"] if missing else []
        done += [self._few_mappings] if self._few_mappings and not self._is_empty else []
        text = self._about() + (f" ({', '.join(done)})." if done else ".")
        text += f" “{self._namesake}” is the published guest." if self._namesake else ""
        return Html(f'<p class="tlb-head-line" role="note">{inline_html(text)}</p>', text)

    def _about(self) -> str:
        """Say what the text is about, and where on the page the machine's numbers are, without the
        last stop."""
        shown = [
            cell.source
            for cell in notebook_cells(self._chapter)
            if cell.kind == "code" and "remove-cell" not in cell.metadata.get("tags", [])
        ]
        source = "\n".join(shown)
        if "on_this_computer(" not in source:
            return f"Text and captions: the published machines. Where noted: {self._shown}"
        published = Store(ROOT / "data")  # beside the committed text
        reference = machine_display_name(published, published.reference(self._chapter))
        if self._is_empty:
            return f"Text and captions: the reference ({reference}). No quantity is known yet of {self._shown}"
        beside = f" beside {self._beside}" if self._beside else ""
        where = "Where noted" if "show_chart(" in source else "Table"
        return f"Text and captions: the reference ({reference}). {where}: {self._shown}{beside}"
