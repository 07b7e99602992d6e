"""The timed region of a numba kernel, and its record: kernels/region.h."""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import select
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from kernels.twins.arena import (
    Arena,
    base_page,
    libc,
    map_arena,
    page_table_bytes,
    unmap,
    verify_backing,
)
from kernels.twins.arguments import LINE, bad_argument, exiting, now_ns, unavailable

MIN_BATCHES, MOST_BATCHES, SETTLE, SLICES = 5, 16, 256, 16
# A point so small that it takes no time but to compile what it runs.
FEW = {
    "lines": 1 << 11,
    "packed": True,
    "bytes": 1 << 17,
    "step_bytes": 1 << 12,
    "region_ms": 1,
    "control_fd": -1,
    "fifo": False,
}
ASKED = ["kernel", "engine", "pages", "layout", "order", "lines", "mode", "options", "seed", "cpu"]
Record = dict[str, Any]
Measure = Callable[[argparse.Namespace, Arena], Record]


# ---- the timed region


def _gate(config: argparse.Namespace, command: bytes) -> None:
    if config.control_fd < 0:
        return
    os.write(config.control_fd, command)
    ack = b""
    while len(ack) < 5:
        if not select.select([config.ack_fd], [], [], 5)[0]:
            unavailable("perf-failed", "perf did not acknowledge in 5 s")
        part = os.read(config.ack_fd, 5 - len(ack))
        if not part:
            unavailable("perf-failed", "perf closed its acknowledgement pipe")
        ack += part


class Fifo:
    """SCHED_FIFO, if asked for, while `with` lasts. Linux stops a process that ran under it for 95
    % of a second, so this one rests for an eighth of its time after half a second without a rest.
    """

    _used_ns, _left_ns = 0, 0  # without a rest; when this process last left it

    def __init__(self, config: argparse.Namespace) -> None:
        self._asked, self._begin = config.fifo, 0

    def __enter__(self) -> Fifo:
        if self._asked:
            Fifo._used_ns = max(0, Fifo._used_ns - 8 * (now_ns() - Fifo._left_ns))
            try:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            except OSError as error:
                unavailable("state-changed", f"SCHED_FIFO is refused: {error.strerror}")
            self._begin = now_ns()
        return self

    def __exit__(self, *_: object) -> None:
        if self._asked:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            Fifo._left_ns = now_ns()
            Fifo._used_ns += Fifo._left_ns - self._begin

    def rest_if_due(self) -> None:
        if self._asked and Fifo._used_ns + now_ns() - self._begin > 500_000_000:
            self.__exit__()
            time.sleep(Fifo._used_ns / 8e9)
            self.__enter__()


@dataclass(frozen=True)
class Work:
    """Accesses in rounds: `struct work` of region.h."""

    run: Callable[[int], int]  # makes so many rounds; a value that depends on every access
    due: Callable[[int], int]  # predicts it
    accesses: int  # a round
    warm: int = 0  # rounds to warm up; 0: 5 ms
    least: int = 0  # rounds to time at least

    def checked(self, rounds: int) -> int:
        due = self.due(rounds)
        begin = now_ns()
        got = self.run(rounds)
        took = now_ns() - begin
        if got != due:
            unavailable(
                "kernel-garbage",
                f"the accesses ended in {got:x} where {due:x} was due: not all were made",
            )
        return took

    def warmed(self, fifo: Fifo) -> float:
        """Warm up; return ns a round, of the least disturbed."""
        took, rounds, more, fastest = 0, 0, -(-self.warm // SLICES) or 1, math.inf
        while rounds < self.warm or (not self.warm and took < 5_000_000):
            ns = self.checked(more)
            took, rounds, fastest = took + ns, rounds + more, min(fastest, ns / more)
            more = min(more, self.warm - rounds) if self.warm else rounds
            fifo.rest_if_due()
        return fastest

    def planned(self, region_ns: float, round_ns: float) -> tuple[int, int]:
        """How many batches, and rounds in each."""
        rounds = max(region_ns / round_ns, self.least)
        batches = min(max(int(rounds), MIN_BATCHES), MOST_BATCHES)
        return batches, max(int(rounds / batches + 0.5), -(-self.least // batches), 1)


def _clock(config: argparse.Namespace) -> Callable[[], float]:
    """Return what reads the core's clock; a program in numpy is spared compiling it."""
    if config.engine == "numpy":
        return lambda: 0.0
    from kernels.twins.clock import core_ghz

    return core_ghz


def measure(config: argparse.Namespace, work: Work) -> Record:
    """Warm up, choose the batches, time them behind the gate and return the record's part. The
    lines were touched in ascending order just before: reading smaps in between would evict them and
    reorder their translations."""
    core_ghz = _clock(config)
    core_ghz()  # compiled, or loaded from numba's cache
    with Fifo(config) as fifo:
        batches, rounds = work.planned(config.region_ms * 1e6, work.warmed(fifo))
    ghz = [core_ghz() for _ in range(8)]
    took, cpus, accesses = [], [], rounds * work.accesses
    with Fifo(config) as fifo:
        work.checked(SETTLE if work.warm else 1)
        prepare_ns = now_ns() - config.started_ns
        _gate(config, b"enable\n")
        before, cpu_ns = resource.getrusage(resource.RUSAGE_SELF), time.process_time_ns()
        for _ in range(batches):
            took.append(work.checked(rounds))
            cpus.append(libc.sched_getcpu())
            fifo.rest_if_due()
        cpu_ns, after = time.process_time_ns() - cpu_ns, resource.getrusage(resource.RUSAGE_SELF)
        _gate(config, b"disable\n")
    ghz += [core_ghz() for _ in range(8)]
    tables = page_table_bytes()
    return {
        "accesses": accesses * batches,
        "elapsed_ns": float(sum(took)),
        "prepare_ns": float(prepare_ns),
        "ns_per_access": float(f"{statistics.median(took) / accesses:.9g}"),
        "batch_ns_per_access": [float(f"{ns / accesses:.6g}") for ns in took],
        "core_ghz": float(f"{statistics.median(ghz):.6g}"),
        "minor_faults": after.ru_minflt - before.ru_minflt,
        "major_faults": after.ru_majflt - before.ru_majflt,
        "voluntary_switches": after.ru_nvcsw - before.ru_nvcsw,
        "involuntary_switches": after.ru_nivcsw - before.ru_nivcsw,
        "migrations": sum(cpu != config.cpu for cpu in cpus),
        "cpu_ns": cpu_ns,
        "fifo": int(config.fifo),
        **({} if tables is None else {"page_table_bytes": tables}),
    }


def record(
    config: argparse.Namespace,
    arena: Arena,
    measured: Record,
    checksum: int,
    also: Mapping[str, float] = MappingProxyType({}),
    **more: Any,
) -> Record:
    """also: results of this kernel alone, unit in the name; more: fields of its own."""
    return {
        **{name: getattr(config, name) for name in ASKED},
        "backing": config.pages,
        "also": dict(also),
        "stride_bytes": arena.stride,
        "working_set_bytes": arena.working_set,
        "arena_bytes": arena.bytes,
        "mapping_bytes": arena.mapping_bytes,
        **measured,
        "position": 0,
        "checksum": f"{checksum:016x}",
        **more,
    }


# ---- a point


def start(config: argparse.Namespace) -> None:
    """Pin, and die with the parent (PR_SET_PDEATHSIG): a runner killed with -9 leaves no chase
    behind it."""
    libc.prctl(1, 9, 0, 0, 0)
    reader = select.poll()
    reader.register(1, 0)
    if any(event & select.POLLERR for _, event in reader.poll(0)):
        raise SystemExit(1)  # the parent died before: nobody is left to read the record
    config.cpus = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, {config.cpu})
    except OSError:
        bad_argument(f"CPU {config.cpu} is not one this process may use.")


def working_set(config: argparse.Namespace) -> int:
    return config.lines * (LINE if config.packed else base_page())


def in_its_own_arena(config: argparse.Namespace, measure_point: Measure) -> Record:
    """Measure a point in its own arena, proved before its lines are placed and after its region."""
    arena = map_arena(config.pages, working_set(config), config.cpus)
    try:
        verify_backing(arena)
        found = measure_point(config, arena)
        verify_backing(arena)
        return found
    finally:
        unmap(arena)


def compiled(config: argparse.Namespace, measure_point: Measure) -> None:
    """Compile or load all that a point runs, before its clock starts: by the same point over a few
    lines."""
    few = argparse.Namespace(**{name: FEW.get(name, value) for name, value in vars(config).items()})
    words = np.zeros(few.lines * LINE // 8, dtype=np.uint64)
    base, size, page = words.ctypes.data, words.nbytes, base_page()
    arena = Arena(few.pages, 0, base, size, page, size, page, size, (0, 0))
    measure_point(few, arena)


def measure_one(asked: Callable[[], argparse.Namespace], measure_point: Measure) -> None:
    """A kernel's main(): one point, in a process of its own."""
    with exiting():
        config = asked()
        start(config)
        compiled(config, measure_point)
        config.started_ns = now_ns()
        print(json.dumps(in_its_own_arena(config, measure_point)))
