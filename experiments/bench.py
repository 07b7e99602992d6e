"""`make bench`: the figures that the book promises, as ratios against an independent measurement in the same run.

Nothing here is asserted: a test that depends on a time fails on somebody's machine. The ratios are printed, with what
they should be.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.article.chapter import BOOK, Chapter, check_parameters
from experiments.inference import intervals as stats
from experiments.inference.simulator import SimulatedMachine, SimulatedTlb, WalkCache, simulate
from experiments.lab import build, perf
from experiments.lab import campaign as experiment
from experiments.lab.grid import GRIDS
from experiments.lab.measure import measure, shape
from experiments.lab.record import Point
from experiments.lab.store import Store, measuring_lock
from experiments.machine import host
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

INDEPENDENT = build.ROOT / "tests" / "independent_chase.c"
NAIVE_GRAPH = build.ROOT / "tests" / "naive_graph.c"
NAIVE_GUEST = build.ROOT / "tests" / "naive_guest.c"
EMPTY_GATE = build.ROOT / "tests" / "empty_gate.c"
# 256 KiB to 1 GiB spread, one line a page: inside the first TLB, between the two, past both, past the caches.
SIZES = [64, 256, 1024, 2048, 8192, 32768, 131072, 262144]
PAIRS = 7  # interleaved fresh processes of each program, at each size


def main() -> None:
    """Print every table. Takes twenty minutes; run it with nothing else running."""
    console = Console()
    with measuring_lock():
        console.print(against_independent())
        console.print(first_level_cache())
        console.print(numba_against_c())
        console.print(speedup_of_large_pages())
        console.print(prefault_against_memset())
        console.print(mean_hop())
        console.print(graph_ready())
        console.print(simulator_rate())
        console.print(guests())
        console.print(empty_gate())
        console.print(top_down())
    console.print(repeatability())
    console.print(whole_experiment())


def _independent(folder: str) -> str:
    return c_program(INDEPENDENT, folder)


def c_program(source: Path, folder: str) -> str:
    """A C program of tests/, compiled into `folder`; SystemExit without a compiler."""
    cc = build.compiler()
    if cc is None:
        raise SystemExit(f"{source.name} needs a C compiler: apt install gcc libc6-dev.")
    binary = f"{folder}/{source.stem}"
    subprocess.run([*cc.command, "-O2", "-std=gnu11", "-o", binary, str(source)], check=True)
    return binary


def _ns(binary: str, argument: object, seed: int, *more: str) -> float:
    said = subprocess.run([binary, str(argument), str(seed + 1), *more], capture_output=True, text=True, check=True)
    return float(said.stdout.split()[0])


def _ours(point: Point, repeat: int) -> float:
    return measure(point, repeat, state="0" * 12, usable_bytes=2**63).ns_per_access


def _table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def against_independent() -> Table:
    """ns per access of page_chase against tests/independent_chase.c, process by process."""
    rows, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        binary = _independent(folder)
        for lines in SIZES:
            point = Point(kernel="page_chase", lines=lines, region_ms=150)
            pairs = [(_ours(point, i), _ns(binary, lines, i)) for i in range(PAIRS)]
            ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
            ratios.append(ours / theirs)
            rows.append((format_size(lines * 4096), f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs - 1:+.1%}"))
    rows.append(("median of |difference|", "", "", f"{statistics.median(abs(r - 1) for r in ratios):.1%}"))
    return _table("Against an independent dependent chase (to reach: median 3 %, each 8 %)",
                  ["working set", "page_chase ns", "independent ns", "difference"], rows)


def speedup_of_large_pages() -> Table:
    """The chase over 1 GiB on 2 MiB pages against base pages, by page_chase and by tests/independent_chase.c, interleaved."""
    lines, rows = 1 << 18, []
    with tempfile.TemporaryDirectory() as folder:
        binary = _independent(folder)
        for pages in ("2m", "thp"):
            both = (pages, "4k")
            try:
                times = [[_ours(Point(kernel="page_chase", pages=kind, lines=lines, region_ms=150), i) for kind in both]
                         + [_ns(binary, lines, i, kind) for kind in both] for i in range(PAIRS)]
            except Unavailable as why:
                rows.append((pages, why.code, "", ""))
                continue
            large, base, large_too, base_too = (statistics.median(side) for side in zip(*times, strict=True))
            ours, theirs = base / large, base_too / large_too
            rows.append((pages, f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs - 1:+.1%}"))
    return _table("Speedup over base pages at 1 GiB (to reach: 5 % from an independent chase)",
                  ["pages", "page_chase", "independent", "difference"], rows)


def prefault_against_memset() -> Table:
    """Making 256 MiB ready by touching a word a page, against memset of the same mapping, one thread, interleaved."""
    rows = []
    for pages in ("4k", "thp", "2m"):
        try:
            pairs = [[_ours(Point(kernel="prefault", pages=pages, order="sequential", lines=1 << 16, mode=mode,
                                  options=(("threads", 1),), region_ms=100), i) for mode in ("touch", "memset")] for i in range(PAIRS)]
        except Unavailable as why:
            rows.append((pages, why.code, "", ""))
            continue
        touch, memset = (statistics.median(side) for side in zip(*pairs, strict=True))
        rows.append((pages, f"{touch:.0f}", f"{memset:.0f}", f"{touch / memset:.2f}"))
    return _table("Faulting in, ns per 4 KiB (to reach: touch at most memset)", ["pages", "touch", "memset", "ratio"], rows)


def first_level_cache() -> Table:
    """The packed chase in 4 KiB against a pointer that points at itself, and in cycles of the measured clock."""
    point = Point(kernel="page_chase", layout="packed", lines=64, region_ms=100)
    with tempfile.TemporaryDirectory() as folder:
        binary = _independent(folder)
        pairs = [(measure(point, i, state="0" * 12, usable_bytes=2**63), _ns(binary, "self", i)) for i in range(PAIRS)]
    ours, theirs = statistics.median(r.ns_per_access for r, _ in pairs), statistics.median(ns for _, ns in pairs)
    cycles = statistics.median(r.ns_per_access * r.core_ghz for r, _ in pairs)
    rows = [(f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs - 1:+.1%}", f"{cycles:.2f}", f"{cycles / round(cycles) - 1:+.1%}")]
    return _table("Load-to-use latency, packed chase inside L1 (to reach: 3 %)",
                  ["page_chase ns", "self-pointer ns", "difference", "core cycles", "from a whole number"], rows)


def numba_against_c() -> Table:
    """The two engines' timed loops in turn over one mapping: neighbours and physical pages are the same for both.

    Two processes would differ in both, by far more than the engines do wherever the cache is shared with other tenants.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cc, library = build.compiler(), f"{folder}/page_chase.so"
        if cc is None:
            raise SystemExit("The comparison needs a C compiler: apt install gcc libc6-dev.")
        flags = [flag for flag in build.FLAGS if flag != "-Werror"]
        # Without `static` the loop has a name that ctypes finds; it is the same code otherwise.
        subprocess.run([*cc.command, *flags, "-w", "-shared", "-fPIC", "-Dstatic=", "-o", library,
                        str(build.KERNELS / "page_chase.c")], check=True)
        for layout, lines in [("spread", 8192), ("spread", 32768), ("spread", 131072), ("packed", 65536), ("packed", 1 << 20)]:
            said = subprocess.run([sys.executable, "-c", _IN_TURN, library, layout, str(lines)], capture_output=True, text=True,
                                  check=True, cwd=build.ROOT).stdout.split()
            numba, c, ratio = map(float, said)
            rows.append((layout, f"{lines:,}", f"{numba:.2f}", f"{c:.2f}", f"{ratio - 1:+.1%}"))
    return _table("numba against C past L2, in turn over one mapping (to reach: 3 %)",
                  ["layout", "lines", "numba ns", "C ns", "median ratio"], rows)


# Its own process, because numba and an arena of half a gigabyte are not the runner's to keep.
_IN_TURN = """
import argparse, ctypes, statistics, sys
import numpy as np
from kernels import harness, page_chase
library, layout, lines = ctypes.CDLL(sys.argv[1]), sys.argv[2], int(sys.argv[3])
library.follow.restype, library.follow.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_uint64]
packed = layout == "packed"
arena = harness.map_arena(argparse.Namespace(pages="4k", lines=lines, packed=packed))
page_chase.place_cycle(arena.words(), np.uint64(arena.base), np.int64(lines), packed, np.int64(arena.stride), True, np.uint64(7))
at, hops = arena.base + int(harness.line_offset(0, packed, arena.stride)), max(lines, 1 << 18) // lines * lines
engines = {"numba": lambda: page_chase.follow(np.uint64(at), np.uint64(hops)), "c": lambda: library.follow(at, hops)}
ns = {name: [] for name in engines}
for name in list(engines) * 31:
    begin = harness.now_ns()
    engines[name]()
    ns[name].append((harness.now_ns() - begin) / hops)
pairs = list(zip(ns["numba"][1:], ns["c"][1:]))
print(*(statistics.median(side) for side in zip(*pairs)), statistics.median(n / c for n, c in pairs))
"""


def graph_ready() -> Table:
    """Seconds until a graph of 4 GiB is ready: graph_walk on all CPUs, and tests/naive_graph.c (memset, xorshift, r % n) on one."""
    vertices = 1 << 26
    point = Point(kernel="graph_walk", layout="packed", order="random", lines=vertices, mode="plain", options={"vertices": vertices},
                  region_ms=1)
    with tempfile.TemporaryDirectory() as folder:
        binary = c_program(NAIVE_GRAPH, folder)
        pairs = []
        for i in range(3):
            ours = measure(point, i, state="0" * 12, usable_bytes=2**63).also["prepare_graph_ns"] / 1e9
            said = subprocess.run([binary, str(vertices), "1000"], capture_output=True, text=True, check=True).stdout
            pairs.append((ours, float(said.split()[0])))
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return _table("A graph of 4 GiB, ready (to reach: 4 times as fast)", ["graph_walk s", "naive s", "ratio"],
                  [(f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.2f}")])


def mean_hop() -> Table:
    """ns per hop of graph_walk, timed per batch, against tests/naive_graph.c, process by process; from 1 MiB on, for in less the
    naive program waits for its own random numbers."""
    rows, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        binary = c_program(NAIVE_GRAPH, folder)
        for size in (1 << 20, 4 << 20, 16 << 20, 64 << 20, 1 << 28, 1 << 30):
            own = {"vertices": size // 64}
            point = Point(kernel="graph_walk", **shape("graph_walk", own), mode="plain", options=own, region_ms=150)
            pairs = []
            for i in range(PAIRS):
                said = subprocess.run([binary, str(size // 64), "1000000"], capture_output=True, text=True, check=True).stdout
                pairs.append((_ours(point, i), float(said.split()[1])))
            ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
            ratios.append(ours / theirs)
            rows.append((format_size(size), f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs - 1:+.1%}"))
    rows.append(("median of |difference|", "", "", f"{statistics.median(abs(r - 1) for r in ratios):.1%}"))
    return _table("A hop in a graph on base pages, against a naive walk (to reach: 3 %)",
                  ["graph", "graph_walk ns", "naive ns", "difference"], rows)


def simulator_rate() -> Table:
    """Accesses a second of the simulator on one core, over 1 GiB of 4 KiB pages, nearly every one a walk: best of PAIRS."""
    caches = tuple(WalkCache(level=n, entries=entries) for n, entries in ((2, 32), (3, 8), (4, 4)))
    machines = {f"64 / {ways or 'all'} + {entries} / {last}": SimulatedMachine((
        SimulatedTlb(level=1, entries=64, ways=ways), SimulatedTlb(level=2, entries=entries, ways=last)), caches)
        for ways, entries, last in ((0, 2048, 16), (4, 1536, 12))}
    rng, n, rows = np.random.default_rng(1), 20_000_000, []
    streams = {"random": rng.integers(0, 1 << 18, n), "cycle": np.resize(rng.permutation(1 << 18), n)}
    for name, machine in machines.items():
        simulate(machine, streams["random"][:1000], unit_bytes=4096)  # compiled, or loaded from numba's cache
        for order, stream in streams.items():
            times = []
            for _ in range(PAIRS):
                begin = time.process_time()
                counts = simulate(machine, stream, unit_bytes=4096)
                times.append(time.process_time() - begin)
            rows.append((name, order, f"{n / min(times) / 1e6:.0f}", f"{counts.references / n:.2f}"))
    return _table("Simulator, one core (to reach: 50 M accesses/s)", ["TLBs, entries / ways", "order", "M accesses/s", "references"], rows)


def guests() -> Table:
    """guest_chase against tests/naive_guest.c, against the plain process where no page is missed, and its two clocks."""
    far, near = (Point(kernel="guest_chase", mode="4k", layout=layout, lines=lines, region_ms=150)
                 for layout, lines in (("spread", 1 << 18), ("packed", 256)))
    plain = near.model_copy(update={"kernel": "page_chase", "mode": ""})
    titles = ["what", "guest_chase ns", "other ns", "difference"]
    title = "Guests, 4k on 4k (to reach: 5 % from an independent guest, 3 % from the process, 1 % between the clocks)"
    how = {"state": "0" * 12, "usable_bytes": 2**63}
    with tempfile.TemporaryDirectory() as folder:
        try:
            measure(near, **how)
        except Unavailable as why:
            return _table(title, titles, [(why.code, "", "", "")])
        binary = c_program(NAIVE_GUEST, folder)
        both = [(measure(far, i, **how), _ns(binary, far.lines, i)) for i in range(PAIRS)]
    pairs = {
        "1 GiB, independent guest": [(one.ns_per_access, other) for one, other in both],
        "1 GiB, clock outside": [(one.ns_per_access, one.also["outside_ns_per_access"]) for one, _ in both],
        "16 KiB packed, plain process": [(_ours(near, i), _ours(plain, i)) for i in range(3 * PAIRS)]}
    rows = []
    for what, sides in pairs.items():
        ours, theirs = (statistics.median(side) for side in zip(*sides, strict=True))
        rows.append((what, f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs - 1:+.1%}"))
    return _table(title, titles, rows)


def empty_gate() -> Table:
    """What perf counts between an opened and a closed gate, against a point's counts: the gate's own share of them.

    Each quantity is the median over the processes that counted it; without hardware counters the software events remain.
    """
    point = Point(kernel="page_chase", lines=32768, region_ms=100)
    plan = perf.plan(host.inspect().microarchitecture)
    if not plan.events:
        return _table(f"Empty gate: nothing counts here ({next(iter(plan.lacking.values()))})", ["quantity"], [])
    repeats = range(PAIRS * len(plan.groups()))
    with tempfile.TemporaryDirectory() as folder:
        binary = c_program(EMPTY_GATE, folder)
        empty = [perf.run([binary], plan, 60, repeat=i).counters for i in repeats]
        full = [measure(point, i, state="0" * 12, usable_bytes=2**63, plan=plan).counters for i in repeats]
    rows = []
    for quantity in [event.quantity for event in plan.events + plan.derived]:
        gate, whole = (_median([counters[quantity].value for counters in side]) for side in (empty, full))
        # A region that faults nothing, or a loop that never misses, leaves nothing to compare with but zero.
        share = "–" if None in (gate, whole) else f"{gate / whole:.3%}" if whole else "none of none" if not gate else "all"
        rows.append((quantity, *("–" if n is None else f"{n:,.0f}" for n in (gate, whole)), share))
    return _table("Counts of an empty gated region (to reach: under 0.1 % of a point's)",
                  ["quantity", "empty gate", f"{point.lines:,} pages, {point.region_ms} ms", "share"], rows)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def top_down() -> Table:
    """The share of cycles that waits for the data TLB, by Intel's top-down metric, or why there is none."""
    kernel, rows = build.kernel("page_chase"), []
    for lines in (64, 1024, 32768):
        command = [*kernel.command, "--lines", str(lines), "--region-ms", "100"]
        found = perf.dtlb_bound(command, 60, cwd=build.ROOT)
        rows.append((f"{lines:,}", found.reason or f"{found.value:.1f} %"))
        if found.reason == "no-topdown":
            break
    return _table("DTLB-bound share of cycles (tma_dtlb_load)", ["pages", "share"], rows)


def repeatability() -> Table:
    """The median of a point, five processes, in ten separate runs of an experiment."""
    points = [Point(kernel="page_chase", layout=layout, lines=lines)
              for layout, lines in (("spread", 64), ("packed", 64), ("spread", 256), ("spread", 1024), ("spread", 8192))]
    here, frames = host.inspect(), []
    for _ in range(10):
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            experiment.run("repeatability", points, 5, machine="this-computer", store=store, state=host.state(here),
                           plan=perf.plan(here.microarchitecture), quiet=True,
                           usable_bytes=int(here.memory.usable_bytes * experiment.MEMORY_SHARE))
            frames.append(store.load("this-computer", "repeatability"))
    rows = []
    for point in points:
        of_point = [frame[(frame["layout"] == point.layout) & (frame["lines"] == point.lines)] for frame in frames]
        medians = [float(frame["ns_per_access"].median()) for frame in of_point]
        middle = statistics.median(medians)
        marked = sum(stats.relative_spread(frame["ns_per_access"]) > stats.UNSTABLE_SPREAD or (frame["noisy"] != "").any()
                     for frame in of_point)
        rows.append((f"{point.layout} {point.lines}", f"{middle:.3f}", f"{stats.relative_spread(medians):.2%}",
                     f"{(max(medians) - min(medians)) / middle:.2%}", f"{marked} of {len(frames)}"))
    return _table("A point's median over ten separate runs (to reach: spread 2 %, or marked)",
                  ["point", "ns", "spread (IQR)", "range", "runs marked unstable or noisy"], rows)


def whole_experiment() -> Table:
    """stlb_cliff, profile quick, from nothing: the share of timed regions, and what the runner itself holds in memory."""
    chapters = sorted(path.stem for path in BOOK.glob("*.ipynb") if path.stem in GRIDS)
    rows = []
    for name in chapters:
        with tempfile.TemporaryDirectory() as folder:
            parameters = check_parameters(name, {"machine": "this", "profile": "quick"})
            chapter = Chapter(name, parameters, Store(Path(folder)))
            points = GRIDS[name](chapter.profile, build.engine_for("auto"), chapter.tlb_entries(), len(chapter.host.usable_cpus))
            outcome = experiment.run(
                name, points, chapter.profile.repeats_of, machine=chapter.machine, store=chapter.store,
                state=host.state(chapter.host), plan=perf.plan(chapter.host.microarchitecture),
                usable_bytes=int(chapter.host.memory.usable_bytes * experiment.MEMORY_SHARE))
        own_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append((name, str(outcome.measured), f"{outcome.elapsed_s:.0f}", f"{outcome.timed_s:.0f}",
                     f"{outcome.timed_s / outcome.elapsed_s:.0%}", f"{own_mib:.0f}"))
    return _table("Experiments, profile quick (to reach: 50 % in timed regions; runner under 300 MiB)",
                  ["experiment", "processes", "seconds", "in timed regions", "share", "runner MiB"], rows)
