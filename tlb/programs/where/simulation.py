"""Run a program under the Valgrind tool and read what it counted."""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tlb.measure.build import build_preload_library
from tlb.programs.executable import (
    reason_against_preload,
    sanitizer_of,
    source_line_before,
    source_line_of,
)
from tlb.programs.levers import (
    ALLOCATION_SITES_SOURCE_FILE,
    LEVERS,
    Lever,
    LeverEnvironmentVariable,
)
from tlb.programs.runs import ProgramRun, run_program
from tlb.programs.where.sampling import (
    LOCATION_IN_LINUX,
    SAMPLING_PERIOD_NS,
    CodeLocation,
    CodeSamples,
)
from tlb.programs.where.valgrind import SimulatedTlb, build_valgrind_tool
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size

ALLOCATORS = "glibc", "jemalloc", "mimalloc", "tcmalloc", "other"
# Sites of what no allocation of its own has: of small objects, by the kind of allocator, and of a
# request that was refused (tool/sites.c).
HEAPS = {f"{n:016x}": kind for n, kind in enumerate(ALLOCATORS, 1)}
HEAP, OTHER, REFUSED = min(HEAPS), max(HEAPS), f"{0:016x}"
# The file that holds an interpreter of scripts: a program or its library.
_INTERPRETER = re.compile(r"(?:lib)?(python|perl|ruby|php|lua|node|julia|R$)(?![a-z])")
MOST_CODES = 100  # instructions without simulation, whose lines are looked up one by one


class WalkCounts(NamedTuple):
    """Of accesses: misses of the first level, walks, those of them that are chained and alone (see
    tool/walks.c), and the walks that would remain with huge pages everywhere."""

    misses: int = 0
    walks: int = 0
    chained: int = 0
    alone: int = 0
    large_walks: int = 0

    @property
    def exposed(self) -> int:
        """Walks that overlap with no other one."""
        return self.chained + self.alone

    def __add__(self, other: WalkCounts) -> WalkCounts:  # type: ignore[override]
        return WalkCounts(*(a + b for a, b in zip(self, other, strict=True)))


class SourceLine(NamedTuple):
    """A line of code; file "" and line 0 where no debug information says."""

    function: str
    file: str = ""
    line: int = 0
    module: str = ""

    @property
    def place(self) -> str:
        file = self.file.rpartition("/")[2]
        if self.line:
            return f"{file}:{self.line}"
        return file or self.module.rpartition("/")[2] or "?"


UNATTRIBUTED_CODE, WHOLE_PROGRAM, LINUX_SOURCE_LINE = map(
    SourceLine, ("other code", "all of the program", "Linux itself")
)


@dataclass
class AllocationSite:
    """Allocations by one stack. how: the function that was called; first_bytes: of the first one;
    allocator: one of ALLOCATORS; stack: frames "module+offset" from the inside out. Of a simulation:
    bytes of all of them; touched, those of pages that the program touches; added, those that huge
    pages would add, of which it touches none; and lived, the largest share of its process's
    instructions that one of them was there for."""

    id: str
    how: str
    stack: list[str]
    first_bytes: int = 0
    allocator: str = ALLOCATORS[0]
    bytes: int = 0
    touched: int = 0
    added: int = 0
    lived: float = 0.0
    counts: WalkCounts = WalkCounts()

    @property
    def is_heap(self) -> bool:
        return self.id in HEAPS

    @property
    def size_bytes(self) -> int:
        """Return the bytes that were asked for; of a heap what is touched, since it grows ahead."""
        return self.touched if self.is_heap else self.bytes

    @property
    def interpreter(self) -> str:
        """The interpreter in whose code the allocation is, "" if none. Its C frames are the same
        for each line of a script."""
        for frame in self.stack:
            file = frame.rpartition("+")[0].rpartition("/")[2]
            if name := _INTERPRETER.match(file):
                return name[1]
        return ""

    @property
    def origin(self) -> str:
        """What allocated it, in words."""
        if self.is_heap:
            kind = HEAPS[self.id]
            owner = {HEAP: "the", OTHER: "another allocator's"}.get(self.id, f"{kind}'s")
            return f"small objects on {owner} heap"
        return f"{self.how} in {' < '.join(map(resolved, self.stack[:3]))}"


@dataclass
class SimulationResult:
    """What the tool counted. touches: walks by line and site. code: the line that samples at an
    instruction are of: its own if it missed the first level, or that of the one before, if that
    walked. curve: walks that an LRU second level of so many entries, without sets, would leave.
    is_cut: it was ended before its end. lacking: why there was no simulation, or "". unnamed: why
    its allocations have no names, or "". touched_bytes: of base pages at their first touch.
    python: the lines that stand for a function of Python, with the interpreter's code in it."""

    instructions: int = 0
    touched_bytes: int = 0
    lines: dict[SourceLine, WalkCounts] = field(default_factory=lambda: defaultdict(WalkCounts))
    sites: dict[str, AllocationSite] = field(default_factory=dict)
    touches: dict[SourceLine, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    code: dict[CodeLocation, SourceLine] = field(default_factory=dict)
    curve: Counter[int] = field(default_factory=Counter)
    is_cut: bool = False
    lacking: str = ""
    unnamed: str = ""
    python: set[SourceLine] = field(default_factory=set)

    @cached_property
    def total(self) -> WalkCounts:
        return sum(self.lines.values(), WalkCounts())

    def milliseconds(self, samples: CodeSamples) -> dict[SourceLine, float]:
        """Return the time of each line of code. The clock mostly stops a core at the instruction
        after the one that waited, so a sample there is of the load before it, if that walked."""
        times = defaultdict[SourceLine, float](float)
        for code, number in samples.items():
            lines = (
                (LINUX_SOURCE_LINE,)
                if code == LOCATION_IN_LINUX
                else (self.code.get(code, UNATTRIBUTED_CODE), WHOLE_PROGRAM)
            )
            for line in lines:
                times[line] += number * SAMPLING_PERIOD_NS / 1e6
        return times

    def locate(self, samples: CodeSamples) -> None:
        """Find the lines of the instructions before those with most samples."""
        counted = {(line.file, line.line): line for line in self.lines}
        for code in (code for code, _ in samples.most_common(MOST_CODES) if code[1]):
            line = SourceLine(*source_line_before(*code), code[0])
            self.code[code] = counted.get((line.file, line.line), line)

    def stacks(self) -> Counter[tuple[str, str, str]]:
        """Return the exposed walks by memory, function and line of code."""
        made = Counter[tuple[str, str, str]]()
        for line, touched in self.touches.items():
            counts = self.lines[line]
            for site, walks in touched.items():
                memory = self.sites[site].origin if site in self.sites else "other memory"
                exposed = round(walks * counts.exposed / max(counts.walks, 1))
                made[memory, line.function or "?", line.place] += exposed
        return +made  # without zeros

    def collapsed(self) -> str:
        """Return `stacks` as flame-graph tools read them: memory;function;line and the walks."""
        return "".join(
            f"{';'.join(frame.replace(';', ',') for frame in stack)} {walks}\n"
            for stack, walks in self.stacks().items()
        )

    def callgrind(self) -> str:
        """Return lines in Callgrind's format, for KCachegrind (Valgrind manual, cl-format)."""
        head = "version: 1\ncreator: tlb where\npositions: line\nevents: Walks Exposed L1Misses\n"
        return head + "".join(
            f"ob={line.module}\nfl={line.file or '???'}\nfn={line.function or '???'}\n"
            f"{line.line} {counts.walks} {counts.exposed} {counts.misses}\n"
            for line, counts in self.lines.items()
        )


def simulate(
    command: list[str], option: str, seconds: float, status: int = 0, fixed: Sequence[str] = ()
) -> SimulationResult:
    """Return what the tool counts, as `run_under_valgrind` does; raise also what `build_valgrind_tool` raises.
    fixed: words of `baseline.fixed_environment`; with them all is the same in each run that
    Valgrind decides: also random numbers, and the order of threads as far as it can be."""
    variables = (
        LeverEnvironmentVariable("VALGRIND_LIB", str(build_valgrind_tool())),
        LeverEnvironmentVariable("PYTHONPERFSUPPORT", "1"),  # CPython from 3.12 names its functions
    )
    options = ["--keep-debuginfo=yes", option]
    options += ["--fixed-random=yes", "--fair-sched=try", "--curve=no"] if fixed else []
    return run_under_valgrind(
        command, "walks", options, seconds, add_tool_counts, *variables, status=status, before=fixed
    )


def run_under_valgrind(
    command: list[str],
    tool_name: str,
    options: list[str],
    seconds: float,
    add_counts: Callable[[SimulationResult, list[str]], None],
    *variables: LeverEnvironmentVariable,
    status: int = 0,
    before: Sequence[str] = (),
) -> SimulationResult:
    """Run a command under a tool of Valgrind, and return what all its processes counted, until it is
    ended after `seconds`. add_counts: adds the lines that one process wrote. variables: of the
    environment. status: the exit code that the command has by itself. before: words of the command
    that starts Valgrind. Raises Unavailable:
    program-missing, program-unfit."""
    with tempfile.TemporaryDirectory(prefix="tlb-where-") as scratch:
        words = [
            *before,
            "valgrind",
            f"--tool={tool_name}",
            "-q",
            "--sigill-diagnostics=yes",
            "--trace-children=yes",
            f"--{tool_name}-out-file={scratch}/walks.%p",
            *options,
            "--",
            *command,
        ]
        done, found = run_naming_sites(words, scratch, seconds, *variables)
        files = [*Path(scratch).glob("walks.*")]
        _check(done, bool(files), status, found.sites.get(REFUSED))
        for file in files:
            add_counts(found, file.read_text("utf-8", "replace").splitlines())
    return found


def run_until(command: list[str], lever: Lever, seconds: float) -> ProgramRun | None:
    """Run a command; return None if it was ended after so many seconds. Raises Unavailable."""
    try:
        return run_program(command, lever, limit_s=seconds, share=0.01)
    except Unavailable as why:
        if why.code != "no-time":
            raise
        return None


def run_naming_sites(
    command: list[str], scratch: str, seconds: float, *variables: LeverEnvironmentVariable
) -> tuple[ProgramRun | None, SimulationResult]:
    """Run a command with the library that names sites; return the run, None if it was ended after
    so many seconds, and the sites: heaps, then those whose first allocation is largest."""
    log = Path(scratch, "sites")
    lever = Lever(
        "named",
        "its allocations named",
        # Heaps grow in the steps that a huge page needs, here as in the runs of a proof.
        variables=(
            *LEVERS["advise-control"].variables,
            LeverEnvironmentVariable("TLB_SITES", str(log)),
            *variables,
        ),
        preload=ALLOCATION_SITES_SOURCE_FILE,
    )
    done = run_until(command, lever, seconds)
    found = SimulationResult(is_cut=done is None)
    for site in _logged_sites(log):
        found.sites.setdefault(site.id, site)  # several processes may log one
    return done, found


def _logged_sites(log: Path) -> list[AllocationSite]:
    """Return the sites that the library logged (tool/sites.c, log_site)."""
    if not log.exists():
        return []
    sites = []
    for record in log.read_text("utf-8", "replace").splitlines():
        fields = record.split("\t")
        if len(fields) != 5:  # the last may be cut off
            continue
        site_id, how, size, allocator, stack = fields
        frames = [frame for frame in stack.split(";") if frame]
        sites.append(AllocationSite(site_id, how, frames, int(size), allocator))
    return sorted(sites, key=lambda site: (site.id > OTHER, -site.first_bytes))


def _check(
    done: ProgramRun | None, has_counted: bool, status: int, refused: AllocationSite | None
) -> None:
    """Raise Unavailable("program-unfit") unless a program ended as it does by itself, with an exit
    code of `status`. done: None if it was ended before. refused: what Valgrind has no room for."""
    if has_counted and (done is None or done.status == status):
        return
    said = done.last_lines.strip() if done else "it did not end when asked to"
    last = said.rpartition("\n")[2]
    if done and done.status != status:
        ends = f"its exit code is {done.status} under Valgrind and {status} by itself"
        last = f"{ends}: {last}" if last else ends
    if refused:
        last = f"Valgrind refused it {format_size(refused.first_bytes)} of addresses; {last}"
    failed = Unavailable("program-unfit", last, SIMULATION_REMEDY)
    failed.add_note(said)
    raise failed


def add_tool_counts(found: SimulationResult, output: list[str]) -> None:
    """Add what one process counted: records of fields between tabs, whose first is the kind, T, M,
    R, P or N (tool/counts.h)."""
    instructions = 0
    functions = dict[str, SourceLine]()  # of Python, by the address of a trampoline
    site_ids = dict[str, str]()  # by the number of a region
    for kind, *fields in (record.split("\t") for record in output):
        if kind == "T":
            instructions = int(fields[0])
            found.instructions += instructions
        elif kind == "N":
            functions = python_functions(int(fields[0]))
        elif kind == "M":
            found.curve[int(fields[0])] += int(fields[1])
        elif kind == "R":
            region, site_id, size, lived, added, touched = fields
            site_ids[region] = site_id
            found.touched_bytes += int(touched)
            if site := found.sites.get(site_id):
                site.bytes += int(size)
                site.added += int(added)
                site.touched += int(touched)
                site.lived = max(site.lived, int(lived) / max(instructions, 1))
        elif kind == "P":
            region, *instruction = fields
            _add_instruction(found, site_ids[region], instruction, functions)


_PERF_MAP_LINE = re.compile(r"([0-9a-f]+) [0-9a-f]+ py::(.*):(.*)")


def python_functions(pid: int) -> dict[str, SourceLine]:
    """Return the Python functions of a process by the address of their trampoline, "0x" and its hex
    digits, and remove the file that CPython named them in (perf's tools/perf/Documentation/jit-interface.txt)."""
    names = Path(f"/tmp/perf-{pid}.map")
    try:
        text = names.read_text("utf-8", "replace")
        names.unlink()
    except OSError:  # of another kind of program, or it could not write there
        return {}
    entries = filter(None, map(_PERF_MAP_LINE.fullmatch, text.splitlines()))
    return {
        f"0x{address}": SourceLine(name, file)
        for address, name, file in (e.groups() for e in entries)
    }


def _add_instruction(
    found: SimulationResult, site_id: str, fields: list[str], functions: Mapping[str, SourceLine]
) -> None:
    """Add the counts of one instruction, or of a Python function, in the memory of one site."""
    offset, length, module, function, file, row, *numbers = fields
    line = functions.get(function) or SourceLine(function, file, int(row), module)
    found.python |= {line} & {*functions.values()}
    counts = WalkCounts(*map(int, numbers))
    start = int(offset)
    found.code.setdefault((module, start), line)
    found.lines[line] += counts
    if site := found.sites.get(site_id):
        site.counts += counts
    if counts.walks:
        found.touches[line][site_id] += counts.walks
        found.code[module, start + int(length)] = line


def source_line_of_frame(frame: str) -> SourceLine:
    """Return the line of a frame "path+0xoffset", as far as addr2line finds it."""
    path, _, address = frame.rpartition("+")
    return SourceLine(*source_line_of(path, address), path)


def resolved(frame: str) -> str:
    """Return a frame "path+0xoffset" as "function (file:line)" if addr2line finds it."""
    line = source_line_of_frame(frame)
    return f"{line.function} ({line.place})" if line.line else line.function or frame


# --- programs that cannot be simulated: why, and the allocations that runs of them can compare

# Why a program is not simulated, of what leaves it to be timed.
LACKING = {"no-toolchain", "no-compiler", "compile-failed", "no-geometry", "program-unfit"}
SIMULATION_REMEDY = (
    "Run it under `valgrind --tool=none` to see why: Valgrind lacks instructions (AVX-512) and room "
    "for programs that reserve much address space."
)


def check_sanitizer(command: str) -> None:
    """Raise Unavailable("program-unfit") for a program that has a sanitizer in it."""
    if sanitizer := sanitizer_of(command):
        raise Unavailable(
            "program-unfit",
            f"it is built with {sanitizer}, whose shadow memory takes more addresses than Valgrind "
            "has; build it without",
            SIMULATION_REMEDY,
        )


def sites_of(command: list[str], seconds: float, why: Unavailable) -> SimulationResult:
    """Return the sites of a program that cannot be simulated, in the order to try them in; none
    without the library that names them. Raises `why` if that does not reach it."""
    if why.code not in LACKING or reason_against_preload(command[0]):
        raise why
    found = SimulationResult()
    try:
        build_preload_library(ALLOCATION_SITES_SOURCE_FILE)
    except Unavailable as lacking:
        found.unnamed = str(lacking)
    else:
        with tempfile.TemporaryDirectory(prefix="tlb-where-") as scratch:
            _, found = run_naming_sites(command, scratch, seconds)
        if not found.sites:
            raise why
    found.lacking = str(why)
    return found


# --- Cachegrind, where the tool cannot be built: a cache with lines of a page is a TLB


def rounded_for_cachegrind(geometry: SimulatedTlb) -> SimulatedTlb:
    """Return the geometry with as many sets as Cachegrind can simulate: a power of two."""
    base = geometry.base
    sets = 1 << (base.second // base.ways).bit_length() - 1
    return geometry._replace(base=base._replace(second=sets * base.ways))


def cachegrind_options(geometry: SimulatedTlb) -> list[str]:
    """Return the caches of a rounded geometry: bytes, ways, bytes of a line."""
    (first, second, ways), page = geometry.base, geometry.page_bytes
    caches = {"I1": (first, first), "D1": (first, first), "LL": (second, ways)}
    return [f"--{name}={n * page},{most},{page}" for name, (n, most) in caches.items()]


def count_by_cachegrind(
    command: list[str], geometry: SimulatedTlb, seconds: float, why: Unavailable, status: int = 0
) -> SimulationResult:
    """Run a command under Cachegrind; return misses and walks of lines, and the sites, whose walks
    are unknown, by size. why: what the tool lacks; status: its exit code by itself. Raises as
    `run_under_valgrind` does."""
    words = ["--cache-sim=yes", *cachegrind_options(geometry)]
    found = run_under_valgrind(
        command, "cachegrind", words, seconds, add_cachegrind_counts, status=status
    )
    found.lacking = str(why)
    return found


def add_cachegrind_counts(made: SimulationResult, output: Iterable[str]) -> None:
    """Add what one process counted (Valgrind manual, section 5.9, Cachegrind's file format)."""
    events, names = list[str](), {"fl": "", "fn": ""}
    for record in output:
        kind, _, text = record.partition("=")
        if record.startswith("events: "):
            events = record.split()[1:]
        elif kind in names:
            names[kind] = text.replace("???", "")  # unknown
        elif record[:1].isdigit():
            number, *counts = map(int, record.split())
            of = dict(zip(events, counts, strict=True))
            misses, walks = of["D1mr"] + of["D1mw"], of["DLmr"] + of["DLmw"]  # reads and writes
            made.lines[SourceLine(names["fn"], names["fl"], number)] += WalkCounts(misses, walks)
            made.instructions += of["Ir"]
