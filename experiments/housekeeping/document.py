"""What Linux's housekeeping of memory costs: the document that `tlb housekeeping measure` writes, and
its numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from statistics import median
from typing import Literal, Self, TypeVar

import pandas as pd
from pydantic import BaseModel, Field

from tlb.report.analysis import EventAnalysis
from tlb.report.chapter import published
from tlb.report.charts import INTERVAL
from tlb.stats.intervals import Interval, median_interval
from tlb.system.page_sizes import BASE
from tlb.system.reasons import Unavailable, if_available

Part = TypeVar("Part")
MemoryKind = Literal["free", "fragments"]  # memory as it is, and fragmented
NAME = "housekeeping"  # of the document
FREE: MemoryKind = "free"
FRAGMENTS: MemoryKind = "fragments"
LARGE = "thp"
NO_DEFRAG_MODE = ""  # in the place of a mode of defrag, which base pages have none of
LENT = "zen-5-b15e0e32"  # a published machine whose settings could be changed
ALWAYS, NEVER = "always", "never"


class Run(BaseModel, extra="forbid", frozen=True):
    """One run of first touches, ns: the first base page of each block, and quantiles over all.

    large: blocks that got a large page; room_ns: the mean of all touches of a block.
    """

    first_ns: tuple[int, ...]
    large: int
    room_ns: int
    p50_ns: int
    p99_ns: int
    p999_ns: int
    longest_ns: int

    @property
    def large_share(self) -> float:
        """The share of blocks that got a large page."""
        return self.large / len(self.first_ns)


class Touched(BaseModel, extra="forbid", frozen=True):
    """Runs of first touches; mode: of defrag, "" on base pages, which have none."""

    memory: MemoryKind
    mode: str
    runs: tuple[Run, ...]


class Lives(BaseModel, extra="forbid", frozen=True):
    """Lifetimes in ns of programs that write `mib` and end, by page size, in turns."""

    memory: MemoryKind
    mib: int
    ns: dict[str, tuple[int, ...]]


class Merged(BaseModel, extra="forbid", frozen=True):
    """A round of merging equal pages on large pages. Bytes by smaps; ns: median of one write a
    page."""

    bytes: int
    saved_bytes: int
    large_before: int
    large_after: int
    merged_write_ns: int
    own_write_ns: int


class Swapped(BaseModel, extra="forbid", frozen=True):
    """A round of memory swapped out and then read, one byte a large page. Bytes by smaps."""

    pages: str
    bytes: int
    out_bytes: int
    in_bytes: int
    read_ns: tuple[int, ...]


class Idle(BaseModel, extra="forbid", frozen=True):
    """Untouched base pages advised to be large, some seconds later, with khugepaged's settings."""

    seconds: float
    bytes: int
    large_bytes: int
    scan_sleep_ms: int | None
    pages_to_scan: int | None


class Housekeeping(BaseModel, extra="forbid", frozen=True):
    """The document. lacking: reason codes by part."""

    schema_version: Literal[1] = 1
    measured_at: str
    state: str  # host.state()
    defrag: str  # as it was before
    room_bytes: int
    leave_bytes: int
    nodes: int
    touched: tuple[Touched, ...] = ()
    lives: tuple[Lives, ...] = ()
    merged: tuple[Merged, ...] = ()
    swapped: tuple[Swapped, ...] = ()
    # whether a pool's pages may be swapped out; None where nobody could ask
    pool_pageout: bool | None = None
    pool_taken: tuple[float, ...] = ()  # what MemAvailable lost over what a pool took
    # of an array that a program had of its heap beside a free pool, the share in the pool
    pool_plain: float | None = None
    idle: Idle | None = None
    lacking: dict[str, str] = Field(default_factory=dict)


# Of runs: the median first touch of a room, the 99.9th percentile of all touches and the longest.
QUANTILES: dict[str, Callable[[Run], float]] = {
    "p50": lambda run: median(run.first_ns),
    "p999": lambda run: run.p999_ns,
    "longest": lambda run: run.longest_ns,
}


class DocumentAnalysis(EventAnalysis):
    """The part of the Analysis that the document holds. Methods raise Unavailable:
    housekeeping-not-asked without it, and where a part is lacking, the reason of that part."""

    on_request = (NAME,)

    def or_lent(self) -> Self:
        """Return this Analysis, or that of a published machine, without rows, if only the latter
        has the document."""
        if if_available(lambda: self.housekeeping) is not None:
            return self
        lent = type(self)(self.frame.iloc[:0], published(self.chapter, LENT))
        return self if if_available(lambda: lent.housekeeping) is None else lent

    @cached_property
    def housekeeping(self) -> Housekeeping:
        """The document. Raises Unavailable("housekeeping-not-asked")."""
        try:
            return self.document(NAME, None, Housekeeping)
        except Unavailable as why:
            raise Unavailable("housekeeping-not-asked", why.detail) from None

    def _part(self, value: Part | None, part: str) -> Part:
        """Return the value of a part. Raises Unavailable, with the reason why it is lacking, if it
        is None or empty."""
        if value is None or (not value and value != 0):
            raise Unavailable(self.housekeeping.lacking.get(part, "no-data"))
        return value

    def runs(self, memory: str, mode: str) -> tuple[Run, ...]:
        """The runs of first touches in such memory, with defrag in a mode or NO_DEFRAG_MODE."""
        runs: dict[tuple[str, str], tuple[Run, ...]] = {
            (some.memory, some.mode): some.runs for some in self.housekeeping.touched
        }
        return self._part(runs.get((memory, mode)), "pieces" if memory == FRAGMENTS else "touched")

    def touch_ns(self, memory: str, mode: str, quantile: str) -> Interval:
        """A quantile of QUANTILES by run, in ns."""
        return median_interval([QUANTILES[quantile](run) for run in self.runs(memory, mode)])

    def longest_touch_ns(self, memory: str, mode: str) -> int:
        return max(run.longest_ns for run in self.runs(memory, mode))

    def large_share(self, memory: str, mode: str) -> Interval:
        """Which part of the rooms got a large page."""
        return median_interval([run.large_share for run in self.runs(memory, mode)])

    @cached_property
    def touches(self) -> pd.DataFrame:
        """A row a memory, mode and quantile: median, low, high in ns."""
        rows = [
            (
                one.memory,
                one.mode,
                name,
                *self.touch_ns(one.memory, one.mode, name).value_and_bounds,
            )
            for one in if_available(lambda: self.housekeeping.touched) or ()
            for name in QUANTILES
        ]
        return pd.DataFrame(rows, columns=["memory", "mode", "quantile", *INTERVAL])

    def lives(self, memory: str) -> dict[int, Lives]:
        """Return programs that live briefly in such memory, by the MiB that they write."""
        of = {some.mib: some for some in self.housekeeping.lives if some.memory == memory}
        return self._part(of, "pieces" if memory == FRAGMENTS else "lives")

    def life_ratio(self, memory: str, mib: int) -> Interval:
        """Time of such a program on large pages over that on base pages, pair by pair."""
        lives = self.lives(memory)
        if mib not in lives:
            raise Unavailable("too-few-points", f"no programs of {mib} MiB were measured")
        pairs = zip(lives[mib].ns[LARGE], lives[mib].ns[BASE], strict=True)
        return median_interval([large / base for large, base in pairs])

    def longest_lives_mib(self) -> int:
        return max(self.lives(FREE))

    def merged(self) -> tuple[Merged, ...]:
        return self._part(self.housekeeping.merged, "merged")

    def merging(self, name: str) -> float:
        """Return `saved_bytes`, `large_before` or `large_after` of merging over the memory merged."""
        return median(getattr(some, name) / some.bytes for some in self.merged())

    def merged_write_ns(self, kind: str) -> float:
        """Return the ns of the next write to a "merged" page, or to one of its "own"."""
        return median(getattr(some, f"{kind}_write_ns") for some in self.merged())

    def swapped_in(self, pages: str) -> tuple[Interval, Interval]:
        """(bytes that reading one byte of a swapped room brings in, its ns), on pages of a size."""
        of = [some for some in self.housekeeping.swapped if some.pages == pages]
        self._part(of, "swapped")
        room_bytes = self.housekeeping.room_bytes
        return (
            median_interval([some.in_bytes / (some.bytes // room_bytes) for some in of]),
            median_interval([median(some.read_ns) for some in of]),
        )

    def idle(self) -> Idle:
        """What became large of memory that nobody touched."""
        return self._part(self.housekeeping.idle, "idle")

    def pool_taken(self) -> Interval:
        """What is available less, over what a pool took."""
        self._part(self.housekeeping.pool_taken, "pool_taken")
        return median_interval(self.housekeeping.pool_taken)

    def pool_plain(self) -> float:
        """Of a plain array beside a free pool the share in the pool."""
        return self._part(self.housekeeping.pool_plain, "pool_plain")
