"""What Linux's own work on memory costs: a published document, measured once with settings changed
for a while, and read only."""

from __future__ import annotations

from statistics import median
from typing import Literal

from pydantic import BaseModel, Field

MemoryKind = Literal["free", "fragments"]  # memory as it is, and fragmented
KERNEL_HOUSEKEEPING_DOCUMENT = "housekeeping"  # of the document
UNFRAGMENTED_MEMORY: MemoryKind = "free"
FRAGMENTED_MEMORY: MemoryKind = "fragments"
DEFRAG_NOT_APPLICABLE = ""  # in the place of a mode of defrag, which base pages have none of
DEFRAG_ALWAYS, DEFRAG_NEVER = "always", "never"


class FirstTouchRun(BaseModel, extra="forbid", frozen=True):
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
    def median_ns(self) -> float:
        """The median first touch of a block."""
        return median(self.first_ns)


class Touched(BaseModel, extra="forbid", frozen=True):
    """Runs of first touches; mode: of defrag, "" on base pages, which have none."""

    memory: MemoryKind
    mode: str
    runs: tuple[FirstTouchRun, ...]


class ProgramLifetimes(BaseModel, extra="forbid", frozen=True):
    """Lifetimes in ns of programs that write `mib` and end, by page size, in turns."""

    memory: MemoryKind
    mib: int
    ns: dict[str, tuple[int, ...]]


class SamePageMergingRound(BaseModel, extra="forbid", frozen=True):
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


class KhugepagedWait(BaseModel, extra="forbid", frozen=True):
    """Untouched base pages advised to be large, some seconds later, with khugepaged's settings."""

    seconds: float
    bytes: int
    large_bytes: int
    scan_sleep_ms: int | None
    pages_to_scan: int | None


class HousekeepingDocument(BaseModel, extra="forbid", frozen=True):
    """The document. lacking: reason codes by part."""

    schema_version: Literal[1] = 1
    measured_at: str
    state: str  # host.state_digest()
    defrag: str  # as it was before
    room_bytes: int
    leave_bytes: int
    nodes: int
    touched: tuple[Touched, ...] = ()
    lives: tuple[ProgramLifetimes, ...] = ()
    merged: tuple[SamePageMergingRound, ...] = ()
    swapped: tuple[Swapped, ...] = ()
    # whether a pool's pages may be swapped out; None where it could not be tried
    pool_pageout: bool | None = None
    pool_taken: tuple[float, ...] = ()  # what MemAvailable lost over what a pool took
    # of an array that a program had of its heap beside a free pool, the share in the pool
    pool_plain: float | None = None
    idle: KhugepagedWait | None = None
    lacking: dict[str, str] = Field(default_factory=dict)
