"""Walks in blocks, prefetches, joins and strided sums: rows as curves, gains and remedies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from operator import itemgetter

import numpy as np
import pandas as pd

from experiments.tlb_blocking.grid import (
    BYTES_WITHIN_L1_CACHE,
    PUBLISHED_BLOCK_VERTICES,
    STRIDE_BYTES,
    STRIDE_SUM_PAGE_KINDS,
    STRIDES_WITH_PACKED_CONTROL,
    WALK_STEPS_PER_SPREAD_BLOCK,
)
from tlb.measure.catalogue import GRAPH_VERTEX_BYTES
from tlb.report import analysis, quantities
from tlb.report.quantities import HUGE_PAGES, QuantityDeclaration
from tlb.stats.curves import Curve, select_rows
from tlb.stats.hops import hop_quantile, smoothed_hop_times, with_median_clock_cost
from tlb.stats.intervals import (
    UNKNOWN_INTERVAL,
    Interval,
    interval_of_rows,
    median_interval,
    summarise,
)
from tlb.system.page_sizes import (
    BASE_PAGES,
    CACHE_LINE_BYTES,
    HUGE_PAGE_KINDS,
    ordered_page_sizes,
    page_size_rank,
    page_words,
)
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty
from tlb.system.units import format_size


class Quantities(quantities.Quantities):
    """Times per hop of a random walk, per row of a hash join and per load of a strided sum, on base
    pages."""

    last_entries = QuantityDeclaration(
        "pages that the last level (CPUID) or all levels (measured) hold", "pages"
    )
    hop_ns = QuantityDeclaration("a hop of the largest random walk, without blocks", "ns")
    block_bytes = QuantityDeclaration("largest blocks inside the TLB's reach", "bytes")
    block_gain_few = QuantityDeclaration(
        "gain in the largest blocks inside the reach, left after 1,024 hops", "times", 1
    )
    block_gain_some = QuantityDeclaration(
        "gain in the largest blocks inside the reach, left after 16,384 hops", "times", 1
    )
    block_gain = QuantityDeclaration(
        "gain in the largest blocks inside the reach, left after the most hops", "times", 1
    )
    block_gain_past = QuantityDeclaration(
        "gain in blocks of twice the reach or more, left after the most hops", "times", 1
    )
    page_each_ns = QuantityDeclaration(
        "added to a hop by a page for each vertex, without blocks", "ns"
    )
    page_each_inside_ns = QuantityDeclaration(
        "added to a hop by a page for each vertex, in blocks inside the reach", "ns", 1
    )
    prefetch_ns = QuantityDeclaration("a hop prefetched at the best distance", "ns", 1)
    prefetch_gain = QuantityDeclaration("gain by a prefetch at the best distance", "times")
    prefetch_gain_next = QuantityDeclaration("gain by a prefetch one hop ahead", "times")
    huge_hop_ns = QuantityDeclaration("a hop on huge pages, its path known", "ns", pages=HUGE_PAGES)
    huge_prefetch_ns = QuantityDeclaration(
        "the same, prefetched at the best distance", "ns", 1, pages=HUGE_PAGES
    )
    plain_tail_ns = QuantityDeclaration("95th percentile of a hop in the largest graph", "ns")
    stay_tail_ns = QuantityDeclaration(
        "95th percentile of a hop in one block of 256 MiB, never left", "ns"
    )
    join_ns = QuantityDeclaration("a row of a hash join without partitions", "ns", 1)
    join_gain = QuantityDeclaration("gain of the join by 256 partitions", "times", 1)
    scatter_ns = QuantityDeclaration("a row scattered into 4,096 partitions in one pass", "ns", 1)
    scatter_twice_ns = QuantityDeclaration(
        "a row scattered into 4,096 partitions in two passes", "ns", 1
    )
    stride_ns = QuantityDeclaration("a load at a stride of 4,096 bytes", "ns", 1)
    padded_ns = QuantityDeclaration("a load at a stride of 4,160 bytes", "ns", 1)
    stride_huge_ns = QuantityDeclaration(
        "a load at 4,096 bytes on huge pages", "ns", 1, pages=HUGE_PAGES
    )
    padded_huge_ns = QuantityDeclaration(
        "a load at 4,160 bytes on huge pages", "ns", 1, pages=HUGE_PAGES
    )
    padded_gain = QuantityDeclaration(
        "gain by 64 bytes more at a stride of 4,096 bytes", "times", 1
    )
    padding_saves_ns = QuantityDeclaration(
        "what 64 bytes more save a load at 4,096 bytes",
        "ns",
        1,
        part_of="stride_ns",
        is_judged=True,
    )
    padding_saves_8_kib_ns = QuantityDeclaration(
        "what 64 bytes more save a load at 8 KiB", "ns", 1, is_judged=True
    )
    stride_walks = QuantityDeclaration("page walks per load at 4,096 bytes, as counted", "", 2)
    padded_walks = QuantityDeclaration("page walks per load at 4,160 bytes, as counted", "", 2)
    translation_most_ns = QuantityDeclaration("translation at 4,160 bytes, at most", "ns", 1)
    shuffled_most_ns = QuantityDeclaration(
        "translation at 4,160 bytes in shuffled order, at most", "ns", 1
    )


# The remedies' names are those of data/literature/mitigations.csv.
NO_REMEDY, HUGE_PAGES_REMEDY, TLB_BLOCKING_REMEDY = "none", "huge pages", "TLB blocking"
PUBLISHED_SINGLE_BLOCK_LABEL = "one block, as published"
SINGLE_BLOCK_GRAPH_LABEL = "a graph of one block"  # the control of PUBLISHED_SINGLE_BLOCK_LABEL
GAIN_COLUMNS = ["gain", "gain_low", "gain_high"]
_COLUMNS = ["step_bytes", "median", "low", "high", "coverage", "modes", "n", "unstable"]
_QUANTILES = {"p50": 0.5, "p95": 0.95}
WALKS = "page_walks"  # the chapter whose walks are two controls of this one
STRIDE = "step_bytes"


def graph_size_words(vertices: float) -> str:
    """Of a graph or a block of it: "1 GiB"."""
    return format_size(int(vertices) * GRAPH_VERTEX_BYTES)


class Analysis(analysis.Analysis):
    """The rows of `graph_walk`, `radix_partition` and `stride_sum`. Frames have columns as
    `summarise` names them (ns per hop, row or load); `gain` is how many times as fast a row is as
    what it is compared with. Curves of sums run over the stride in bytes. What was not measured is
    empty; what is derived further raises Unavailable("too-few-points").
    """

    # --- walks, timed per batch

    @cached_property
    def plain(self) -> Curve:
        """ns a hop of a walk without blocks on base pages, by vertices."""
        where = {
            "mode": "plain",
            "pages": BASE_PAGES,
            "layout": "packed",
            "per_hop": 0,
            "walkers": 1,
        }
        return Curve.of(select_rows(self.frame, kernel="graph_walk", **where))

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """`in_blocks`, compared with the same walk without blocks."""
        unblocked = self.plain.table.rename(columns={"lines": "vertices"})
        return with_gain(self.in_blocks(), unblocked, "vertices")

    def in_blocks(self) -> pd.DataFrame:
        """Return a row a page size, block and number of steps: vertices, block_vertices,
        block_steps, block_bytes, block_pages (base pages), visits (steps to each page), the
        estimate."""
        keys = ["vertices", "block_vertices", "block_steps"]
        found = self._summary("graph_walk", "blocked", keys, layout="packed", per_hop=0, walkers=1)
        # Smaller graphs are those of `by_block`.
        found = found[found["vertices"] == found["vertices"].max()].reset_index(drop=True)
        found["block_bytes"] = found["block_vertices"] * GRAPH_VERTEX_BYTES
        found["block_pages"] = np.maximum(found["block_bytes"] // self.base_page_bytes, 1)
        found["visits"] = found["block_steps"] / found["block_pages"]
        return found

    @property
    def base_blocks(self) -> pd.DataFrame:
        """The rows of `blocks` on base pages that can be compared with the walk without blocks."""
        found = select_rows(self.blocks, pages=BASE_PAGES).dropna(subset="gain")
        return require_nonempty(found, "no walk with and without blocks was measured on base pages")

    @property
    def largest_inside(self) -> pd.DataFrame:
        """The rows of the largest block inside the last TLB level's reach, by number of steps."""
        inside = self.base_blocks[self.base_blocks["block_pages"] <= self.known_entries[-1]]
        largest = inside[inside["block_pages"] == inside["block_pages"].max()]
        return require_nonempty(largest, "no block is inside the reach").sort_values("block_steps")

    def gain_of_blocks(self, hops: int) -> Interval:
        """Return how many times as fast a hop is in the largest blocks inside the reach, if the walk
        leaves them after so many hops. Raises Unavailable("too-few-points")."""
        rows = select_rows(self.largest_inside, block_steps=hops)
        require_nonempty(rows, f"no blocks inside the reach were left after {hops:,} hops")
        return Interval.of(rows.iloc[0], "gain")

    @property
    def most_hops_in_a_block(self) -> str:
        """The graph that was walked in blocks and the most hops in one, as conditions of a
        quantity: "1 GiB, 262,144 hops in a block"; "" for none."""
        blocks = select_rows(self.blocks, pages=BASE_PAGES)
        if blocks.empty:
            return ""
        size, hops = (int(blocks[name].max()) for name in ("vertices", "block_steps"))
        return f"{graph_size_words(size)}, {hops:,} hops in a block"

    @property
    def smallest_past(self) -> pd.Series:
        """The row of the smallest block of twice the reach or more, with the most steps."""
        base = select_rows(self.base_blocks, block_steps=self.base_blocks["block_steps"].max())
        past = base[base["block_pages"] >= 2 * self.known_entries[-1]]
        return (
            require_nonempty(past, "no block is twice the reach").sort_values("block_pages").iloc[0]
        )

    def by_block(self, layout: str) -> Curve:
        """ns a hop by the vertices of a block: "spread", a page to each vertex, or "packed", as
        many vertices side by side. The graph itself is the last block. Empty where no vertex had a
        page of its own."""
        where = {"mode": ["plain", "blocked"], "pages": BASE_PAGES, "per_hop": 0, "walkers": 1}
        walks = select_rows(self.frame, kernel="graph_walk", **where)
        columns = dict.fromkeys([*walks, "block_steps", "block_vertices"])
        walks = walks.reindex(columns=list(columns))  # where no walk was measured
        steps = walks["block_steps"].where(walks["mode"] == "blocked", WALK_STEPS_PER_SPREAD_BLOCK)
        walks = walks[steps == WALK_STEPS_PER_SPREAD_BLOCK]
        rows = walks[walks["lines"] == select_rows(walks, layout="spread")["lines"].max()]
        vertices = rows["block_vertices"].where(rows["mode"] == "blocked", rows["lines"])
        rows = rows.assign(block_vertices=vertices.astype(int))
        return Curve.of(rows, "block_vertices", layout=layout)

    @cached_property
    def block_price(self) -> Curve:
        """Spread minus packed of `by_block`: what translation adds to a hop."""
        return self.price_of(self.by_block("spread"), self.by_block("packed"))

    @property
    def priced_blocks(self) -> Curve:
        return require_nonempty(self.block_price, "no walk over vertices a page apart was measured")

    @property
    def left_by_blocks(self) -> tuple[int, Interval, Interval]:
        """The pages of the largest blocks inside the last level's reach, ns a hop that translation
        costs in them, and without blocks."""
        price, reach = self.priced_blocks, self.known_entries[-1]
        inside = [pages for pages in price.xs[:-1] if pages <= reach]
        pages = require_nonempty(inside, "no block is inside the reach")[-1]
        return pages, price.get(pages), price.last

    @cached_property
    def ahead(self) -> pd.DataFrame:
        """A row a page size and distance: vertices, distance (hops ahead; 0 for no prefetch), the
        estimate, compared with the walk that prefetches nothing."""
        found = self._summary("graph_walk", "prefetch", ["vertices", "distance"])
        return with_gain(found, found[found["distance"] == 0], "pages", "vertices")

    def best_ahead(self, pages: str) -> pd.Series:
        return best_of(self.ahead[self.ahead["distance"] > 0], pages)

    def gain_ahead(self, pages: str, distance: int) -> Interval:
        """Return the gain by a prefetch so many hops ahead."""
        rows = select_rows(self.ahead, pages=pages, distance=distance)
        return Interval.of(require_nonempty(rows, "no such prefetch was timed").iloc[0], "gain")

    @property
    def distances(self) -> int:
        """From how many distances `best_ahead` chooses, on base pages."""
        return max(int((select_rows(self.ahead, pages=BASE_PAGES)["distance"] > 0).sum()), 1)

    @property
    def most_from_hits(self) -> float:
        """The largest gain of prefetches that are dropped where the TLB misses: of random hops over
        M pages C/M hit, so 1 / (1 - C/M), were those free. Raises Unavailable: no-geometry,
        too-few-points where all hit."""
        vertices = int(self.best_ahead(BASE_PAGES)["vertices"])
        held = self.known_entries[-1] * self.base_page_bytes / (vertices * GRAPH_VERTEX_BYTES)
        if held >= 1:
            raise Unavailable("too-few-points", f"the TLB reaches all {graph_size_words(vertices)}")
        return 1 / (1 - held)

    # --- remedies, timed hop by hop

    @property
    def clocked(self) -> pd.DataFrame:
        """The walks timed hop by hop; and, from the chapter about page walks, the control of
        PUBLISHED_SINGLE_BLOCK_LABEL."""
        rows, others = (
            select_rows(self.frame, kernel="graph_walk"),
            none_if_unavailable(self.about.kept, WALKS),
        )
        if others is not None and (rows["lines"] > PUBLISHED_BLOCK_VERTICES).any():
            rows = pd.concat([rows, select_rows(others, lines=PUBLISHED_BLOCK_VERTICES)])
        rows = select_rows(rows, kernel="graph_walk", layout="packed", per_hop=1, walkers=1)
        return with_median_clock_cost(rows)

    @cached_property
    def remedies(self) -> pd.DataFrame:
        """The remedies at the largest graph that was walked on base pages, a row each.

        Columns: remedy (as in data/literature/mitigations.csv; PUBLISHED_SINGLE_BLOCK_LABEL, which is what that
        file calls blocking; SINGLE_BLOCK_GRAPH_LABEL), pages, vertices, block_vertices (0 for none), p50 and p95
        with _low and _high, ns per hop less the clock's cost, medians over processes; coverage, n.
        Blocking has the fastest block inside the last TLB level's reach.
        """
        plain, blocked = (select_rows(self.clocked, mode=mode) for mode in ("plain", "blocked"))
        if (base := select_rows(plain, pages=BASE_PAGES)).empty:
            return pd.DataFrame(columns=["remedy", "pages", "vertices", *_QUANTILES])
        vertices = int(base["lines"].max())
        reach = max(self.entries, default=0) * self.base_page_bytes
        groups = [
            (NO_REMEDY if pages == BASE_PAGES else HUGE_PAGES_REMEDY, pages, 0, rows)
            for pages in ordered_page_sizes(plain["pages"])
            if len(rows := select_rows(plain, pages=pages, lines=vertices))
        ]
        small = select_rows(base, lines=PUBLISHED_BLOCK_VERTICES)
        if len(small) and vertices > PUBLISHED_BLOCK_VERTICES:
            groups.append((SINGLE_BLOCK_GRAPH_LABEL, BASE_PAGES, 0, small))
        if len(inside := select_rows(blocked, pages=BASE_PAGES, lines=vertices)):
            if len(one := select_rows(inside, block_vertices=PUBLISHED_BLOCK_VERTICES)):
                groups.append(
                    (PUBLISHED_SINGLE_BLOCK_LABEL, BASE_PAGES, PUBLISHED_BLOCK_VERTICES, one)
                )
            block = inside["block_vertices"]
            inside = inside[
                (block * GRAPH_VERTEX_BYTES <= reach) & (block != PUBLISHED_BLOCK_VERTICES)
            ]
        if len(inside):
            medians = inside.groupby("block_vertices")["ns_per_access"].median()
            best = int(medians.index[int(medians.argmin())])
            groups.append(
                (TLB_BLOCKING_REMEDY, BASE_PAGES, best, select_rows(inside, block_vertices=best))
            )
        return pd.DataFrame([_remedy(*group, vertices) for group in groups])

    @property
    def clocked_bytes(self) -> int:
        """The size of that graph; 0 for none."""
        return (
            int(self.remedies["vertices"].max()) * GRAPH_VERTEX_BYTES if len(self.remedies) else 0
        )

    def remedy(self, name: str, *pages: str) -> pd.Series:
        """The row of a remedy, on the first of `pages` that was measured."""
        require_nonempty(self.remedies, "no walk on base pages was timed hop by hop")
        for kind in pages:
            if len(rows := select_rows(self.remedies, remedy=name, pages=kind)):
                return rows.iloc[0]
        if name not in (NO_REMEDY, HUGE_PAGES_REMEDY):
            raise Unavailable("too-few-points", f"nothing was timed hop by hop for: {name}")
        where = " or ".join(map(page_words, pages))
        raise Unavailable("pool-empty", f"the walk was not measured on {where}")

    # --- radix partitioning and hash joins

    @cached_property
    def fan_out(self) -> pd.DataFrame:
        """A row a page size, number of passes and of bits: tuples, bits, passes, partitions, the
        estimate (ns to partition one row)."""
        found = self._summary("radix_partition", "partition", ["tuples", "bits", "passes"])
        found["partitions"] = 2 ** found["bits"]
        return found.sort_values(["pages", "passes", "bits"], key=page_size_rank, ignore_index=True)

    def scattered(self, pages: str, bits: int, passes: int) -> Interval:
        """Return ns to scatter a row into partitions by so many bits of its hash."""
        rows = select_rows(self.fan_out, pages=pages, bits=bits, passes=passes)
        return Interval.of(require_nonempty(rows, "no such partitioning was timed").iloc[0])

    # --- strided sums

    @cached_property
    def array_bytes(self) -> int:
        """The published array, or the largest that was measured; 0 without any."""
        rows = self._sums()
        return int(rows["bytes"].max()) if len(rows) else 0

    def _sums(self, **where: object) -> pd.DataFrame:
        """Return the rows of the loop, one a mapping, that have these values."""
        rows = select_rows(self.frame, kernel="stride_sum", **where)
        return rows.reindex(columns=list(dict.fromkeys([*rows, "bytes", STRIDE])))

    def _packed_sums(self, **where: object) -> pd.DataFrame:
        """Return the rows over the same number of lines as a controlled stride visits, side by
        side, under that stride."""
        rows = self._sums(step_bytes=CACHE_LINE_BYTES, **where)
        strides = {
            self.array_bytes // stride * CACHE_LINE_BYTES: stride
            for stride in STRIDES_WITH_PACKED_CONTROL
        }
        return rows[rows["bytes"].isin(list(strides))].assign(
            **{STRIDE: lambda kept: kept["bytes"].map(strides).astype(int)}
        )

    @cached_property
    def times(self) -> dict[str, Curve]:
        """ns per load of the published loop by page size."""
        return _at_strides(self._sums(mode="plain", bytes=self.array_bytes), STRIDE_BYTES)

    @cached_property
    def padded_times(self) -> dict[str, Curve]:
        """The same with one cache line more than the stride: nearly as many pages and lines."""
        rows = self._sums(mode="plain", bytes=self.array_bytes)
        return _at_strides(rows, STRIDES_WITH_PACKED_CONTROL, more_bytes=CACHE_LINE_BYTES)

    base = property(lambda a: _first_of(a.times, BASE_PAGES))
    padded = property(lambda a: _first_of(a.padded_times, BASE_PAGES))

    @cached_property
    def side_by_side(self) -> Curve:
        """ns per load of as many lines as a stride visits, side by side."""
        return _first_of(
            _at_strides(self._packed_sums(mode="plain"), STRIDES_WITH_PACKED_CONTROL), BASE_PAGES
        )

    @property
    def padding_saves(self) -> Curve:
        """What one cache line more than the stride saves a load."""
        return self.base - self.padded

    @property
    def large(self) -> str:
        """The large pages to compare with. Raises Unavailable("pool-empty")."""
        return require_nonempty(
            [pages for pages in HUGE_PAGE_KINDS if pages in self.times],
            "no sum on large pages was measured",
            "pool-empty",
        )[0]

    @property
    def stride_price(self) -> Curve:
        """What base pages take longer than large ones at the published strides."""
        return self.base - _first_of(self.times, *HUGE_PAGE_KINDS)

    @property
    def at_most(self) -> Curve:
        """Translation, gaps between lines and lost prefetching, of the padded loop."""
        return self.padded - self.side_by_side

    @property
    def shuffled_price(self) -> Curve:
        """`at_most` of loads whose order no prefetcher follows."""
        where = {"mode": "listed", "order": "cycle"}
        spread = _under_stride(
            self._sums(bytes=self.array_bytes, **where),
            STRIDES_WITH_PACKED_CONTROL,
            CACHE_LINE_BYTES,
        )
        return Curve.of(spread, STRIDE) - Curve.of(self._packed_sums(**where), STRIDE)

    @property
    def near_ns(self) -> Interval:
        """A load of eight bytes in order from the first cache."""
        rows = self._sums(mode="plain", bytes=BYTES_WITHIN_L1_CACHE)
        return interval_of_rows(require_nonempty(rows, "nothing was summed inside the first cache"))

    @cached_property
    def stride_walks(self) -> Curve:
        """Page walks per load of the published loop on base pages, as counted, by stride."""
        rows = self._sums(mode="plain", bytes=self.array_bytes, pages=BASE_PAGES)
        return Curve.of(rows, STRIDE, "walk_per_access")

    def _summary(
        self, kernel: str, mode: str | list[str], keys: list[str], **where: object
    ) -> pd.DataFrame:
        """`summarise` of the rows of a kernel in a mode by page size and `keys`. Empty
        without rows."""
        rows = select_rows(self.frame, kernel=kernel, mode=mode, **where)
        rows = rows.reindex(columns=list(dict.fromkeys([*rows, *keys])))
        found = summarise(rows.assign(vertices=rows["lines"]), ["pages", *keys])
        found = found.astype({key: int for key in keys if key != "mode"})
        return found.sort_values(["pages", *keys[::-1]], key=page_size_rank, ignore_index=True)


def _at_strides(
    rows: pd.DataFrame, strides: Collection[int], more_bytes: int = 0
) -> dict[str, Curve]:
    """Return the time by stride for each page size measured. more_bytes: by which the loop's step
    is longer than the stride."""
    return Curve.by(_under_stride(rows, strides, more_bytes), STRIDE_SUM_PAGE_KINDS, x=STRIDE)


def _under_stride(rows: pd.DataFrame, strides: Collection[int], more_bytes: int) -> pd.DataFrame:
    rows = rows[rows[STRIDE].isin([stride + more_bytes for stride in strides])]
    return rows.assign(**{STRIDE: rows[STRIDE] - more_bytes})


def _first_of(curves: Mapping[str, Curve], *kinds: str) -> Curve:
    """Return the curve of the first of these kinds that was measured, or an empty one."""
    return next(
        (curves[kind] for kind in kinds if kind in curves),
        Curve(pd.DataFrame(columns=_COLUMNS), STRIDE),
    )


def with_gain(found: pd.DataFrame, slow: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Return `found` with gain, gain_low and gain_high: how many times as fast each row is as that
    of `slow` with the same keys; NaN without one."""
    key, rows = itemgetter(*keys), found.to_dict("records")
    known = {key(row): Interval.of(row) for row in slow.to_dict("records")}
    gains = [
        known[key(row)] / Interval.of(row) if key(row) in known else UNKNOWN_INTERVAL
        for row in rows
    ]
    bounds = [gain.value_and_bounds for gain in gains]
    return found.assign(
        **{name: [float(one[at]) for one in bounds] for at, name in enumerate(GAIN_COLUMNS)}
    )


def best_of(found: pd.DataFrame, pages: str) -> pd.Series:
    mine = select_rows(found, pages=pages).dropna(subset="gain")
    require_nonempty(mine, f"nothing on {page_words(pages)} can be compared")
    return mine.iloc[int(mine["gain"].argmax())]


def _remedy(
    remedy: str, pages: str, block: int, rows: pd.DataFrame, vertices: int
) -> dict[str, object]:
    row = {"remedy": remedy, "pages": pages, "vertices": vertices, "block_vertices": block}
    shares = list(_QUANTILES.values())
    each = np.array(
        [hop_quantile(smoothed_hop_times(process), shares) for _, process in rows.iterrows()]
    )
    medians = {name: median_interval(ns) for name, ns in zip(_QUANTILES, each.T, strict=True)}
    for name, interval in medians.items():
        row[name], row[f"{name}_low"], row[f"{name}_high"] = interval.value_and_bounds
        row["coverage"] = interval.coverage
    return row | {"modes": max(interval.modes for interval in medians.values()), "n": len(rows)}
