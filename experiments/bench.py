"""`make bench`: what the book promises, as ratios against an independent measurement in the same
run. Nothing is asserted: times vary."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Column, Table

from experiments import program_benchmarks
from experiments.overview import method
from experiments.page_faults import grid as faults
from experiments.program_benchmarks import (
    REFERENCE_PROGRAMS_FOLDER,
    TableCells,
    comparison_cells,
    compiled_c_program,
    count_and_share_cells,
    medians_over_rounds,
    temporary_build_folder,
)
from experiments.tlb_blocking import grid as grids
from tlb.machine import host
from tlb.measure import build, grid, perf
from tlb.measure.grid import Scope, load_profile
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.perf_stat import EventPlan
from tlb.measure.plan import KernelProcess
from tlb.measure.record import CounterReading, Point
from tlb.measure.session import Session
from tlb.measure.store import Store
from tlb.system.files import measuring_lock
from tlb.system.page_sizes import BASE_PAGES, CACHE_LINE_BYTES
from tlb.system.processes import pinned_to_cpu
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size

# Lines: inside the first TLB, between the two, past both, past the caches.
SIZES = [64, 1024, 8192, 32768, 262144, 1048576]
PAIRS = 7  # interleaved fresh processes of each program, at each size
Rows = Iterator[TableCells]
TABLES: dict[Callable[[], Rows], tuple[str, TableCells]] = {  # title and columns
    method.verdict_error_rows: (method.VERDICT_ERRORS_TITLE, method.VERDICT_ERRORS_COLUMNS),
    program_benchmarks.advice: program_benchmarks.ADVICE,
    program_benchmarks.overhead: program_benchmarks.OVERHEAD,
    program_benchmarks.known: program_benchmarks.KNOWN,
}
_point = grid.Scope(grid.load_profile("full"), base_page_bytes=host.base_page_bytes()).point


def main(names: Sequence[str] = ()) -> None:
    """Print every table, in half an hour, or those of these names; run it with nothing else
    running. Raises Unavailable: bad-parameter."""
    known = {rows.__name__: rows for rows in TABLES}
    if unknown := sorted({*names} - {*known}):
        why = f"there is no table '{unknown[0][:80]}'; there are {', '.join(sorted(known))}"
        raise Unavailable("bad-parameter", why)
    with measuring_lock():
        _print(known[name] for name in names or known)


def table(title: str, columns: str) -> Callable[[Callable[[], Rows]], Callable[[], Rows]]:
    """Register a function that yields a table's rows; a row may end early. columns: between |."""
    names = tuple(columns.split(" | "))
    return lambda rows: TABLES.setdefault(rows, (title, names)) and rows


def _print(tables: Iterable[Callable[[], Rows]]) -> None:
    for rows in tables:
        title, columns = TABLES[rows]
        right = (Column(name, justify="right") for name in columns)
        shown = Table(*right, title=title, title_justify="left")
        try:
            for row in rows():
                shown.add_row(*row)
        except Unavailable as why:  # the rest of the table is not available here
            shown.add_row(why.code)
        Console().print(shown)


@cache
def program(name: str) -> Callable[..., list[float]]:
    """Return a program of kernels/reference/ as a function of its arguments: the numbers that it
    prints."""
    source = REFERENCE_PROGRAMS_FOLDER / f"{name}.c"
    command = [sys.executable, "-m", f"kernels.reference.{name}"]
    if source.exists():
        command = [compiled_c_program(source, temporary_build_folder().name)]
    return lambda *words: _numbers([*command, *map(str, words)])


def _numbers(command: Sequence[str]) -> list[float]:
    cpu = _rig().cpu
    with (
        nullcontext() if cpu is None else pinned_to_cpu(cpu)
    ):  # the last CPU that they may use is then the rig's
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, cwd=build.ROOT
        )
    # An address keeps the compiler from leaving a loop out.
    return [float(word) for word in done.stdout.split() if not word.startswith("0x")]


@cache
def _rig() -> MeasuringSetup:
    """Return this computer without counters, on the CPU that the independent programs take; it
    measures any size."""
    rig = MeasuringSetup.of(
        host.inspect_machine(), Store(Path(temporary_build_folder().name)), counters=False
    )
    return replace(rig, usable_bytes=2**63)


def _ns(point: Point, i: int) -> float:
    return _rig().take(point, i).ns_per_access


def by_pages(
    kinds: Iterable[str],
    rounds: Callable[[str, int], Sequence[float]],
    cells: Callable[..., TableCells],
) -> Rows:
    """Yield a row a page size, made of the medians of its rounds, or the reason's code."""
    for pages in kinds:
        try:
            yield pages, *cells(*medians_over_rounds(rounds(pages, i) for i in range(PAIRS)))
        except Unavailable as why:
            yield pages, why.code


def by_size(points: Mapping[int, Point], other: Callable[[Point, int], float]) -> Rows:
    """Yield a row a size in bytes, of its point and of an independent program, process by process;
    and the median of the differences."""
    differences = []
    for size, point in points.items():
        ours, theirs = medians_over_rounds((_ns(point, i), other(point, i)) for i in range(PAIRS))
        differences.append(abs(ours / theirs - 1))
        yield format_size(size), *comparison_cells(ours, theirs)
    yield "median of |difference|", "", "", f"{statistics.median(differences):.1%}"


@table(
    "Against an independent chase, spread, then packed (to reach: median 1 %, each 5 %)",
    "size | ours ns | other ns | difference",
)
def against_independent() -> Rows:
    """ns per access of page_chase against kernels/reference/independent_chase.c."""
    chase = program("independent_chase")
    for layout, apart in (("spread", host.base_page_bytes()), ("packed", 64)):
        points = {
            lines * apart: _point("page_chase", layout=layout, lines=lines, region_ms=150)
            for lines in SIZES
        }
        yield from by_size(points, lambda point, i: chase(point.lines, i + 1, "-", point.layout)[0])


@table(
    "Sums at strides over 256 MiB (to reach: 3 % each)",
    "stride | stride_sum ns | independent ns | difference",
)
def strides() -> Rows:
    """The published loop of the chapter about layout against
    kernels/reference/independent_stride.c, which shares nothing with it."""
    independent, size = program("independent_stride"), grids.ARRAY_BYTES
    points = {
        step: _point("stride_sum", mode="plain", bytes=size, step_bytes=step, region_ms=150)
        for step in grids.STRIDE_BYTES
    }
    return by_size(points, lambda point, i: independent(size, dict(point.options)["step_bytes"])[0])


@table(
    "Load-to-use latency, packed chase inside L1 (to reach: 3 %)",
    "page_chase ns | self-pointer ns | difference | core cycles | from a whole number",
)
def first_level_cache() -> Rows:
    """The packed chase in 4 KiB against a pointer that points at itself, and in cycles of the
    measured clock."""
    point = _point("page_chase", layout="packed", lines=64, region_ms=100)
    chase, rounds = program("independent_chase"), []
    for i in range(PAIRS):
        ns, ghz = (record := _rig().take(point, i)).ns_per_access, record.core_ghz
        rounds.append((ns, ns * ghz, *chase("self", i + 1)))
    ours, cycles, theirs = medians_over_rounds(rounds)
    yield *comparison_cells(ours, theirs, 3), f"{cycles:.2f}", f"{cycles / round(cycles) - 1:+.1%}"


@table(
    "Speedup over base pages at 1 GiB (to reach: 5 % from an independent chase)",
    "pages | page_chase | independent | difference",
)
def speedup_of_large_pages() -> Rows:
    """The chase over 1 GiB on 2 MiB pages against base pages, by page_chase and by
    kernels/reference/independent_chase.c."""
    chase, lines = program("independent_chase"), 1 << 18

    def rounds(pages: str, i: int) -> list[float]:
        kinds = (pages, BASE_PAGES)
        points = [_point("page_chase", kind, lines=lines, region_ms=150) for kind in kinds]
        return [_ns(point, i) for point in points] + [chase(lines, i + 1, k)[0] for k in kinds]

    def cells(large: float, base: float, their_large: float, their_base: float) -> TableCells:
        return comparison_cells(base / large, their_base / their_large, 3)

    return by_pages(("2m", "thp"), rounds, cells)


@table(
    "First touches, and searches that map (to reach: 10 %)",
    "what | ours | independent | difference",
)
def touches_and_searches() -> Rows:
    """ns a page of the published file by page_fault, and records a second by map_churn, against
    loops that share nothing with them."""
    touched, searched = program("independent_fault"), program("independent_search")
    pages = faults.ARTICLE_FILE_BYTES // host.base_page_bytes()
    file = _point("page_fault", mode="file", lines=pages, region_ms=200)
    times = [(_ns(file, i), touched(faults.ARTICLE_FILE_BYTES)[0]) for i in range(PAIRS)]
    ours, theirs = medians_over_rounds(times)
    yield "ns a page", *comparison_cells(ours, theirs)
    lines = faults.ARTICLE_CHUNK_COUNT * faults.ARTICLE_CHUNK_BYTES // CACHE_LINE_BYTES
    for kept, mode in enumerate(("unmap", "keep")):
        point, rounds = _point("map_churn", mode=mode, lines=lines, region_ms=500), []
        for i in range(PAIRS):
            chunks = faults.ARTICLE_CHUNK_COUNT, faults.ARTICLE_CHUNK_BYTES
            records = searched(1, *chunks, kept)[0]
            rounds.append((1e9 / _ns(point, i), records))
        ours, theirs = medians_over_rounds(rounds)
        yield f"records a second, {mode}", *comparison_cells(ours, theirs, 0)


@table(
    "A hop in a graph on base pages, against a naive walk (to reach: 3 %)",
    "graph | graph_walk ns | naive ns | difference",
)
def mean_hop() -> Rows:
    """Timed per batch, against naive_graph.c; from 1 MiB on, for in less the naive program waits
    for its own random numbers."""
    naive = program("naive_graph")
    points = {
        1 << bits: _point("graph_walk", mode="plain", vertices=1 << bits - 6, region_ms=150)
        for bits in range(20, 31, 2)
    }
    return by_size(points, lambda point, i: naive(point.lines, 1_000_000)[1])


@table(
    "Guests, 4k on 4k (to reach: 5 % from an independent guest, 3 % from the process, 1 % between "
    "the clocks)",
    "what | guest_chase ns | other ns | difference",
)
def guests() -> Rows:
    """guest_chase against naive_guest.c, against the plain process where no page is missed, and its
    two clocks."""
    far = _point("guest_chase", mode="4k", lines=1 << 18, region_ms=150)
    plain = _point("page_chase", layout="packed", lines=256, region_ms=150)
    near = plain.model_copy(update={"kernel": far.kernel, "mode": far.mode})
    _rig().take(near, 0)  # raises where there are no guests
    naive, rounds = program("naive_guest"), []
    for i in range(PAIRS):
        record = _rig().take(far, i)
        times = record.ns_per_access, record.also["outside_ns_per_access"]
        rounds.append((*times, *naive(far.lines, i + 1)))
    inside, outside, other = medians_over_rounds(rounds)
    yield "1 GiB, independent guest", *comparison_cells(inside, other, 3)
    yield "1 GiB, clock outside", *comparison_cells(inside, outside, 3)
    guest_ns, plain_ns = medians_over_rounds(
        (_ns(near, i), _ns(plain, i)) for i in range(3 * PAIRS)
    )
    yield "16 KiB packed, plain process", *comparison_cells(guest_ns, plain_ns, 3)


def gate_counts(binary: str, plan: EventPlan, repeat: int) -> dict[str, CounterReading]:
    """Return the counts of a program that opens its gate and closes it."""
    with Session([binary, "--plan"], build.ROOT, BASE_PAGES, plan, repeat, 1) as session:
        return session.ask("0 empty_gate - spread cycle 1 1 1 1", 1)[1]


@table(
    "Counts of an empty gated region (to reach: under 0.1 % of a point's)",
    "quantity | empty gate | 32,768 pages, 100 ms | share",
)
def empty_gate() -> Rows:
    """Return what perf counts between an opened and a closed gate."""
    point = _point("page_chase", lines=32768, region_ms=100)
    plan = perf.plan(_rig().host.microarchitecture, cpu=_rig().cpu)
    if not plan.counts_hardware:
        raise Unavailable(plan.lacking["core_cycles"])
    binary = compiled_c_program(
        REFERENCE_PROGRAMS_FOLDER / "empty_gate.c", temporary_build_folder().name
    )
    repeats, counted = range(PAIRS * len(plan.groups())), replace(_rig(), plan=plan)
    empty = [gate_counts(binary, plan, i) for i in repeats]
    full = [counted.take(point, i).counters for i in repeats]
    for event in plan.events + plan.derived:
        name = event.quantity
        sides = ([counters[name].value for counters in side] for side in (empty, full))
        yield name, *count_and_share_cells(*sides)


# --- the beginning of a large mapping

LARGE_MAPPING_BYTES = 4 << 30
PREFIX_BYTES = tuple(1 << bits for bits in (18, 20, 21, 22, 23, 24, 25, 28, 30))
PREFIX_ROUNDS = 9


@table(
    "The beginning of a large mapping over a mapping of the point's size",
    "pages | working set | layout | in the large one ns | in its own ns | median ratio | range",
)
def prefixes() -> Iterator[TableCells]:
    """A row a page size, working set and layout, of nine pairs of mappings; which of a pair is
    first alternates."""
    rig = MeasuringSetup.of(
        host.inspect_machine(), Store(Path(temporary_build_folder().name)), counters=False
    )
    base = host.base_page_bytes()
    ask = Scope(load_profile("full"), base_page_bytes=base).point
    kinds = [
        (size, layout, size // apart)
        for size in PREFIX_BYTES
        for layout, apart in (("spread", base), ("packed", 64))
    ]
    for pages in (BASE_PAGES, "thp"):
        points = [
            ask("page_chase", pages, layout=layout, lines=lines, region_ms=20)
            for _, layout, lines in kinds
        ]
        rounds = []
        for pair in range(PREFIX_ROUNDS):
            both = {
                shared: prefix_times_ns(rig, points, shared, pair)
                for shared in (LARGE_MAPPING_BYTES, 0)[:: 1 if pair % 2 else -1]
            }
            rounds.append((both[LARGE_MAPPING_BYTES], both[0]))
        for number, (size, layout, _) in enumerate(kinds):
            large, own = ([one[side][number] for one in rounds] for side in (0, 1))
            ratios = sorted(a / b for a, b in zip(large, own, strict=True))
            times_ns = f"{median(large):.2f}", f"{median(own):.2f}", f"{median(ratios):.3f}"
            range_words = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            yield pages, format_size(size), layout, *times_ns, range_words


def prefix_times_ns(
    rig: MeasuringSetup, points: list[Point], shared_bytes: int, repeat: int
) -> list[float]:
    """ns per access of each point in one mapping of so many bytes; of 0 each has its own. Raises
    Unavailable where one cannot be had."""
    taken = []
    with KernelProcess(points[0], shared_bytes, repeat, rig.setting) as session:
        for point in points:
            result, _ = session.ask(point)
            if isinstance(result, Unavailable):
                raise result
            taken.append(result.ns_per_access)
        session.end()
    return taken
