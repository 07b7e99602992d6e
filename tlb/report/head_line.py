"""The line at the head of a page about another machine than the reference: whose the text is, and
how much was measured."""

from __future__ import annotations

from collections.abc import Mapping

from IPython import get_ipython
from IPython.display import display

from tlb.measure.store import Store
from tlb.report.names import machine_name
from tlb.report.page import notebook_cells
from tlb.report.render import Html, inline_html
from tlb.system.files import ROOT


class CompletenessLine:
    """Stands where it is made, and is put right when more was measured. Outside a notebook it
    shows nothing.

    chapter: its name. shown: whose the figures are, as Markdown.
    """

    def __init__(self, chapter: str, shown: str):
        self._chapter, self._shown = chapter, shown
        self._handle = display(self._line({}), display_id=True) if get_ipython() else None

    def update(self, left_out: Mapping[str, tuple[int, int]]) -> None:
        """left_out: by grid, the measurements that are missing, and of how many."""
        if self._handle:
            self._handle.update(self._line(left_out))

    def _line(self, left_out: Mapping[str, tuple[int, int]]) -> Html:
        missing, every = (sum(count[side] for count in left_out.values()) for side in (0, 1))
        done = f", {every - missing:,} of {every:,} measurements" if missing else ""
        text = f"{self._about()}{done}."
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
            return f"Text: the published machines. Added in tables: {self._shown}"
        published = Store(ROOT / "data")  # beside the committed text
        reference = machine_name(published, published.reference(self._chapter))
        if "show_chart(" not in source:
            return f"Text: the reference ({reference}). Table: {self._shown}"
        return f"Text and grey: the reference ({reference}). Colour: {self._shown}"
