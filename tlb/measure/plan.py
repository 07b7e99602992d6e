"""Ask kernels for points: what a plan says, what its answers prove, and the records made of them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from tlb.machine.cpus import boot_id
from tlb.measure import build, kernels, perf_stat
from tlb.measure.record import (
    CounterReading,
    Disturbance,
    KernelBuild,
    KernelEngine,
    KernelOutput,
    NonNegativeInt,
    Point,
    PositiveNs,
    Record,
    Slug,
    parse_program_answer,
    utc_now,
)
from tlb.measure.session import CPUS_ALLOWED_AT_START, Session, parse_kernel_reason
from tlb.system import procfs
from tlb.system.page_sizes import PageKind
from tlb.system.reasons import Unavailable

# from the start of one sleeping process to the next: the first touches of 128 MiB take 0.2 s
STAGGER_S = 0.3
MOST_GHZ = 10.0  # for an engine that does not know its clock: no core comes near it
# Prefixes of a large mapping that differ from fresh mappings of their size: each has an arena of
# its own, which takes 25 ms.
FRESH_BYTES = range(4 << 20, (16 << 20) + 1)


class SessionRecord(BaseModel):
    """What one process did as a whole. Its points' rows name the same kernel, pages and repeat."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kernel: Slug  # the first point's
    engine: KernelEngine
    pages: PageKind
    repeat: NonNegativeInt
    points: NonNegativeInt  # answered
    mapped_bytes: NonNegativeInt  # of the arena that they shared
    started_at: str  # UTC
    wall_ns: PositiveNs
    counters: dict[str, CounterReading]  # by perf stat: page_faults, context_switches, ...


class MeasuringConditions(NamedTuple):
    """What measuring takes beside the points.

    usable_bytes: all the memory that one process may use. sessions: where the record of each
    process goes.
    """

    state: str
    usable_bytes: int
    plan: perf_stat.EventPlan = perf_stat.NO_COUNTERS
    cpu: int | None = None
    fifo: bool = False
    sessions: list[SessionRecord] | None = None


def order_seed(point: Point, repeat: int) -> int:
    """Return the order's seed. Layout, pages and engine are left out: spread and packed, C and numba walk
    the same order."""
    kernel = kernels.declaration(point.kernel).order_of or point.kernel
    text = f"{kernel} {point.order} {point.lines} {repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def measure(point: Point, repeat: int = 0, **setting: Any) -> Record:
    """Return the record of one point in a process of its own; `setting`: the fields of a Setting.

    Raises Unavailable with the reason wherever there is no trustworthy number: no compiler, no
    memory, another page size than asked for, a kernel that crashed, hung or printed garbage. What
    disturbed a process that did give a number is in `noisy`.
    """
    how = MeasuringConditions(**setting)
    if why := reason_to_skip_point(point, how):
        raise why
    return measure_alone(point, repeat, how)


def reason_to_skip_point(point: Point, setting: MeasuringConditions) -> Unavailable | None:
    """Return why a point need not be tried: it takes more memory than may be used, or what its engine does
    not have."""
    if (needed := kernels.memory_bytes(point)) > setting.usable_bytes:
        what = f"{needed >> 20} MiB needed, {setting.usable_bytes >> 20} MiB may be used"
        return Unavailable("memory-short", what)
    if setting.cpu is not None and setting.cpu not in CPUS_ALLOWED_AT_START:
        return Unavailable("bad-parameter", f"CPU {setting.cpu} is not one this process may use")
    if _has_stride(point) and point.engine != "c":
        what = f"layout {point.layout}, stride_pages {point.stride_pages}"
        return Unavailable("engine-lacks", what)
    return None


def _has_stride(point: Point) -> bool:
    return point.layout == "alias" or point.stride_pages > 1


def uses_shared_arena(point: Point) -> bool:
    """Return whether a session measures a point in the shared arena."""
    return not kernels.has_own_arena(point) and kernels.mapped_bytes(point) not in FRESH_BYTES


class KernelProcess:
    """A process of the program that measures some points of the same pages.

    shared_bytes: of an arena for all points that fit; 0: each point has its own. A program without
    a session forks a process for each point (kernels/arguments.h).
    """

    def __init__(self, point: Point, shared_bytes: int, repeat: int, setting: MeasuringConditions):
        self._first, self._repeat, self._setting = point, repeat, setting
        self._shared_bytes, self._answers, self._started_at = shared_bytes, 0, utc_now()
        self._begin_ns = time.monotonic_ns()
        self._build = build.builds()
        self._smaps_s = kernels.mapping_s(point.engine, shared_bytes)
        is_in_guest = kernels.declaration(point.kernel).in_guest
        counted = setting.plan.in_guest() if is_in_guest else setting.plan
        command = _command(point, shared_bytes, setting)
        how = point.pages, counted, repeat, self._smaps_s
        self._session = Session(command, build.ROOT, *how)

    def ask(self, point: Point) -> tuple[Record | Unavailable, int]:
        """Return a point's result, and how many of all answers so far are proved.

        Raises Unavailable where the process gives no more.
        """
        line = self._line(point)
        expected_s = (kernels.point_s if self._shared_bytes else kernels.expected_s)(point)
        stolen, begin = stolen_ms(), time.monotonic_ns()
        try:
            answer, counters = self._session.ask(line, expected_s)
        except Unavailable as why:
            if self._shared_bytes or why.code != "oom-killed" or why.detail:
                raise
            what = f"{point.kernel} with {kernels.arena_bytes(point) >> 20} MiB"
            raise Unavailable(why.code, what) from None
        wall_ns = float(time.monotonic_ns() - begin)
        proved = self._proved(answer, "id", self._answers)
        self._answers += 1
        if "reason" in answer:
            return parse_kernel_reason(json.dumps(answer)), proved
        fields = {name: value for name, value in answer.items() if name not in ("id", "proved")}
        try:
            report = _checked(json.dumps(fields), point)
        except Unavailable as why:
            return why, proved
        record = _record(
            report,
            point,
            self._repeat,
            self._setting,
            self._build(point),
            counters=counters,
            wall_ns=wall_ns,
            started_at=self._started_at,
            steal_ms=stolen_between_ms(stolen, stolen_ms(), report.cpu),
        )
        return record, proved

    def _line(self, point: Point) -> str:
        """Return the line of a plan that asks for a point: kernels/plan.h."""
        is_played = point.mode in kernels.declaration(point.kernel).played
        mode = "-" if is_played else point.mode or "-"
        seed = order_seed(point, self._repeat)
        words = [self._answers, point.kernel, mode, point.layout, point.order]
        words += [point.lines, point.stride_pages, seed, point.region_ms]
        words += [word for name, value in point.options for word in (f"--{name}", value)]
        return " ".join(map(str, words))

    def end(self) -> int:
        """End the plan, record the session, and return how many answers are proved."""
        proved = self._proved(self._session.end(self._smaps_s), "end", self._answers)
        if self._setting.sessions is not None and self._session.process:
            self._setting.sessions.append(self._recorded())
        return proved

    def _recorded(self) -> SessionRecord:
        return SessionRecord(
            kernel=self._first.kernel,
            engine=self._first.engine,
            pages=self._first.pages,
            repeat=self._repeat,
            points=self._answers,
            mapped_bytes=self._shared_bytes,
            started_at=self._started_at,
            wall_ns=float(time.monotonic_ns() - self._begin_ns),
            counters=self._session.process,
        )

    def _proved(self, answer: dict[str, Any], name: str, number: int) -> int:
        if str(answer.get(name)) != str(number) or not isinstance(answer.get("proved"), int):
            why = f"no answer to point {number}: {json.dumps(answer)[:200]}"
            raise Unavailable("kernel-failed", why)
        return int(answer["proved"])

    def __enter__(self) -> KernelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.__exit__()


def _command(point: Point, shared_bytes: int, setting: MeasuringConditions) -> list[str]:
    """Return the words that start the program of a point. In a fresh user namespace no process may
    use SCHED_FIFO."""
    play = kernels.declaration(point.kernel).played.get(point.mode)
    if build.has_session(point):
        command = [*build.session(kernels.session_of(point), point.engine)]
        command += ["--pages", point.pages, "--bytes", str(shared_bytes)]
    else:
        command = [*build.kernel(point.kernel, point.engine).command, "--pages", point.pages]
        command = [*(play(command[0]) if play else ()), *command]
    command += ["--plan"]
    command += ["--cpu", str(setting.cpu)] if setting.cpu is not None else []
    return command + (["--fifo"] if setting.fifo and not play else [])


def measure_alone(point: Point, repeat: int, setting: MeasuringConditions) -> Record:
    """Return the record of one point by a plan of one line."""
    with KernelProcess(point, 0, repeat, setting) as process:
        result, _ = process.ask(point)
        proved = process.end()
    if isinstance(result, Unavailable):
        raise result
    if proved != 1:
        raise Unavailable("kernel-failed", "it never proved what backs its memory")
    return result


class SleepingProcesses:
    """A process for each of some points, which sleep for seconds between what they measure, side by
    side; started one after the other, so that no two of them measure at once."""

    def __init__(self, points: Sequence[Point], repeat: int, setting: MeasuringConditions):
        self._repeat, self._setting, self._answers = repeat, setting, 0
        # a child is killed with the thread that started it, so each waits for its own
        self._threads = ThreadPoolExecutor(len(points))
        self._running = {
            point: self._threads.submit(self._measure, point, STAGGER_S * number)
            for number, point in enumerate(points)
        }

    def _measure(self, point: Point, after_s: float = 0.0) -> Record:
        time.sleep(after_s)
        return measure_alone(point, self._repeat, self._setting)

    def ask(self, point: Point) -> tuple[Record | Unavailable, int]:
        """Return what KernelProcess.ask does; each answer is proved."""
        self._answers += 1
        running = self._running.pop(point, None)
        try:
            result = running.result() if running else self._measure(point)
        except Unavailable as why:
            return why, self._answers
        return result, self._answers

    def end(self) -> int:
        return self._answers

    def __enter__(self) -> SleepingProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)


def _checked(text: str, point: Point) -> KernelOutput:
    """Return a kernel's report. Raises Unavailable where it is none, or of another point."""
    report = parse_program_answer(text, KernelOutput)
    if point.mode in kernels.declaration(point.kernel).played and not report.mode:
        report = report.model_copy(update={"mode": point.mode})
    asked = {name: getattr(point, name) for name in set(Point.model_fields) - {"region_ms"}}
    got = {name: getattr(report, name) for name in asked}
    if got != asked:
        raise Unavailable("kernel-failed", f"asked for {asked}, measured {got}")
    cycles = report.ns_per_access * (report.core_ghz or MOST_GHZ)
    if cycles < kernels.declaration(report.kernel).least_cycles:
        why = f"{cycles:.2g} core cycles an access: the compiler left the accesses out"
        raise Unavailable("kernel-failed", why)
    return report


def _record(
    report: KernelOutput,
    point: Point,
    repeat: int,
    setting: MeasuringConditions,
    made_by: KernelBuild,
    **known: Any,
) -> Record:
    record = Record(
        **report.model_dump(),
        repeat=repeat,
        region_ms=point.region_ms,
        state=setting.state,
        boot_id=boot_id(),
        **made_by._asdict(),
        **known,
    )
    return record.model_copy(update={"noisy": disturbance(record)})


# --- what disturbed a process: the point is measured again, or its record is marked

# Half of the 2 percent within which a point's median shall repeat.
STOLEN_SHARE = 0.01
# Of the region, spent neither running nor stopped by the kernel. On a quiet guest perf's clock and
# the kernel's own differ by 0.5 percent at most, because the gate closes a little after the last
# batch. The count of switches would say nothing: there it is 3 a process, and not one in a hundred
# of those processes lost 1 percent.
SWITCHED_SHARE = 0.02
# Of the region, spent on minor faults. Where no kernel faults pages in there, Linux takes pages
# away from it meanwhile: NUMA balancing unmaps them to see who touches them, and moves them.
FAULTED_SHARE = 0.01
# prefault touches a base page in 700 ns (Zen 4, guest); one that has to be moved takes longer
FAULT_NS = 1000
# Interquartile range of the batches over their median: twice the 5 percent from which the repeats
# of a point are called unstable. Of the first 2808 processes of the reference machine 9 percent are
# over it; two thirds of these are more than 5 percent off their point's median, of the others one
# in six.
UNEVEN_SHARE = 0.10

_CPU_LINE = re.compile(r"cpu([0-9]{1,5})((?: [0-9]{1,18}){8})\b")


def clock_tick_ms() -> float:
    """Return the unit of /proc/stat, usually 10 ms."""
    return 1000 / os.sysconf("SC_CLK_TCK")


def stolen_ms(root: Path = Path("/")) -> dict[int, float]:
    """Return ms since boot that the hypervisor ran something else, by CPU; {} if not stated."""
    lines = map(_CPU_LINE.match, procfs.text(root / "proc/stat").split("\n"))
    return {int(line[1]): int(line[2].split()[7]) * clock_tick_ms() for line in lines if line}


def stolen_between_ms(before: dict[int, float], after: dict[int, float], cpu: int) -> float | None:
    """Return ms stolen from a CPU between two readings; None if one lacks it."""
    return max(after[cpu] - before[cpu], 0.0) if cpu in before and cpu in after else None


def disturbance(record: Record) -> Disturbance:
    """Return the first thing that disturbed the process, "" for none. The measured time plays no
    part."""
    counted = record.counters.get("task_clock_ns")
    ran_ns = record.cpu_ns or (
        counted.value if counted and counted.value is not None else record.elapsed_ns
    )
    if record.migrations:
        return "migrated"  # to cold caches and a cold TLB
    if record.major_faults or (
        not kernels.declaration(record.kernel).faults_in
        and record.minor_faults * FAULT_NS > FAULTED_SHARE * record.elapsed_ns
    ):
        return "faulted"  # waited for a disk, or for pages that were taken away
    if record.also.get("off_node_pages"):
        return "spilled"  # onto another node's memory, which is further away
    # One tick may stand for a microsecond: it is where the clock of /proc/stat happened to step.
    if (record.steal_ms or 0) > max(STOLEN_SHARE * record.wall_ns / 1e6, clock_tick_ms()):
        return "stolen"
    if (
        record.involuntary_switches
        and record.elapsed_ns - ran_ns > SWITCHED_SHARE * record.elapsed_ns
    ):
        return "switched"
    return "uneven" if unevenness(record.batch_ns_per_access) > UNEVEN_SHARE else ""


def unevenness(batches: list[float]) -> float:
    """Return interquartile range over median, by nearest rank."""
    ascending, last = sorted(batches), len(batches) - 1
    low, middle, high = (ascending[round(last * share)] for share in (0.25, 0.5, 0.75))
    return (high - low) / middle
