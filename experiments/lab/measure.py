"""Measure one point in one fresh process: the arguments, the limits, and the classification of all that can go wrong."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from datetime import UTC, datetime

from pydantic import ValidationError

from experiments.lab import build, kernels, namespaces, noise, perf
from experiments.lab.record import KernelReport, Point, Record
from experiments.machine.identity import boot_id
from experiments.words.pages import PAGES
from experiments.words.reasons import REASONS, Unavailable

# Faulting in costs up to 3 s a GiB where a hypervisor has to find the memory first, and the region takes as long
# again; ten times more than expected is a hang.
HANG_S, HANG_S_PER_GIB = 120.0, 100.0

MOST_GHZ = 10.0  # for an engine that does not know its clock: no core comes near it

# To tell a CPU that went away from one that never was ours.
CPUS_AT_START = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def seed_of(point: Point, repeat: int) -> int:
    """The order's seed. Layout, pages and engine are left out: spread and packed, C and numba walk the same order."""
    text = f"{kernels.of(point.kernel).order_of or point.kernel} {point.order} {point.lines} {repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def measure(point: Point, repeat: int = 0, *, state: str, usable_bytes: int, plan: perf.Plan = perf.NO_COUNTERS,
            cpu: int | None = None) -> Record:
    """Run the point's kernel once and return its record.

    Raises Unavailable with the reason wherever there is no trustworthy number: no compiler, no memory (`usable_bytes`
    is all that may be used), another page size than asked for, a kernel that crashed, hung or printed garbage.
    What disturbed a process that did give a number is in `noisy`.
    """
    kernel, declared = build.kernel(point.kernel, point.engine), kernels.of(point.kernel)
    needed = kernels.arena_bytes(point)
    if needed > usable_bytes:
        raise Unavailable("memory-short", f"{needed >> 20} MiB needed, {usable_bytes >> 20} MiB may be used")
    command, timeout_s = _command(kernel, point, repeat, cpu), HANG_S + HANG_S_PER_GIB * needed / 2**30
    started_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    stolen, begin = noise.stolen_ms(), time.monotonic_ns()
    try:
        run = perf.run(command, plan.in_guest() if declared.in_guest else plan, timeout_s, cwd=build.ROOT, repeat=repeat)
    except subprocess.TimeoutExpired:
        raise Unavailable("kernel-hung", f"{point.kernel} gave no answer in {timeout_s:.0f} s") from None
    wall_ns = float(time.monotonic_ns() - begin)
    report = _report(run, point, cpu)
    record = Record(**report.model_dump(), repeat=repeat, region_ms=point.region_ms, counters=run.counters, wall_ns=wall_ns,
                    started_at=started_at, state=state, boot_id=boot_id(), steal_ms=noise.between(stolen, noise.stolen_ms(), report.cpu))
    return record.model_copy(update={"noisy": noise.disturbance(record)})


def _command(kernel: build.Kernel, point: Point, repeat: int, cpu: int | None) -> list[str]:
    """The words that measure a point."""
    asked: list[tuple[str, object]] = [
        ("pages", point.pages), ("layout", point.layout), ("order", point.order), ("lines", point.lines),
        ("seed", seed_of(point, repeat)), ("region-ms", point.region_ms)]
    if point.layout == "alias" or point.stride_pages > 1:
        if point.engine != "c":
            raise Unavailable("engine-lacks", f"layout {point.layout}, stride_pages {point.stride_pages}")
        asked.append(("stride-pages", point.stride_pages))
    play = kernels.of(point.kernel).played.get(point.mode)
    if point.mode and not play:
        asked.append(("mode", point.mode))
    asked += point.options
    if cpu is not None:
        asked.append(("cpu", cpu))
    words = [word for name, value in asked for word in (f"--{name}", str(value))]
    return [*(play(kernel.command[0]) if play else ()), *kernel.command, *words]


def _signal_of(run: perf.Run, last: str) -> int:
    """The signal that ended the kernel, 0 for none. perf exits 0 and leaves its name as the last word on stderr."""
    if run.status < 0 or 128 < run.status < 128 + signal.NSIG:
        return -run.status if run.status < 0 else run.status - 128
    if run.status == 1 and last.startswith(namespaces.KILLED):
        return signal.SIGKILL
    named = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
    return named.get(last.rpartition(": ")[2].removesuffix(" (core dumped)"), 0) if not run.stdout.strip() else 0


def _report(run: perf.Run, point: Point, cpu: int | None) -> KernelReport:
    """The kernel's report, or the reason there is none. Under perf a killed kernel shows as empty output and status 0."""
    last = (run.stderr.strip().splitlines() or [""])[-1]
    if run.status == 3 or (not run.stdout.strip() and last.startswith("{")):
        try:
            lack = json.loads(last)
            reason, detail = str(lack["reason"]), str(lack.get("detail", ""))
        except (ValueError, KeyError, TypeError, RecursionError):
            reason, detail = "kernel-garbage", last[:200]
        raise Unavailable(reason if reason in REASONS else "kernel-garbage", detail)
    if run.status == 2:
        gone = "not one this process may use" in last and (cpu is None or cpu in CPUS_AT_START)
        raise Unavailable("cpu-gone" if gone else "bad-parameter", last[:300])
    killed = _signal_of(run, last)
    if killed == signal.SIGKILL:
        raise Unavailable("oom-killed", f"{point.kernel} with {kernels.arena_bytes(point) >> 20} MiB")
    if killed == signal.SIGBUS:
        raise Unavailable("pool-empty" if PAGES[point.pages].source == "pool" else "memory-short", "SIGBUS while faulting in")
    if run.status or not run.stdout.strip():
        how = f"signal {signal.Signals(killed).name}" if killed in iter(signal.Signals) else f"exit status {run.status}"
        raise Unavailable("kernel-crashed", f"{how}; {last[:200]}" if last else how)
    try:
        report = KernelReport.model_validate_json(run.stdout)
    except ValidationError as error:
        first = error.errors()[0]
        raise Unavailable("kernel-garbage", f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if point.mode in kernels.of(point.kernel).played and not report.mode:
        report = report.model_copy(update={"mode": point.mode})
    asked = {name: getattr(point, name) for name in set(Point.model_fields) - {"region_ms"}}
    got = {name: getattr(report, name) for name in asked}
    if got != asked:
        raise Unavailable("kernel-garbage", f"asked for {asked}, measured {got}")
    cycles = report.ns_per_access * (report.core_ghz or MOST_GHZ)
    if cycles < kernels.of(report.kernel).least_cycles:
        raise Unavailable("kernel-garbage", f"{cycles:.2g} core cycles an access: the compiler left the accesses out")
    return report
