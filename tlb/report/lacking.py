"""The box at the head of a page: what the machine lacks, each reason once, and what to run."""

from __future__ import annotations

from IPython import get_ipython
from IPython.display import DisplayHandle, display

from tlb.report.render import Html, lacking_note
from tlb.system.reasons import Unavailable, explain

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
