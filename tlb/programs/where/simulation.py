"""Run a program under the Valgrind tool of `tool/` and read what it counted.

The tool is built once, from the libraries of Debian's package valgrind, on the computer that uses
it: they are under the GPL, version 2 or later.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tlb.lab import build, compiling, sources
from tlb.lab.prebuilt import compiler
from tlb.machine.host import Host, data_tlbs
from tlb.machine.tlb import Tlb
from tlb.programs.levers import GROWTH, Variable
from tlb.reasons import Unavailable
from tlb.system.processes import run_whole

HERE = Path(__file__).parent
TOOL, SITES = HERE / "tool" / "walks.c", HERE / "tool" / "sites.c"
HEAP, NO_SITE = "0000000000000001", "0000000000000000"
LEAST_BYTES = 1 << 20  # of an allocation that is a site of its own: half a huge page
_LIBRARIES = ("/usr/lib/{triplet}/valgrind", "/usr/lib/valgrind", "/usr/lib64/valgrind")
_RUNTIME = ("/usr/libexec/valgrind", "/usr/lib/x86_64-linux-gnu/valgrind", "/usr/lib64/valgrind")
_ARCHITECTURES = {
    "x86_64": ("amd64", "x86_64-linux-gnu"),
    "aarch64": ("arm64", "aarch64-linux-gnu"),
}
# A tool has no C library and replaces no function of one, and is linked at an address where no
# program is loaded.
_COMPILE = (
    "-O2 -g -fno-stack-protector -fno-strict-aliasing -fno-builtin -fomit-frame-pointer -fno-pie "
    "-Wall -Wextra -Werror -isystem /usr/include/valgrind -DVGO_linux=1"
)
_LINK = "-static -nodefaultlibs -nostartfiles -no-pie -u _start -Wl,--build-id=none"
_TEXT = {"amd64": "0x58000000", "arm64": "0x38000000"}
# Instructions that a core may have under way, which CPUID does not state: taken large, so that no
# walk counts as alone that another one may hide.
WINDOW = 512


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


@dataclass
class Site:
    """Allocations by one stack. how: the function that was called; stack: from the inside out, as
    "function (file:line)" or "module+offset". bytes: of all of them; number: of regions."""

    id: str
    how: str = ""
    stack: list[str] = field(default_factory=list)
    bytes: int = 0
    number: int = 0
    lifetime: float = 0.0  # of the program's instructions, of the longest-lived region
    counts: Counts = Counts()

    @property
    def is_named(self) -> bool:
        return self.id not in (NO_SITE, "")


@dataclass
class Simulated:
    """What the tool counted. touches: walks by line and site. is_full: one of its tables was full,
    so parts of the counts are in the wrong place."""

    instructions: int
    total: Counts
    lines: dict[Line, Counts]
    sites: dict[str, Site]
    touches: dict[Line, Counter[str]]
    is_full: bool


def geometry(host: Host, *, exclusive: bool = False, hashed: bool = False) -> list[str]:
    """Return the options that describe this computer's TLB, as CPUID states it; exclusive and
    hashed (tool/tlb.h) it does not state. Raises Unavailable("no-geometry") where it states none.
    """
    base, large = data_tlbs(host, "4k"), data_tlbs(host, "2m")
    if len(base) < 2:
        raise Unavailable("no-geometry")
    shift = host.base_page_bytes.bit_length() - 1
    options = [f"--page-shift={shift}", f"--window={WINDOW}"]
    for prefix, levels in (("", base), ("large-", large if len(large) > 1 else base)):
        second, ways = _second(levels[-1])
        options += [f"--{prefix}first={levels[0].entries}"]
        options += [f"--{prefix}second={second}", f"--{prefix}ways={ways}"]
    return [*options, f"--exclusive={int(exclusive)}", f"--hashed={int(hashed)}"]


def _second(level: Tlb) -> tuple[int, int]:
    """Entries and ways of a second level: the ways that CPUID states; of a range, those that make
    the number of sets a power of two; where it states none, all entries are one set."""
    low, high = level.ways_between or (level.ways, level.ways)
    for ways in range(low or level.entries, (high or level.entries) + 1):
        sets, left = divmod(level.entries, ways)
        if not left and not sets & (sets - 1):
            return level.entries, ways
    return level.entries, level.entries


def tool() -> Path:
    """Build the tool where it is not yet; return the folder that Valgrind takes it from. Raises
    Unavailable: no-valgrind, no-compiler, compile-failed."""
    arch, triplet = _ARCHITECTURES.get(platform.machine(), ("", ""))
    library = _first(
        (path.format(triplet=triplet) for path in _LIBRARIES), f"libvex-{arch}-linux.a"
    )
    runtime = _first(_RUNTIME, "default.supp")
    if not (arch and library and runtime and Path("/usr/include/valgrind/libvex.h").exists()):
        raise Unavailable("no-valgrind")
    if (cc := compiler()) is None:
        raise Unavailable("no-compiler")
    digest = sources.digest(sources.closure(TOOL), [_COMPILE, _LINK, *cc.command, cc.version])
    folder = build.build_folder() / f"valgrind-{digest}"
    program = folder / f"walks-{arch}-linux"
    folder.mkdir(exist_ok=True)
    if not program.exists():
        names = [f"-DVGA_{arch}=1", f"-DVGP_{arch}_linux=1", f"-DVGPV_{arch}_linux_vanilla=1"]
        compiling.compiled(cc, TOOL, folder / "walks.o", [*_COMPILE.split(), *names, "-c"])
        archives = [
            str(library / f"lib{n}-{arch}-linux.a") for n in ("coregrind", "vex", "gcc-sup")
        ]
        link = [*_LINK.split(), f"-Wl,-Ttext-segment={_TEXT[arch]}"]
        # Libraries follow what needs them.
        _link([*cc.command, *link, "-o", str(program), str(folder / "walks.o"), *archives, "-lgcc"])
    for file in runtime.iterdir():
        link_to = folder / file.name
        if not link_to.exists():
            link_to.symlink_to(file)
    return folder


def _first(folders: Iterable[str], file: str) -> Path | None:
    return next((Path(folder) for folder in folders if Path(folder, file).exists()), None)


def _link(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise Unavailable("compile-failed", done.stderr.strip().splitlines()[-1])


def simulate(command: list[str], options: list[str], seconds: float) -> Simulated:
    """Run a command under the tool, with everything that it starts, and add up what all processes
    counted. After `seconds` it is ended, and what was counted until then is returned.

    Raises Unavailable: program-missing, program-failed, no-simulation, and what `tool` raises."""
    folder, shim = tool(), build.library(SITES)
    with tempfile.TemporaryDirectory(prefix="tlb-where-") as scratch:
        log = Path(scratch, "sites")
        tunables = Variable("GLIBC_TUNABLES", GROWTH, ":")
        environment = os.environ | {
            tunables.name: tunables.added(),  # heaps grow as in the runs of a proof
            "VALGRIND_LIB": str(folder),
            "LD_PRELOAD": str(shim),
            "TLB_SITES": str(log),
            "TLB_LEAST": str(LEAST_BYTES),
        }
        valgrind = ["valgrind", "--tool=walks", "-q", "--trace-children=yes", "--fullpath-after="]
        words = [*valgrind, f"--output={scratch}/walks.%p", *options, "--", *command]
        ended = "" if _run(words, environment, seconds) else "in time"
        files = sorted(Path(scratch).glob("walks.*"))
        if not files:
            raise Unavailable("no-simulation", ended and "it did not end in time")
        named = log.read_text("utf-8", "replace") if log.exists() else ""
        return read([file.read_text("utf-8", "replace") for file in files], named)


def _run(words: list[str], environment: dict[str, str], seconds: float) -> bool:
    """Return whether the program ended by itself. Raises Unavailable("program-failed")."""
    with subprocess.Popen(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as child:
        try:
            _, stderr = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 15)  # SIGTERM: the tool writes what it has
            _end(child)
            return False
        except BaseException:
            os.killpg(child.pid, 9)
            raise
    if child.returncode:
        why = Unavailable("program-failed", f"exit code {child.returncode} under Valgrind")
        why.add_note("\n".join(stderr.splitlines()[-20:]))
        raise why
    return True


def _end(child: subprocess.Popen[str]) -> None:
    try:
        child.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)


def read(outputs: list[str], named: str) -> Simulated:
    """Return what several processes' outputs say together. named: the log of the preloaded
    library."""
    made = Simulated(0, Counts(), defaultdict(Counts), {}, defaultdict(Counter), False)
    for site, how, stack in _fields(named, 3):
        made.sites.setdefault(site, Site(site, how, stack.split(";")))
    for output in outputs:
        _add(made, output)
    return made


def _add(made: Simulated, output: str) -> None:
    lines: dict[str, Line] = {}
    regions: dict[str, str] = {}
    instructions = 0
    for kind, *fields in (record.split("\t") for record in output.splitlines()):
        if kind == "T":
            instructions = int(fields[0])
            made.instructions += instructions
            made.is_full |= fields[1] != "0"
            made.total += Counts(*map(int, fields[2:]))
        elif kind == "I":
            number, module, function, file, line, *counts = fields
            lines[number] = Line(function, file, int(line), module)
            made.lines[lines[number]] += Counts(*map(int, counts))
        elif kind == "R":
            number, site, size, born, died, *counts = fields
            regions[number] = site
            where = made.sites.setdefault(site, Site(site))
            lives = (int(died) or instructions) - int(born)
            where.lifetime = max(where.lifetime, lives / max(instructions, 1))
            where.bytes, where.number = where.bytes + int(size), where.number + 1
            where.counts += Counts(*map(int, counts))
        elif kind == "P":
            number, region, walks = fields
            if number in lines:
                made.touches[lines[number]][regions.get(region, NO_SITE)] += int(walks)


def _fields(text: str, number: int) -> Iterator[list[str]]:
    for record in text.splitlines():
        fields = record.split("\t")
        if len(fields) == number:
            yield fields


def resolved(stack: list[str]) -> list[str]:
    """Return frames "path+0xoffset" as "function (file:line)" where addr2line finds them."""
    return [_resolved(frame) for frame in stack]


def _resolved(frame: str) -> str:
    path, _, offset = frame.rpartition("+")
    try:
        done = run_whole(["addr2line", "-Cfs", "-e", path or "/proc/self/exe", offset], timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return frame
    function, _, place = done.stdout.strip().partition("\n")
    if done.returncode or function in ("", "??"):
        return frame
    return function if place.startswith("??") else f"{function} ({place.split(' ')[0]})"
