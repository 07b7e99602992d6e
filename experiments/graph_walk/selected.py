"""Which points and curves the claims of this chapter compare."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.graph_walk.analysis import SIZE, Analysis
from experiments.graph_walk.grid import VERTEX_BYTES
from tlb.inference.curves import Curve
from tlb.inference.intervals import Interval
from tlb.lab.grid import Scope
from tlb.lab.record import Point
from tlb.page_sizes import BASE, words
from tlb.reasons import required


def hop_by_hop(point: Point, scope: Scope) -> bool:
    return (
        point.kernel == "graph_walk" and point.mode == "plain" and ("per_hop", 1) in point.options
    )


def largest_hop_by_hop(point: Point, scope: Scope) -> bool:
    return (
        hop_by_hop(point, scope) and point.lines * VERTEX_BYTES > scope.profile.max_working_set / 2
    )


def in_batches(point: Point, scope: Scope) -> bool:
    return (
        point.kernel == "graph_walk"
        and point.mode == "plain"
        and not {"per_hop", "walkers"} & dict(point.options).keys()
    )


def largest_in_batches(point: Point, scope: Scope) -> bool:
    return (
        in_batches(point, scope) and point.lines * VERTEX_BYTES > scope.profile.max_working_set / 2
    )


def around_the_reach(point: Point, scope: Scope) -> bool:
    reach = max(scope.entries, default=0) * scope.base_page_bytes
    return in_batches(point, scope) and reach / 8 <= point.lines * VERTEX_BYTES <= 5.7 * reach


def base(curves: Mapping[str, Curve]) -> Curve:
    return required(curves.get(BASE, ()), "no walk on base pages was timed hop by hop")


def walks_per_hop(a: Analysis, pages: str) -> Curve:
    """Return the walks per hop of one walker, by size. Raises Unavailable("no-pmu")."""
    return required(a.counted.get(pages, ()), f"no walks were counted on {words(pages)}", "no-pmu")


def cycles_per_hop(a: Analysis, pages: str, quantity: str) -> Curve:
    """Return a count of cycles per hop of one walker, by size. Raises
    Unavailable("no-walk-cycle-event")."""
    rows, column = a.walks(0, walkers=1, pages=pages), f"{quantity}_per_access"
    return required(
        Curve.of(rows, SIZE, column) if column in rows else (),
        f"{quantity} on {words(pages)}",
        "no-walk-cycle-event",
    )


def at_largest(base: Curve, large: Curve) -> tuple[Interval, Interval]:
    """Return both at the largest size that both have. Raises Unavailable("too-few-points")."""
    size = max(required(set(base.xs) & set(large.xs), "no size was counted on both"))
    return base.get(size), large.get(size)
