"""The catalogue of kernels: one declaration a kernel, of all that Python knows of it and its own
file does not say by itself.

A new kernel is a C file, its numba twin (kernels/twins/) where it has one, and a declaration here.
tests/lab/test_kernels.py holds each declaration against its file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tlb.lab import namespaces
from tlb.lab.record import KernelReport, Point
from tlb.machine.host import base_page_bytes
from tlb.page_sizes import BASE, PAGES, page_bytes
from tlb.reasons import Unavailable

LINE_BYTES = 64
ROW_BYTES = 16  # kernels/rows.h
# A kernel's side arrays (the order, the draws) beside its arena, per line: a cycle takes 8 bytes
# (kernels/placement.h), draws 16, page_gather's order and index 12.
SIDE_BYTES_PER_LINE = 16
# graph_walk has none but, to prefetch, a path of 4 bytes a vertex: 4 times as many as the largest
# cache has lines and a quarter more that are visited twice (hops_for()), so for a cache of 256 MiB.
# numba copies it.
PATH_BYTES = 160 << 20
TABLE_BYTES = 4096  # a guest's page table; guests are x86-64's alone
PROGRAM_BYTES = 2 * TABLE_BYTES  # of a guest: a page of program, a page of talk


def _tables(size: int, leaf: int, levels: int) -> int:
    """The page tables that so many bytes take at the most, as tables_for() of kernels/guest.h has
    it."""
    return 1 + sum((size - 1 >> 12 + 9 * level) + 2 for level in range(leaf, levels))


def _guest_bytes(lines_bytes: int, point: Point) -> int:
    """guest_chase's arena, in bytes: the lines' pages and, from the next page on, the guest's page
    tables."""
    leaf, levels = (
        {"2m": 2, "1g": 3}.get(point.mode, 1),
        min(dict(point.options).get("levels", 4), 5),
    )
    page = page_bytes(point.pages, TABLE_BYTES)
    return -(-lines_bytes // page) * page + TABLE_BYTES * (
        _tables(lines_bytes, leaf, levels) + _tables(PROGRAM_BYTES, 1, levels)
    )


SHOTS = 64  # calls of a batch of shootdown, at the most


def _spacing(point: Point) -> int:
    """How many times as much room as it uses fork_write's memory takes, where it lies apart on
    large pages."""
    used, base = dict(point.options).get("used", 0), base_page_bytes()
    return -(-page_bytes(point.pages, base) // (used * base)) if used and point.pages != BASE else 1


def _beside_bytes(point: Point) -> int:
    """The memory of the thread beside neighbour_chase."""
    own = dict(point.options)
    return (own.get("stream_kib", 0) << 10) + (
        own.get("walk_lines", 0) + own.get("discard_pages", 0)
    ) * base_page_bytes()


def _only(*functions: str) -> Callable[[Point | KernelReport], tuple[str, ...]]:
    return lambda point: functions


def _walk_of(point: Point | KernelReport) -> tuple[str, ...]:
    """graph_walk's loops: one for each way of walking, and in numba one for a single walker."""
    options = dict(point.options)
    if options.get("per_hop"):
        return ("walk_clocked",)
    if point.mode == "prefetch" and options.get("distance", 1):
        return ("walk_ahead",)
    return (
        ("walk_on",)
        if point.engine == "c"
        else ("walk_many",)
        if options.get("walkers", 1) > 1
        else ("walk_one",)
    )


@dataclass(frozen=True)
class Declaration:
    """What a kernel takes and needs."""

    modes: tuple[str, ...] = ()  # its variants; the first where nothing is said
    # Of these, those that the runner plays and the kernel's file does not know: the words that run
    # a program in the mode.
    played: Mapping[str, Callable[[str], tuple[str, ...]]] = field(default_factory=dict)
    options: Mapping[str, int | None] = field(
        default_factory=dict
    )  # its own numbers, with what each is where nothing is said
    layout: str = "spread"  # and order: where nothing is said
    order: str = "cycle"
    size: str = ""  # the option that says how many lines there are, by `lines`
    lines: Callable[[int], int] = int
    inside_bytes: Callable[[int, Point], int] = lambda working_set, point: (
        working_set
    )  # of the arena, before rounding to pages
    side_bytes: Callable[[Point], int] = lambda point: point.lines * SIDE_BYTES_PER_LINE
    # Below so many core cycles an access, accesses were left out: a load that waits for another
    # takes three at the least on any core, and four that wait for nothing are the most that one
    # core starts in a cycle.
    least_cycles: float = 0.0
    start_s: float = 0.05  # of a process, beside its region and faulting in
    idle_s: Callable[[Point], float] = lambda point: 0.0  # for which it sleeps
    faults_in: bool = (
        False  # its timed region is where pages are faulted in, which elsewhere is a disturbance
    )
    # The functions that make the timed accesses of a point, by their names in the kernel's file;
    # none where they stand in no function of their own, as the calls of a kernel that times the
    # system's work.
    timed: Callable[[Point | KernelReport], tuple[str, ...]] = lambda point: ()
    # its accesses are made by a guest, so are the events that count them, and its modes are the
    # guest's pages
    in_guest: bool = False
    order_of: str = ""  # the kernel whose order its chase walks, and so its seed
    session: str = (
        ""  # the program that measures many of its points in one mapping, by the same functions
    )
    is_chase: bool = True  # whether a packed point belongs to the spread point with as many lines


CATALOGUE: dict[str, Declaration] = {
    "page_chase": Declaration(
        session="session",
        modes=("", namespaces.MODE),
        played={namespaces.MODE: namespaces.prefix},
        least_cycles=1.0,
        timed=lambda point: (
            "follow_draws" if point.order == "random" or point.layout == "alias" else "follow",
        ),
    ),
    # Eight pages of memory, each address of eight bytes in a list that holds 4096 at the least; and
    # the page tables.
    "table_chase": Declaration(
        modes=("random", "even"),
        options={"tables_1": 1, "tables_2": 1, "tables_3": 1, "hot": None},
        layout="alias",
        least_cycles=1.0,
        start_s=0.3,
        timed=_only("follow_addresses"),
        side_bytes=lambda point: (
            3 * point.lines * SIDE_BYTES_PER_LINE
            + base_page_bytes() * sum(n for name, n in point.options if name != "hot")
        ),
    ),
    # Jumps that are foreseen wait for nothing: a core takes one or two a cycle, fused with others.
    # A list has four addresses a line.
    "code_chase": Declaration(
        modes=("listed", "direct"),
        options={"every": 1},
        least_cycles=0.1,
        is_chase=False,
        start_s=0.08,
        side_bytes=lambda point: point.lines * 48,
    ),
    # One fault a page, where populating a range takes them in one go.
    "first_touch": Declaration(
        modes=("address", "visit", "shuffled"),
        least_cycles=1.0,
        order_of="page_chase",
        start_s=0.4,
        timed=_only("follow"),
    ),
    "page_gather": Declaration(session="session", least_cycles=0.1, timed=_only("gather")),
    # Between two passes, which wait for nothing, smaps is read or bits are cleared, page by page.
    "page_store": Declaration(
        session="session",
        modes=("load", "store", "load-clean", "store-clean"),
        least_cycles=0.1,
        start_s=0.3,
        timed=lambda point: ("store_each" if point.mode.startswith("store") else "load_each",),
    ),
    # A random touch multiplies twice to draw its address, and no core starts four multiplications
    # in a cycle.
    "random_touch": Declaration(
        session="session",
        options={"bytes": None, "spare_draws": 0},
        layout="packed",
        order="random",
        size="bytes",
        lines=lambda n: -(-n // LINE_BYTES),
        least_cycles=0.5,
        is_chase=False,
        start_s=0.12,
        timed=lambda point: (
            "touch_after" if dict(point.options).get("spare_draws") else "touch",
            "generate",
        ),
    ),
    # The sums wait for each other, an addition a cycle. A list has four bytes a visit, and numba
    # has it twice. Where nothing is said the step is the published page's, whatever a page has
    # here.
    "stride_sum": Declaration(
        session="session",
        modes=("plain", "listed"),
        options={"bytes": None, "step_bytes": 4 << 10},
        layout="packed",
        order="sequential",
        size="bytes",
        lines=lambda n: -(-n // LINE_BYTES),
        least_cycles=0.5,
        is_chase=False,
        start_s=0.06,
        timed=lambda point: ("sum_listed" if point.mode == "listed" else "sum_every",),
        side_bytes=lambda point: (
            8
            * point.lines
            * LINE_BYTES
            // dict(point.options).get("step_bytes", LINE_BYTES)
            * (point.mode == "listed")
        ),
    ),
    # No bound: a kernel may have pages zeroed beforehand.
    "prefault": Declaration(
        modes=("touch", "populate", "memset"),
        options={"threads": 1},
        order="sequential",
        faults_in=True,
        is_chase=False,
        start_s=0.25,
        timed=lambda point: ("touch",) if point.mode == "touch" else (),
    ),
    # Faults are the kernel's work, of which no least is known. An order has four bytes a page.
    "page_fault": Declaration(
        modes=("file", "anonymous", "grouped"),
        options={"populate": 0, "written": 1},
        faults_in=True,
        is_chase=False,
        start_s=0.15,
    ),
    "touch_again": Declaration(
        options={"idle_ms": 0},
        order="sequential",
        faults_in=True,
        is_chase=False,
        start_s=0.2,
        idle_s=lambda point: dict(point.options).get("idle_ms", 0) / 1e3,
    ),
    # A record copies a chunk, each thread to memory of its own.
    "map_churn": Declaration(
        modes=("unmap", "keep"),
        options={"threads": 1, "chunks": 7},
        layout="packed",
        order="random",
        faults_in=True,
        is_chase=False,
        start_s=0.15,
        side_bytes=lambda point: (
            dict(point.options).get("threads", 1)
            * point.lines
            * LINE_BYTES
            // dict(point.options).get("chunks", 7)
        ),
    ),
    # A hop waits for the last hop of its own walker alone, and no core starts more than four loads
    # in a cycle.
    "graph_walk": Declaration(
        session="graph_walk",
        modes=("plain", "blocked", "prefetch"),
        layout="packed",
        order="random",
        size="vertices",
        least_cycles=0.25,
        is_chase=False,
        start_s=0.2,
        timed=_walk_of,
        side_bytes=lambda point: PATH_BYTES * (point.mode == "prefetch"),
        options={
            "vertices": None,
            "walkers": 1,
            "block_vertices": None,
            "block_steps": 1024,
            "distance": 8,
            "per_hop": 0,
        },
    ),
    # A row is stored, and counted or probed for: two stores at the least, and no core completes
    # more than two in a cycle. Its lines are those of six arrays of rows.
    "radix_partition": Declaration(
        session="radix_partition",
        modes=("naive", "partitioned", "partition"),
        layout="packed",
        order="random",
        size="tuples",
        least_cycles=1.0,
        is_chase=False,
        start_s=0.35,
        timed=lambda point: (
            ("join",)
            if point.mode == "naive"
            else ("count", "scatter") + ("join",) * (point.mode != "partition")
        ),
        options={"tuples": None, "bits": 6, "passes": 1},
        lines=lambda n: 6 * -(-n * ROW_BYTES // LINE_BYTES),
    ),
    "guest_chase": Declaration(
        modes=("4k", "2m", "1g"),
        options={"levels": 4},
        inside_bytes=_guest_bytes,
        least_cycles=1.0,
        side_bytes=lambda point: point.lines * SIDE_BYTES_PER_LINE + PROGRAM_BYTES,
        in_guest=True,
        order_of="page_chase",
        timed=_only("guest_code"),
    ),
    # A batch is of several calls, each on pages of its own.
    "shootdown": Declaration(
        modes=("unmap", "protect", "discard", "collapse"),
        options={"threads": 0, "apart": 0},
        order="sequential",
        faults_in=True,
        is_chase=False,
        least_cycles=1.0,
        start_s=0.1,
        side_bytes=lambda point: 0,
        inside_bytes=lambda working_set, point: (
            SHOTS * -(-working_set // (page := page_bytes(point.pages, base_page_bytes()))) * page
        ),
    ),
    "switch_chase": Declaration(
        modes=("alone", "thread", "process"),
        options={"hops": 0},
        least_cycles=1.0,
        order_of="page_chase",
    ),
    "cold_chase": Declaration(
        least_cycles=1.0, order_of="page_chase", faults_in=True, start_s=0.1, timed=_only("follow")
    ),
    # What one process writes, another one keeps.
    "fork_write": Declaration(
        modes=("write", "touch"),
        options={"used": 0},
        order="sequential",
        faults_in=True,
        is_chase=False,
        least_cycles=1.0,
        start_s=0.15,
        timed=_only("write_each"),
        side_bytes=lambda point: 0,
        inside_bytes=lambda working_set, point: 2 * working_set * _spacing(point),
    ),
    "neighbour_chase": Declaration(
        modes=("alone", "other", "sibling"),
        options={"stream_kib": 0, "walk_lines": 0, "discard_pages": 0},
        least_cycles=1.0,
        order_of="page_chase",
        start_s=0.1,
        faults_in=True,
        timed=_only("follow"),
        side_bytes=lambda point: point.lines * SIDE_BYTES_PER_LINE + _beside_bytes(point),
    ),
    # As much other memory may be joined as is chased over.
    "collapse_chase": Declaration(
        modes=("none", "other", "address", "random"),
        least_cycles=1.0,
        order_of="page_chase",
        faults_in=True,
        start_s=0.15,
        inside_bytes=lambda working_set, point: 2 * working_set,
    ),
    "numa_chase": Declaration(
        modes=("local-local", "remote-local", "local-remote", "remote-remote"),
        least_cycles=1.0,
        order_of="page_chase",
        timed=_only("follow"),
    ),
}


def of(name: str) -> Declaration:
    """A kernel's declaration. Raises Unavailable("bad-parameter")."""
    if name not in CATALOGUE:
        raise Unavailable(
            "bad-parameter",
            f"there is no kernel '{name}'; there are {', '.join(sorted(CATALOGUE))}",
        )
    return CATALOGUE[name]


def shape(name: str, options: Mapping[str, int]) -> dict[str, Any]:
    """What a point of the kernel has where nothing else is said: layout, order, lines."""
    kernel = of(name)
    return {
        "layout": kernel.layout,
        "order": kernel.order,
        "lines": kernel.lines(options[kernel.size]) if kernel.size in options else 4096,
    }


def first_mode(name: str) -> str:
    """The mode of a kernel where none is named, "" for a kernel without."""
    return next(iter(of(name).modes), "")


def session_of(point: Point) -> str:
    """The program that measures this point with others in one mapping; "" where each point takes a
    process of its own."""
    kernel = of(point.kernel)
    return "" if point.mode in kernel.played else kernel.session


def idle_s(point: Point) -> float:
    """The seconds for which a point's process sleeps."""
    return of(point.kernel).idle_s(point)


def made_of(point: Point) -> object:
    """What a session makes before it measures a point, equal for points that can use it one after
    the other: a graph."""
    return (
        (point.lines, point.layout, dict(point.options).get("block_vertices"))
        if point.kernel == "graph_walk"
        else point
    )


def has_own_arena(point: Point, base: int | None = None) -> bool:
    """Whether a session maps memory for this point alone, because a prefix of the shared arena does
    not do."""
    base = base or base_page_bytes()
    return point.layout == "alias" or (
        point.layout == "spread" and base * point.stride_pages > page_bytes(point.pages, base)
    )


def mapped_bytes(point: Point, base: int | None = None) -> int:
    """The bytes of the arena that holds a point's lines, rounded up to its page size.

    base: the bytes of a base page, by default of this machine.
    """
    base = base or base_page_bytes()
    kernel, page, stride = (
        of(point.kernel),
        page_bytes(point.pages, base),
        base * point.stride_pages,
    )
    if (
        point.layout == "alias"
    ):  # eight pages or what makes 8192 mappings of them, the page table, 8 bytes a page, the visits
        span = point.lines * stride
        return 8 * page + 2 * span // 8192 + 8 * span // page
    if has_own_arena(point, base):
        return point.lines * page
    working_set = kernel.inside_bytes(
        point.lines * (LINE_BYTES if point.layout == "packed" else stride), point
    )
    return -(-working_set // page) * page


def arena_bytes(point: Point, base: int | None = None) -> int:
    """What a process for one point maps at most, in bytes: its arena and the side arrays."""
    base = base or base_page_bytes()
    sparse = has_own_arena(point, base) and point.layout == "spread"
    return mapped_bytes(point, base) + (
        point.lines * SIDE_BYTES_PER_LINE if sparse else of(point.kernel).side_bytes(point)
    )


def memory_bytes(point: Point) -> int:
    """What a process for one point takes of the memory that is free. A pool's pages are no part of
    that: Linux holds them against the pool as it maps them."""
    return arena_bytes(point) - (mapped_bytes(point) if PAGES[point.pages].source == "pool" else 0)


# Seconds, as measured on a Zen 3 guest; what another computer takes is learned as it measures
# (lab.progress).
_POPULATE_S_PER_GIB = 0.45
_GUEST_S_PER_GIB = (
    10.0  # of a guest's first faults, where its hypervisor keeps page tables of its own for it
)
_ENGINE_START_S = {"numba": 1.2, "numpy": 0.3}


def mapping_s(engine: str, mapped: int) -> float:
    """A guess at the seconds until a session has mapped so many bytes."""
    return _ENGINE_START_S.get(engine, 0.05) + _POPULATE_S_PER_GIB * mapped / 2**30


def point_s(point: Point) -> float:
    """A guess at the seconds of one point in a session, which has the memory already."""
    return 0.02 + 1.2 * point.region_ms / 1e3 + 0.1 * arena_bytes(point) / 2**30


def expected_s(point: Point) -> float:
    """A guess at the seconds of one point in a process of its own: start, region, faulting in."""
    start_s = _ENGINE_START_S.get(point.engine, of(point.kernel).start_s)
    per_gib_s = _POPULATE_S_PER_GIB + _GUEST_S_PER_GIB * of(point.kernel).in_guest
    return (
        start_s
        + idle_s(point)
        + 1.2 * point.region_ms / 1e3
        + per_gib_s * arena_bytes(point) / 2**30
    )


def with_defaults(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of `Store.load` in which each kernel's own numbers say what they were where nothing
    was asked, and not NaN."""
    filled: dict[str, pd.Series] = {}
    for name in frame["kernel"].unique():
        for option, value in CATALOGUE[name].options.items() if name in CATALOGUE else ():
            if value is not None:
                column = filled.get(
                    option,
                    frame[option]
                    if option in frame
                    else pd.Series(float("nan"), index=frame.index),
                )
                filled[option] = column.mask(
                    (frame["kernel"] == name) & column.isna(), float(value)
                )
    return frame.assign(**filled)


def is_within(frame: pd.DataFrame, most_bytes: int) -> pd.Series:
    """Which rows belong to a sweep up to a working set: a packed control belongs to its spread
    points, an array has its own size."""
    chases = frame["kernel"].isin([name for name, kernel in CATALOGUE.items() if kernel.is_chase])
    return (frame["lines"] * frame["stride_bytes"]).where(
        chases, frame["working_set_bytes"]
    ) <= most_bytes
