"""What is known of this computer to judge a watched program by: the reach of its TLBs, and its own
rows about the price of translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tlb.inference import curves
from tlb.inference.campaigns import newest
from tlb.inference.curves import select
from tlb.inference.intervals import Interval
from tlb.inference.program_bounds import Gain, Tread, bracket, expected_gain, smoothed, tread
from tlb.lab import kernels, rows
from tlb.lab.store import Store
from tlb.machine import host as hosts
from tlb.machine.host import Host, data_caches, data_tlbs
from tlb.page_sizes import BASE
from tlb.programs.activity import Sample
from tlb.reasons import Unavailable, if_available

if TYPE_CHECKING:
    import pandas as pd

PRICES = "hugepages"  # the experiment with chases on base pages and on huge ones
SURVEY = "geometry"  # lab.survey.NAME
_LARGE = "2m"
_LEVELS: tuple[Tread, ...] = ("first level", "second level", "beyond")


@dataclass(frozen=True)
class Reach:
    """entries: of each level of the data TLB, ascending, by the page that an entry maps; source: of
    these numbers. rows: of PRICES on this machine, or why there are none. is_splintered: whether
    the hypervisor backs huge pages with smaller ones, so that no entry holds a whole one."""

    entries: dict[str, tuple[int, ...]]
    source: dict[str, str]
    rows: pd.DataFrame | Unavailable
    is_splintered: bool
    base_page_bytes: int
    large_page_bytes: int

    @classmethod
    def of(cls, host: Host, store: Store) -> Reach:
        """Return what this computer's own rows say, else its published rows, else CPUID."""
        entries = {
            page: tuple(tlb.entries for tlb in levels)
            for page in (BASE, _LARGE, "1g")
            if (levels := data_tlbs(host, page))
        }
        source = dict.fromkeys(entries, "CPUID")
        if surveyed := if_available(_surveyed, host, store):
            entries[BASE], source[BASE] = surveyed, "the survey of this machine"
        prices: pd.DataFrame | Unavailable
        try:
            prices = _rows(host, store, PRICES)
            from tlb.inference import splinter  # with pandas and scipy, for those who have rows

            backing = if_available(splinter.judge, prices, host.hypervisor)
        except Unavailable as why:
            prices, backing = why, None
        is_splintered = bool(backing and backing.is_splintered)
        sizes = host.base_page_bytes, host.thp.page_bytes or 2 << 20
        return cls(entries, source, prices, is_splintered, *sizes)

    def tread(self, sample: Sample) -> Tread:
        """Return the TLB level that covers what is touched: the higher of those of base pages and
        of huge pages. Raises Unavailable("no-geometry")."""
        base_bytes = sample.active_bytes - (0 if self.is_splintered else sample.huge_least)
        levels = [tread(base_bytes / self.base_page_bytes, self.entries.get(BASE, ()))]
        if sample.huge_most and not self.is_splintered:
            huge_pages = sample.huge_most / self.large_page_bytes
            levels.append(tread(huge_pages, self.entries.get(_LARGE, ())))
        return max(levels, key=_LEVELS.index)

    def gain(self, sample: Sample, kernel_share: float) -> Gain:
        """Return the most that huge pages can gain a program. Raises Unavailable: no-data, and what
        `expected_gain` raises."""
        return expected_gain(
            self._prices(),
            sample.active_bytes,
            sample.huge_most,
            self.base_page_bytes,
            kernel_share=kernel_share,
        )

    def far_price(self, size: str, pages: int) -> Interval:
        """Return what a far load pays for translation, in ns, over so many base pages in folios of
        a size. Raises Unavailable: no-data, too-few-points if that was not measured."""
        chase = select(self._prices(), kernel="page_chase", order="cycle", stride_pages=1)
        return bracket(smoothed(curves.price(chase, pages=size)), pages)

    def _prices(self) -> pd.DataFrame:
        if isinstance(self.rows, Unavailable):
            raise self.rows
        return self.rows


def _rows(host: Host, store: Store, experiment: str) -> pd.DataFrame:
    """Return this computer's own rows of an experiment in its present state, else those of the last
    published campaign. Raises Unavailable("no-data")."""
    machine, state = hosts.machine_id(host), hosts.state(host)

    for own, source in ((True, store.own), (False, store)):
        if experiment not in (if_available(source.experiments, machine) or ()):
            continue
        frame = source.load(machine, experiment)
        if own and "state" in frame:
            frame = frame[frame["state"] == state]
        if not frame.empty:
            return kernels.with_defaults(rows.of_one_region(newest(frame)))
    raise Unavailable("no-data", f"`tlb run {experiment}` on {machine}")


def _surveyed(host: Host, store: Store) -> tuple[int, ...]:
    """Return the entries for base pages that the survey found. Raises Unavailable: no-data, and
    one-level if it found a single level, which may be either."""
    surveyed = _rows(host, store, SURVEY)
    from tlb.inference import geometry

    levels = geometry.infer(surveyed, (), data_caches(host)).levels
    if any(level.is_alone for level in levels):
        raise Unavailable("one-level")
    return tuple(round(level.entries.value) for level in levels)
