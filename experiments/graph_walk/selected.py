"""Which points, curves and predictions the claims of this chapter compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.graph_walk.analysis import SIZE_COLUMN, Analysis
from experiments.graph_walk.grid import MANY_VERTICES, VERTEX_BYTES, most_vertices
from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.report.verdicts import points_of
from tlb.stats.curves import Curve, select
from tlb.stats.intervals import Interval
from tlb.system.page_sizes import BASE, words
from tlb.system.reasons import Unavailable, required

PLATEAU_BYTES = 256 << 20, 1 << 30  # bytes, "hundreds of megabytes"
_HOP_BY_HOP: dict[str, Any] = {"mode": "plain", "per_hop": 1}
_IN_BATCHES: dict[str, Any] = {"mode": "plain", "per_hop": None, "walkers": None}


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
    "graph_walk",
    **_HOP_BY_HOP,
    low=PLATEAU_BYTES[0] // VERTEX_BYTES,
    high=PLATEAU_BYTES[1] // VERTEX_BYTES,
)


def one_or_more_walkers(point: Point, scope: Scope) -> bool:
    if point.kernel == "graph_walk" and "walkers" in dict(point.options):
        return True
    return in_batches(point, scope) and point.lines == min(MANY_VERTICES, most_vertices(scope))


def base_page_curve(curves: Mapping[str, Curve]) -> Curve:
    return required(curves.get(BASE), "no walk on base pages was timed hop by hop")


def walks_per_hop(a: Analysis, pages: str) -> Curve:
    """Return the walks per hop of one walker, by size. Raises Unavailable("no-pmu")."""
    return required(a.counted.get(pages), f"no walks were counted on {words(pages)}", "no-pmu")


def cycles_per_hop(a: Analysis, pages: str, quantity: str) -> Curve:
    """Return a count of cycles per hop of one walker, by size. Raises
    Unavailable("no-walk-cycle-event")."""
    curve = Curve.of(a.walks(0, walkers=1, pages=pages), SIZE_COLUMN, f"{quantity}_per_access")
    return required(curve, f"{quantity} on {words(pages)}", "no-walk-cycle-event")


def at_largest(base: Curve, large: Curve) -> tuple[Interval, Interval]:
    """Return both at the largest size that both have. Raises Unavailable("too-few-points")."""
    size = max(required(set(base.xs) & set(large.xs), "no size was counted on both"))
    return base.get(size), large.get(size)


# --- the model `T = T_hit + p_miss * T_walk` taken at its word: two orders of the same chase, which
# miss differently often

# Misses per load in random order: fewer show no second term, more are as many as in a cycle.
MISSES = (0.05, 0.95)
LEAST = 5  # sizes that a median of errors takes


def predicted_by_two_terms(a: Analysis) -> pd.DataFrame:
    """Return by lines misses (counted, a load), measured_ns and predicted_ns of the chase in random
    order.

    T_hit is the time of as many lines side by side in the same order. T_walk is what a miss costs a
    cycle over the same pages, whose tables lie in the same caches: the cycle's time less that of
    its own lines side by side, over its counted walks. So no number is fitted. Raises Unavailable:
    no-data, no-pmu, too-few-points.
    """
    chases = select(a.about.kept("stlb_cliff"), kernel="page_chase", pages=BASE)
    cycle, random = (_sides(chases, order) for order in ("cycle", "random"))
    both = random.join(cycle.add_suffix("_cycle"), how="inner")
    both = both[both["misses"].between(*MISSES) & (both["misses_cycle"] > both["misses"])]
    walk_ns = (both["ns_cycle"] - both["hit_ns_cycle"]) / both["misses_cycle"]
    if len(both) < LEAST:
        why = f"{len(both)} sizes were counted at which the two orders differ; it takes {LEAST}"
        raise Unavailable("too-few-points", why)
    predicted_ns = both["hit_ns"] + both["misses"] * walk_ns
    return both.assign(measured_ns=both["ns"], predicted_ns=predicted_ns)


def _sides(chases: pd.DataFrame, order: str) -> pd.DataFrame:
    """Return ns, hit_ns (of as many lines side by side) and misses of an order, indexed by lines.
    Raises Unavailable("no-pmu")."""
    spread, packed = (select(chases, order=order, layout=kind) for kind in ("spread", "packed"))
    walks = Curve.of(spread, value="walk_per_access")
    required(walks, "no walks of the chase were counted", "no-pmu")
    sides = {"ns": Curve.of(spread), "hit_ns": Curve.of(packed), "misses": walks}
    medians = {name: curve.medians for name, curve in sides.items()}
    return pd.concat(medians, axis=1, join="inner").rename_axis("lines")
