"""The document of what the kernel's own housekeeping costs, which `tlb housekeeping measure` writes
(lab.housework)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from tlb.lab.fragments import Run

NAME = "housekeeping"
FREE, FRAGMENTS = "free", "fragments"


class Touched(BaseModel, extra="forbid", frozen=True):
    """Runs of first touches; mode: of defrag, "" on base pages, which it is nothing to."""

    memory: Literal["free", "fragments"]
    mode: str
    runs: tuple[Run, ...]


class Lives(BaseModel, extra="forbid", frozen=True):
    """Programs that write `mib` and end, in ns: by page size, in turns."""

    memory: Literal["free", "fragments"]
    mib: int
    ns: dict[str, tuple[int, ...]]


class Merged(BaseModel, extra="forbid", frozen=True):
    """A round of equal pages on large pages. Bytes by smaps; ns of a write to a page, the median of
    all."""

    bytes: int
    saved_bytes: int
    large_before: int
    large_after: int
    merged_write_ns: int
    own_write_ns: int


class Swapped(BaseModel, extra="forbid", frozen=True):
    """A round of rooms swapped out, of which then one byte each was read: bytes by smaps, ns by
    read."""

    pages: str
    bytes: int
    out_bytes: int
    in_bytes: int
    read_ns: tuple[int, ...]


class Idle(BaseModel, extra="forbid", frozen=True):
    """Base pages that nobody touched for so many seconds, advised to be large: bytes by smaps, and
    khugepaged's settings."""

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
    pool_pageout: bool | None = (
        None  # whether a pool's pages may be swapped out; None where nobody could ask
    )
    pool_taken: tuple[float, ...] = ()  # what MemAvailable lost over what a pool took
    pool_plain: float | None = (
        None  # of an array that a program had of its heap beside a free pool, the share in the pool
    )
    idle: Idle | None = None
    lacking: dict[str, str] = Field(default_factory=dict)
