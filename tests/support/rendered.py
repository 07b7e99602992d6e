"""The book's pages run in this process, with cells as they are or edited, about a published
machine."""

from typing import Any, NamedTuple

from experiments.overview import chapter_name
from tlb.measure.store import Store, data_root
from tlb.report import notebooks, page
from tlb.report.article import Committed
from tlb.report.chapter import Chapter
from tlb.report.render import Figure

CHAPTER_NAMES = [*map(chapter_name, notebooks.chapter_modules())]


class Shown(NamedTuple):
    """What a page shows, as text."""

    texts: tuple[str, ...]
    figures: tuple[str, ...]  # with their data
    verdicts: tuple[str, ...]  # and other tables
    drawn: tuple[Figure, ...] = ()


def render(notebook: str, machine: str) -> Shown:
    """Run a page's cells about a published machine, or this computer without measuring. Raises what a
    cell raises."""
    texts, drawn, tables = list[str](), list[Figure](), list[str]()

    def put(shown: Any) -> None:
        if isinstance(shown, Committed):
            shown = shown.figure
        if isinstance(shown, page.Text):
            texts.append(shown.markdown)
        elif isinstance(shown, Figure):
            drawn.append(shown)
        elif hasattr(shown, "text"):
            tables.append(shown.text)

    given = notebooks.check_parameters(notebook, {"machine": machine, "minutes": 0.0})
    chapter = Chapter(notebook, given, Store(data_root()))
    made = page.Page(notebook, put, is_reference=False, is_this=machine == "this")
    page.open_page(made)
    names: dict[str, Any] = {}
    for cell in page.notebook_cells(notebook):
        if cell.kind == "code":
            made.cell = cell.number
            exec(compile(cell.source, made.place, "exec"), names)
            names |= {"begin": lambda *given: chapter}
    figures = (one.alt + one.csv() for one in drawn)
    return Shown(tuple(texts), tuple(figures), tuple(tables), tuple(drawn))
