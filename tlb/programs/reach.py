"""How far this computer's TLBs reach, and what its own rows say of the price beyond: what a program
that is watched is held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from tlb.inference import curves, geometry, splinter
from tlb.inference.campaigns import newest
from tlb.inference.curves import select
from tlb.inference.intervals import Interval
from tlb.inference.treads import Gain, Tread, bracket, expected_gain, smoothed, tread
from tlb.lab import kernels, rows, survey
from tlb.lab.store import Store
from tlb.machine import host as hosts
from tlb.machine.host import Host, data_caches, data_tlbs
from tlb.page_sizes import BASE
from tlb.programs.active import Sight
from tlb.reasons import Unavailable, if_available

PRICES = "hugepages"  # the experiment that chases on base pages and on large ones
_LARGE = "2m"
_TREADS: tuple[Tread, ...] = ("first level", "second level", "beyond")


@dataclass(frozen=True)
class Reach:
    """entries: of each level of the data TLB, by the page that an entry maps, ascending; source:
    who says so. rows: of PRICES on this machine, or why there are none. is_splintered: whether the
    host backs large pages with smaller ones, so that an entry holds no whole one."""

    entries: dict[str, tuple[int, ...]]
    source: dict[str, str]
    rows: pd.DataFrame | Unavailable
    is_splintered: bool
    base_page_bytes: int
    large_page_bytes: int

    @classmethod
    def of(cls, host: Host, store: Store) -> Reach:
        """What is known of this computer: its own rows, else those that are published of it, else
        what CPUID states."""
        prices = _kept(host, store, PRICES)
        stated = {
            page: tuple(tlb.entries for tlb in data_tlbs(host, page))
            for page in (BASE, _LARGE, "1g")
        }
        entries, source = (
            {page: many for page, many in stated.items() if many},
            {page: "CPUID" for page, many in stated.items() if many},
        )
        if surveyed := if_available(lambda: _surveyed(host, _kept(host, store, survey.NAME))):
            entries[BASE], source[BASE] = surveyed, "the survey of this machine"
        pieces = (
            None
            if isinstance(prices, Unavailable)
            else if_available(splinter.judge, prices, host.hypervisor)
        )
        return cls(
            entries,
            source,
            prices,
            bool(pieces and pieces.is_splintered),
            host.base_page_bytes,
            host.thp.page_bytes or 2 << 20,
        )

    def tread(self, sight: Sight) -> Tread:
        """On which tread a program lives that touches as much: the higher of its base pages' and
        its large ones'. Raises Unavailable("no-geometry")."""
        base_bytes = sight.active_bytes - (0 if self.is_splintered else sight.large_least)
        treads = [tread(base_bytes / self.base_page_bytes, self.entries.get(BASE, ()))]
        if sight.large_most and not self.is_splintered:
            treads.append(
                tread(sight.large_most / self.large_page_bytes, self.entries.get(_LARGE, ()))
            )
        return max(treads, key=_TREADS.index)

    def gain(self, sight: Sight, kernel_share: float) -> Gain:
        """The most that large pages can do for it. Raises Unavailable: no-data, and what
        `expected_gain` does."""
        if isinstance(self.rows, Unavailable):
            raise self.rows
        return expected_gain(
            self.rows,
            sight.active_bytes,
            sight.large_most,
            self.base_page_bytes,
            kernel_share=kernel_share,
        )

    def far_price(self, size: str, pages: int) -> Interval:
        """What a far load pays for translation over so many base pages that lie in folios of a
        size, ns: by this machine's own chase on such pages. Raises Unavailable: no-data,
        too-few-points where that was not measured."""
        if isinstance(self.rows, Unavailable):
            raise self.rows
        chase = select(self.rows, kernel="page_chase", order="cycle", stride_pages=1)
        return bracket(smoothed(curves.price(chase, pages=size)), pages)


def _kept(host: Host, store: Store, experiment: str) -> pd.DataFrame | Unavailable:
    """The rows of an experiment on this computer: its own of its present state, else the last
    campaign's that are published of it."""
    machine, state = hosts.machine_id(host), hosts.state(host)
    sources: list[Callable[[], pd.DataFrame]] = [
        lambda: _of_state(store.own.load(machine, experiment), state),
        lambda: store.load(machine, experiment),
    ]
    for load in sources:
        frame = if_available(load)
        if frame is not None and not frame.empty:
            return kernels.with_defaults(rows.of_one_region(newest(frame)))
    return Unavailable("no-data", f"`tlb run {experiment}` on {machine}")


def _of_state(frame: pd.DataFrame, state: str) -> pd.DataFrame:
    return frame[frame["state"] == state] if "state" in frame else frame


def _surveyed(host: Host, frame: pd.DataFrame | Unavailable) -> tuple[int, ...]:
    """Entries for base pages. Raises Unavailable where one level alone is found, of which nobody
    knows which it is."""
    if isinstance(frame, Unavailable):
        raise frame
    levels = geometry.infer(frame, (), data_caches(host)).levels
    if any(level.is_alone for level in levels):
        raise Unavailable("one-level")
    return tuple(round(level.entries.value) for level in levels)
