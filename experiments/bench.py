"""`make bench`: what the book promises, as ratios against an independent measurement in the same
run. Nothing is asserted: times vary."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Column, Table

from experiments.overview import campaign as book
from experiments.overview import prefixes, rule
from experiments.page_faults import grid as faults
from experiments.strides import grid as grids
from tlb import discovery
from tlb.inference.curves import select
from tlb.inference.intervals import summarise
from tlb.inference.scatter import relative_spread
from tlb.inference.simulator import OFFSET_BITS, SimulatedMachine, SimulatedTlb, WalkCache, simulate
from tlb.lab import build, campaign, grid, perf
from tlb.lab.independent import INDEPENDENT, Cells, c_program, compared, folder, medians, share
from tlb.lab.record import Point
from tlb.lab.rig import Rig
from tlb.lab.store import Store
from tlb.machine import host
from tlb.page_sizes import BASE
from tlb.programs import benchmarks
from tlb.reasons import Unavailable
from tlb.system.files import measuring_lock
from tlb.system.processes import pinned, workers
from tlb.units import format_size

SIZES = [
    64,
    1024,
    8192,
    32768,
    262144,
    1048576,
]  # inside the first TLB, between the two, past both, past the caches
PAIRS = 7  # interleaved fresh processes of each program, at each size
Rows = Iterator[Cells]
TABLES: dict[Callable[[], Rows], tuple[str, Cells]] = {}  # title and columns of each
_point = grid.Scope(grid.profile("full"), base_page_bytes=host.base_page_bytes()).point


def main(names: Sequence[str] = ()) -> None:
    """Print every table, in forty minutes, or those of these names; run it with nothing else
    running. Raises Unavailable: bad-parameter."""
    known = {rows.__name__: rows for rows in TABLES}
    if unknown := sorted({*names} - {*known}):
        raise Unavailable(
            "bad-parameter",
            f"there is no table '{unknown[0][:80]}'; there are {', '.join(sorted(known))}",
        )
    chosen, themselves = [known[name] for name in names or known], (repeatability, whole_experiment)
    with measuring_lock():
        _print(rows for rows in chosen if rows not in themselves)
    _print(rows for rows in chosen if rows in themselves)  # which take the lock themselves


def table(title: str, *columns: str) -> Callable[[Callable[[], Rows]], Callable[[], Rows]]:
    """Registers a function that gives a table's rows; a row may end early."""
    return lambda rows: TABLES.setdefault(rows, (title, columns)) and rows


TABLES |= {
    rows: (module.TITLE, module.COLUMNS)
    for rows, module in ((rule.rule, rule), (prefixes.prefixes, prefixes))
} | {benchmarks.overhead: benchmarks.OVERHEAD, benchmarks.known: benchmarks.KNOWN}


def _print(tables: Iterable[Callable[[], Rows]]) -> None:
    for rows in tables:
        title, columns = TABLES[rows]
        shown = Table(
            *(Column(name, justify="right") for name in columns), title=title, title_justify="left"
        )
        try:
            for row in rows():
                shown.add_row(*row)
        except Unavailable as why:  # the rest of what it wants cannot be had here
            shown.add_row(why.code)
        Console().print(shown)


@cache
def program(name: str) -> Callable[..., list[float]]:
    """A program of kernels/reference/ as a function of its arguments: the numbers that it
    prints."""
    source = INDEPENDENT / f"{name}.c"
    command = (
        [c_program(source, folder().name)]
        if source.exists()
        else [sys.executable, "-m", f"kernels.reference.{name}"]
    )
    return lambda *words: _numbers([*command, *map(str, words)])


def _numbers(command: Sequence[str]) -> list[float]:
    with pinned(_rig().cpu):  # the last CPU that they may use is then the rig's
        words = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, cwd=build.ROOT
        ).stdout.split()
    return [
        float(word) for word in words if not word.startswith("0x")
    ]  # an address keeps the compiler from leaving a loop out


@cache
def _rig() -> Rig:
    """This computer without counters, on the CPU that the independent programs take; it measures
    whatever is asked for."""
    return replace(
        Rig.of(host.inspect(), Store(Path(folder().name)), counters=False), usable_bytes=2**63
    )


def by_pages(
    kinds: Iterable[str], rounds: Callable[[str, int], Sequence[float]], cells: Callable[..., Cells]
) -> Rows:
    """A row a page size, of what is said of its medians; of one that cannot be had here, its
    reason's code."""
    for pages in kinds:
        try:
            yield pages, *cells(*medians(rounds(pages, i) for i in range(PAIRS)))
        except Unavailable as why:
            yield pages, why.code


def by_size(points: Mapping[int, Point], other: Callable[[Point, int], float]) -> Rows:
    """A row a size in bytes, of its point and of an independent program, process by process; and
    the median of the differences."""
    differences = []
    for size, point in points.items():
        ours, theirs = medians(
            (_rig().take(point, i).ns_per_access, other(point, i)) for i in range(PAIRS)
        )
        differences.append(abs(ours / theirs - 1))
        yield format_size(size), *compared(ours, theirs)
    yield "median of |difference|", "", "", f"{statistics.median(differences):.1%}"


@table(
    "Against an independent chase, spread, then packed (to reach: median 1 %, each 5 %)",
    "size",
    "ours ns",
    "other ns",
    "difference",
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
    "stride",
    "stride_sum ns",
    "independent ns",
    "difference",
)
def strides() -> Rows:
    """The published loop of the chapter about strides against
    kernels/reference/independent_stride.c, which shares nothing with it."""
    independent, size = program("independent_stride"), grids.ARRAY_BYTES
    points = {
        step: _point("stride_sum", mode="plain", bytes=size, step_bytes=step, region_ms=150)
        for step in grids.STRIDES
    }
    return by_size(points, lambda point, i: independent(size, dict(point.options)["step_bytes"])[0])


@table(
    "Load-to-use latency, packed chase inside L1 (to reach: 3 %)",
    "page_chase ns",
    "self-pointer ns",
    "difference",
    "core cycles",
    "from a whole number",
)
def first_level_cache() -> Rows:
    """The packed chase in 4 KiB against a pointer that points at itself, and in cycles of the
    measured clock."""
    point, chase = (
        _point("page_chase", layout="packed", lines=64, region_ms=100),
        program("independent_chase"),
    )
    records = enumerate((_rig().take(point, i) for i in range(PAIRS)), 1)
    ours, cycles, theirs = medians(
        (r.ns_per_access, r.ns_per_access * r.core_ghz, *chase("self", i)) for i, r in records
    )
    yield *compared(ours, theirs, 3), f"{cycles:.2f}", f"{cycles / round(cycles) - 1:+.1%}"


@table(
    "numba against C past L2, in turn over one mapping (to reach: 3 %)",
    "layout",
    "lines",
    "numba ns",
    "C ns",
    "median ratio",
)
def numba_against_c() -> Rows:
    """The two engines' timed loops. Two processes would differ in neighbours and in physical pages,
    by far more than the engines do."""
    library = c_program(
        build.KERNELS / "page_chase.c",
        folder().name,
        "-w",
        "-shared",
        "-fPIC",
        "-Dstatic=",
        "-fgnu89-inline",
    )
    for layout, lines in [
        ("spread", 8192),
        ("spread", 32768),
        ("spread", 131072),
        ("packed", 65536),
        ("packed", 1 << 20),
    ]:
        numba, c, ratio = program("engines_in_turn")(library, layout, lines)
        yield layout, f"{lines:,}", f"{numba:.2f}", f"{c:.2f}", f"{ratio - 1:+.1%}"


@table(
    "A part of a cycle against the whole (to reach: 1 % in the median)",
    "layout",
    "lines",
    "part ns",
    "whole ns",
    "median ratio",
)
def part_of_a_cycle() -> Rows:
    """The hops that page_chase times of a large cycle at the least, and those of two whole ones, in
    ten processes a size."""
    for layout, lines in [("packed", 1 << 20), ("spread", 1 << 18), ("spread", 1 << 20)]:
        part, whole, ratio = program("part_and_whole")(
            *build.kernel("page_chase").command, layout, lines
        )
        yield layout, f"{lines:,}", f"{part:.2f}", f"{whole:.2f}", f"{ratio - 1:+.1%}"


@table(
    "Speedup over base pages at 1 GiB (to reach: 5 % from an independent chase)",
    "pages",
    "page_chase",
    "independent",
    "difference",
)
def speedup_of_large_pages() -> Rows:
    """The chase over 1 GiB on 2 MiB pages against base pages, by page_chase and by
    kernels/reference/independent_chase.c."""
    chase, lines = program("independent_chase"), 1 << 18

    def rounds(pages: str, i: int) -> list[float]:
        return [
            _rig().take(_point("page_chase", kind, lines=lines, region_ms=150), i).ns_per_access
            for kind in (pages, BASE)
        ] + [chase(lines, i + 1, kind)[0] for kind in (pages, BASE)]

    return by_pages(
        ("2m", "thp"),
        rounds,
        lambda large, base, large_too, base_too: compared(base / large, base_too / large_too, 3),
    )


@table(
    "Faulting in, ns per 4 KiB (to reach: touch at most memset)",
    "pages",
    "touch",
    "memset",
    "ratio",
)
def prefault_against_memset() -> Rows:
    """Making 256 MiB ready by touching a word a page, against memset of the same mapping, one
    thread."""

    def rounds(pages: str, i: int) -> list[float]:
        return [
            _rig()
            .take(_point("prefault", pages, mode, lines=1 << 16, threads=1, region_ms=100), i)
            .ns_per_access
            for mode in ("touch", "memset")
        ]

    return by_pages(
        (BASE, "thp", "2m"),
        rounds,
        lambda touch, memset: (f"{touch:.0f}", f"{memset:.0f}", f"{touch / memset:.2f}"),
    )


@table(
    "First touches, and searches that map (to reach: 10 %)",
    "what",
    "ours",
    "independent",
    "difference",
)
def touches_and_searches() -> Rows:
    """ns a page of the published file by page_fault, and records a second by map_churn, against
    loops that share nothing with them."""
    touched, lines = (
        program("independent_fault"),
        faults.CHUNKS * faults.CHUNK_BYTES // faults.LINE_BYTES,
    )
    file = _point(
        "page_fault", mode="file", lines=faults.FILE_BYTES // host.base_page_bytes(), region_ms=200
    )
    yield (
        "ns a page",
        *compared(
            *medians(
                (_rig().take(file, i).ns_per_access, touched(faults.FILE_BYTES)[0])
                for i in range(PAIRS)
            )
        ),
    )
    for kept, mode in enumerate(("unmap", "keep")):
        point, other = (
            _point("map_churn", mode=mode, lines=lines, region_ms=500),
            program("independent_search"),
        )
        rates = (
            (
                1e9 / _rig().take(point, i).ns_per_access,
                other(1, faults.CHUNKS, faults.CHUNK_BYTES, kept)[0],
            )
            for i in range(PAIRS)
        )
        yield f"records a second, {mode}", *compared(*medians(rates), 0)


@table(
    "A hop in a graph on base pages, against a naive walk (to reach: 3 %)",
    "graph",
    "graph_walk ns",
    "naive ns",
    "difference",
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


@table("A graph of 4 GiB, ready (to reach: 4 times as fast)", "graph_walk s", "naive s", "ratio")
def graph_ready() -> Rows:
    """Seconds until a graph of 4 GiB is ready: graph_walk on all CPUs, and naive_graph.c (memset,
    xorshift, r % n) on one."""
    point, naive = (
        _point("graph_walk", mode="plain", vertices=1 << 26, region_ms=1),
        program("naive_graph"),
    )
    ours, theirs = medians(
        (_rig().take(point, i).also["prepare_graph_ns"] / 1e9, naive(point.lines, 1000)[0])
        for i in range(3)
    )
    yield f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.2f}"


@table(
    "Simulator, one core (to reach: 2 M accesses/s)",
    "TLBs, entries / ways",
    "order",
    "M accesses/s",
    "references",
)
def simulator_rate() -> Rows:
    """Accesses a second of the simulator on one core, over 1 GiB of 4 KiB pages, nearly every one a
    walk: best of PAIRS."""
    caches = tuple(WalkCache(level=n, entries=entries) for n, entries in ((2, 32), (3, 8), (4, 4)))
    rng, n = np.random.default_rng(1), 2_000_000
    streams = {
        "random": rng.integers(0, 1 << 18, n),
        "cycle": np.resize(rng.permutation(1 << 18), n),
    }
    for ways, entries, last in ((0, 2048, 16), (4, 1536, 12)):
        tlbs = (
            SimulatedTlb(level=1, entries=64, ways=ways),
            SimulatedTlb(level=2, entries=entries, ways=last),
        )
        for order, stream in streams.items():
            run = partial(
                simulate, SimulatedMachine(tlbs, caches), stream, unit_bytes=1 << OFFSET_BITS
            )
            references = run().references / n  # and compiled, or loaded from numba's cache
            best = min(timeit.repeat(run, timer=time.process_time, number=1, repeat=PAIRS))
            yield (
                f"64 / {ways or 'all'} + {entries} / {last}",
                order,
                f"{n / best / 1e6:.1f}",
                f"{references:.2f}",
            )


@table(
    "Guests, 4k on 4k (to reach: 5 % from an independent guest, 3 % from the process, 1 % between "
    "the clocks)",
    "what",
    "guest_chase ns",
    "other ns",
    "difference",
)
def guests() -> Rows:
    """guest_chase against naive_guest.c, against the plain process where no page is missed, and its
    two clocks."""
    far = _point("guest_chase", mode="4k", lines=1 << 18, region_ms=150)
    plain = _point("page_chase", layout="packed", lines=256, region_ms=150)
    near = plain.model_copy(update={"kernel": far.kernel, "mode": far.mode})
    _rig().take(near)  # or there are no guests here
    naive, records = program("naive_guest"), (_rig().take(far, i) for i in range(PAIRS))
    inside, outside, other = medians(
        (record.ns_per_access, record.also["outside_ns_per_access"], *naive(far.lines, i))
        for i, record in enumerate(records, 1)
    )
    yield "1 GiB, independent guest", *compared(inside, other, 3)
    yield "1 GiB, clock outside", *compared(inside, outside, 3)
    pairs = (
        [_rig().take(point, i).ns_per_access for point in (near, plain)] for i in range(3 * PAIRS)
    )
    yield "16 KiB packed, plain process", *compared(*medians(pairs), 3)


@table(
    "Counts of an empty gated region (to reach: under 0.1 % of a point's)",
    "quantity",
    "empty gate",
    "32,768 pages, 100 ms",
    "share",
)
def empty_gate() -> Rows:
    """What perf counts between an opened and a closed gate; without hardware counters the software
    events remain."""
    point, plan = (
        _point("page_chase", lines=32768, region_ms=100),
        perf.plan(_rig().host.microarchitecture, cpu=_rig().cpu),
    )
    if not plan.events:
        raise Unavailable(next(iter(plan.lacking.values())))
    repeats, binary = (
        range(PAIRS * len(plan.groups())),
        c_program(INDEPENDENT / "empty_gate.c", folder().name),
    )
    empty = [perf.run([binary], plan, 60, repeat=i).counters for i in repeats]
    full = [replace(_rig(), plan=plan).take(point, i).counters for i in repeats]
    for event in plan.events + plan.derived:
        yield (
            event.quantity,
            *share(
                *([counters[event.quantity].value for counters in side] for side in (empty, full))
            ),
        )


@table(
    "A point's median over ten separate runs (to reach: spread 2 %, or marked)",
    "point",
    "ns",
    "spread (IQR)",
    "range",
    "marked",
)
def repeatability() -> Rows:
    """The median of a point, five processes, in ten separate runs of an experiment."""
    points = [
        _point("page_chase", layout="packed", lines=64),
        *(_point("page_chase", lines=n) for n in (64, 256, 1024, 8192)),
    ]
    rigs = [Rig.of(_rig().host, Store(Path(folder().name, f"run-{run}"))) for run in range(10)]
    for rig in rigs:
        campaign.run(rig, {"repeatability": points}, 5, quiet=True)
    return repeated(
        pd.concat(
            rig.store.load(rig.machine, "repeatability").assign(run=run)
            for run, rig in enumerate(rigs)
        )
    )


def repeated(frame: pd.DataFrame) -> Rows:
    """A row a point: how far its medians of several runs (column `run`) lie apart, and how many of
    them are marked."""
    for lines, layout in sorted({*zip(frame["lines"], frame["layout"], strict=True)}):
        rows = select(frame, layout=layout, lines=lines)
        runs, noisy = (
            summarise(rows, ["run"]).set_index("run"),
            rows["noisy"].ne("").groupby(rows["run"]).any(),
        )
        middle = runs["median"].median()
        yield (
            f"{layout} {lines}",
            f"{middle:.3f}",
            f"{relative_spread(runs['median']):.2%}",
            f"{np.ptp(runs['median']) / middle:.2%}",
            f"{(runs['unstable'] | noisy).sum()} of {len(runs)}",
        )


@table(
    "Experiments, profile quick (to reach: runner under 300 MiB)",
    "experiment",
    "processes",
    "seconds",
    "runner MiB",
)
def whole_experiment() -> Rows:
    """Each chapter's campaign, profile quick, from nothing: how long it takes, and what the runner
    itself holds in memory."""
    for name in sorted(chapter.__name__.rpartition(".")[2] for chapter in discovery.chapters()):
        with workers(1) as fresh:  # what the tables above held is no runner's
            measured, elapsed_s, held_mib = fresh.submit(
                book.alone, name, "quick", Path(folder().name, name)
            ).result()
        yield name, str(measured), f"{elapsed_s:.0f}", str(held_mib)
