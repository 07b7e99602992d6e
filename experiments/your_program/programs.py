"""Measure whole programs with and without a lever, as `tlb try` does, into one document."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from experiments.your_program import cases
from experiments.your_program.cases import (
    PROGRAM_CASES,
    PROGRAM_SOURCES_FOLDER,
    RULES_ENGINE_POOL_VARIABLE,
    ProgramCase,
)
from tlb.machine import host, pools
from tlb.measure import toolchains
from tlb.measure.granted_pages import SurveyDocument, survey_time_and_host_fields
from tlb.measure.measuring_setup import usable_bytes
from tlb.measure.record import NonNegativeInt, PositiveInt
from tlb.measure.toolchains import (
    Toolchain,
    cached_build,
    clean_environment,
    put_build_folder_in_command,
    run_tool,
)
from tlb.programs.levers import environment_lever, lever_by_name
from tlb.programs.runs import RunConditions, ServerDriver
from tlb.programs.trial import Trial, TrialAim, TrialVerdict, run_trial
from tlb.programs.trial_report import runs_summary
from tlb.stats.intervals import Interval
from tlb.system import procfs
from tlb.system.files import measuring_lock
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size

PROGRAMS_DOCUMENT = "your_program"  # of the document
HUGE_PAGE = 2 << 20
# Programs that a computer with a compiler has, and of which six pairs take a minute in all.
QUICK_PROFILE_PROGRAMS, QUICK_PROFILE_MINUTES = ("dict", "sort", "gcc"), 1.0
WITHIN = 0.03  # relative precision of a ratio; gains are reported in per cent
PROFILE_BYTES = 4 << 30  # the size of the source's cache
PROFILE = cases.c_program("profiled_chase", str(PROFILE_BYTES), "3")
PROFILE_LIMIT_S = 60.0
RULES_BYTES = 1 << 30  # of the rules engine's slice


class Side(BaseModel, extra="forbid", frozen=True, strict=True):
    """Medians of the runs without the lever, or of those with it; memory at its peak."""

    value: Annotated[float, Field(gt=0)]  # seconds, or the number that it prints
    resident_bytes: NonNegativeInt
    huge_bytes: NonNegativeInt
    table_bytes: NonNegativeInt
    minor_faults: Annotated[float, Field(ge=0)]


class ProgramResult(BaseModel, extra="forbid", frozen=True, strict=True):
    """One program with and without its lever."""

    case: str
    version: Annotated[str, Field(min_length=1, max_length=120)]
    verdict: TrialVerdict
    # With the lever over without: the value, its interval and that one's coverage.
    ratio: Annotated[list[float], Field(min_length=4, max_length=4)]
    pairs: PositiveInt
    without: Side
    with_lever: Side
    alike: bool  # in what it wrote; where its number was compared, but for digits
    spent_s: Annotated[float, Field(gt=0)]

    @property
    def interval(self) -> Interval:
        value, low, high, coverage = self.ratio
        return Interval(value, low, high, coverage)


class SampledProfile(BaseModel, extra="forbid", frozen=True, strict=True):
    """What profiled_chase prints: ticks of a sampling clock, and those at the commonest
    instruction."""

    ticks: PositiveInt
    most: PositiveInt
    last: Literal[1]


class ProgramsDocument(SurveyDocument, frozen=True):
    """The document. lacking: reason codes by the names of cases, and of "profile"."""

    minutes: Annotated[float, Field(gt=0)]
    told: list[ProgramResult]
    profile: SampledProfile | None
    lacking: dict[str, str]


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def make_programs_document(
    minutes: float, names: Collection[str] = PROGRAM_CASES, tell: Callable[[str], object] = _tell
) -> dict[str, Any]:
    """Return the document of the named programs and, if these are all, of a profile. Each program
    gets its share of the minutes that are left; those for which no time is left are left out, as no-time. Raises
    Unavailable: not-linux, measuring-already."""
    inspected = host.inspect_machine()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    tell(f"Measuring {len(names)} programs, in about {minutes:g} min.")
    end_s, profiled = time.monotonic() + 60 * minutes, None
    shares = len(names) + (2 if {*PROGRAM_CASES} <= {*names} else 0)  # the profile takes two
    results, lacking = list[ProgramResult](), dict[str, str]()
    with measuring_lock():
        for number, name in enumerate(names):
            case, left_s = PROGRAM_CASES[name], end_s - time.monotonic()
            try:
                if usable_bytes(inspected) < case.holds_gib << 30:
                    raise Unavailable("memory-short", f"it holds up to {case.holds_gib} GiB")
                if left_s <= 0:
                    raise Unavailable("no-time")
                results.append(found := measure(name, case, left_s / 60 / (shares - number)))
                result = f"{found.verdict}, {found.ratio[0]:.3f}, in {found.spent_s:.0f} s"
                tell(f"{case.title}: {result}")
            except Unavailable as why:
                lacking[name] = why.code
                tell(f"{case.title}: {why}")
        try:
            profiled = profile(usable_bytes(inspected)) if {*PROGRAM_CASES} <= {*names} else None
        except Unavailable as why:
            lacking["profile"] = why.code
            tell(f"Profile: {why}")
    return ProgramsDocument(
        **survey_time_and_host_fields(inspected),
        minutes=minutes,
        told=results,
        profile=profiled,
        lacking=lacking,
    ).model_dump(mode="json")


def measure(name: str, case: ProgramCase, minutes: float) -> ProgramResult:
    """Measure one program with and without its lever. Raises Unavailable:
    no-toolchain, no-time, pool-empty, and what `run_trial` and the lever
    raise."""
    pool = pools.look().get("2m")
    if case.lever == RULES_ENGINE_POOL_VARIABLE and (
        pool is None or pool.left * HUGE_PAGE < RULES_BYTES
    ):
        raise Unavailable("pool-empty", f"{format_size(RULES_BYTES)} of 2 MiB pages are to be free")
    version, command, driver = ready(case)
    change = environment_lever([case.lever]) if "=" in case.lever else lever_by_name(case.lever)
    metric = re.compile(re.escape(case.metric) + r": ([0-9.]+)") if case.metric else None
    client = ServerDriver(driver) if driver else None
    aim = TrialAim(
        command, change, WITHIN, minutes, driver=client, conditions=RunConditions(metric=metric)
    )
    try:
        trial = run_trial(aim)
    except Unavailable as why:
        if why.code != "no-time":
            raise
        # In fragmented memory Linux compacts gigabytes before a first run can
        # end; a second run finds them compacted.
        trial = run_trial(aim)
    return summary(name, version, trial)


def summary(name: str, version: str, trial: Trial) -> ProgramResult:
    """Return a trial as a row. Raises Unavailable: no-time if there are too few pairs for a
    verdict, program-missing if a run failed, program-unfit if its memory was never seen."""
    if not trial.has_verdict:
        raise Unavailable("no-time", trial.ended)
    if trial.statuses != ({0}, {0}):
        codes = sorted(trial.statuses[0] | trial.statuses[1])
        raise Unavailable("program-missing", f"its exit codes are {codes}")
    digest = "digest" if trial.aim.metric is trial.aim.driver is None else "digest_of_words"
    written = {getattr(run.written[0], digest) for on in (False, True) for run in trial.runs(on)}
    ratio = trial.ratio()
    return ProgramResult(
        case=name,
        version=version,
        verdict=trial.verdict,
        ratio=[*map(float, (*ratio.value_and_bounds, ratio.coverage))],
        pairs=len(trial.pairs),
        without=_side(trial, False),
        with_lever=_side(trial, True),
        alike=len(written) == 1,
        spent_s=trial.spent_s,
    )


def _side(trial: Trial, on: bool) -> Side:
    found = runs_summary(trial, on)
    if found.peak is None:
        raise Unavailable(
            "program-unfit",
            "too short for a difference to be measured: it ended before a look",
            "Give it work for a second or more, let --within be larger, or name a number that it prints with --metric.",
        )
    return Side(
        value=found.value.value,
        resident_bytes=found.peak.pages.resident_bytes,
        huge_bytes=found.peak.pages.huge_bytes,
        table_bytes=found.peak.table_bytes,
        minor_faults=float(found.minor_faults),
    )


def ready(case: ProgramCase) -> tuple[str, list[str], list[str]]:
    """Write or compile what a program needs; return its version, its command and its driver's.
    Raises Unavailable: no-toolchain, disk-refused."""
    tool = case.tool
    if tool.source:
        version, folder = compiled(tool)
    else:
        said = run_tool(tool, tool.version, 60).partition(" sha=")[0]  # Redis adds its build
        version = procfs.label(said) or case.title
        folder = cached_build(
            "program-inputs", [inspect.getsource(cases).encode()], cases.write_inputs
        )
    return (
        version,
        put_build_folder_in_command(tool.run, folder),
        put_build_folder_in_command(case.driver, folder),
    )


def compiled(tool: Toolchain) -> tuple[str, Path]:
    """Return `toolchains.compile_program` of one of our own programs."""
    source = PROGRAM_SOURCES_FOLDER / tool.source
    return toolchains.compile_program(tool, source, f"program-{source.stem}")


def profile(room_bytes: int) -> SampledProfile:
    """Sample a chase over as much as the source's cache. Raises Unavailable: memory-short,
    kernel-failed, no-toolchain."""
    if room_bytes < PROFILE_BYTES:
        raise Unavailable("memory-short", f"the chase is over {format_size(PROFILE_BYTES)}")
    command, limit_s = (
        put_build_folder_in_command(PROFILE.run, compiled(PROFILE)[1]),
        PROFILE_LIMIT_S,
    )
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=limit_s, env=clean_environment()
        )
        return SampledProfile.model_validate_json(done.stdout)
    except subprocess.TimeoutExpired:
        raise Unavailable("kernel-failed", "profiled_chase") from None
    except ValueError:
        code = "memory-short" if done.returncode == 3 else "kernel-failed"
        raise Unavailable(code, "profiled_chase") from None


def is_document_complete(
    known: dict[str, Any], minutes: float, wanted: Collection[str] = PROGRAM_CASES
) -> bool:
    """Return whether a document has all wanted programs and took as many minutes; any has if there
    are no minutes to measure in."""
    names = {row.get("case") for row in known.get("told", [])} | {*known.get("lacking", {})}
    return not minutes or ({*wanted} <= names and known.get("minutes", 0.0) >= minutes)
