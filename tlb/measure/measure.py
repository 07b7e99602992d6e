"""Measure a point, alone in a process or in a session: what is asked, what the answer proves, and
the record that is made of it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

from tlb.machine.identity import boot_id
from tlb.measure import build, kernels, noise, perf
from tlb.measure.granted_pages import parse_answer
from tlb.measure.record import Build, KernelReport, Point, Record, utc_now
from tlb.measure.session import Session, lack, limit_s, why_ended
from tlb.system.reasons import Unavailable

# from the start of one sleeping process to the next: the first touches of 128 MiB take 0.2 s
STAGGER_S = 0.3
MOST_GHZ = 10.0  # for an engine that does not know its clock: no core comes near it
# Prefixes of a large mapping that differ from fresh mappings of their size: each has an arena of
# its own, which takes 25 ms.
FRESH_BYTES = range(4 << 20, (16 << 20) + 1)


class Setting(NamedTuple):
    """What measuring takes beside the points: `usable_bytes` is all the memory that one process may
    use."""

    state: str
    usable_bytes: int
    plan: perf.Plan = perf.NO_COUNTERS
    cpu: int | None = None
    fifo: bool = False


def seed_of(point: Point, repeat: int) -> int:
    """The order's seed. Layout, pages and engine are left out: spread and packed, C and numba walk
    the same order."""
    kernel = kernels.declaration(point.kernel).order_of or point.kernel
    text = f"{kernel} {point.order} {point.lines} {repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def measure(point: Point, repeat: int = 0, **setting: Any) -> Record:
    """The record of one point in a process of its own; `setting` is a Setting, by its fields.

    Raises Unavailable with the reason wherever there is no trustworthy number: no compiler, no
    memory, another page size than asked for, a kernel that crashed, hung or printed garbage. What
    disturbed a process that did give a number is in `noisy`.
    """
    how = Setting(**setting)
    if why := why_not(point, how):
        raise why
    return _alone(point, repeat, how)


def why_not(point: Point, setting: Setting) -> Unavailable | None:
    """Why a point need not be tried: it takes more memory than may be used, or what its engine does
    not have."""
    if (needed := kernels.memory_bytes(point)) > setting.usable_bytes:
        what = f"{needed >> 20} MiB needed, {setting.usable_bytes >> 20} MiB may be used"
        return Unavailable("memory-short", what)
    if _has_stride(point) and point.engine != "c":
        what = f"layout {point.layout}, stride_pages {point.stride_pages}"
        return Unavailable("engine-lacks", what)
    return None


def _has_stride(point: Point) -> bool:
    return point.layout == "alias" or point.stride_pages > 1


def is_prefix(point: Point) -> bool:
    """Whether a session measures a point in the shared arena."""
    return not kernels.has_own_arena(point) and kernels.mapped_bytes(point) not in FRESH_BYTES


class Shared:
    """One session."""

    def __init__(self, point: Point, shared_bytes: int, repeat: int, setting: Setting):
        self._repeat, self._setting, self._answers = repeat, setting, 0
        self._build = build.builds()
        self._started_at = utc_now()
        command = [*build.session(kernels.session_of(point), point.engine)]
        command += ["--pages", point.pages, "--bytes", str(shared_bytes), "--plan"]
        command += ["--cpu", str(setting.cpu)] if setting.cpu is not None else []
        command += ["--fifo"] if setting.fifo else []
        self._smaps_s = kernels.mapping_s(point.engine, shared_bytes)
        how = point.pages, setting.plan, repeat, self._smaps_s
        self._session = Session(command, build.ROOT, *how)

    def ask(self, point: Point) -> tuple[Record | Unavailable, int]:
        """A point's result, and how many of all answers so far are proved. Raises Unavailable where
        the process gives no more."""
        line = self._line(point)
        stolen, begin = noise.stolen_ms(), time.monotonic_ns()
        answer, counters = self._session.ask(line, kernels.point_s(point))
        wall_ns = float(time.monotonic_ns() - begin)
        proved = self._proved(answer, "id", self._answers)
        self._answers += 1
        if "reason" in answer:
            return lack(json.dumps(answer)), proved
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
            steal_ms=noise.between(stolen, noise.stolen_ms(), report.cpu),
        )
        return record, proved

    def _line(self, point: Point) -> str:
        """Return the line of a plan that asks for a point: kernels/plan.h."""
        seed = seed_of(point, self._repeat)
        words = [self._answers, point.kernel, point.mode or "-", point.layout, point.order]
        words += [point.lines, point.stride_pages, seed, point.region_ms]
        words += [word for name, value in point.options for word in (f"--{name}", value)]
        return " ".join(map(str, words))

    def end(self) -> int:
        return self._proved(self._session.end(self._smaps_s), "end", self._answers)

    def _proved(self, answer: dict[str, Any], name: str, number: int) -> int:
        if str(answer.get(name)) != str(number) or not isinstance(answer.get("proved"), int):
            why = f"no answer to point {number}: {json.dumps(answer)[:200]}"
            raise Unavailable("kernel-garbage", why)
        return answer["proved"]

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.__exit__()


class Alone:
    """A process for each point, which proves its backing before it answers."""

    def __init__(self, repeat: int, setting: Setting):
        self._repeat, self._setting, self._answers = repeat, setting, 0

    def ask(self, point: Point) -> tuple[Record | Unavailable, int]:
        self._answers += 1
        try:
            return self._measure(point), self._answers
        except Unavailable as why:
            return why, self._answers

    def _measure(self, point: Point) -> Record:
        return _alone(point, self._repeat, self._setting)

    def end(self) -> int:
        return self._answers

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Sleeping(Alone):
    """Processes that sleep for seconds between what they measure, side by side; started one after
    the other, so that no two of them measure at once."""

    def __init__(self, points: Sequence[Point], repeat: int, setting: Setting):
        super().__init__(repeat, setting)
        # a child is killed with the thread that started it, so each waits for its own
        self._threads = ThreadPoolExecutor(len(points))
        self._running = {
            point: self._threads.submit(self._later, STAGGER_S * number, point)
            for number, point in enumerate(points)
        }

    def _later(self, after_s: float, point: Point) -> Record:
        time.sleep(after_s)
        return super()._measure(point)

    def _measure(self, point: Point) -> Record:
        running = self._running.pop(point, None)
        return running.result() if running else super()._measure(point)

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)


def _alone(point: Point, repeat: int, setting: Setting) -> Record:
    kernel, declared = build.kernel(point.kernel, point.engine), kernels.declaration(point.kernel)
    command = _command(kernel, point, repeat, setting)
    timeout_s = limit_s(kernels.expected_s(point))
    plan = setting.plan.in_guest() if declared.in_guest else setting.plan
    started_at = utc_now()
    if not plan.counts_hardware:  # what software counts, the kernel says itself
        plan = replace(plan, perf=None, events=())
    stolen, begin = noise.stolen_ms(), time.monotonic_ns()
    try:
        run = perf.run(command, plan, timeout_s, cwd=build.ROOT, repeat=repeat)
    except subprocess.TimeoutExpired:
        why = f"{point.kernel} gave no answer in {timeout_s:.0f} s"
        raise Unavailable("kernel-hung", why) from None
    wall_ns = float(time.monotonic_ns() - begin)
    what = f"{point.kernel} with {kernels.arena_bytes(point) >> 20} MiB"
    if why := why_ended(run, point.pages, setting.cpu, what):
        raise why
    report = _checked(run.stdout, point)
    return _record(
        report,
        point,
        repeat,
        setting,
        kernel.build,
        counters=run.counters,
        wall_ns=wall_ns,
        started_at=started_at,
        steal_ms=noise.between(stolen, noise.stolen_ms(), report.cpu),
    )


def _command(kernel: build.Kernel, point: Point, repeat: int, setting: Setting) -> list[str]:
    """The words that measure a point. In a fresh user namespace nobody may use SCHED_FIFO."""
    asked: list[tuple[str, object]] = [("pages", point.pages), ("layout", point.layout)]
    asked += [("order", point.order), ("lines", point.lines)]
    asked += [("seed", seed_of(point, repeat)), ("region-ms", point.region_ms)]
    if _has_stride(point):
        asked.append(("stride-pages", point.stride_pages))
    play = kernels.declaration(point.kernel).played.get(point.mode)
    if point.mode and not play:
        asked.append(("mode", point.mode))
    asked += point.options
    if setting.cpu is not None:
        asked.append(("cpu", setting.cpu))
    words = [word for name, value in asked for word in (f"--{name}", str(value))]
    words += ["--fifo"] if setting.fifo and not play else []
    return [*(play(kernel.command[0]) if play else ()), *kernel.command, *words]


def _checked(text: str, point: Point) -> KernelReport:
    """A kernel's report. Raises Unavailable where it is none, or of another point."""
    report = parse_answer(text, KernelReport)
    if point.mode in kernels.declaration(point.kernel).played and not report.mode:
        report = report.model_copy(update={"mode": point.mode})
    asked = {name: getattr(point, name) for name in set(Point.model_fields) - {"region_ms"}}
    got = {name: getattr(report, name) for name in asked}
    if got != asked:
        raise Unavailable("kernel-garbage", f"asked for {asked}, measured {got}")
    cycles = report.ns_per_access * (report.core_ghz or MOST_GHZ)
    if cycles < kernels.declaration(report.kernel).least_cycles:
        why = f"{cycles:.2g} core cycles an access: the compiler left the accesses out"
        raise Unavailable("kernel-garbage", why)
    return report


def _record(
    report: KernelReport, point: Point, repeat: int, setting: Setting, made_by: Build, **known: Any
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
    return record.model_copy(update={"noisy": noise.disturbance(record)})
