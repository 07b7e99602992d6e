"""Run a program under the Valgrind tool and read what it counted."""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tlb.programs.executable import line_before, line_of
from tlb.programs.levers import LEVERS, SITES, Lever, Variable
from tlb.programs.runs import Run, run
from tlb.programs.sampling import LINUX, PERIOD_NS, Code, Samples
from tlb.programs.where.valgrind import tool
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


class Counts(NamedTuple):
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

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


class Line(NamedTuple):
    """A line of code; file "" and line 0 where no debug information says."""

    function: str
    file: str = ""
    line: int = 0
    module: str = ""

    @property
    def place(self) -> str:
        file = self.file.rpartition("/")[2]
        return f"{file}:{self.line}" if self.line else self.module.rpartition("/")[2] or "?"


OTHER_CODE, PROGRAM, IN_LINUX = map(Line, ("other code", "all of the program", "Linux itself"))


@dataclass
class Site:
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
    counts: Counts = Counts()

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
class Simulated:
    """What the tool counted. touches: walks by line and site. code: the line that samples at an
    instruction are of: its own if it missed the first level, or that of the one before, if that
    walked. curve: walks that an LRU second level of so many entries, without sets, would leave.
    is_cut: it was ended before its end. lacking: why there was no simulation, or "". unnamed: why
    its allocations have no names, or ""."""

    instructions: int = 0
    lines: dict[Line, Counts] = field(default_factory=lambda: defaultdict(Counts))
    sites: dict[str, Site] = field(default_factory=dict)
    touches: dict[Line, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    code: dict[Code, Line] = field(default_factory=dict)
    curve: Counter[int] = field(default_factory=Counter)
    is_cut: bool = False
    lacking: str = ""
    unnamed: str = ""

    @cached_property
    def total(self) -> Counts:
        return sum(self.lines.values(), Counts())

    def milliseconds(self, samples: Samples) -> dict[Line, float]:
        """Return the time of each line of code. The clock mostly stops a core at the instruction
        after the one that waited, so a sample there is of the load before it, if that walked."""
        times = defaultdict[Line, float](float)
        for code, number in samples.items():
            lines = (IN_LINUX,) if code == LINUX else (self.code.get(code, OTHER_CODE), PROGRAM)
            for line in lines:
                times[line] += number * PERIOD_NS / 1e6
        return times

    def locate(self, samples: Samples) -> None:
        """Find the lines of the instructions before those with most samples."""
        counted = {(line.file, line.line): line for line in self.lines}
        for code in (code for code, _ in samples.most_common(MOST_CODES) if code[1]):
            line = Line(*line_before(*code), code[0])
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


def simulate(command: list[str], option: str, seconds: float, status: int = 0) -> Simulated:
    """Return what the tool counts, as `counted` does; raise also what `tool` raises."""
    library = Variable("VALGRIND_LIB", str(tool()))
    options = ["--keep-debuginfo=yes", option]
    return counted(command, "walks", options, seconds, add, library, status=status)


def counted(
    command: list[str],
    name: str,
    options: list[str],
    seconds: float,
    add: Callable[[Simulated, list[str]], None],
    *more: Variable,
    status: int = 0,
) -> Simulated:
    """Run a command under the tool of this name, and return what all its processes counted, until it
    is ended after `seconds`. add: adds the lines that one process wrote. status: the exit code that
    it has by itself. Raises Unavailable: program-missing, no-simulation."""
    words = ["valgrind", f"--tool={name}", "-q", "--sigill-diagnostics=yes", "--trace-children=yes"]
    with tempfile.TemporaryDirectory(prefix="tlb-where-") as scratch:
        words += [f"--{name}-out-file={scratch}/walks.%p", *options, "--", *command]
        done, found = named(words, scratch, seconds, *more)
        files = [*Path(scratch).glob("walks.*")]
        _check(done, bool(files), status, found.sites.get(REFUSED))
        for file in files:
            add(found, file.read_text("utf-8", "replace").splitlines())
    return found


def run_until(command: list[str], lever: Lever, seconds: float) -> Run | None:
    """Run a command; return None if it was ended after so many seconds. Raises Unavailable."""
    try:
        return run(command, lever, limit_s=seconds, share=0.01)
    except Unavailable as why:
        if why.code != "program-endless":
            raise
        return None


def named(
    command: list[str], scratch: str, seconds: float, *more: Variable
) -> tuple[Run | None, Simulated]:
    """Run a command with the library that names sites; return the run, None if it was ended after
    so many seconds, and the sites: heaps, then those whose first allocation is largest."""
    log = Path(scratch, "sites")
    # Heaps grow in the steps that a huge page needs, here as in the runs of a proof.
    variables = (*LEVERS["advise-control"].variables, Variable("TLB_SITES", str(log)), *more)
    lever = Lever("named", "its allocations named", variables=variables, preload=SITES)
    done = run_until(command, lever, seconds)
    found = Simulated(is_cut=done is None)
    named = log.read_text("utf-8", "replace") if log.exists() else ""
    records = [record.split("\t") for record in named.splitlines()]
    whole = [fields for fields in records if len(fields) == 5]  # the last may be cut off
    for site, how, size, kind, stack in sorted(whole, key=lambda f: (f[0] > OTHER, -int(f[2]))):
        frames = [*filter(None, stack.split(";"))]
        found.sites.setdefault(site, Site(site, how, frames, int(size), kind))
    return done, found


def _check(done: Run | None, has_counted: bool, status: int, refused: Site | None) -> None:
    """Raise Unavailable("no-simulation") unless a program ended as it does by itself, with an exit
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
    failed = Unavailable("no-simulation", last)
    failed.add_note(said)
    raise failed


def add(made: Simulated, output: list[str]) -> None:
    """Add what one process counted (see tool/counts.h)."""
    instructions, sites = 0, dict[str, str]()
    for kind, *fields in (record.split("\t") for record in output):
        if kind == "T":
            instructions = int(fields[0])
            made.instructions += instructions
        elif kind == "M":
            made.curve[int(fields[0])] += int(fields[1])
        elif kind == "R":
            number, sites[number], size, lived, added, touched = fields
            if site := made.sites.get(sites[number]):
                site.bytes += int(size)
                site.added += int(added)
                site.touched += int(touched)
                site.lived = max(site.lived, int(lived) / max(instructions, 1))
        elif kind == "P":
            number, offset, length, module, function, file, row, *counts = fields
            line, site = Line(function, file, int(row), module), sites[number]
            counted = Counts(*map(int, counts))
            made.code.setdefault((module, int(offset)), line)
            made.lines[line] += counted
            if site in made.sites:
                made.sites[site].counts += counted
            if counted.walks:
                made.touches[line][site] += counted.walks
                made.code[module, int(offset) + int(length)] = line


def line_at(frame: str) -> Line:
    """Return the line of a frame "path+0xoffset", as far as addr2line finds it."""
    path, _, address = frame.rpartition("+")
    return Line(*line_of(path, address), path)


def resolved(frame: str) -> str:
    """Return a frame "path+0xoffset" as "function (file:line)" if addr2line finds it."""
    line = line_at(frame)
    return f"{line.function} ({line.place})" if line.line else line.function or frame
