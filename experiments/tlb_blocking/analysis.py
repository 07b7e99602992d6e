"""Walks in blocks, prefetches and joins: rows as curves, gains and remedies."""

from __future__ import annotations

from functools import cached_property
from operator import itemgetter

import numpy as np
import pandas as pd

from tlb.report import analysis
from tlb.stats.curves import Curve, select
from tlb.stats.hops import quantile, smoothed, with_one_clock
from tlb.stats.intervals import UNKNOWN, Interval, median_interval, summarise
from tlb.system.page_sizes import BASE, ordered, rank, words
from tlb.system.reasons import Unavailable, if_available, required
from tlb.system.units import format_size

VERTEX_BYTES = 64  # kernels/graph.h
APART_STEPS = 1 << 14  # in each block of vertices on pages of their own
NO_DIFFERENCE = 0.05  # what this book calls no difference
# The remedies' names are those of data/literature/mitigations.csv.
NO_REMEDY, LARGE_PAGES, TLB_BLOCKING = "none", "huge pages", "TLB blocking"
# Vertices, 256 MiB, which the published walk never leaves; it calls that blocking.
PUBLISHED_BLOCK = 1 << 22
AS_PUBLISHED = "one block, as published"
SMALL_GRAPH = "a graph of one block"  # the control of AS_PUBLISHED
GAIN_COLUMNS = ["gain", "gain_low", "gain_high"]
_QUANTILES = {"p50": 0.5, "p95": 0.95}


def graph_size(vertices: float) -> str:
    """Of a graph or a block of it: "1 GiB"."""
    return format_size(int(vertices) * VERTEX_BYTES)


class Analysis(analysis.Analysis):
    """The rows of `graph_walk` and `radix_partition`. Frames have columns as `summarise` names them
    (ns per hop or row); `gain` is how many times as fast a row is as what it is compared with. What
    was not measured is empty; what is derived further raises Unavailable("too-few-points").

    The page defines: plain, blocks, block_spread, block_packed, block_price, ahead, fan_out and
    joins.
    """

    # --- walks, timed per batch

    def in_blocks(self) -> pd.DataFrame:
        """Return a row a page size, block and number of steps: vertices, block_vertices,
        block_steps, block_bytes, block_pages (base pages), visits (steps to each page), the
        estimate."""
        keys = ["vertices", "block_vertices", "block_steps"]
        found = self._summary("graph_walk", "blocked", keys, layout="packed", per_hop=0, walkers=1)
        # Smaller graphs are those of `by_block`.
        found = found[found["vertices"] == found["vertices"].max()].reset_index(drop=True)
        found["block_bytes"] = found["block_vertices"] * VERTEX_BYTES
        found["block_pages"] = np.maximum(found["block_bytes"] // self.base_page_bytes, 1)
        found["visits"] = found["block_steps"] / found["block_pages"]
        return found

    @property
    def base_blocks(self) -> pd.DataFrame:
        """The rows of `blocks` on base pages that can be compared with the walk without blocks."""
        found = select(self.blocks, pages=BASE).dropna(subset="gain")
        return required(found, "no walk with and without blocks was measured on base pages")

    @property
    def largest_inside(self) -> pd.DataFrame:
        """The rows of the largest block inside the last TLB level's reach, by number of steps."""
        inside = self.base_blocks[self.base_blocks["block_pages"] <= self.known_entries[-1]]
        largest = inside[inside["block_pages"] == inside["block_pages"].max()]
        return required(largest, "no block is inside the reach").sort_values("block_steps")

    @property
    def smallest_past(self) -> pd.Series:
        """The row of the smallest block of twice the reach or more, with the most steps."""
        base = select(self.base_blocks, block_steps=self.base_blocks["block_steps"].max())
        past = base[base["block_pages"] >= 2 * self.known_entries[-1]]
        return required(past, "no block is twice the reach").sort_values("block_pages").iloc[0]

    def by_block(self, layout: str) -> Curve:
        """ns a hop by the vertices of a block: "spread", a page to each vertex, or "packed", as
        many vertices side by side. The graph itself is the last block. Empty where no vertex had a
        page of its own."""
        where = {"mode": ["plain", "blocked"], "pages": BASE, "per_hop": 0, "walkers": 1}
        walks = select(self.frame, kernel="graph_walk", **where)
        columns = dict.fromkeys([*walks, "block_steps", "block_vertices"])
        walks = walks.reindex(columns=list(columns))  # where no walk was measured
        steps = walks["block_steps"].where(walks["mode"] == "blocked", APART_STEPS)
        walks = walks[steps == APART_STEPS]
        rows = walks[walks["lines"] == select(walks, layout="spread")["lines"].max()]
        vertices = rows["block_vertices"].where(rows["mode"] == "blocked", rows["lines"])
        rows = rows.assign(block_vertices=vertices.astype(int))
        return Curve.of(rows, "block_vertices", layout=layout)

    @property
    def priced_blocks(self) -> Curve:
        return required(self.block_price, "no walk over vertices a page apart was measured")

    @property
    def left_by_blocks(self) -> tuple[int, Interval, Interval]:
        """The pages of the largest blocks inside the last level's reach, ns a hop that translation
        costs in them, and without blocks."""
        price, reach = self.priced_blocks, self.known_entries[-1]
        inside = [pages for pages in price.xs[:-1] if pages <= reach]
        pages = required(inside, "no block is inside the reach")[-1]
        return pages, price.get(pages), price.last

    def prefetches(self) -> pd.DataFrame:
        """Return a row a page size and distance: vertices, distance (hops ahead; 0 for no
        prefetch), the estimate."""
        return self._summary("graph_walk", "prefetch", ["vertices", "distance"])

    def best_ahead(self, pages: str) -> pd.Series:
        return best_of(self.ahead[self.ahead["distance"] > 0], pages)

    @property
    def distances(self) -> int:
        """From how many distances `best_ahead` chooses, on base pages."""
        return max(int((select(self.ahead, pages=BASE)["distance"] > 0).sum()), 1)

    @property
    def most_from_hits(self) -> float:
        """The largest gain of prefetches that are dropped where the TLB misses: of random hops over
        M pages C/M hit, so 1 / (1 - C/M), were those free. Raises Unavailable: no-geometry,
        too-few-points where all hit."""
        vertices = int(self.best_ahead(BASE)["vertices"])
        held = self.known_entries[-1] * self.base_page_bytes / (vertices * VERTEX_BYTES)
        if held >= 1:
            raise Unavailable("too-few-points", f"the TLB reaches all {graph_size(vertices)}")
        return 1 / (1 - held)

    @property
    def independent_walks(self) -> pd.Series:
        """The control of `ahead` whose hops overlap without a prefetch: the fastest of several
        walks that take turns in one thread over the same graph, from the chapter about graph walks.
        walkers, the estimate (ns per hop)."""
        vertices = int(self.best_ahead(BASE)["vertices"])
        where = {"kernel": "graph_walk", "mode": "plain", "pages": BASE, "layout": "packed"}
        rows = select(self.about.kept("page_walks"), lines=vertices, per_hop=0, **where)
        found = summarise(rows[rows["walkers"] > 1], ["walkers"])
        required(found, f"{graph_size(vertices)} was not walked by several walkers")
        return found.iloc[int(found["median"].argmin())]

    # --- remedies, timed hop by hop

    @property
    def _clocked(self) -> pd.DataFrame:
        """The walks timed hop by hop; and, from the chapter about graph walks, the control of
        AS_PUBLISHED."""
        rows, others = self.frame, if_available(self.about.kept, "page_walks")
        if others is not None and (rows["lines"] > PUBLISHED_BLOCK).any():
            rows = pd.concat([rows, select(others, lines=PUBLISHED_BLOCK)])
        rows = select(rows, kernel="graph_walk", layout="packed", per_hop=1, walkers=1)
        return with_one_clock(rows)

    @cached_property
    def remedies(self) -> pd.DataFrame:
        """The remedies at the largest graph that was walked on base pages, a row each.

        Columns: remedy (as in data/literature/mitigations.csv; AS_PUBLISHED, which is what that
        file calls blocking; SMALL_GRAPH), pages, vertices, block_vertices (0 for none), p50 and p95
        with _low and _high, ns per hop less the clock's cost, medians over processes; coverage, n.
        Blocking has the fastest block inside the last TLB level's reach.
        """
        plain, blocked = (select(self._clocked, mode=mode) for mode in ("plain", "blocked"))
        if (base := select(plain, pages=BASE)).empty:
            return pd.DataFrame(columns=["remedy", "pages", "vertices", *_QUANTILES])
        vertices = int(base["lines"].max())
        reach = max(self.entries, default=0) * self.base_page_bytes
        groups = [
            (NO_REMEDY if pages == BASE else LARGE_PAGES, pages, 0, rows)
            for pages in ordered(plain["pages"])
            if len(rows := select(plain, pages=pages, lines=vertices))
        ]
        small = select(base, lines=PUBLISHED_BLOCK)
        if len(small) and vertices > PUBLISHED_BLOCK:
            groups.append((SMALL_GRAPH, BASE, 0, small))
        if len(inside := select(blocked, pages=BASE, lines=vertices)):
            if len(stay := select(inside, block_vertices=PUBLISHED_BLOCK)):
                groups.append((AS_PUBLISHED, BASE, PUBLISHED_BLOCK, stay))
            block = inside["block_vertices"]
            inside = inside[(block * VERTEX_BYTES <= reach) & (block != PUBLISHED_BLOCK)]
        if len(inside):
            medians = inside.groupby("block_vertices")["ns_per_access"].median()
            best = int(medians.index[int(medians.argmin())])
            groups.append((TLB_BLOCKING, BASE, best, select(inside, block_vertices=best)))
        return pd.DataFrame([_remedy(*group, vertices) for group in groups])

    def remedy(self, name: str, *pages: str) -> pd.Series:
        """The row of a remedy, on the first of `pages` that was measured."""
        required(self.remedies, "no walk on base pages was timed hop by hop")
        for kind in pages:
            if len(rows := select(self.remedies, remedy=name, pages=kind)):
                return rows.iloc[0]
        if name not in (NO_REMEDY, LARGE_PAGES):
            raise Unavailable("too-few-points", f"nothing was timed hop by hop for: {name}")
        where = " or ".join(map(words, pages))
        raise Unavailable("pool-empty", f"the walk was not measured on {where}")

    # --- radix partitioning and hash joins

    def partitioning(self) -> pd.DataFrame:
        """Return a row a page size, number of passes and of bits: tuples, bits, passes, the
        estimate (ns to partition one row)."""
        found = self._summary("radix_partition", "partition", ["tuples", "bits", "passes"])
        return found.sort_values(["pages", "passes", "bits"], key=rank, ignore_index=True)

    def fan_out_rise(self, pages: str, entries: int) -> tuple[Interval, int, int]:
        """How many times as long a row takes past a TLB level's entries as inside: (ratio, few
        partitions, many).

        The few are at most half the entries, where source and cursors leave room; the many at most
        four times the entries, where three in four writes miss if rows come in no order.
        """
        mine = select(self.fan_out, pages=pages, passes=1)
        few = mine[mine["partitions"] <= entries / 2].tail(1)
        many = mine[mine["partitions"].between(2 * entries, 4 * entries)].tail(1)
        if few.empty or many.empty:
            lacking = f"partitioning on {words(pages)} was not timed on both sides of {entries:,}"
            raise Unavailable("too-few-points", lacking)
        ratio = Interval.of(many.iloc[0]) / Interval.of(few.iloc[0])
        return ratio, int(few["partitions"].iloc[0]), int(many["partitions"].iloc[0])

    def ways_to_join(self) -> pd.DataFrame:
        """Return a row a page size and way of joining: mode (naive, partitioned), tuples, bits (0
        for naive), passes, partitions, the estimate (ns per row)."""
        modes, keys = ["naive", "partitioned"], ["mode", "tuples", "bits", "passes"]
        found = self._summary("radix_partition", modes, keys)
        found.loc[found["mode"] == "naive", ["bits", "passes"]] = 0
        found["partitions"] = 2 ** found["bits"]
        return found.sort_values(["pages", "mode", "passes", "bits"], key=rank, ignore_index=True)

    def best_join(self, pages: str) -> pd.Series:
        return best_of(select(self.joins, mode="partitioned"), pages)

    def _summary(
        self, kernel: str, mode: str | list[str], keys: list[str], **where: object
    ) -> pd.DataFrame:
        """`summarise` of the rows of a kernel in a mode by page size and `keys`. Empty
        without rows."""
        rows = select(self.frame, kernel=kernel, mode=mode, **where)
        rows = rows.reindex(columns=list(dict.fromkeys([*rows, *keys])))
        found = summarise(rows.assign(vertices=rows["lines"]), ["pages", *keys])
        found = found.astype({key: int for key in keys if key != "mode"})
        return found.sort_values(["pages", *keys[::-1]], key=rank, ignore_index=True)


def with_gain(found: pd.DataFrame, slow: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Return `found` with gain, gain_low and gain_high: how many times as fast each row is as that
    of `slow` with the same keys; NaN without one."""
    key, rows = itemgetter(*keys), found.to_dict("records")
    known = {key(row): Interval.of(row) for row in slow.to_dict("records")}
    gains = [known[key(row)] / Interval.of(row) if key(row) in known else UNKNOWN for row in rows]
    bounds = [gain.value_and_bounds for gain in gains]
    return found.assign(
        **{name: [float(one[at]) for one in bounds] for at, name in enumerate(GAIN_COLUMNS)}
    )


def best_of(found: pd.DataFrame, pages: str) -> pd.Series:
    mine = select(found, pages=pages).dropna(subset="gain")
    required(mine, f"nothing on {words(pages)} can be compared")
    return mine.iloc[int(mine["gain"].argmax())]


def _remedy(
    remedy: str, pages: str, block: int, rows: pd.DataFrame, vertices: int
) -> dict[str, object]:
    row = {"remedy": remedy, "pages": pages, "vertices": vertices, "block_vertices": block}
    shares = list(_QUANTILES.values())
    each = np.array([quantile(smoothed(process), shares) for _, process in rows.iterrows()])
    medians = {name: median_interval(ns) for name, ns in zip(_QUANTILES, each.T, strict=True)}
    for name, interval in medians.items():
        row[name], row[f"{name}_low"], row[f"{name}_high"] = interval.value_and_bounds
        row["coverage"] = interval.coverage
    return row | {"modes": max(interval.modes for interval in medians.values()), "n": len(rows)}
