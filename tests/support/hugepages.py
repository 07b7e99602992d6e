"""Rows of machines that give several page sizes, as the tests of the chapter about them share; and
an account of them by pandas alone."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import pandas as pd

from experiments.hugepages import Analysis
from support import synthetic
from support.common import About
from support.page_sizes import Paged, hugepages
from support.synthetic import GIB, Stated, tlbs
from tlb.system.page_sizes import FULLY_SWEPT_PAGES

PAGES = FULLY_SWEPT_PAGES
ENTRIES = (64, 1536)
WHOLE, SPLIT, QUIET = Paged(), Paged(splintered=True), Paged(noise=0.004)


@cache
def rows(
    machine: Paged = WHOLE, most: int = 4 * GIB, repeats: int = 5, per_octave: int = 2
) -> pd.DataFrame:
    """Of the fine grid, or of a coarse one: 2 an octave."""
    frame = machine.frame(hugepages(most, per_octave=per_octave), repeats)
    _ROWS[id(frame)] = frame
    return frame


_ROWS: dict[int, pd.DataFrame] = {}  # frames that live as long as the tests, by id


@cache
def _shared(frame_id: int, entries: tuple[int, ...], hypervisor: str) -> Analysis:
    """An Analysis of one of `rows`, which several tests read: a page's cells take half a second."""
    host = Stated(tlb=tlbs(list(entries), (0, 12)[: len(entries)]), hypervisor=hypervisor).host()
    return Analysis(_ROWS[frame_id], About(host))


def only(*pages: str, of: pd.DataFrame | None = None) -> pd.DataFrame:
    """The rows on these page sizes, as a machine that has no others would have them."""
    frame = rows() if of is None else of
    return frame[frame["pages"].isin(pages)].reset_index(drop=True)


def analysis(
    frame: pd.DataFrame | None = None,
    entries: Iterable[int] = ENTRIES,
    hypervisor: str = "kvm",
    kept: dict[str, pd.DataFrame] | None = None,
    stated: dict[str, Any] | None = None,
    **documents: dict[str, Any],
) -> Analysis:
    """entries: of the TLB levels that CPUID states. kept: rows of other chapters. stated: what else
    the machine says of itself."""
    entries, frame = list(entries), rows() if frame is None else frame
    if id(frame) in _ROWS and not (kept or stated or documents):
        return _shared(id(frame), tuple(entries), hypervisor)
    host = Stated(
        tlb=tlbs(entries, (0, 12)[: len(entries)]), hypervisor=hypervisor, changes=stated or {}
    ).host()
    return Analysis(frame, About(host, rows=kept or {}, documents=documents))


def median(frame: pd.DataFrame, **where: object) -> float:
    """Of random reads that of the plain loop, where no spare draws are named."""
    if where["kernel"] == "random_touch":
        where = {"spare_draws": 0} | where
    return synthetic.median(frame, **where)


def chased(frame: pd.DataFrame, pages: str, size_bytes: int, layout: str = "spread") -> float:
    return median(frame, kernel="page_chase", pages=pages, layout=layout, lines=size_bytes // 4096)


def priced(frame: pd.DataFrame, pages: str, size_bytes: int) -> float:
    return chased(frame, pages, size_bytes) - chased(frame, pages, size_bytes, "packed")


def times(frame: pd.DataFrame, factor: float, **where: object) -> pd.DataFrame:
    """The frame with the chosen rows slower by a factor."""
    chosen = frame.eval(" and ".join(f"{name} == {value!r}" for name, value in where.items()))
    return frame.assign(
        ns_per_access=frame["ns_per_access"].where(~chosen, frame["ns_per_access"] * factor)
    )
