"""Baselines of `tlb where`: what a simulated run of a program counted, by function and by
allocation, and what decides these counts besides the program. A file of JSON."""

from __future__ import annotations

import os
import platform
import re
import shlex
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from statistics import median_low
from typing import Annotated, Any, Literal
from xml.etree import ElementTree

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tlb.measure import build
from tlb.programs.levers import ALLOCATION_SITES_SOURCE_FILE
from tlb.programs.where.report import FEW_EXPOSED_WALKS_SHARE, MAX_TABLE_ROWS, TextTable
from tlb.programs.where.simulation import (
    AllocationSite,
    SimulationResult,
    SourceLine,
    WalkCounts,
    source_line_of_frame,
)
from tlb.programs.where.valgrind import (
    MAX_GEOMETRY_FILE_BYTES,
    VALGRIND_TOOL_SOURCE_FILE,
    SimulatedTlb,
)
from tlb.system.files import read_small_file
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session
from tlb.system.reasons import Unavailable
from tlb.system.units import list_in_words

Metric = Literal["exposed", "walks", "pages"]
METRICS: dict[Metric, str] = {
    "exposed": "exposed walks",
    "walks": "all walks",
    "pages": "pages touched",
}
MOST_FUNCTIONS, MOST_ALLOCATIONS, MOST_NAME = 300, 60, 120  # which keep a file below 200 kB
FRAMES = 3  # of an allocation's stack, in its name
OTHER_MEMORY = "other memory"  # of no allocation that has a name: stacks, files, static variables
# What GCC appends to the name of a copy that it has changed, and rustc to each name of a build.
_CLONE = re.compile(r"\.(constprop|isra|part|cold|lto_priv)(\.\d+)*\b|::h[0-9a-f]{16}$")
# What Valgrind, which shows programs a CPU of its own, takes from the real one (VEX_HWCAPS_AMD64 in
# its libvex.h), as Linux names it. The C library chooses functions by it.
_CPU_FEATURES = {"pni", "ssse3", "cx16", "abm", "avx", "rdtscp", "bmi1", "avx2", "f16c"}
_CPU_FEATURES |= {"rdrand", "rdseed"}
# Variables that a program gets, since it may need them; others differ from one CI to the next.
# GLIBC_TUNABLES is also set where it is empty: `tlb where` would make the heap grow otherwise.
_DEFAULTS = {"PATH": os.defpath, "HOME": "/", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
_DEFAULTS |= {"GLIBC_TUNABLES": ""}
# A run that kept compiled modules would spare the next one their compilation.
_DEFAULTS |= {"PYTHONDONTWRITEBYTECODE": "1"}
_KEPT = {"PATH", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "TMPDIR", "GLIBC_TUNABLES", "PYTHONPATH"}
_FILLER, _ENVIRONMENT_BYTES, _POINTER_BYTES = "TLB_FILLER", 1 << 16, 8
_PATH_BYTES = 1 << 12  # of PATH, which slashes at its end fill: CPython copies it


class CountedPlace(BaseModel):
    """Counts of a function or of an allocation. place: of its line with most walks. pages: of an
    allocation, base pages at their first touch."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    place: str = ""
    exposed: int = 0
    walks: int = 0
    pages: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What names it in another build, whose lines may have other numbers."""
        return self.name, self.place.rpartition(":")[0] or self.place


class Baseline(BaseModel):
    """totals: of the process and its children; of several runs the medians. spread: the largest
    total of them over the smallest, less 1. conditions: what decides counts besides the program."""

    model_config = ConfigDict(extra="forbid")
    kind: Literal["tlb where --save"] = "tlb where --save"
    schema_version: Literal[1] = 1
    tlb: str
    command: list[str] = Field(min_length=1)
    machine: str
    geometry: dict[str, Any]
    conditions: dict[str, str]
    runs: int
    totals: dict[Metric, Annotated[int, Field(ge=0, le=1 << 60)]]
    spread: dict[Metric, Annotated[float, Field(ge=0, allow_inf_nan=False)]]
    functions: list[CountedPlace]
    allocations: list[CountedPlace]

    @field_validator("geometry")
    @classmethod
    def _is_geometry(cls, document: dict[str, Any]) -> dict[str, Any]:
        return SimulatedTlb.of_document(document).document()

    @field_validator("totals", "spread")
    @classmethod
    def _has_all(cls, by_metric: dict[Metric, Any]) -> dict[Metric, Any]:
        if by_metric.keys() != METRICS.keys():
            raise ValueError(f"not {', '.join(METRICS)}")
        return by_metric

    @classmethod
    def of(
        cls,
        command: list[str],
        machine: str,
        geometry: SimulatedTlb,
        found: Sequence[SimulationResult],
    ) -> Baseline:
        """Return what simulations of a command counted. Functions and allocations are those of the
        run with the median walks."""
        totals = [_totals(each, geometry.page_bytes) for each in found]
        by_metric = {metric: [each[metric] for each in totals] for metric in METRICS}
        middle = found[by_metric["walks"].index(median_low(by_metric["walks"]))]
        return cls(
            tlb=version("every-load-is-two-loads"),
            command=command,
            machine=machine,
            geometry=geometry.document(),
            conditions=conditions(),
            runs=len(found),
            totals={metric: median_low(values) for metric, values in by_metric.items()},
            spread={metric: (max(values) - min(values)) / max(min(values), 1) for metric, values in by_metric.items()},
            functions=_largest(_functions(middle.lines), MOST_FUNCTIONS),
            allocations=_largest(_allocations(middle, geometry.page_bytes), MOST_ALLOCATIONS),
        )  # fmt: skip

    @classmethod
    def read(cls, file: Path) -> Baseline:
        """Return the baseline of a file. Raises Unavailable("bad-parameter")."""
        try:
            return cls.model_validate_json(read_small_file(file, MAX_GEOMETRY_FILE_BYTES))
        except ValidationError as wrong:
            first = wrong.errors()[0]
            place = ".".join(map(str, first["loc"]))
            why = f"no file of `tlb where --save` ({place}: {first['msg']})".replace("(: ", "(")
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            why = str(getattr(error, "strerror", None) or error)
        raise Unavailable("bad-parameter", f"--baseline {file}: {why}")

    def check_comparable(self, command: list[str], machine: str, geometry: SimulatedTlb) -> None:
        """Raise Unavailable("program-unfit") with what differs, if something that decides counts
        does besides the program. machine: the name of the geometry."""
        then = {"command": command_words(self.command)} | self.conditions
        now = {"command": command_words(command)} | conditions()
        differs = [
            f"{name}: {then.get(name, '?')}, now {now.get(name, '?')}"
            for name in then | now
            if then.get(name) != now.get(name)
        ]
        if self.geometry != geometry.document():
            differs.append(f"simulated TLB: {self.machine}, now {machine}")
        if differs:
            raise Unavailable(
                "program-unfit",
                f"its baseline was made under other conditions: {'; '.join(differs)}",
                "Make it again under these with --save, or run in the image that it was made in.",
            )


def command_words(command: list[str]) -> str:
    """Return a command, wherever its program lies."""
    return shlex.join([Path(command[0]).name, *command[1:]])


def conditions() -> dict[str, str]:
    """Return what decides counts besides a program, its input and the simulated TLB."""
    sources = [
        file
        for each in (VALGRIND_TOOL_SOURCE_FILE, ALLOCATION_SITES_SOURCE_FILE)
        for file in build.source_closure(each)
    ]
    described = {
        "architecture": platform.machine(),
        "C library": " ".join(platform.libc_ver()).strip(),
        "CPU features": _cpu_features(),
        "Valgrind": run_in_own_session(
            ["valgrind", "--version"], timeout=PROBE_TIMEOUT_S
        ).stdout.strip(),
        "simulator": build.sources_digest(sources, []),
    }
    return {name: text or "unknown" for name, text in described.items()}


def _cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return what programs under Valgrind may use of this CPU."""
    known = re.search(r"^(flags|Features)\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)
    if not known:
        return ""
    features = set(known[2].split())
    return " ".join(sorted(features & _CPU_FEATURES if known[1] == "flags" else features))


# --- the run


def fixed_environment(command: list[str], variables: Mapping[str, str]) -> list[str]:
    """Return the words before a command that give it an environment of few variables and of a fixed
    size, so that neither what else is set nor the folder moves its stack. variables: also set."""
    kept = _DEFAULTS | {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    kept |= variables
    kept["PATH"] += "/" * (-len(os.fsencode(kept["PATH"])) % _PATH_BYTES)
    # Folders in what `tlb where` and Valgrind set: TLB_SITES, VALGRIND_LIB, and twice LD_PRELOAD.
    folders = [tempfile.gettempdir(), *[str(build.build_folder())] * 3]
    used = sum(len(os.fsencode(word)) for word in [*kept, *kept.values(), *folders, command[0]])
    used += sum(len(os.fsencode(word)) + 1 for word in command)
    used += (2 + _POINTER_BYTES) * len(kept) + _POINTER_BYTES * len(command)
    filled = kept | {_FILLER: "x" * (-used % _ENVIRONMENT_BYTES)}
    dropped = sorted(name for name in os.environ if name not in filled)
    unset = [word for name in dropped for word in ("-u", name)]
    return ["env", *unset, *(f"{name}={value}" for name, value in filled.items())]


# --- counts by name


def _totals(found: SimulationResult, page_bytes: int) -> dict[Metric, int]:
    total = found.total
    pages = found.touched_bytes // page_bytes
    return {"exposed": total.exposed, "walks": total.walks, "pages": pages}


def _largest(counted: Iterable[CountedPlace], most: int) -> list[CountedPlace]:
    made = sorted(counted, key=lambda each: (-each.walks, -each.pages, each.key))
    return [each for each in made[:most] if each.walks or each.pages]


def _functions(lines: Mapping[SourceLine, WalkCounts]) -> Iterator[CountedPlace]:
    """Yield the counts of each function, with the place of its line that has most walks."""
    by_function = defaultdict[tuple[str, str], list[SourceLine]](list)
    for line in lines:
        file = (line.file or line.module).rpartition("/")[2]
        by_function[_CLONE.sub("", line.function) or "?", file].append(line)
    for (name, file), own in by_function.items():
        counts = sum((lines[line] for line in own), WalkCounts())
        hottest = max(own, key=lambda line: (lines[line].walks, line.line))
        place = f"{file}:{hottest.line}" if hottest.line else file
        yield CountedPlace(
            name=name[:MOST_NAME],
            place=place[:MOST_NAME],
            exposed=counts.exposed,
            walks=counts.walks,
        )


def _allocations(found: SimulationResult, page_bytes: int) -> Iterator[CountedPlace]:
    """Yield the counts of allocations by the functions that asked for them, and of other memory."""
    by_name = defaultdict[str, list[AllocationSite]](list)
    sites = sorted(found.sites.values(), key=lambda site: (-site.counts.walks, -site.touched))
    for site in sites[: 2 * MOST_ALLOCATIONS]:
        by_name[_allocation_name(site)].append(site)
    left, left_pages = found.total, found.touched_bytes // page_bytes
    exposed, walks = left.exposed, left.walks
    for name, own in by_name.items():
        counts = sum((site.counts for site in own), WalkCounts())
        pages = sum(site.touched for site in own) // page_bytes
        exposed, walks, left_pages = (
            exposed - counts.exposed,
            walks - counts.walks,
            left_pages - pages,
        )
        place = "" if own[0].is_heap else _place(own[0])
        yield CountedPlace(
            name=name, place=place, exposed=counts.exposed, walks=counts.walks, pages=pages
        )
    yield CountedPlace(name=OTHER_MEMORY, exposed=exposed, walks=walks, pages=left_pages)


def _allocation_name(site: AllocationSite) -> str:
    """Return what allocated it, without line numbers and addresses, which differ in another
    build."""
    if site.is_heap:
        return site.origin
    lines = map(source_line_of_frame, site.stack[:FRAMES])
    names = [line.function or line.module.rpartition("/")[2] for line in lines]
    return f"{site.how} in {' < '.join(_CLONE.sub('', name) for name in names)}"[:MOST_NAME]


def _place(site: AllocationSite) -> str:
    lines = map(source_line_of_frame, site.stack[:FRAMES])
    return next((line.place for line in lines if line.line), "")[:MOST_NAME]


# --- what a program counts now, compared with its baseline: sentences, tables, Markdown, JSON and JUnit

# A growth of fewer walks or pages than this is none: another line printed at the start makes
# dozens, and these take a few microseconds.
LEAST = 256
# How many times the allowed growth is allowed: which walks are exposed also depends on the order of a
# compiler's instructions. Loops written otherwise changed it by up to 2.4 % where no walk was added.
MARGINS: dict[Metric, int] = {"exposed": 5, "walks": 1, "pages": 1}
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")
Pair = tuple[
    CountedPlace, CountedPlace
]  # before and now; one of them has no counts if it is new or gone


@dataclass(frozen=True)
class BaselineComparison:
    """fail_above: the share by which a count may grow."""

    before: Baseline
    now: Baseline
    fail_above: float

    def allowed(self, metric: Metric) -> float:
        """Return the share by which a count may grow: at least what it differs between runs."""
        most = MARGINS[metric] * self.fail_above
        return max(most, self.before.spread[metric], self.now.spread[metric])

    def growth(self, metric: Metric) -> int:
        return self.now.totals[metric] - self.before.totals[metric]

    def _changed(self, sign: int) -> list[Metric]:
        return [metric for metric in METRICS if sign * self.growth(metric) > self._least(metric)]

    def _least(self, metric: Metric) -> float:
        """Return the growth that still is none. Exposed walks, where they are few, have to grow by
        as much as if they were a share of all walks that matters."""
        totals = self.before.totals
        base = max(
            totals[metric], FEW_EXPOSED_WALKS_SHARE * totals["walks"] if metric == "exposed" else 0
        )
        return max(self.allowed(metric) * base, LEAST - 1)

    @cached_property
    def grown(self) -> list[Metric]:
        """The counts that grew too much: the gate is open without any."""
        return self._changed(1)

    @property
    def ranked_by(self) -> Metric:
        """The count by whose change functions and allocations are listed."""
        return (self.grown or self._changed(-1) or ["exposed"])[0]

    def changes(self, kind: str) -> list[Pair]:
        """Return the functions or the allocations whose counts changed, the largest change first."""
        sides = [
            {each.key: each for each in getattr(side, kind)} for side in (self.before, self.now)
        ]
        pairs = [
            tuple(side.get(key) or CountedPlace(name=key[0], place=key[1]) for side in sides)
            for key in dict.fromkeys(key for side in sides for key in side)
        ]
        changed = [
            (before, now)
            for before, now in pairs
            if any(getattr(before, metric) != getattr(now, metric) for metric in METRICS)
        ]
        return sorted(changed, key=self._rank)

    def _rank(self, pair: Pair) -> tuple[int, ...]:
        """Return the changes of a pair, largest first: those of the ranking count before others."""
        order = sorted(METRICS, key=lambda metric: metric != self.ranked_by)
        return tuple(-abs(getattr(pair[1], metric) - getattr(pair[0], metric)) for metric in order)

    # --- for people

    def sentences(self) -> list[str]:
        """Return the verdict, then what qualifies it."""
        now, allowed = self.now, _percentage(self.fail_above)
        grown = list_in_words(
            [f"{METRICS[metric]} {self._percent(metric)}" for metric in self.grown]
        )
        made = [f"No count grew by more than is allowed (--fail-above {allowed})."]
        if self.grown:
            made = [f"More than is allowed (--fail-above {allowed}): {grown}."]
        if less := self._changed(-1):
            fewer = list_in_words([f"{METRICS[metric]} {self._percent(metric)}" for metric in less])
            made.append(f"Fewer than the baseline: {fewer}. --save makes this the baseline.")
        made += [
            f"{METRICS[metric].capitalize()} differ by {spread:.2%} between runs of one program, so as "
            "much is allowed."
            for metric in METRICS
            if (spread := self.allowed(metric)) > MARGINS[metric] * self.fail_above
        ]
        levels = f"{now.geometry['base']['first']:,} and {now.geometry['base']['second']:,} entries"
        runs = f"{now.runs} runs" if now.runs > 1 else "1 run"
        if "exposed" in self.grown:
            made.append(
                f"{METRICS['exposed'].capitalize()} may grow {MARGINS['exposed']} times as much: the "
                "order of a compiler's instructions changes them too."
            )
        return [*made, f"Simulated TLB: {now.machine}, {levels}; {runs}."]

    def _percent(self, metric: Metric) -> str:
        before = self.before.totals[metric]
        return f"{self.growth(metric) / before:+.2%}" if before else f"{self.growth(metric):+,}"

    def tables(self) -> dict[str, TextTable]:
        """Return the totals, and the functions and allocations that changed, by headings."""
        totals: list[tuple[str, ...]] = [
            (METRICS[metric], f"{self.before.totals[metric]:,}", f"{self.now.totals[metric]:,}",
             self._percent(metric), _percentage(self.allowed(metric)), "FAIL" if metric in self.grown else "")
            for metric in METRICS
        ]  # fmt: skip
        made: dict[str, TextTable] = {
            "Totals": (("", "baseline", "now", "change", "allowed", ""), totals)
        }
        for heading, kind in (("Lines of code", "functions"), ("Allocations", "allocations")):
            shown: Sequence[Metric] = [*METRICS][: 3 if kind == "allocations" else 2]
            rows = [_row(pair, shown) for pair in self.changes(kind)[:MAX_TABLE_ROWS]]
            if rows:
                made[heading] = (kind.removesuffix("s"), *(METRICS[each] for each in shown)), rows
        return made

    # --- for other programs

    def markdown(self) -> str:
        """Return everything as Markdown, for a pull request."""
        title = "page walks grew" if self.grown else "no more page walks than the baseline"
        made = [f"### `{command_words(self.now.command)}`: {title}", *self.sentences()]
        for heading, (head, rows) in self.tables().items():
            made += ["" if heading == "Totals" else f"**{heading}**", _markdown_table(head, rows)]
        return "\n\n".join(part for part in made if part) + "\n"

    def document(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        sides = {"baseline": self.before, "now": self.now}
        keys: set[str] = {*METRICS}
        return {
            "schema_version": self.now.schema_version,
            "tlb": self.now.tlb,
            "command": self.now.command,
            "machine": self.now.machine,
            "geometry": self.now.geometry,
            "conditions": self.now.conditions,
            "has_grown": bool(self.grown),
            "grown": self.grown,
            "fail_above": self.fail_above,
            "allowed": {metric: self.allowed(metric) for metric in METRICS},
            "totals": {name: side.totals for name, side in sides.items()},
            "runs": {name: side.runs for name, side in sides.items()},
            **{
                kind: [
                    {"name": now.name, "place": now.place}
                    | {
                        "baseline": before.model_dump(include=keys),
                        "now": now.model_dump(include=keys),
                    }
                    for before, now in self.changes(kind)
                ]
                for kind in ("functions", "allocations")
            },
        }

    def junit(self) -> str:
        """Return a JUnit report: a test case for each count."""
        rows = [row for _, rows in self.tables().values() for row in rows]
        changes = "\n".join(_NO_XML.sub("?", " | ".join(row)) for row in rows)
        suites = ElementTree.Element("testsuites")
        numbers = {"tests": str(len(METRICS)), "failures": str(len(self.grown)), "errors": "0"}
        suite = ElementTree.SubElement(suites, "testsuite", {"name": "tlb where", **numbers})
        for metric, words in METRICS.items():
            named = {"classname": _NO_XML.sub("?", command_words(self.now.command)), "name": words}
            case = ElementTree.SubElement(suite, "testcase", named)
            if metric in self.grown:
                allowed = _percentage(self.allowed(metric))
                message = f"{words} {self._percent(metric)}, allowed {allowed}"
                ElementTree.SubElement(case, "failure", {"message": message}).text = changes
        return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _percentage(share: float) -> str:
    return f"{100 * share:.6g}%"


def _row(pair: Pair, shown: Iterable[Metric]) -> tuple[str, ...]:
    before, now = pair
    named = now if now.walks or now.pages else before
    cells = []
    for metric in shown:
        count, change = getattr(now, metric), getattr(now, metric) - getattr(before, metric)
        cells.append(f"{count:,} ({change:+,})" if change else f"{count:,}")
    return (f"{named.name} ({named.place})" if named.place else named.name, *cells)


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = [[cell.replace("|", "\\|").replace("<", "&lt;") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
