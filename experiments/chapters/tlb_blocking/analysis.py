"""What helps where nobody chooses the page size: from the rows of experiment `tlb_blocking` to curves, gains and remedies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from experiments.chapters.hugepages.analysis import PAGES
from experiments.inference import intervals as stats
from experiments.inference import splinter
from experiments.inference.curves import PAGE
from experiments.inference.hops import option, quantile, smoothed
from experiments.inference.intervals import Interval
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

VERTEX_BYTES = 64  # kernels/graph.h
ROW_BYTES = 16  # kernels/radix_partition.py
SAME = 0.05  # what this book calls no difference
_WALK, _JOIN = "graph_walk", "radix_partition"
# The remedies' names are those of data/literature/mitigations.csv.
NONE, LARGE, BLOCKED = "none", "huge pages", "TLB blocking"


def walks_per_hop(block_pages: ArrayLike, block_steps: ArrayLike, entries: int) -> np.ndarray:
    """Walks per hop of a walk in blocks, by the model: stays of `block_steps` random hops on `block_pages` pages, LRU of `entries`.

    A stay begins with none of its pages in the TLB. Of p pages, t random hops have visited p (1 - exp(-t/p)) in the mean, and a
    page's first visit walks. Until the TLB is full nothing else does. With p <= C entries it never is: so the walks of s steps
    are p (1 - exp(-s/p)). With p > C it is full after t = -p ln(1 - C/p) hops; from then on LRU holds the last C pages, which the
    next hop misses with 1 - C/p: so s steps walk C + (s - t) (1 - C/p) times. Both ends are the known ones: each hop walks where
    a stay is one hop, and 1 - C/p of them where it never ends. Left out: what is still there of a block when the walk comes
    back to it, a share of about C/M where the whole graph has M pages.
    """
    p, s = np.broadcast_arrays(np.asarray(block_pages, float), np.asarray(block_steps, float))
    missed = np.maximum(0.0, 1 - entries / p)
    with np.errstate(divide="ignore"):  # blocks that fit are never full: log(0)
        full = np.where(missed > 0, -p * np.log(missed), np.inf)
    filling = np.minimum(s, full)
    after = np.where(s > full, (s - filling) * missed, 0.0)
    return (p * -np.expm1(-filling / p) + after) / s


def prefetched_hits(vertices: int, entries: Sequence[int]) -> float:
    """The largest gain of prefetches that are dropped where the TLB misses: of random hops over M pages C/M hit, so 1 / (1 - C/M),
    were those free. Raises Unavailable: no-geometry, too-few-points where all hit."""
    if not entries:
        raise Unavailable("no-geometry", "CPUID names no TLB level here")
    pages = vertices * VERTEX_BYTES / PAGE
    if pages <= entries[-1]:
        raise Unavailable("too-few-points", f"{graph_size(vertices)} is within the TLB's reach, where no prefetch has to walk")
    return 1 / (1 - entries[-1] / pages)


def graph_size(vertices: float) -> str:
    """Of a graph or a block of it: "1 GiB"."""
    return format_size(int(vertices) * VERTEX_BYTES)


def _walks(frame: pd.DataFrame, mode: str, per_hop: bool) -> pd.DataFrame:
    """The rows of single walkers in a mode, timed per hop or per batch."""
    chosen = (frame["kernel"] == _WALK) & (frame["mode"] == mode) & (option(frame, "per_hop", 0) == per_hop)
    rows = frame[chosen & (option(frame, "walkers", 1) == 1)]
    return rows.assign(vertices=rows["lines"])  # which are as many


def _ordered(found: pd.DataFrame, *then: str) -> pd.DataFrame:
    """Page sizes from small to large."""
    order = found["pages"].map(PAGES.index)
    return found.assign(order=order).sort_values(["order", *then]).drop(columns="order").reset_index(drop=True)


def interval(row: pd.Series, prefix: str = "") -> Interval:
    """The estimate of a row of this module's frames: of its median, or of the quantity that `prefix` names."""
    if not prefix:
        return Interval(*(float(row[name]) for name in ("median", "low", "high", "coverage")))
    return Interval(*(float(row[name]) for name in (prefix, f"{prefix}_low", f"{prefix}_high", "coverage")))


def _with_gain(found: pd.DataFrame, over: dict[tuple, Interval], keys: list[str]) -> pd.DataFrame:
    """How many times as fast each row is as what it is compared with: gain, gain_low, gain_high; NaN without that."""
    gains = []
    for _, row in found.iterrows():
        before = over.get(tuple(row[key] for key in keys))
        gains.append(stats.interval_of_ratio(before, interval(row))[:3] if before else (np.nan,) * 3)
    found = found.copy()
    found[["gain", "gain_low", "gain_high"]] = np.array(gains, dtype=float).reshape(-1, 3)
    return found


# --- walks


def unblocked(frame: pd.DataFrame) -> pd.DataFrame:
    """The walk without blocks, timed per batch: pages, vertices, then as `stats.summarise`, ns per hop."""
    return stats.summarise(_walks(frame, "plain", per_hop=False), ["pages", "vertices"])


def by_block(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a page size, block and number of steps: vertices, block_vertices, block_steps, block_bytes, block_pages (of 4 KiB),
    visits (steps to each page), median, low, high ... (ns per hop), plain (median without blocks on base pages), gain over that
    with its bounds. Raises Unavailable("too-few-points")."""
    rows = _walks(frame, "blocked", per_hop=False)
    if rows.empty:
        raise Unavailable("too-few-points", "no walk in blocks was measured")
    found = stats.summarise(rows, ["pages", "vertices", "block_vertices", "block_steps"])
    found = found.astype(dict.fromkeys(("vertices", "block_vertices", "block_steps"), int))
    found["block_bytes"] = found["block_vertices"] * VERTEX_BYTES
    found["block_pages"] = np.maximum(found["block_bytes"] // PAGE, 1)
    found["visits"] = found["block_steps"] / found["block_pages"]
    before = {(int(row["vertices"]),): interval(row) for _, row in unblocked(frame).iterrows() if row["pages"] == "4k"}
    found["plain"] = [before[n,].value if (n,) in before else np.nan for n in found["vertices"]]
    return _with_gain(_ordered(found, "block_steps", "block_vertices"), before, ["vertices"])


class Optimum(NamedTuple):
    """The best block for a number of steps, as predicted from walks alone and as measured, bytes; with the walks per hop at each."""

    block_steps: int
    predicted_bytes: int
    predicted_walks: float
    measured_bytes: int
    measured_walks: float  # the model's, at the block that was fastest
    unresolved: tuple[int, ...]  # blocks whose interval reaches that of the fastest


def optima(blocks: pd.DataFrame, entries: int) -> list[Optimum]:
    """One for each number of steps on base pages; a frame of `by_block`. entries: those of the last TLB level."""
    found = []
    for steps, part in blocks[blocks["pages"] == "4k"].groupby("block_steps"):
        part = part.assign(walks=walks_per_hop(part["block_pages"], steps, entries)).sort_values("block_bytes")
        best, model = part.loc[part["median"].idxmin()], part.loc[part["walks"].idxmin()]
        near = part[(part["low"] <= best["high"]) & (part.index != best.name)]["block_bytes"]
        found.append(Optimum(int(steps), int(model["block_bytes"]), float(model["walks"]), int(best["block_bytes"]), float(best["walks"]),
                             tuple(map(int, near))))
    return found


def by_distance(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a page size and distance: vertices, distance (hops ahead; 0 for no prefetch), median, low, high ... (ns per hop), gain
    over distance 0 on the same pages with its bounds. Raises Unavailable("too-few-points")."""
    rows = _walks(frame, "prefetch", per_hop=False)
    if rows.empty:
        raise Unavailable("too-few-points", "no walk with prefetches was measured")
    found = stats.summarise(rows, ["pages", "vertices", "distance"]).astype({"vertices": int, "distance": int})
    before = {(row["pages"], row["vertices"]): interval(row) for _, row in found.iterrows() if row["distance"] == 0}
    return _with_gain(_ordered(found, "distance"), before, ["pages", "vertices"])


def best_gain(found: pd.DataFrame, pages: str) -> pd.Series:
    """The row with the largest gain on a page size; of `by_distance` or `by_join`. Raises Unavailable("too-few-points")."""
    mine = found[(found["pages"] == pages) & found["gain"].notna()]
    if "distance" in mine:
        mine = mine[mine["distance"] > 0]
    if mine.empty:
        raise Unavailable("too-few-points", f"nothing on {pages} can be compared")
    return mine.loc[mine["gain"].idxmax()]


# --- remedies

_QUANTILES = {"p50": 0.5, "p95": 0.95}


def mitigations(frame: pd.DataFrame, entries: Sequence[int]) -> pd.DataFrame:
    """The remedies at the largest graph that was walked on base pages, timed per hop, a row each.

    Columns: remedy (as in data/literature/mitigations.csv), pages, vertices, block_vertices (0 for none), p50, p95 and mean with
    _low and _high, ns per hop less the clock's cost (quantiles of `walks.smoothed`), medians over processes; coverage, n.
    Blocking has the block that is fastest in the mean of those inside the last TLB level's reach; without `entries` it has no
    row. Raises Unavailable("too-few-points").
    """
    plain, blocked = (_walks(frame, mode, per_hop=True) for mode in ("plain", "blocked"))
    base = plain[plain["pages"] == "4k"]
    if base.empty:
        raise Unavailable("too-few-points", "no walk on base pages was timed hop by hop")
    vertices = base["vertices"].max()
    groups = [(NONE if pages == "4k" else LARGE, pages, 0, rows) for pages in PAGES
              if len(rows := plain[(plain["pages"] == pages) & (plain["vertices"] == vertices)])]
    inside = blocked[(blocked["pages"] == "4k") & (blocked["vertices"] == vertices)]
    if entries and len(inside):
        inside = inside[inside["block_vertices"] * VERTEX_BYTES <= entries[-1] * PAGE]
        means = inside.groupby("block_vertices")["mean_ns"].median()
        if len(means):
            groups.append((BLOCKED, "4k", int(means.idxmin()), inside[inside["block_vertices"] == means.idxmin()]))
    rows = []
    for remedy, pages, block, group in groups:
        row = {"remedy": remedy, "pages": pages, "vertices": int(vertices), "block_vertices": block}
        each = np.array([quantile(smoothed(one), list(_QUANTILES.values())) for _, one in group.iterrows()])
        for name, values in [*zip(_QUANTILES, each.T, strict=True), ("mean", group["mean_ns"])]:
            row[name], row[f"{name}_low"], row[f"{name}_high"], row["coverage"] = stats.median_interval(values)
        rows.append(row | {"n": len(group)})
    return pd.DataFrame(rows)


def remedy(found: pd.DataFrame, name: str, *pages: str) -> pd.Series:
    """The row of a remedy of `mitigations`, on the first of `pages` that was measured. Raises Unavailable."""
    for one in pages:
        rows = found[(found["remedy"] == name) & (found["pages"] == one)]
        if len(rows):
            return rows.iloc[0]
    if name == BLOCKED:
        raise Unavailable("too-few-points", "no walk in blocks inside the TLB's reach was timed hop by hop")
    raise Unavailable("pool-empty", f"the walk was not measured on {' or '.join(pages)}")


# --- the join


def by_fan_out(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a page size, number of passes and of partitions: tuples, bits, partitions, passes, median, low, high ... (ns to
    partition one row), histogram_ns (of it, counting). Raises Unavailable("too-few-points")."""
    rows = frame[(frame["kernel"] == _JOIN) & (frame["mode"] == "partition")]
    if rows.empty:
        raise Unavailable("too-few-points", "no partitioning was measured")
    rows = rows.assign(passes=option(rows, "passes", 1), histogram_ns=option(rows, "histogram_ns_per_access", np.nan))
    keys = ["pages", "tuples", "bits", "passes"]
    found = stats.summarise(rows, keys).merge(rows.groupby(keys)["histogram_ns"].median().reset_index(), on=keys)
    found = found.astype({"tuples": int, "bits": int, "passes": int})
    found["partitions"] = 2 ** found["bits"]
    return _ordered(found, "passes", "bits")


def fan_out_rise(found: pd.DataFrame, pages: str, entries: int) -> tuple[Interval, int, int]:
    """How many times as long a row takes past a TLB level's entries as inside: (ratio, few partitions, many).

    The few are the most up to half the entries, where source and cursors leave room; the many are the most up to four times as
    many, where three in four writes miss if rows come in no order. A frame of `by_fan_out`. Raises Unavailable("too-few-points").
    """
    mine = found[(found["pages"] == pages) & (found["passes"] == 1)]
    few = mine[mine["partitions"] <= entries / 2].tail(1)
    many = mine[mine["partitions"].between(2 * entries, 4 * entries)].tail(1)
    if few.empty or many.empty:
        raise Unavailable("too-few-points", f"partitioning on {pages} was not measured on both sides of {entries:,} partitions")
    ratio = stats.interval_of_ratio(interval(many.iloc[0]), interval(few.iloc[0]))
    return ratio, int(few["partitions"].iloc[0]), int(many["partitions"].iloc[0])


def by_join(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a page size and way of joining: mode (naive, partitioned), tuples, bits (0 for naive), passes, partitions, median,
    low, high ... (ns per row), gain over naive on the same pages with its bounds. Raises Unavailable("too-few-points")."""
    rows = frame[(frame["kernel"] == _JOIN) & frame["mode"].isin(["naive", "partitioned"])]
    if rows.empty:
        raise Unavailable("too-few-points", "no join was measured")
    # Beside what the kernel takes where nothing was asked, one pass of 6 bits.
    asked = {"bits": option(rows, "bits", 6), "passes": option(rows, "passes", 1)}
    rows = rows.assign(**{name: values.where(rows["mode"] == "partitioned", 0) for name, values in asked.items()})
    found = stats.summarise(rows, ["pages", "mode", "tuples", "bits", "passes"]).astype({"tuples": int, "bits": int, "passes": int})
    found["partitions"] = 2 ** found["bits"]
    before = {(row["pages"], row["tuples"]): interval(row) for _, row in found.iterrows() if row["mode"] == "naive"}
    found = _with_gain(_ordered(found, "mode", "passes", "bits"), before, ["pages", "tuples"])
    found.loc[found["mode"] == "naive", ["gain", "gain_low", "gain_high"]] = np.nan  # with itself there is nothing to compare
    return found


def best_large(found: pd.DataFrame) -> str:
    """The pool's 2 MiB pages where a frame has them, else THP. Raises Unavailable("pool-empty")."""
    return splinter.large_pages(found)
