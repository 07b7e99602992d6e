"""Run a program under the Valgrind tool and read what it counted."""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tlb.lab.build import library
from tlb.programs.executable import why_no_preload
from tlb.programs.levers import LEVERS, Lever, Variable
from tlb.programs.runs import Run, run
from tlb.programs.where.valgrind import TOOL, tool
from tlb.reasons import Unavailable, if_available
from tlb.system.processes import run_whole

SITES = TOOL.with_name("sites.c")
HEAP, NO_SITE = "0000000000000001", "0000000000000000"
# Heaps grow in the steps that a huge page needs, in the simulation and in the runs of a proof.
GROWING = LEVERS["advise-control"].variables
# Why a program is not simulated, of what leaves it to be timed.
LACKING = {"no-valgrind", "no-compiler", "compile-failed", "no-geometry", "no-simulation"}
Code = tuple[str, int]  # where an instruction is: a file, and the offset in it


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
    file: str
    line: int
    module: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.module.rpartition("/")[2]


@dataclass
class Site:
    """Allocations by one stack. how: the function that was called; stack: frames "module+offset"
    from the inside out. first_bytes: of the first; bytes: of all of them; number: of regions."""

    id: str
    how: str = ""
    first_bytes: int = 0
    stack: list[str] = field(default_factory=list)
    bytes: int = 0
    number: int = 0
    lifetime: float = 0.0  # of the program's instructions, of the longest-lived region
    counts: Counts = Counts()

    @property
    def is_named(self) -> bool:
        return self.id not in (NO_SITE, "")

    @property
    def origin(self) -> str:
        """What allocated it, in words."""
        if self.id == HEAP:
            return "small objects on the heap"
        return f"{self.how} in {' < '.join(map(resolved, self.stack[:3]))}"


@dataclass
class Simulated:
    """What the tool counted. touches: walks by line and site. code: the line of each instruction
    that missed the first level; after: that of each instruction that follows one that walked.
    is_cut: it was ended before its end. lacking: why there was no simulation, or ""."""

    instructions: int = 0
    total: Counts = Counts()
    lines: dict[Line, Counts] = field(default_factory=lambda: defaultdict(Counts))
    sites: dict[str, Site] = field(default_factory=dict)
    touches: dict[Line, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    code: dict[Code, Line] = field(default_factory=dict)
    after: dict[Code, Line] = field(default_factory=dict)
    is_cut: bool = False
    lacking: str = ""

    def stacks(self) -> Counter[tuple[str, str, str]]:
        """Return the exposed walks by memory, function and line of code."""
        made = Counter[tuple[str, str, str]]()
        for line, touched in self.touches.items():
            counts = self.lines[line]
            for site, walks in touched.items():
                where = self.sites.get(site)
                memory = where.origin if where and where.is_named else "other memory"
                exposed = round(walks * counts.exposed / max(counts.walks, 1))
                made[memory, line.function or "?", line.place] += exposed
        return +made  # without zeros


def simulate(command: list[str], option: str, seconds: float) -> Simulated:
    """Run a command under the tool, and return what all its processes counted, until it is ended
    after `seconds`. Raises Unavailable: program-missing, program-failed, no-simulation, and what
    `tool` raises."""
    folder, is_cut, done = tool(), False, None
    with tempfile.TemporaryDirectory(prefix="tlb-where-") as scratch:
        log = Path(scratch, "sites")
        places = Variable("VALGRIND_LIB", str(folder)), Variable("TLB_SITES", str(log))
        lever = Lever("walks", "simulated", variables=(*GROWING, *places), preload=SITES)
        words = ["valgrind", "--tool=walks", "-q", "--sigill-diagnostics=yes"]
        words += ["--trace-children=yes", "--fullpath-after=", f"--output={scratch}/walks.%p"]
        try:
            done = run([*words, option, "--", *command], lever, limit_s=seconds, share=0.01)
        except Unavailable as why:
            is_cut = why.code == "program-endless"
            if not is_cut:
                raise
        files = sorted(Path(scratch).glob("walks.*"))
        _check(done, bool(files), command[0])
        named = log.read_text("utf-8", "replace") if log.exists() else ""
        found = read((file.read_text("utf-8", "replace") for file in files), named)
        found.is_cut = is_cut
        return found


def _check(done: Run | None, has_counted: bool, program: str) -> None:
    """Raise Unavailable, no-simulation or program-failed, unless a run succeeded. done: None if it
    was ended."""
    said = done.last_lines.strip() if done else "it did not end when asked to"
    if "unhandled instruction" in said or done and done.status == -signal.SIGILL:
        raise Unavailable("no-simulation", "Valgrind does not know one of its instructions")
    if not has_counted:
        why = "a program of 32 bits" if "'x86-linux'" in said else said.rpartition("\n")[2]
        denied = why_no_preload(program) if "Permission denied" in said else ""
        raise Unavailable("no-simulation", denied or why)
    if done and done.status:
        failed = Unavailable("program-failed", f"exit code {done.status}, under Valgrind only")
        failed.add_note(said)
        raise failed


def read(outputs: Iterator[str], named: str) -> Simulated:
    """Return what processes' outputs say together. named: the log of the preloaded library."""
    made = Simulated()
    for fields in (record.split("\t") for record in named.splitlines()):
        if len(fields) == 4:
            site, how, size, stack = fields
            bytes_of_one = 0 if site == HEAP else int(size)
            made.sites.setdefault(
                site, Site(site, how, bytes_of_one, [*filter(None, stack.split(";"))])
            )
    for output in outputs:
        _add(made, output)
    return made


def _add(made: Simulated, output: str) -> None:
    lines: dict[str, Line] = {}
    places: dict[str, tuple[Code, Code]] = {}  # of an instruction and of the one after it
    sites: dict[str, Site] = {}
    instructions = 0
    for kind, *fields in (record.split("\t") for record in output.splitlines()):
        if kind == "T":
            instructions, own = map(int, fields)
            made.instructions += own
        elif kind == "I":
            number, offset, length, module, function, file, row = fields
            lines[number] = Line(function, file, int(row), module)
            places[number] = (module, int(offset)), (module, int(offset) + int(length))
            made.code[places[number][0]] = lines[number]
        elif kind == "R":
            number, site, size, born, died = fields
            sites[number] = where = made.sites.setdefault(site, Site(site))
            lives = (int(died) or instructions) - int(born)
            where.lifetime = max(where.lifetime, lives / max(instructions, 1))
            where.bytes, where.number = where.bytes + int(size), where.number + 1
        elif kind == "P":
            line, where, counted = lines[fields[0]], sites[fields[1]], Counts(*map(int, fields[2:]))
            made.total += counted
            made.lines[line] += counted
            where.counts += counted
            if counted.walks:
                made.touches[line][where.id] += counted.walks
                made.after[places[fields[0]][1]] = line


def unsimulated(command: list[str], seconds: float, why: Unavailable) -> Simulated:
    """Return the sites of a program that cannot be simulated, without walks; none without a
    compiler for the library that names them. Raises `why` if that library does not reach it."""
    if why.code not in LACKING or why_no_preload(command[0]):
        raise why
    made = Simulated()
    if if_available(library, SITES):
        with tempfile.TemporaryDirectory(prefix="tlb-where-") as scratch:
            log = Path(scratch, "sites")
            places = (*GROWING, Variable("TLB_SITES", str(log)))
            naming = Lever("sites", "named", variables=places, preload=SITES)
            run(command, naming, limit_s=seconds, share=0.01)
            if not log.exists():
                raise why
            made = read(iter(()), log.read_text("utf-8", "replace"))
    made.lacking = str(why)
    return made


@lru_cache(maxsize=1024)
def located(path: str, address: str) -> Line:
    """Return the line of code at an address of a file, as far as addr2line knows it."""
    try:
        done = run_whole(["addr2line", "-Cfs", "-e", path, address], timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return Line("", "", 0, path)
    function, _, place = done.stdout.strip().partition("\n")
    known = re.match(r"([^?]+):(\d+)", place)
    file, row = known.groups() if known else ("", "0")
    return Line(function.strip("?"), file, int(row), path)


def resolved(frame: str) -> str:
    """Return a frame "path+0xoffset" as "function (file:line)" if addr2line finds it."""
    line = located(*frame.rsplit("+", 1))
    return f"{line.function} ({line.place})" if line.line else line.function or frame
