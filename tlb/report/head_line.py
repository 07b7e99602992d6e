"""The line at the head of a page about another machine than the reference: whose the text is, and
how much was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython import get_ipython
from IPython.display import display

from tlb.measure.store import Store
from tlb.report.render import Html, inline
from tlb.system.files import ROOT

if TYPE_CHECKING:
    from tlb.report.chapter import Subject


class HeadLine:
    """Stands where it is made, and is put right when more was measured. Outside a notebook it
    shows nothing."""

    def __init__(self, about: Subject):
        self._about = about
        self._handle = display(self._line(), display_id=True) if get_ipython() else None

    def update(self) -> None:
        if self._handle:
            self._handle.update(self._line())

    def _line(self) -> Html:
        about = self._about
        published = Store(ROOT / "data")  # beside the committed text
        reference = published.read_machine(published.reference(about.name))["microarchitecture"]
        text = (
            f"The text is about our reference machine ({reference}); figures and "
            f"tables show {'this computer' if about.is_this else f'`{about.machine}`'}."
        )
        if skipped := sum(skipped for skipped, _ in about.left_out.values()):
            done = 1 - skipped / sum(every for _, every in about.left_out.values())
            text += f" {done:.0%} of it is measured; `.venv/bin/tlb run {about.name}` goes on."
        markup = f'<p class="tlb-head-line" role="note">{inline(text)}</p>'
        return Html(markup, text)
