"""The catalogue of kernels: one declaration a kernel, of all that Python knows of it and its own
file does not say by itself.

A new kernel is a C file and a declaration here. tests/measure/test_kernels.py compares each
declaration with its file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tlb.machine.host import base_page_bytes
from tlb.measure import namespaces
from tlb.measure.record import KernelOutput, Point
from tlb.system.page_sizes import BASE_PAGES, CACHE_LINE_BYTES, page_bytes

ROW_BYTES = 16  # kernels/rows.h
GRAPH_VERTEX_BYTES = 64  # kernels/graph.h
# A kernel's side arrays (the order, the draws) beside its arena, per line: a cycle takes 8 bytes
# (kernels/placement.h), draws 16, page_gather's order and index 12.
BOOKKEEPING_BYTES_PER_LINE = 16
# graph_walk has none but, to prefetch, a path of 4 bytes a vertex: 4 times as many as the largest
# cache has lines and a quarter more that are visited twice (hops_for()), so for a cache of 256 MiB.
PATH_BYTES = 160 << 20
TABLE_BYTES = 4096  # a guest's page table; guests are x86-64's alone
PROGRAM_BYTES = 2 * TABLE_BYTES  # of a guest: its program, and what it shares with the host
MOST_CALLS = 64  # of a batch of shootdown

Functions = tuple[str, ...]


@dataclass(frozen=True)
class KernelDeclaration:
    """What a kernel takes and needs."""

    modes: tuple[str, ...] = ()  # the first is the default
    # Modes that the runner makes and the kernel's file does not know: the words that run a program
    # in the mode.
    played: Mapping[str, Callable[[str], tuple[str, ...]]] = field(default_factory=dict)
    options: Mapping[str, int | None] = field(default_factory=dict)  # with their defaults
    layout: str = "spread"  # layout and order by default
    order: str = "cycle"
    size: str = ""  # the option that decides the number of lines, by `lines`
    lines: Callable[[int], int] = int
    # of the arena, before rounding to pages, from the bytes of the lines
    inside_bytes: Callable[[int, Point], int] = lambda lines_bytes, point: lines_bytes
    side_bytes: Callable[[Point], int] = lambda point: point.lines * BOOKKEEPING_BYTES_PER_LINE
    # Fewer core cycles per access than this means accesses were optimised away: a load that waits
    # for another takes three on any core, and one core starts at most four loads in a cycle.
    least_cycles: float = 0.0
    # Seconds on a Zen 4 guest: of a process, without its region and faulting in, and of a point in a
    # session, without its region. Only their proportions count (measure.outcome.Progress).
    start_s: float = 0.05
    prepare_s: float = 0.01
    idle_s: Callable[[Point], float] = lambda point: 0.0  # sleep
    faults_in: bool = False  # whether its timed region faults pages in, elsewhere a disturbance
    # The functions that make the timed accesses of a point, by their names in the kernel's file;
    # none for a kernel that times system calls outside of functions of their own.
    timed: Callable[[Point | KernelOutput], Functions] = lambda point: ()
    in_guest: bool = False  # a guest makes its accesses, and its modes are the guest's pages
    order_of: str = ""  # the kernel whose order its chase walks, and so its seed
    session: str = ""  # the program that measures many of its points in one mapping
    is_chase: bool = True  # whether a packed point belongs to the spread point with as many lines


def option(point: Point | KernelOutput, name: str, default: int = 0) -> int:
    """Return a point's own number."""
    return dict(point.options).get(name, default)


def _tables(size: int, leaf: int, levels: int) -> int:
    """Return the most page tables that so many bytes take: tables_for() of kernels/guest.h."""
    return 1 + sum((size - 1 >> 12 + 9 * level) + 2 for level in range(leaf, levels))


def guest_bytes(lines_bytes: int, point: Point) -> int:
    """Return guest_chase's arena, in bytes: the lines' pages and, from the next page on, the
    guest's page tables."""
    leaf, levels = {"2m": 2, "1g": 3}.get(point.mode, 1), min(option(point, "levels", 4), 5)
    page = page_bytes(point.pages, TABLE_BYTES)
    tables = _tables(lines_bytes, leaf, levels) + _tables(PROGRAM_BYTES, 1, levels)
    return -(-lines_bytes // page) * page + TABLE_BYTES * tables


def sparse_bytes(lines_bytes: int, point: Point) -> int:
    """Return fork_write's arena: both processes' copies, on whole large pages if it is sparse."""
    used, base, apart = option(point, "used"), base_page_bytes(), 1
    if used and point.pages != BASE_PAGES:
        apart = -(-page_bytes(point.pages, base) // (used * base))
    return 2 * lines_bytes * apart


def shot_bytes(lines_bytes: int, point: Point) -> int:
    """Return shootdown's arena: each call of a batch has pages of its own."""
    page = page_bytes(point.pages, base_page_bytes())
    return MOST_CALLS * -(-lines_bytes // page) * page


def neighbour_bytes(point: Point) -> int:
    """Return side arrays and the memory of the thread beside neighbour_chase."""
    pages = option(point, "walk_lines") + option(point, "discard_pages")
    other = (option(point, "stream_kib") << 10) + pages * base_page_bytes()
    return point.lines * BOOKKEEPING_BYTES_PER_LINE + other


def table_bytes(point: Point) -> int:
    """Return table_chase's lists, of at least 4096 addresses for eight pages, and page tables."""
    tables = sum(number for name, number in point.options if name != "hot")
    return 3 * point.lines * BOOKKEEPING_BYTES_PER_LINE + base_page_bytes() * tables


def list_bytes(point: Point) -> int:
    """Return stride_sum's list: four bytes a visit, and as many to spare."""
    step = option(point, "step_bytes", CACHE_LINE_BYTES)
    return 8 * point.lines * CACHE_LINE_BYTES // step * (point.mode == "listed")


def copied_bytes(point: Point) -> int:
    """Return map_churn's copies: of a chunk, in memory of each thread's own."""
    bytes_of_all = option(point, "threads", 1) * point.lines * CACHE_LINE_BYTES
    return bytes_of_all // option(point, "chunks", 7)


def lines_of(size_bytes: int) -> int:
    return -(-size_bytes // CACHE_LINE_BYTES)


def fixed_functions(*functions: str) -> Callable[[Point | KernelOutput], Functions]:
    return lambda point: functions


def chase_functions(point: Point | KernelOutput) -> Functions:
    is_drawn = point.order == "random" or point.layout == "alias"
    return ("follow_draws",) if is_drawn else ("follow",)


def touch_functions(point: Point | KernelOutput) -> Functions:
    return ("touch_after" if option(point, "spare_draws") else "touch", "generate")


def walk_functions(point: Point | KernelOutput) -> Functions:
    if option(point, "per_hop"):
        return ("walk_clocked",)
    is_ahead = point.mode == "prefetch" and option(point, "distance", 1)
    return ("walk_ahead",) if is_ahead else ("walk_on",)


def join_functions(point: Point | KernelOutput) -> Functions:
    if point.mode == "naive":
        return ("join",)
    return ("count", "scatter") + ("join",) * (point.mode != "partition")


_PACKED = KernelDeclaration(layout="packed", order="random", is_chase=False)
_CHASE = KernelDeclaration(least_cycles=1.0, order_of="page_chase")
_FAULTS = KernelDeclaration(faults_in=True, is_chase=False)

KERNEL_DECLARATIONS: dict[str, KernelDeclaration] = {
    "page_chase": KernelDeclaration(
        session="session",
        modes=("", namespaces.FRESH_NAMESPACES_MODE),
        played={namespaces.FRESH_NAMESPACES_MODE: namespaces.namespaces_prefix},
        least_cycles=1.0,
        timed=chase_functions,
    ),
    "table_chase": KernelDeclaration(
        modes=("random", "even"),
        options={"tables_1": 1, "tables_2": 1, "tables_3": 1, "hot": None},
        layout="alias",
        least_cycles=1.0,
        start_s=0.22,
        timed=fixed_functions("follow_addresses"),
        side_bytes=table_bytes,
    ),
    # Predicted jumps wait for nothing: a core takes one or two a cycle, fused with others. A list
    # has four addresses a line.
    "code_chase": KernelDeclaration(
        modes=("listed", "direct"),
        options={"every": 1},
        least_cycles=0.1,
        is_chase=False,
        start_s=0.05,
        side_bytes=lambda point: point.lines * 48,
    ),
    # One fault a page, where populating a range takes them in one go.
    "first_touch": replace(
        _CHASE,
        modes=("address", "visit", "shuffled"),
        start_s=0.08,
        timed=fixed_functions("follow"),
    ),
    "page_gather": KernelDeclaration(
        session="session", least_cycles=0.1, timed=fixed_functions("gather")
    ),
    # Between two passes, which wait for nothing, pagemap is read or bits are cleared, page by page.
    "page_store": KernelDeclaration(
        session="session",
        modes=("load", "store", "load-clean", "store-clean"),
        least_cycles=0.1,
        start_s=0.3,
        timed=lambda point: ("store_each" if point.mode.startswith("store") else "load_each",),
    ),
    # A random touch multiplies twice to draw its address, and no core starts four multiplications
    # in a cycle.
    "random_touch": replace(
        _PACKED,
        prepare_s=0.09,
        session="session",
        options={"bytes": None, "spare_draws": 0},
        size="bytes",
        lines=lines_of,
        least_cycles=0.5,
        start_s=0.12,
        timed=touch_functions,
    ),
    # The sums wait for each other, an addition a cycle. The default step is the published page's,
    # whatever the base page is.
    "stride_sum": replace(
        _PACKED,
        order="sequential",
        session="session",
        modes=("plain", "listed"),
        options={"bytes": None, "step_bytes": 4 << 10},
        size="bytes",
        lines=lines_of,
        least_cycles=0.5,
        start_s=0.06,
        timed=lambda point: ("sum_listed" if point.mode == "listed" else "sum_every",),
        side_bytes=list_bytes,
    ),
    # No bound: Linux may have pages zeroed beforehand.
    "prefault": replace(
        _FAULTS,
        modes=("touch", "populate", "memset"),
        options={"threads": 1},
        order="sequential",
        start_s=0.12,
        timed=lambda point: ("touch",) if point.mode == "touch" else (),
    ),
    # Faults are Linux's work, of which no least is known. An order has four bytes a page.
    "page_fault": replace(
        _FAULTS,
        modes=("file", "anonymous", "grouped"),
        options={"populate": 0, "written": 1},
        start_s=0.1,
    ),
    "touch_again": replace(
        _FAULTS,
        options={"idle_ms": 0},
        order="sequential",
        start_s=0.2,
        idle_s=lambda point: option(point, "idle_ms") / 1e3,
    ),
    "map_churn": replace(
        _PACKED,
        modes=("unmap", "keep"),
        options={"threads": 1, "chunks": 7},
        faults_in=True,
        start_s=0.03,
        side_bytes=copied_bytes,
    ),
    # A hop waits for the last hop of its own walker alone, and no core starts more than four loads
    # in a cycle.
    "graph_walk": replace(
        _PACKED,
        prepare_s=0.085,
        session="graph_walk",
        modes=("plain", "blocked", "prefetch"),
        options={"vertices": None, "walkers": 1, "block_vertices": None}
        | {"block_steps": 1024, "distance": 8, "per_hop": 0},
        size="vertices",
        least_cycles=0.25,
        start_s=0.2,
        timed=walk_functions,
        side_bytes=lambda point: PATH_BYTES * (point.mode == "prefetch"),
    ),
    # A row is stored, and counted or probed for: two stores at the least, and no core completes
    # more than two in a cycle. Its lines are those of six arrays of rows.
    "radix_partition": replace(
        _PACKED,
        prepare_s=0.3,
        session="radix_partition",
        modes=("naive", "partitioned", "partition"),
        options={"tuples": None, "bits": 6, "passes": 1},
        size="tuples",
        lines=lambda rows: 6 * lines_of(rows * ROW_BYTES),
        least_cycles=1.0,
        start_s=0.35,
        timed=join_functions,
    ),
    "guest_chase": replace(
        _CHASE,
        modes=("4k", "2m", "1g"),
        options={"levels": 4},
        inside_bytes=guest_bytes,
        side_bytes=lambda point: point.lines * BOOKKEEPING_BYTES_PER_LINE + PROGRAM_BYTES,
        in_guest=True,
        timed=fixed_functions("guest_code"),
    ),
    "shootdown": replace(
        _FAULTS,
        modes=("unmap", "protect", "discard", "collapse"),
        options={"threads": 0, "apart": 0},
        order="sequential",
        least_cycles=1.0,
        start_s=0.05,
        side_bytes=lambda point: 0,
        inside_bytes=shot_bytes,
    ),
    "switch_chase": replace(_CHASE, modes=("alone", "thread", "process"), options={"hops": 0}),
    "cold_chase": replace(_CHASE, faults_in=True, start_s=0.1, timed=fixed_functions("follow")),
    "fork_write": replace(
        _FAULTS,
        modes=("write", "touch"),
        options={"used": 0},
        order="sequential",
        least_cycles=1.0,
        start_s=0.07,
        timed=fixed_functions("write_each"),
        side_bytes=lambda point: 0,
        inside_bytes=sparse_bytes,
    ),
    "neighbour_chase": replace(
        _CHASE,
        modes=("alone", "other", "sibling"),
        options={"stream_kib": 0, "walk_lines": 0, "discard_pages": 0},
        faults_in=True,
        start_s=0.1,
        timed=fixed_functions("follow"),
        side_bytes=neighbour_bytes,
    ),
    # The other thread may collapse as much memory as is chased over.
    "collapse_chase": replace(
        _CHASE,
        modes=("none", "other", "address", "random"),
        faults_in=True,
        start_s=0.06,
        inside_bytes=lambda lines_bytes, point: 2 * lines_bytes,
    ),
    "numa_chase": replace(
        _CHASE,
        modes=("local-local", "remote-local", "local-remote", "remote-remote"),
        timed=fixed_functions("follow"),
    ),
}
