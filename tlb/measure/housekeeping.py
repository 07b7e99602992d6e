"""The document of what the kernel's own housekeeping costs, written by lab.housekeeping_costs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from tlb.measure.fragmented_memory import Run

NAME = "housekeeping"
FREE, FRAGMENTS = "free", "fragments"


class Touched(BaseModel, extra="forbid", frozen=True):
    """Runs of first touches; mode: of defrag, "" on base pages, which have none."""

    memory: Literal["free", "fragments"]
    mode: str
    runs: tuple[Run, ...]


class Lives(BaseModel, extra="forbid", frozen=True):
    """Lifetimes in ns of programs that write `mib` and end, by page size, in turns."""

    memory: Literal["free", "fragments"]
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
    """The document `housekeeping` of data/. lacking: reason codes by part."""

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
