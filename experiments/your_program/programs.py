"""Other people's programs, and some of ours, each with and without a lever: measured as `tlb try`
does, kept as one document."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from experiments.your_program import cases
from experiments.your_program.cases import CASES, POOL, SOURCES, Case
from tlb.inference.intervals import Interval
from tlb.lab.held import Survey
from tlb.lab.record import Count, Positive
from tlb.lab.rig import usable_bytes
from tlb.lab.toolchains import BUILD_LIMIT_S, Tool, built, environment, first_line
from tlb.machine import host, pools
from tlb.machine.compiler import compiler
from tlb.page_sizes import PAGES
from tlb.programs.levers import lever
from tlb.programs.servers import Driver
from tlb.programs.trial import Aim, Trial, Verdict, attempt
from tlb.programs.trial_report import side
from tlb.reasons import Unavailable
from tlb.system import procfs
from tlb.system.files import measuring_lock
from tlb.units import format_size

# of the document, which is all that the chapter has: the reference is looked for by it
NAME = "your_program"
WITHIN = 0.03  # to which a ratio is to be known; what a program gains is told in per cents
PROFILE_BYTES = 4 << 30  # what the source's cache holds
_PROFILE = Tool(
    "C",
    "profiled_chase.c",
    (),
    cases._c("profiled_chase").compile,
    ("@/profiled_chase", str(PROFILE_BYTES), "3"),
    "gcc",
)
_PROFILE_S = 60.0
RULES_BYTES = 1 << 30  # of the rules engine's slice


class Sides(BaseModel, extra="forbid", frozen=True, strict=True):
    """Of the runs without the lever, or with it. value: seconds, or the number that it prints; the
    rest at the peak or of a run."""

    value: Annotated[float, Field(gt=0)]
    resident_bytes: Count
    huge_bytes: Count
    table_bytes: Count
    minor_faults: Annotated[float, Field(ge=0)]


class Told(BaseModel, extra="forbid", frozen=True, strict=True):
    """What came of one program with its lever. ratio: with over without, its value, ends and
    coverage. alike: whether it wrote the same, but for digits where its number was compared."""

    case: str
    version: Annotated[str, Field(min_length=1, max_length=120)]
    verdict: Verdict
    ratio: Annotated[list[float], Field(min_length=4, max_length=4)]
    pairs: Positive
    without: Sides
    with_lever: Sides
    alike: bool
    spent_s: Annotated[float, Field(gt=0)]


class Profile(BaseModel, extra="forbid", frozen=True, strict=True):
    """What profiled_chase prints: ticks of a sampling clock, and how many found the most frequent
    instruction."""

    ticks: Positive
    most: Positive
    last: Literal[1]


class Programs(Survey):
    """The document. lacking: reason codes by the names of cases, and of "profile"."""

    minutes: Annotated[float, Field(gt=0)]
    told: list[Told]
    profile: Profile | None
    lacking: dict[str, str]


def make(
    minutes: float, tell: Callable[[str], object] = lambda line: print(line, file=sys.stderr)
) -> dict[str, Any]:
    """The document. Each program gets its share of the minutes, and what is left when they are over
    is left out: no-time. Raises Unavailable: not-linux, measuring-already."""
    inspected = host.inspect()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    tell(
        f"{len(CASES)} programs and a profile, in {minutes:g} minutes at most; what lacks is said."
    )
    end_s, each = time.monotonic() + 60 * minutes, minutes / (len(CASES) + 2)
    told, lacking, profiled = list[Told](), dict[str, str](), None
    with measuring_lock():
        for name, case in CASES.items():
            try:
                if usable_bytes(inspected) < case.holds_gib << 30:
                    raise Unavailable("memory-short", f"it holds up to {case.holds_gib} GiB")
                if time.monotonic() > end_s:
                    raise Unavailable("no-time")
                told.append(measure(name, case, each))
                tell(
                    f"{case.title}: {told[-1].verdict}, {told[-1].ratio[0]:.3f}, in {told[-1].spent_s:.0f} s"
                )
            except Unavailable as why:
                lacking[name] = why.code
                tell(f"{case.title}: {why}")
        try:
            profiled = profile(usable_bytes(inspected))
        except Unavailable as why:
            lacking["profile"] = why.code
            tell(f"Profile: {why}")
    document = Programs(
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        state=host.state(inspected),
        thp=inspected.thp.enabled,
        minutes=minutes,
        told=told,
        profile=profiled,
        lacking=lacking,
    )
    return document.model_dump(mode="json")


def measure(name: str, case: Case, minutes: float) -> Told:
    """One program with and without its lever. Raises Unavailable: no-toolchain, no-time,
    pool-empty, and what `attempt` and the lever raise."""
    pool = pools.look().get("2m")
    if case.lever == POOL and (pool is None or pool.left * PAGES["2m"].size_bytes < RULES_BYTES):
        raise Unavailable("pool-empty", f"{format_size(RULES_BYTES)} of 2 MiB pages are to be free")
    version, command, driver = ready(case)
    given = ("env", [case.lever]) if "=" in case.lever else (case.lever, [])
    metric = re.compile(re.escape(case.metric) + r": ([0-9.]+)") if case.metric else None
    aim = Aim(
        command, lever(*given), WITHIN, minutes, metric, driver=Driver(driver) if driver else None
    )
    try:
        trial = attempt(aim)
    except Unavailable as why:
        if why.code != "program-endless":
            raise
        # Where memory lies in pieces, the kernel joins gigabytes of it before a first run can end,
        # and a second one finds them joined.
        trial = attempt(aim)
    return summary(name, version, trial)


def summary(name: str, version: str, trial: Trial) -> Told:
    """A trial as a row. Raises Unavailable: no-time where no pair was made, program-killed where
    the lever changed its exit code."""
    if not trial.pairs:
        raise Unavailable("no-time", trial.ended)
    if trial.statuses != ({0}, {0}):
        raise Unavailable(
            "program-missing", f"its exit codes are {sorted(trial.statuses[0] | trial.statuses[1])}"
        )
    ratio = trial.ratio()
    digest = "digest" if trial.aim.metric is trial.aim.driver is None else "digest_of_words"
    written = {getattr(run.written[0], digest) for on in (False, True) for run in trial.runs(on)}
    return Told(
        case=name,
        version=version,
        verdict=trial.verdict,
        ratio=[float(part) for part in ratio[:4]],
        pairs=len(trial.pairs),
        without=_side(trial, False),
        with_lever=_side(trial, True),
        alike=len(written) == 1,
        spent_s=trial.spent_s,
    )


def _side(trial: Trial, on: bool) -> Sides:
    told = side(trial, on)
    if told.peak is None:
        raise Unavailable("program-short", "it ended before a look")
    pages = told.peak.pages
    return Sides(
        value=told.value.value,
        resident_bytes=pages.resident_bytes,
        huge_bytes=pages.huge_bytes,
        table_bytes=told.peak.table_bytes,
        minor_faults=float(told.minor_faults),
    )


def ready(case: Case) -> tuple[str, list[str], list[str]]:
    """(the program's version, the command, its driver's or nothing), with what it reads or what has
    to be compiled in its place. Raises Unavailable: no-toolchain, disk-full, disk-read-only."""
    tool = case.tool
    if tool.source:
        version, folder = compiled(tool)
    else:
        version = procfs.label(first_line(tool, tool.version, 60)) or case.title
        folder = built("program-inputs", [inspect.getsource(cases).encode()], cases.write_inputs)
    command, driver = (
        [word.replace("@", str(folder), 1) if word.startswith("@") else word for word in words]
        for words in (tool.run, case.driver)
    )
    return version, command, driver


def compiled(tool: Tool) -> tuple[str, Path]:
    """(the compiler's version, the folder of the program). Raises Unavailable, as `ready` does."""
    source = SOURCES / tool.source
    if tool.version:
        line, words = procfs.label(first_line(tool, tool.version, 60)) or tool.title, tool.compile
    else:
        cc = compiler()
        if cc is None:
            raise Unavailable("no-toolchain", tool.lacking("a C compiler"))
        line, words = procfs.label(cc.version), (*cc.command, *tool.compile)

    def build(folder: Path) -> str:
        return first_line(
            tool,
            [*(word.replace("@", str(folder), 1) for word in words), str(source)],
            BUILD_LIMIT_S,
        )

    return line, built(
        f"program-{source.stem}",
        [source.read_bytes(), line.encode(), *(word.encode() for word in words)],
        build,
    )


def profile(room_bytes: int) -> Profile:
    """Where a sampling clock finds a chase over as much as the source's cache. Raises Unavailable:
    memory-short, kernel-garbage, kernel-hung, no-toolchain."""
    if room_bytes < PROFILE_BYTES:
        raise Unavailable("memory-short", f"the chase is over {format_size(PROFILE_BYTES)}")
    _, folder = compiled(_PROFILE)
    try:
        done = subprocess.run(
            [word.replace("@", str(folder), 1) for word in _PROFILE.run],
            capture_output=True,
            text=True,
            timeout=_PROFILE_S,
            env=environment(),
        )
        return Profile.model_validate(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        raise Unavailable("kernel-hung", "profiled_chase") from None
    except (ValueError, ValidationError):
        raise Unavailable(
            "memory-short" if done.returncode == 3 else "kernel-garbage", "profiled_chase"
        ) from None


def is_whole(known: dict[str, Any], minutes: float) -> bool:
    """Whether a document says something of each program that there is now, and was made in no fewer
    minutes; with none to measure in, any is."""
    told = {row.get("case") for row in known.get("told", [])} | {*known.get("lacking", {})}
    return not minutes or ({*CASES} <= told and known.get("minutes", 0.0) >= minutes)


def interval(told: Told) -> Interval:
    """The ratio with its interval: with the lever over without."""
    return Interval(*told.ratio)
