"""The plan of kernels/plan.h for kernels in Python: the numba ones and the published numpy program.

It maps an arena, proves its pages by smaps, and times accesses as kernels/region.h does, whose
comments give the reasons for each step. It has no pages between the base page and THP, no layout
alias, no strides and no SCHED_FIFO. Lines are found by index, in 64-bit words.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import mmap
import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LINE_BYTES, GIB = 64, 1 << 30
MIN_BATCHES, MOST_BATCHES = 5, 16
SETTLING_ROUNDS = 256  # rounds after a long warm-up, which restore what reading the clock displaced
OFTEN = 100  # answers between two readings of smaps; of THP, which Linux may split, one
THP = Path("/sys/kernel/mm/transparent_hugepage")
POOLS = {"2m": 2 << 20, "1g": GIB}
# Of linux/mman.h; Python's mmap lacks them.
MAP_NORESERVE, MAP_HUGETLB, MAP_HUGE_SHIFT, MADV_POPULATE_WRITE = 0x4000, 0x40000, 26, 23
PR_SET_PDEATHSIG, SIGKILL = 1, 9


class Lacking(Exception):
    """Why there is no number: (reason code, detail)."""


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


class Arena:
    """Memory on pages of one size, which is requested before the first touch and proved by smaps.

    words: uint64, shape (bytes / 8,). An address is aligned to 1 GiB, but in a pool.
    """

    def __init__(self, pages: str, least_bytes: int) -> None:
        if pages not in ("4k", "thp", *POOLS):
            raise Lacking("engine-lacks", f"pages of {pages}")
        is_thp, is_pool, self.pages = pages == "thp", pages in POOLS, pages
        if is_thp and "[never]" in (THP / "enabled").read_text():
            raise Lacking("thp-never", "transparent_hugepage/enabled selects never")
        other = int((THP / "hpage_pmd_size").read_text()) if is_thp else mmap.PAGESIZE
        self.page_bytes = POOLS.get(pages, other)
        self.bytes = -(-least_bytes // self.page_bytes) * self.page_bytes
        flags, room, at = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, self.bytes, 0
        if is_pool:
            flags |= MAP_HUGETLB | (self.page_bytes.bit_length() - 1) << MAP_HUGE_SHIFT
        else:  # what is left on both sides separates the arena from its neighbours in smaps
            flags, room = flags | MAP_NORESERVE, room + 2 * GIB
        try:
            memory = mmap.mmap(-1, room, flags)
            if not is_pool:
                at = -(np.frombuffer(memory, np.uint8).ctypes.data + 1) % GIB + 1
                advice = mmap.MADV_HUGEPAGE if is_thp else mmap.MADV_NOHUGEPAGE
                memory.madvise(advice, at, self.bytes)
            memory.madvise(MADV_POPULATE_WRITE, at, self.bytes)
        except OSError as error:
            code = "pool-empty" if is_pool else "memory-short"
            needed = f"{self.bytes // self.page_bytes} pages of {pages} needed"
            raise Lacking(code, f"{needed}: {error.strerror}") from None
        self.words = np.frombuffer(memory, np.uint64, self.bytes // 8, at)
        self.words[:: mmap.PAGESIZE // 8] = 1  # each page is written, and not with zero

    def prove(self) -> None:
        """Raise Lacking unless all of the arena is resident on its page size."""
        begin, resident, on_thp, odd = self.words.ctypes.data, 0, 0, 0
        expected = POOLS.get(self.pages, mmap.PAGESIZE) >> 10
        for text in re.split(r"\n(?=\w+-\w+ )", Path("/proc/self/smaps").read_text()):
            low, high = (int(end, 16) for end in text.split(maxsplit=1)[0].split("-"))
            if low < begin + self.bytes and high > begin:
                kb = {name: int(number) for name, number in re.findall(r"(\w+): +(\d+) kB", text)}
                resident += kb.get("Rss", 0) + kb.get("Private_Hugetlb", 0)
                on_thp += kb.get("AnonHugePages", 0)
                odd += kb.get("KernelPageSize") != expected or "AnonHugePages" not in kb
        whole = self.bytes >> 10
        if odd or resident < whole or on_thp != (whole if self.pages == "thp" else 0):
            shown = f"{resident} kB resident, {on_thp} kB on THP, {odd} mappings of another size"
            raise Lacking("backing-partial", f"{whole} kB on {self.pages}; smaps shows {shown}")


@dataclass
class Point:
    """One line of a plan."""

    kernel: str
    layout: str
    order: str
    lines: int
    seed: int
    region_ms: int
    started_ns: int
    cpu: int
    page_bytes: int
    perf_fds: tuple[int, int] | None  # where to tell perf to count, and where it acknowledges

    @property
    def stride_bytes(self) -> int:
        return mmap.PAGESIZE

    @property
    def working_set_bytes(self) -> int:
        return self.lines * (LINE_BYTES if self.layout == "packed" else self.stride_bytes)

    def gate(self, command: bytes) -> None:
        if self.perf_fds:
            os.write(self.perf_fds[0], command)
            os.read(self.perf_fds[1], 5)


@dataclass
class TimedAccesses:
    """Accesses in rounds: `run` makes some and returns what `due` predicts."""

    run: Callable[[int], int]
    due: Callable[[int], int]
    accesses: int  # a round
    checksum: int  # of the lines visited, in their order
    warm: int = 0  # rounds to warm up; 0: 5 ms
    least: int = 0  # rounds to time at least
    taken_ns: int = 0  # by all rounds so far

    def timed_ns(self, rounds: int) -> int:
        due, begin = self.due(rounds), now_ns()
        got = self.run(rounds)
        took = now_ns() - begin
        self.taken_ns += took
        if got != due:
            raise Lacking("kernel-failed", f"the accesses ended in {got:x} where {due:x} was due")
        return took

    def warm_up(self) -> float:
        """Return ns a round, of the least disturbed piece."""
        took, rounds, piece, fastest = 0, 0, -(-self.warm // 8) or 1, math.inf
        while rounds < self.warm if self.warm else took < 5_000_000:
            piece = min(piece, self.warm - rounds) if self.warm else piece
            ns = self.timed_ns(piece)
            took, rounds, fastest = took + ns, rounds + piece, min(fastest, ns / piece)
            piece = piece if self.warm else rounds
        return fastest


# Places the lines of a point in the arena's words, and says how to access them.
Prepare = Callable[[Point, np.ndarray], TimedAccesses]


def measured(point: Point, work: TimedAccesses) -> dict[str, Any]:
    """Warm up, time batches of equal work behind perf's gate; return their part of the record."""
    rounds = max(point.region_ms * 1e6 / work.warm_up(), work.least)
    batches = min(max(int(rounds), MIN_BATCHES), MOST_BATCHES)
    rounds = max(int(rounds / batches + 0.5), -(-work.least // batches), 1)
    work.timed_ns(SETTLING_ROUNDS if work.warm else 1)
    prepare_ns, ns, usage = now_ns() - point.started_ns, [], resource.getrusage
    warm_ns = work.taken_ns
    point.gate(b"enable\n")
    before, cpu_ns = usage(resource.RUSAGE_SELF), time.process_time_ns()
    for _ in range(batches):
        ns.append(work.timed_ns(rounds))
    cpu_ns, after = time.process_time_ns() - cpu_ns, usage(resource.RUSAGE_SELF)
    point.gate(b"disable\n")
    each = [batch / rounds / work.accesses for batch in ns]
    return {
        "accesses": rounds * batches * work.accesses,
        "elapsed_ns": float(sum(ns)),
        "ns_per_access": float(f"{statistics.median(each):.9g}"),
        "batch_ns_per_access": [float(f"{one:.6g}") for one in each],
        "core_ghz": 0.0,
        "prepare_ns": float(prepare_ns),
        "warm_ns": float(warm_ns),
        "cpu_ns": float(cpu_ns),
        "fifo": 0,
        "minor_faults": after.ru_minflt - before.ru_minflt,
        "major_faults": after.ru_majflt - before.ru_majflt,
        "voluntary_switches": after.ru_nvcsw - before.ru_nvcsw,
        "involuntary_switches": after.ru_nivcsw - before.ru_nivcsw,
        "migrations": 0,  # it may run on one CPU only
        "checksum": f"{work.checksum:016x}",
        "also": {"warm_hops": float(work.warm * work.accesses)} if work.warm else {},
    }


class Session:
    """Points measured one after another, and how many of their answers are proved."""

    def __init__(self, engine: str, kernels: Mapping[str, Prepare]) -> None:
        parser = argparse.ArgumentParser(prog="plan", allow_abbrev=False)
        parser.add_argument("--pages", default="4k")
        parser.add_argument("--bytes", type=int, default=0)
        parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)))
        parser.add_argument("--perf-fds", type=lambda text: tuple(map(int, text.split(","))))
        parser.add_argument("--fifo", "--plan", action="store_true")
        self.given, self.engine, self.kernels = parser.parse_args(), engine, kernels
        self.answered = self.proved = 0
        self.shared: Arena | None = None

    def prove(self) -> None:
        if self.shared:
            self.shared.prove()
        self.proved = self.answered

    def point(self, words: list[str]) -> Point:
        if len(words) != 9 or words[1] not in self.kernels or words[2] != "-":
            raise Lacking("engine-lacks", f"{self.engine} does not measure {' '.join(words)[:100]}")
        _, kernel, _, layout, order, lines, stride, seed, region_ms = words
        if layout not in ("spread", "packed") or stride != "1":
            raise Lacking("engine-lacks", f"layout {layout}, stride_pages {stride}")
        perf_fds, cpu = self.given.perf_fds, self.given.cpu
        numbers = (int(lines), int(seed), int(region_ms), now_ns(), cpu)
        page_bytes = self.shared.page_bytes if self.shared else mmap.PAGESIZE
        return Point(kernel, layout, order, *numbers, page_bytes, perf_fds)

    def measure(self, point: Point) -> dict[str, Any]:
        """Measure in the shared arena, or in its own where that is too small."""
        arena = self.shared
        if not (is_shared := arena is not None and point.working_set_bytes <= arena.bytes):
            arena = Arena(self.given.pages, point.working_set_bytes)
            arena.prove()
        assert arena is not None
        point.page_bytes = arena.page_bytes
        size = -(-point.working_set_bytes // arena.page_bytes) * arena.page_bytes
        work = self.kernels[point.kernel](point, arena.words[: size // 8])
        found = measured(point, work)
        if not is_shared:
            arena.prove()
            self.proved += self.proved == self.answered
        pages = {"pages": arena.pages, "backing": arena.pages}
        asked = {name: getattr(point, name) for name in ("kernel", "layout", "order", "lines")}
        sizes = {"arena_bytes": size, "mapping_bytes": arena.bytes, "position": self.answered}
        sizes |= {name: getattr(point, name) for name in ("stride_bytes", "working_set_bytes")}
        known = {"engine": self.engine, "seed": point.seed, "cpu": point.cpu}
        return asked | known | pages | sizes | found

    def answer(self, words: list[str]) -> None:
        if self.answered - self.proved >= (1 if self.given.pages == "thp" else OFTEN):
            self.prove()
        try:
            found = self.measure(self.point(words))
        except Lacking as why:
            found = dict(zip(("reason", "detail"), why.args, strict=True))
            self.proved += self.proved == self.answered
        self.answered += 1
        say({"id": words[0] if words else "", **found, "proved": self.proved})

    def serve(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
        begin = now_ns()
        try:
            os.sched_setaffinity(0, {self.given.cpu})
        except OSError:
            raise Lacking("cpu-gone", f"CPU {self.given.cpu}") from None
        if self.given.bytes:
            self.shared = Arena(self.given.pages, self.given.bytes)
        populate_ns = now_ns() - begin
        self.prove()
        mapped = self.shared.bytes if self.shared else 0
        say({"mapped": mapped, "populate_ns": populate_ns, "proved": 0})
        for line in sys.stdin:
            self.answer(line.split())
        self.prove()
        say({"end": self.answered, "proved": self.proved})


def say(fields: Mapping[str, object]) -> None:
    print(json.dumps(fields), flush=True)


def measure_plan_from_stdin(engine: str, kernels: Mapping[str, Prepare]) -> None:
    """Answer the plan on stdin. Exit 3 with a reason on stderr for what the machine lacks."""
    try:
        Session(engine, kernels).serve()
    except Lacking as why:
        print(json.dumps(dict(zip(("reason", "detail"), why.args, strict=True))), file=sys.stderr)
        sys.exit(3)
