"""The timed region of a numba kernel, and the record of it: kernels/region.h, which gives the reasons."""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kernels.twins.arena import Arena, libc, page_table_bytes, verify_backing
from kernels.twins.arguments import bad_argument, now_ns, unavailable

MIN_BATCHES, MOST_BATCHES, SETTLE = 5, 16, 256


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


def must_be(got: int, expected: int) -> None:
    if got != expected:
        unavailable("kernel-garbage", f"the accesses ended in {got:x} where {expected:x} was due: not all were made")


@dataclass(frozen=True)
class Work:
    """Accesses in rounds: `struct work` of region.h."""

    run: Callable[[int], int]  # so many rounds from where the kernel stands: what depends on every access of them
    due: Callable[[int], int]  # what that will be, asked beforehand
    accesses: int  # a round
    warm: int = 0  # rounds to warm up by, no more and no less; 0 for 5 ms of them
    least: int = 0  # rounds to be timed at the least

    def checked(self, rounds: int) -> int:
        """So many rounds, in ns."""
        due = self.due(rounds)
        begin = now_ns()
        got = self.run(rounds)
        took = now_ns() - begin
        must_be(got, due)
        return took

    def warmed(self) -> float:
        """Warm up; ns a round."""
        took, rounds, more = 0, 0, self.warm or 1
        while not rounds or (not self.warm and took < 5_000_000):
            took += self.checked(more)
            rounds += more
            more = rounds
        return took / rounds

    def planned(self, region_ns: float, round_ns: float) -> tuple[int, int]:
        """How many batches, and rounds in each."""
        rounds = max(region_ns / round_ns, self.least)
        batches = min(max(int(rounds), MIN_BATCHES), MOST_BATCHES)
        return batches, max(int(rounds / batches + 0.5), -(-self.least // batches), 1)


@dataclass(frozen=True)
class Region:
    """What was timed."""

    batch_ns: list[int]
    accesses_a_batch: int
    ghz: list[float]
    prepare_ns: int
    table_bytes: int | None
    before: resource.struct_rusage
    after: resource.struct_rusage
    migrations: int


def _clock(config: argparse.Namespace) -> Callable[[], float]:
    """What reads the core's clock. A program in numpy has none, and is spared the second that numba takes to load."""
    if config.engine == "numpy":
        return lambda: 0.0
    from kernels.twins.clock import core_ghz

    return core_ghz


def measure(config: argparse.Namespace, arena: Arena, started_ns: int, work: Work) -> Region:
    """Warm up, choose the batches, time them behind the gate, and see before and after that the pages are those asked for."""
    core_ghz = _clock(config)
    core_ghz()  # compiled, or loaded from numba's cache
    batches, rounds = work.planned(config.region_ms * 1e6, work.warmed())
    verify_backing(config, arena)
    ghz = [core_ghz() for _ in range(8)]
    work.checked(SETTLE if work.warm else 1)
    prepare_ns, table_bytes = now_ns() - started_ns, page_table_bytes()
    took, cpus = [], []
    _gate(config, b"enable\n")
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(batches):
        took.append(work.checked(rounds))
        cpus.append(libc.sched_getcpu())
    after = resource.getrusage(resource.RUSAGE_SELF)
    _gate(config, b"disable\n")
    ghz += [core_ghz() for _ in range(8)]
    verify_backing(config, arena)
    return Region(took, rounds * work.accesses, ghz, prepare_ns, table_bytes, before, after, sum(cpu != config.cpu for cpu in cpus))


def report(config: argparse.Namespace, arena: Arena, region: Region, checksum: int, also: Mapping[str, float] = MappingProxyType({}),
           **more: Any) -> None:
    """Print the record. also: what this kernel alone measures, with its unit in the name; more: fields of its own."""
    batch_ns = [ns / region.accesses_a_batch for ns in region.batch_ns]
    before, after = region.before, region.after
    tables = {} if region.table_bytes is None else {"page_table_bytes": region.table_bytes}
    print(json.dumps({
        "kernel": config.kernel, "engine": config.engine, "pages": config.pages, "backing": config.pages,
        "layout": config.layout, "order": config.order, "lines": config.lines, "mode": config.mode,
        "options": config.options, "also": dict(also), "stride_bytes": arena.stride,
        "working_set_bytes": arena.working_set, "arena_bytes": arena.bytes, **tables, "seed": config.seed, "cpu": config.cpu,
        "accesses": region.accesses_a_batch * len(batch_ns), "elapsed_ns": float(sum(region.batch_ns)),
        "ns_per_access": float(f"{statistics.median(batch_ns):.9g}"),
        "batch_ns_per_access": [float(f"{ns:.6g}") for ns in batch_ns],
        "core_ghz": float(f"{statistics.median(region.ghz):.6g}"), "prepare_ns": float(region.prepare_ns),
        "minor_faults": after.ru_minflt - before.ru_minflt, "major_faults": after.ru_majflt - before.ru_majflt,
        "voluntary_switches": after.ru_nvcsw - before.ru_nvcsw,
        "involuntary_switches": after.ru_nivcsw - before.ru_nivcsw,
        "migrations": region.migrations, "checksum": f"{checksum:016x}", **more,
    }))


def start(config: argparse.Namespace) -> None:
    """Pin, and die with the parent (PR_SET_PDEATHSIG): a runner killed with -9 leaves no chase behind it."""
    libc.prctl(1, 9, 0, 0, 0)
    reader = select.poll()
    reader.register(1, 0)
    if any(event & select.POLLERR for _, event in reader.poll(0)):
        raise SystemExit(1)  # the parent died before: nobody is left to read the record
    try:
        os.sched_setaffinity(0, {config.cpu})
    except OSError:
        bad_argument(f"CPU {config.cpu} is not one this process may use.")
