"""What is known of this computer to judge a watched program by: the reach of its TLBs, and its own
rows about the price of translation."""

from __future__ import annotations

import mmap
import os
import time
from collections import defaultdict
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tlb.machine import host as hosts
from tlb.machine.host import Host, data_caches, data_tlbs
from tlb.measure import kernels, row_selection
from tlb.measure.last_campaign import last_campaign
from tlb.measure.store import Store
from tlb.programs.activity import ActivitySample
from tlb.programs.program_bounds import (
    CurvePoints,
    Gain,
    TlbLevelName,
    TranslationPrices,
    tlb_level_holding,
)
from tlb.stats.intervals import Interval, median_interval
from tlb.system import files, processes
from tlb.system.page_sizes import BASE, page_bytes
from tlb.system.reasons import Unavailable, if_available

if TYPE_CHECKING:
    import pandas as pd

    from tlb.measure.measuring_setup import MeasuringSetup

PRICES = "hugepages"  # the experiment with chases on base pages and on huge ones
SURVEY = "geometry"  # measure.survey.NAME
_LARGE = "2m"
_LEVELS: tuple[TlbLevelName, ...] = ("first level", "second level", "beyond")


@dataclass(frozen=True)
class TlbReach:
    """entries: of each level of the data TLB, ascending, by the page that an entry maps; source: of
    these numbers. prices: by the rows of PRICES on this machine, or why there are none.
    is_splintered: whether the hypervisor backs huge pages with smaller ones, so that no entry holds
    a whole one. unknown: the reason's code where no entries are known. fault_s: of a page fault, at
    most."""

    entries: dict[str, tuple[int, ...]]
    source: dict[str, str]
    prices: TranslationPrices | Unavailable
    is_splintered: bool
    base_page_bytes: int
    large_page_bytes: int
    unknown: str = "no-geometry"
    fault_s: float = 0.0

    @classmethod
    def of(cls, host: Host, store: Store) -> TlbReach:
        """Return what this computer's own rows say, else its published rows, else CPUID.

        Where there may be rows, a process of its own reads them, for pandas and SciPy take 200 MB.
        If memory runs out, it is the first to end, and CPUID is all that is known."""
        machine = if_available(hosts.machine_id, host)  # of an unknown computer there are no rows
        if not any(machine in each.machines() for each in (store.own, store)):
            return read(host, store)
        try:
            with processes.workers(1, "fork") as pool:
                return pool.submit(_read_apart, host, store).result()
        except BrokenProcessPool:
            return _stated(host, Unavailable("oom-killed", "the process that reads the prices"))

    def tread(self, sample: ActivitySample) -> TlbLevelName:
        """Return the TLB level that covers what is touched: the higher of those of base pages and
        of huge pages. Raises Unavailable("no-geometry")."""
        if not self.entries.get(BASE):
            raise Unavailable(self.unknown)
        base_bytes = sample.active_bytes - (0 if self.is_splintered else sample.huge_least)
        levels = [tlb_level_holding(base_bytes / self.base_page_bytes, self.entries.get(BASE, ()))]
        if sample.huge_most and not self.is_splintered:
            huge_pages = sample.huge_most / self.large_page_bytes
            levels.append(tlb_level_holding(huge_pages, self.entries.get(_LARGE, ())))
        return max(levels, key=_LEVELS.index)

    def gain(self, sample: ActivitySample, user_share: float, fault_share: float) -> Gain:
        """Return the most that huge pages can gain a program, with shares of its CPU time. Raises
        Unavailable: no-data, and what `Prices.gain` raises."""
        sizes = sample.active_bytes, sample.huge_most, self.base_page_bytes
        return self._prices().gain(*sizes, user_share, fault_share)

    def timed(self, host: Host, store: Store, sample: ActivitySample) -> TlbReach:
        """Return this with prices timed now, over what a sample touches, or why they were not. Holds
        the lock of measurements meanwhile."""
        from tlb.measure.measuring_setup import (
            MeasuringSetup,  # once the program has ended, for its memory
        )

        pages = (sample.active_bytes - sample.huge_most) // self.base_page_bytes
        try:
            with files.measuring_lock():
                rig = MeasuringSetup.of(host, store.own, counters=False)
                return replace(self, prices=timed_prices(rig, self.base_page_bytes, pages))
        except Unavailable as why:
            return replace(self, prices=why)

    def far_price(self, size: str, pages: int) -> Interval:
        """Return what a far load pays for translation, in ns, over so many base pages in folios of
        a size. Raises Unavailable: no-data, too-few-points if that was not measured."""
        return self._prices().price(size, pages)

    def _prices(self) -> TranslationPrices:
        if isinstance(self.prices, Unavailable):
            raise self.prices
        return self.prices


def _fault_s() -> float:
    """Return what a page fault costs now at most, in s: the first touch of a base page, in the
    slowest of some rounds."""
    size_bytes, rounds, no_huge_page = 8 << 20, 5, getattr(mmap, "MADV_NOHUGEPAGE", None)
    pages, slowest_s = size_bytes // mmap.PAGESIZE, 0.0
    for _ in range(rounds):
        with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            if no_huge_page is not None:
                memory.madvise(no_huge_page)
            begin = time.process_time()
            memory[:: mmap.PAGESIZE] = bytes(pages)
            slowest_s = max(slowest_s, (time.process_time() - begin) / pages)
    return slowest_s


def _stated(host: Host, prices: TranslationPrices | Unavailable) -> TlbReach:
    """Return what CPUID states, with prices or why there are none."""
    entries = {
        page: tuple(tlb.entries for tlb in levels)
        for page in (BASE, _LARGE, "1g")
        if (levels := data_tlbs(host, page))
    }
    sizes = host.base_page_bytes, host.thp.page_bytes or page_bytes("thp", host.base_page_bytes)
    unknown = host.tlb_reason or "no-geometry"
    source = dict.fromkeys(entries, "CPUID")
    return TlbReach(entries, source, prices, False, *sizes, unknown, _fault_s())


def _read_apart(host: Host, store: Store) -> TlbReach:
    processes.end_first(os.getpid())
    return read(host, store)


def read(host: Host, store: Store) -> TlbReach:
    """Return `Reach.of`, read in this process."""
    try:
        frame = _rows(host, store, PRICES)
        from tlb.stats import splinter  # with pandas and scipy, for those who have rows

        backing = if_available(splinter.judge_splintering, frame, host.hypervisor)
        is_splintered = bool(backing and backing.is_splintered)
        known = replace(_stated(host, TranslationPrices.of(frame)), is_splintered=is_splintered)
    except Unavailable as why:
        known = _stated(host, why)
    if surveyed := if_available(_surveyed, host, store):
        known.entries[BASE], known.source[BASE] = surveyed, "tlb geometry"
    return known


def _sources(host: Host, store: Store, experiment: str) -> list[Store]:
    """Return the stores with rows of an experiment on this computer: its own, then the published."""
    machine = if_available(hosts.machine_id, host)  # of an unknown computer there are no rows
    stores = (store.own, store) if machine else ()
    return [
        each for each in stores if experiment in (if_available(each.experiments, machine) or ())
    ]


def _rows(host: Host, store: Store, experiment: str) -> pd.DataFrame:
    """Return this computer's own rows of an experiment in its present state, else those of the last
    published campaign. Raises Unavailable("no-data")."""
    machine, state = hosts.machine_id(host), hosts.state_digest(host)
    for source in _sources(host, store, experiment):
        frame = source.load(machine, experiment)
        if source is not store and "state" in frame:
            frame = frame[frame["state"] == state]
        if not frame.empty:
            return kernels.with_defaults(row_selection.rows_of_one_profile(last_campaign(frame)))
    raise Unavailable("no-data", f"`tlb run {experiment}` on {machine}")


def _surveyed(host: Host, store: Store) -> tuple[int, ...]:
    """Return the entries for base pages that the survey found. Raises Unavailable: no-data, and
    no-geometry if it found a single level, which may be either."""
    surveyed = _rows(host, store, SURVEY)
    from tlb.stats import geometry

    levels = geometry.infer_geometry(surveyed, (), data_caches(host)).levels
    if any(level.is_alone for level in levels):
        raise Unavailable("no-geometry", "this compares two levels, and one is known")
    return tuple(round(level.entries.value) for level in levels)


# --- prices timed now: half a second of chases, each with its packed control

PRICE_REPEATS, PRICE_REGION_MS = 3, 10
# Pages: from where the first level of the TLB ends to where any second one does; by what they hold,
# what takes a tenth of a second to fill.
_LEAST_PAGES, _STEP, MOST_BYTES = 256, 4, 256 << 20


def timed_prices(rig: MeasuringSetup, base_page_bytes: int, pages: int) -> TranslationPrices:
    """Return prices on base pages up to so many of them. Raises Unavailable as `Rig.measured`."""
    from tlb.measure.record import Point

    most = max(min(pages, MOST_BYTES // base_page_bytes), 2)
    sizes, size = [most], _LEAST_PAGES
    while size < most:
        sizes.insert(-1, size)
        size *= _STEP
    points = [
        Point(
            kernel="page_chase", pages=BASE, layout=layout, lines=lines, region_ms=PRICE_REGION_MS
        )
        for lines in sizes
        for layout in ("spread", "packed")
    ]
    times = defaultdict[tuple[int, str], list[float]](list)
    for repeat in range(PRICE_REPEATS):
        for point, result in rig.measured(points, repeat):
            if isinstance(result, Unavailable):
                raise result
            times[point.lines, point.layout].append(result.ns_per_access)
    both = {n: list(zip(times[n, "spread"], times[n, "packed"], strict=True)) for n in sizes}
    walks: CurvePoints = [
        (n, median_interval([far - near for far, near in each])) for n, each in both.items()
    ]
    ratios: CurvePoints = [
        (n, median_interval([near / far for far, near in each])) for n, each in both.items()
    ]
    return TranslationPrices({BASE: walks}, ratios, "thp")
