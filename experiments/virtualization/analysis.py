"""A guest's loads beside a process's own: rows of guests, plain processes, containers and memory
nodes as curves and ratios.

Names here are those of the claims: a guest and its host. In the experiment, the guest is the page's
inner guest, and its host is the rented guest that it runs in (INNER_GUEST_PAGES on
GUEST_PAGE_KINDS)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import product

import pandas as pd

from experiments.virtualization.grid import GUEST_HOST_PAGE_PAIRS, GUEST_PAGE_KINDS, NUMA_PLACEMENTS
from tlb.measure.namespaces import FRESH_NAMESPACES_MODE
from tlb.report import analysis, quantities
from tlb.report.chapter import Chapter
from tlb.report.quantities import QuantityDeclaration, ValueOrFunction
from tlb.stats import splinter
from tlb.stats.curves import Curve, select_rows
from tlb.stats.intervals import UNKNOWN_INTERVAL, Interval, median_interval, summarise
from tlb.system.page_sizes import (
    BASE_PAGES,
    PUBLISHED_BASE_PAGE_BYTES,
    mapped_page_size,
    page_labels,
)
from tlb.system.page_sizes import MAPPED_PAGE_SIZES as INNER_GUEST_PAGES
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty
from tlb.system.units import format_size

# The guest of guest_chase is written for x86-64, as is its host
GUEST_BASE_PAGE_BYTES = PUBLISHED_BASE_PAGE_BYTES
BASE_PAGES_OF_GUEST = format_size(GUEST_BASE_PAGE_BYTES)


class Quantities(quantities.Quantities):
    """Of a guest that the measured machine runs in itself. `2m_on_4k` is a guest's 2 MiB page on
    4 KiB pages of the machine; its 2 MiB pages are transparent ones. Prices are spread minus packed."""

    near_4k_on_4k_ns = QuantityDeclaration(
        "cost of an STLB hit: inner guest 4 KiB, outer guest 4 KiB",
        "ns",
        1,
        pages=BASE_PAGES_OF_GUEST,
    )
    near_2m_on_4k_ns = QuantityDeclaration(
        "cost of an STLB hit: inner guest 2 MiB, outer guest 4 KiB",
        "ns",
        1,
        pages=BASE_PAGES_OF_GUEST,
    )
    near_4k_on_2m_ns = QuantityDeclaration(
        "cost of an STLB hit: inner guest 4 KiB, outer guest 2 MiB",
        "ns",
        1,
        pages=BASE_PAGES_OF_GUEST,
    )
    near_2m_on_2m_ns = QuantityDeclaration(
        "cost of an STLB hit: inner guest 2 MiB, outer guest 2 MiB",
        "ns",
        1,
        pages=BASE_PAGES_OF_GUEST,
    )
    walk_2m_on_4k = QuantityDeclaration(
        "past the STLB, inner guest 2 MiB, outer guest 4 KiB: cost, of that on 4 KiB throughout",
        "times",
        2,
        pages=BASE_PAGES_OF_GUEST,
    )
    walk_4k_on_2m = QuantityDeclaration(
        "past the STLB, inner guest 4 KiB, outer guest 2 MiB: cost, of that on 4 KiB throughout",
        "times",
        2,
        pages=BASE_PAGES_OF_GUEST,
    )
    walk_2m_on_2m = QuantityDeclaration(
        "past the STLB, inner guest 2 MiB, outer guest 2 MiB: cost, of that on 4 KiB throughout",
        "times",
        2,
        pages=BASE_PAGES_OF_GUEST,
    )
    walk_process = QuantityDeclaration(
        "past the STLB, a process on 2 MiB pages: cost, of that on 4 KiB",
        "times",
        2,
        pages=BASE_PAGES_OF_GUEST,
    )
    far_bytes = QuantityDeclaration("largest working set of all pairs of page sizes", "bytes")
    far_4k_ratio = QuantityDeclaration(
        "in the largest, a load with inner guest 4 KiB, outer guest 4 KiB, of a process's on 4 KiB",
        "times",
        2,
        pages=BASE_PAGES_OF_GUEST,
    )
    far_2m_ratio = QuantityDeclaration(
        "in the largest, a load with inner guest 2 MiB, outer guest 4 KiB, of a process's on 2 MiB",
        "times",
        2,
        pages=BASE_PAGES_OF_GUEST,
    )
    touch_least_ns = QuantityDeclaration(
        "first touch of 4 KiB in the inner guest, 4 KiB pages on a side: the least",
        "ns",
        pages=BASE_PAGES_OF_GUEST,
    )
    touch_most_ns = QuantityDeclaration(
        "first touch of 4 KiB in the inner guest, 4 KiB pages on a side: the most",
        "ns",
        pages=BASE_PAGES_OF_GUEST,
    )
    touch_huge_ns = QuantityDeclaration(
        "first touch of 4 KiB in the inner guest, huge pages on both sides: the most",
        "ns",
        pages=BASE_PAGES_OF_GUEST,
    )
    clocks_agree = QuantityDeclaration(
        "inner guest's runs timed alike by its clock and one outside",
        "share",
        is_counted=True,
        pages=BASE_PAGES_OF_GUEST,
    )
    near_ratio = QuantityDeclaration(
        "a load that misses nothing in the inner guest, of one in a process",
        "times",
        2,
        pages=BASE_PAGES_OF_GUEST,
    )
    container_ratio = QuantityDeclaration(
        "a load in fresh namespaces, of a plain process's", "times", 2
    )
    remote_memory = QuantityDeclaration(
        "a load from another node's memory, over this node's", "times", 2
    )
    remote_tables = QuantityDeclaration("a load whose page table is on another node", "times", 2)

    def record(
        self, rows: pd.DataFrame, *, conditions: str | float = "", **found: ValueOrFunction
    ) -> None:
        """As `quantities.Quantities.record`. The reason for no number of a guest is its clock, where
        that differs too often from one outside."""
        super().record(rows, conditions=conditions, **found)
        if do_clocks_differ(rows):
            for name in found.keys() - _OF_PROCESSES:
                if self._found[name].interval is None:
                    lacking = Unavailable("clocks-differ")
                    self._found[name] = replace(self._found[name], lacking=lacking)


# The quantities that are not of an inner guest
_OF_PROCESSES = {"walk_process", "container_ratio", "remote_memory", "remote_tables"}

PagePair = tuple[str, str]  # the guest's page, "" of a plain process; and the host's
GUEST_CHASE_KERNEL, PROCESS_CHASE_KERNEL = "guest_chase", "page_chase"
# Times the last level's entries: a chase over as many pages misses it nearly always, and its page
# tables are still in a cache of the core.
STLB_MULTIPLES_BEYOND_REACH = (1.5, 6.0)
_OF_GUEST = {"4k": "4 KiB", "2m": "2 MiB", "1g": "1 GiB"}  # whose pages have no other kind
SIZES = page_labels(GUEST_BASE_PAGE_BYTES)
CLOCKS_AGREE = 0.01  # the relative difference of two clocks that counts as none
LEAST_RUNS_ALIKE = 0.9  # the share of runs with such clocks below which the page warns


def clock_ratios(rows: pd.DataFrame) -> pd.Series:
    """Return the time by the clock outside over that by the guest's, a value a process; none if no
    guest was timed by both."""
    rows = select_rows(rows, kernel=GUEST_CHASE_KERNEL, levels=4)
    outside = rows.get("outside_ns_per_access", pd.Series(dtype=float))
    return (outside / rows.get("ns_per_access", outside)).dropna()


def share_alike(ratios: pd.Series) -> float:
    """Return the share of runs that both clocks time alike."""
    return float(((ratios - 1).abs() <= CLOCKS_AGREE).mean())


def do_clocks_differ(rows: pd.DataFrame) -> bool:
    """Return whether the clocks of too many of the guests' runs differ for any of their times."""
    ratios = clock_ratios(rows)
    return len(ratios) > 0 and share_alike(ratios) < LEAST_RUNS_ALIKE


def cell_name(guest: str, host: str) -> str:
    """Return a pair as figures call it: 2 MiB on 4 KiB."""
    return f"{_OF_GUEST[guest]} on {SIZES[host]}" if guest else f"no guest, {SIZES[host]}"


def guest_and_host_pages_in_words(guest: str, host: str) -> str:
    """Return a pair as a sentence calls it: 4 KiB pages on the host's 2 MiB (THP) pages."""
    whose = f"{_OF_GUEST[guest]} pages on the host's " if guest else ""
    return f"{whose}{SIZES[host]} pages"


class Analysis(analysis.Analysis):
    """The rows of experiment `virtualization`; times are ns per access, by the clock of the guest or
    process that was timed. What was not measured raises Unavailable. A guest whose clock differs too
    often (`clocks_warning`) has no rows."""

    def __init__(self, frame: pd.DataFrame, about: Chapter):
        super().__init__(frame, about)
        if self.clocks_warning:
            self.frame = frame[frame["kernel"] != GUEST_CHASE_KERNEL]

    @cached_property
    def guests(self) -> Analysis:
        """The Analysis whose guests claims are about: this machine's, or the reference machine's
        where this machine has no guests. Itself where neither has."""
        with suppress(Unavailable):
            if not self.cells:
                theirs = self.on("reference")
                return theirs if theirs.cells else self
        return self

    def rows(self, guest: str, host: str, levels: int = 4) -> pd.DataFrame:
        """Return the rows of a chase, `levels` being of a guest's tables."""
        if not guest:
            return select_rows(self.frame, kernel=PROCESS_CHASE_KERNEL, mode="", pages=host)
        return select_rows(
            self.frame, kernel=GUEST_CHASE_KERNEL, mode=guest, levels=levels, pages=host
        )

    # --- chases

    def curves(self, layout: str) -> dict[PagePair, Curve]:
        """Return a curve for each chase that was measured, the plain processes' first, pages from
        small to large."""
        curves = {
            chase: Curve.of(self.rows(*chase), layout=layout)
            for chase in product(("", *INNER_GUEST_PAGES), GUEST_PAGE_KINDS)
        }
        return {chase: curve for chase, curve in curves.items() if len(curve)}

    @cached_property
    def spread(self) -> dict[PagePair, Curve]:
        """A line to each base page, by pair of page sizes."""
        return self.curves("spread")

    @cached_property
    def packed(self) -> dict[PagePair, Curve]:
        """As many lines side by side."""
        return self.curves("packed")

    @cached_property
    def ratios(self) -> dict[PagePair, Curve]:
        """A spread chase over that of a plain process on the guest's page size, where there is
        one."""
        outside = {pair: ("", self.alike(pair[0])) for pair in self.cells}
        return {
            pair: self.spread[pair] / self.spread[process]
            for pair, process in outside.items()
            if process in self.spread
        }

    @cached_property
    def cells(self) -> list[PagePair]:
        """The pairs of page sizes that were measured in a guest of this machine."""
        pairs = product(INNER_GUEST_PAGES, GUEST_PAGE_KINDS)
        return [pair for pair in pairs if len(select_rows(self.rows(*pair), layout="spread"))]

    def alike(self, guest: str) -> str | None:
        """The page size on which the same program would run outside: the guest's, of 2 MiB the
        pool's before the transparent kind."""
        for host in GUEST_PAGE_KINDS[::-1]:
            if mapped_page_size(host) == guest and ("", host) in self.spread:
                return host
        return None

    @property
    def over_alike(self) -> dict[PagePair, Curve]:
        """`ratios`, if this machine has guests of its own; else none."""
        return self.ratios if self.guests is self else {}

    @cached_property
    def chases(self) -> pd.DataFrame:
        """A row a chase and number of lines: guest, host, cell (its name), what `summarise` gives
        of the spread chase, and over_alike with _low and _high; NaN where that was not measured."""
        tables = []
        for chase, curve in self.spread.items():
            table = curve.table.assign(guest=chase[0], host=chase[1], cell=cell_name(*chase))
            known = dict(self.ratios.get(chase, ()))
            table[["over_alike", "over_alike_low", "over_alike_high"]] = [
                known.get(lines, UNKNOWN_INTERVAL).value_and_bounds for lines in table["lines"]
            ]
            tables.append(table)
        return pd.concat(require_nonempty(tables, "nothing was measured"), ignore_index=True)

    @cached_property
    def matrix(self) -> pd.DataFrame:
        require_nonempty(self.cells, "no guest was measured")
        return self.chases[self.chases["guest"] != ""].reset_index(drop=True)

    @cached_property
    def sizes(self) -> list[int]:
        """The numbers of lines that most cells share, ascending; not those of the steps."""
        count = self.matrix.groupby("lines").size()
        return [int(lines) for lines in count.index[count == count.max()]]

    @property
    def far(self) -> pd.DataFrame:
        return select_rows(self.matrix, lines=self.sizes[-1]).reset_index(drop=True)

    def far_ratio(self, guest: str, host: str) -> Interval:
        """Return the ratio of a pair at the largest of `sizes`."""
        ratios = require_nonempty(
            self.ratios.get((guest, host)), f"no {guest_and_host_pages_in_words(guest, host)}"
        )
        return ratios.get(self.sizes[-1])

    # --- the steps of the chases over few lines

    def _over_base(self) -> list[tuple[PagePair, PagePair]]:
        """Return the chases on larger pages, each with the one on 4 KiB pages throughout."""
        outside = dict.fromkeys(
            host for _, host in GUEST_HOST_PAGE_PAIRS if mapped_page_size(host) != BASE_PAGES
        )
        pairs = [(("", host), ("", BASE_PAGES)) for host in outside]
        return pairs + [(chase, GUEST_HOST_PAGE_PAIRS[0]) for chase in GUEST_HOST_PAGE_PAIRS[1:]]

    @cached_property
    def walks(self) -> dict[PagePair, Interval]:
        """What translation costs past the last level's entries, over that on 4 KiB pages: the sum
        over all sizes within PAST of one mapping over that of another, the median over mappings."""
        prices = {pair: none_if_unavailable(self._past, *pair) for pair in self._over_base()}
        return {pair[0]: ratio for pair, ratio in prices.items() if ratio is not None}

    def _past(self, chase: PagePair, base: PagePair) -> Interval:
        large, small = (self._prices(one) for one in (chase, base))
        shared = require_nonempty(
            large.columns.intersection(small.columns), "no size was measured on both"
        )
        ratios = (large[shared].sum(axis=1) / small[shared].sum(axis=1)).dropna()
        return median_interval(require_nonempty(ratios, "no mapping was measured on both"))

    def _prices(self, chase: PagePair) -> pd.DataFrame:
        """Return spread minus packed within PAST, a row a mapping, a column a number of lines."""
        low, high = (times * self.two_levels()[1] for times in STLB_MULTIPLES_BEYOND_REACH)
        rows = self.rows(*chase)
        rows = rows[rows["lines"].between(low, min(high, splinter.MAX_SPLINTERING_TEST_LINES))]
        times = rows.pivot_table(
            index=["repeat", "lines"], columns="layout", values="ns_per_access"
        )
        if not {"spread", "packed"} <= {*times}:
            raise Unavailable("too-few-points", "no chase past the reach has its control")
        return (times["spread"] - times["packed"]).dropna().unstack("lines").dropna()

    # --- what a guest costs beside its loads

    @property
    def in_first_cache(self) -> Interval:
        """The first cell's packed chase of the fewest lines over the plain process's: where nothing
        is translated twice and nothing missed, both run the same instructions on the same lines."""
        cell = next(iter(self.cells), ("", ""))
        guest, process = (
            self.packed.get(cell),
            self.packed.get(("", self.alike(cell[0]) or BASE_PAGES)),
        )
        ratios = (guest / process).intervals if guest and process else []
        return require_nonempty(ratios, "no packed chase was measured both in a guest and outside")[
            0
        ]

    @property
    def clocks(self) -> pd.Series:
        """`clock_ratios`. Raises Unavailable for none."""
        return require_nonempty(
            clock_ratios(self.measured_rows), "no guest was timed by two clocks"
        )

    @property
    def clocks_agree(self) -> float:
        """The share of the guests' runs that both clocks time alike."""
        return share_alike(self.clocks)

    @property
    def clocks_warning(self) -> str:
        """Warn in a sentence that the clocks of many runs differ; "" if they do not, or none ran."""
        if not do_clocks_differ(self.measured_rows):
            return ""
        return (
            f"Inner guest on {self.about.shown_name}: its clock and one outside agree in only "
            f"{self.clocks_agree:.0%} of its runs, so its times are left out."
        )

    @cached_property
    def touches(self) -> pd.DataFrame:
        """How much longer the first touch of a line takes than a later load, ns for each base page,
        at the largest of `sizes`, a row a cell: guest, host and the columns of `summarise`. Raises
        Unavailable."""
        rows = select_rows(
            self.frame, kernel=GUEST_CHASE_KERNEL, levels=4, layout="spread", lines=self.sizes[-1]
        )
        first = rows.get("first_touch_ns_per_access", pd.Series(dtype=float))
        require_nonempty(first.dropna(), "no first touch was timed in a guest")
        rows = rows.assign(excess=first - rows["ns_per_access"])
        table = summarise(rows, ["mode", "pages"], "excess").rename(
            columns={"mode": "guest", "pages": "host"}
        )
        pairs = list(zip(table["guest"], table["host"], strict=True))
        return table[[pair in self.cells for pair in pairs]].reset_index(drop=True)

    def touch(self, *, huge: bool) -> pd.DataFrame:
        """Return the rows of `touches` with huge pages on both sides, or with base pages on one.
        Raises Unavailable."""
        table = self.touches
        is_huge = (table["guest"] != BASE_PAGES) & (table["host"] != BASE_PAGES)
        return require_nonempty(table[is_huge == huge], "no first touch was timed on these pages")

    # --- containers, and other memory nodes

    def process_rows(self, mode: str) -> pd.DataFrame:
        """Return the chases of processes on base pages: plain ones ("") or in fresh namespaces."""
        return select_rows(self.frame, kernel=PROCESS_CHASE_KERNEL, pages=BASE_PAGES, mode=mode)

    @cached_property
    def container_ratio(self) -> Interval:
        """Time in fresh namespaces over that of a plain process: the median over points inside each
        repeat, then over repeats, since points of a mapping are no independent draws. A pair walked
        the same permutation in the same repeat, so what the order and an hour of drift do, they do
        to both."""
        plain, inside = (
            rows.pivot_table(
                index="repeat",
                columns=["layout", "lines"],
                values="ns_per_access",
                aggfunc="median",
            )
            for rows in (self.process_rows(mode) for mode in ("", FRESH_NAMESPACES_MODE))
        )
        pairs = (inside / plain).dropna(axis="columns", how="all").dropna()
        return median_interval(
            require_nonempty(
                pairs, "no repeat measured all points in namespaces and outside"
            ).median(axis=1)
        )

    def remote(self, memory: str, tables: str) -> Interval:
        """Return the chase with memory and page tables "local" or "remote" over both local, at the
        largest size. Raises Unavailable("too-few-points")."""
        rows = select_rows(self.nodes, memory=memory, tables=tables).dropna(subset="over")
        require_nonempty(rows, "no other memory node was measured")
        return Interval.of(rows.sort_values("lines").iloc[-1], "over")

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """The chase by where its memory and page tables lie, seen from the CPU: memory, tables,
        lines, median, low, high, over, over_low, over_high (over both near). Empty where no node
        but one was measured."""
        curves = Curve.by(self.frame, NUMA_PLACEMENTS, "mode", kernel="numa_chase", layout="spread")
        rows = []
        for mode, curve in curves.items():
            over = dict(curve / curves[NUMA_PLACEMENTS[0]]) if NUMA_PLACEMENTS[0] in curves else {}
            rows += [
                (
                    *mode.split("-"),
                    int(lines),
                    *here.value_and_bounds,
                    *over.get(lines, UNKNOWN_INTERVAL).value_and_bounds,
                )
                for lines, here in curve
            ]
        columns = ["memory", "tables", "lines", "median", "low", "high"]
        return pd.DataFrame(rows, columns=[*columns, "over", "over_low", "over_high"])
