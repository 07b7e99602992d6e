"""Which points the claims of this chapter compare."""

from __future__ import annotations

from typing import Any

from tlb.report.verdicts import Compares, points_of
from tlb.system.page_sizes import BASE, LARGE


def _chase(packed: bool, **where: Any) -> Compares:
    layout = ("spread", "packed") if packed else "spread"
    return points_of("page_chase", mode="", layout=layout, **where)


def chases_on(*kinds: str, packed: bool = False, low: int = 0, high: int = 1 << 62) -> Compares:
    """Select the chase on these page sizes over working sets between so many bytes."""
    lines = {"low": lambda scope: scope.lines(low), "high": lambda scope: scope.lines(high)}
    return _chase(packed, pages=kinds, **lines)


def near_reach(packed: bool, times: int) -> Compares:
    """Select the chase on base pages and 2 MiB pages up to so many times the TLB's reach."""
    return _chase(
        packed, pages=(BASE, *LARGE), high=lambda scope: times * max(scope.entries, default=0)
    )


def gathers_on(*sizes: int) -> Compares:
    return points_of(
        "page_gather",
        engine="numpy",
        layout="spread",
        lines=lambda scope: tuple(scope.lines(size) for size in sizes),
    )


def touches_of(*sizes: int, kinds: tuple[str, ...] = (BASE, "thp")) -> Compares:
    return points_of("random_touch", pages=kinds, bytes=sizes)
