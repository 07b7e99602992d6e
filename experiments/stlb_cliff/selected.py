"""Which points the claims of this chapter compare."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from tlb.measure.grid import Scope
from tlb.report.verdicts import Compares, points_of
from tlb.stats.curves import last_level_plateau
from tlb.system.page_sizes import BASE

# Of the last level's entries: the published sizes around its reach are two doublings apart.
HALF_TO_TWICE = (0.5, 2.0)
_BOTH: dict[str, Any] = {
    "pages": BASE,
    "mode": "",
    "order": "cycle",
    "layout": ("spread", "packed"),
}


def selected_chase(
    *layouts: str, order: tuple[str, ...] = ("cycle",), low: float = 0.0, high: float = inf
) -> Compares:
    """Select the chase on base pages, between multiples of the last level's entries."""

    def times(factor: float) -> Callable[[Scope], float]:
        return lambda scope: max(scope.entries, default=0) * factor

    return points_of(
        "page_chase",
        **_BOTH | {"layout": layouts, "order": order},
        low=times(low * 0.7),
        high=inf if high == inf else times(high * 1.5),
    )


def selected_gather(*sizes: int, layouts: tuple[str, ...] = ("spread",)) -> Compares:
    """Select the published loop over these sizes in bytes, by default around the last level's
    reach."""

    def lines(scope: Scope) -> tuple[int, ...]:
        around = [round(max(scope.entries, default=0) * times) for times in HALF_TO_TWICE]
        return tuple([scope.lines(size) for size in sizes] or around)

    return points_of("page_gather", pages=BASE, layout=layouts, lines=lines)


def _plateau(scope: Scope) -> tuple[float, float]:
    entries = scope.entries or (0,)
    return last_level_plateau(min(entries), max(entries))


gather_inside_the_last_level = points_of(
    "page_gather",
    pages=BASE,
    layout="spread",
    low=lambda scope: _plateau(scope)[0],
    high=lambda scope: _plateau(scope)[1],
)
# The two largest sizes of the chase and its control.
largest_chases = points_of("page_chase", **_BOTH, low=lambda scope: scope.most_lines / 4)
chase_of_one_gib = points_of("page_chase", **_BOTH, lines=lambda scope: scope.lines(1 << 30))
chase_of_half_a_gib = points_of(
    "page_chase", **_BOTH, lines=lambda scope: (scope.lines(1 << 29), scope.lines(1 << 30))
)
chases_near_first_level = points_of(
    "page_chase", **_BOTH, high=lambda scope: 4 * min(scope.entries, default=0)
)
