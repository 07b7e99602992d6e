"""The model `T = T_hit + p_miss * T_walk` taken at its word: two orders of the same chase, which
miss differently often."""

from __future__ import annotations

import pandas as pd

from experiments.graph_walk.analysis import Analysis
from tlb.inference.curves import Curve, select
from tlb.page_sizes import BASE
from tlb.reasons import Unavailable, required

# Misses per load in random order: fewer show no second term, more are as many as in a cycle.
MISSES = (0.05, 0.95)
LEAST = 5  # sizes that a median of errors takes


def two_terms(a: Analysis) -> pd.DataFrame:
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
