"""Which points and curves the claims of this chapter compare."""

from __future__ import annotations

from tlb.lab.grid import Scope
from tlb.lab.record import Point
from tlb.page_sizes import BASE, LARGE
from tlb.report.verdicts import Compares


def chased(*kinds: str, packed: bool = False, low: int = 0, high: int = 1 << 62) -> Compares:
    """Select the chase on these page sizes over working sets between so many bytes."""
    return lambda point, scope: (
        point.kernel == "page_chase"
        and (packed or point.layout == "spread")
        and point.pages in kinds
        and not point.mode
        and low <= point.lines * scope.base_page_bytes <= high
    )


def near_reach(packed: bool, times: int) -> Compares:
    """Select the chase on base pages and 2 MiB pages up to so many times the TLB's reach."""

    def compares(point: Point, scope: Scope) -> bool:
        reach = scope.base_page_bytes * max(scope.entries, default=0)
        return chased(BASE, *LARGE, packed=packed, high=times * reach)(point, scope)

    return compares


def gathered(*sizes: int) -> Compares:
    return lambda point, scope: (
        (point.kernel, point.engine, point.layout) == ("page_gather", "numpy", "spread")
        and point.lines in {scope.lines(size) for size in sizes}
    )


def touched(*sizes: int, kinds: tuple[str, ...] = (BASE, "thp")) -> Compares:
    return lambda point, scope: (
        point.kernel == "random_touch"
        and point.pages in kinds
        and dict(point.options).get("bytes") in sizes
    )
