"""Which points and curves the claims of this chapter compare."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.graph_walk.analysis import SIZE, Analysis
from experiments.graph_walk.grid import MANY_VERTICES, VERTEX_BYTES, most_vertices
from tlb.inference.curves import Curve
from tlb.inference.intervals import Interval
from tlb.lab.grid import Scope
from tlb.lab.record import Point
from tlb.page_sizes import BASE, words
from tlb.reasons import required
from tlb.report.verdicts import points_of

PLATEAU = 256 << 20, 1 << 30  # bytes, "hundreds of megabytes"
_HOP_BY_HOP = {"mode": "plain", "per_hop": 1}
_IN_BATCHES = {"mode": "plain", "per_hop": None, "walkers": None}


def _past_half(scope: Scope) -> int:
    """Vertices of a graph that is larger than half of the largest working set."""
    return scope.profile.max_working_set // 2 // VERTEX_BYTES + 1


def _reach(scope: Scope) -> float:
    """Vertices in the reach of the last TLB level."""
    return max(scope.entries, default=0) * scope.base_page_bytes / VERTEX_BYTES


hop_by_hop = points_of("graph_walk", **_HOP_BY_HOP)
in_batches = points_of("graph_walk", **_IN_BATCHES)
largest_hop_by_hop = points_of("graph_walk", **_HOP_BY_HOP, low=_past_half)
largest_in_batches = points_of("graph_walk", **_IN_BATCHES, low=_past_half)
around_the_reach = points_of(
    "graph_walk",
    **_IN_BATCHES,
    low=lambda scope: _reach(scope) / 8,
    high=lambda scope: 5.7 * _reach(scope),
)
on_the_plateau = points_of(
    "graph_walk", **_HOP_BY_HOP, low=PLATEAU[0] // VERTEX_BYTES, high=PLATEAU[1] // VERTEX_BYTES
)


def one_or_more_walkers(point: Point, scope: Scope) -> bool:
    if point.kernel == "graph_walk" and "walkers" in dict(point.options):
        return True
    return in_batches(point, scope) and point.lines == min(MANY_VERTICES, most_vertices(scope))


def base(curves: Mapping[str, Curve]) -> Curve:
    return required(curves.get(BASE, ()), "no walk on base pages was timed hop by hop")


def walks_per_hop(a: Analysis, pages: str) -> Curve:
    """Return the walks per hop of one walker, by size. Raises Unavailable("no-pmu")."""
    return required(a.counted.get(pages, ()), f"no walks were counted on {words(pages)}", "no-pmu")


def cycles_per_hop(a: Analysis, pages: str, quantity: str) -> Curve:
    """Return a count of cycles per hop of one walker, by size. Raises
    Unavailable("no-walk-cycle-event")."""
    curve = Curve.of(a.walks(0, walkers=1, pages=pages), SIZE, f"{quantity}_per_access")
    return required(curve, f"{quantity} on {words(pages)}", "no-walk-cycle-event")


def at_largest(base: Curve, large: Curve) -> tuple[Interval, Interval]:
    """Return both at the largest size that both have. Raises Unavailable("too-few-points")."""
    size = max(required(set(base.xs) & set(large.xs), "no size was counted on both"))
    return base.get(size), large.get(size)
