"""What every numba kernel shares: the contract of harness.h, for machines without a C compiler.

Same arguments, same placement, same random numbers, same record, same exit codes; equal seeds give equal checksums.
Reasons for constants and for the order of steps stand in harness.h and are not repeated here.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import re
import resource
import select
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import numpy as np
from llvmlite import binding, ir
from numba import njit, types, uint64
from numba.extending import intrinsic

LINE, GIB, MIB = 64, 1 << 30, 1 << 20
UINT64 = (1 << 64) - 1
MIN_BATCHES, MAX_BATCHES = 5, 16
MAP_NORESERVE, MAP_FIXED, MAP_HUGETLB, MAP_HUGE_SHIFT = 0x4000, 0x10, 0x40000, 26
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_POPULATE_WRITE = 14, 15, 16, 23
PR_GET_THP_DISABLE = 42
THP = Path("/sys/kernel/mm/transparent_hugepage")
GONE = "; the pool was emptied meanwhile, or the cgroup's hugetlb limit"

binding.initialize_native_asmparser()  # numba does not, and sixteen_additions() is assembly

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def unavailable(reason: str, detail: str) -> NoReturn:
    """The machine lacks something: one JSON object on stderr, exit 3."""
    print(json.dumps({"reason": reason, "detail": detail}), file=sys.stderr)
    raise SystemExit(3)


def bad_argument(sentence: str) -> NoReturn:
    """One sentence on stderr, exit 2."""
    print(sentence, file=sys.stderr)
    raise SystemExit(2)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        bad_argument(message)  # argparse would print the usage too


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def parse_arguments(kernel: str, orders: list[str], layouts: Sequence[str] = ("spread", "packed"), modes: Sequence[str] = (),
                    own: Mapping[str, tuple[int, int, int]] = MappingProxyType({})) -> argparse.Namespace:
    """own: the numbers that one kernel alone takes, name -> (default, least, most). The first of orders, layouts, modes is the default."""

    def natural(least: int, most: int) -> Callable[[str], int]:
        def convert(text: str) -> int:
            if not re.fullmatch(r"\d{1,20}", text) or not least <= int(text) <= most:
                raise argparse.ArgumentTypeError(f"takes a whole number from {least} to {most}, not '{text}'.")
            return int(text)

        return convert

    parser = _Parser(prog=kernel, allow_abbrev=False)
    parser.add_argument("--pages", default="4k", choices=["4k", "64k", "thp", "2m", "1g"])
    parser.add_argument("--layout", default=layouts[0], choices=layouts)
    parser.add_argument("--order", default=orders[0], choices=orders)
    parser.add_argument("--lines", default=4096, type=natural(1, 1 << 32))
    parser.add_argument("--seed", default=1, type=natural(0, (1 << 63) - 1))
    parser.add_argument("--cpu", default=max(os.sched_getaffinity(0)), type=natural(0, 1 << 20))
    parser.add_argument("--region-ms", default=60, type=natural(1, 60_000))
    parser.add_argument("--perf-fds", default="-1,-1")
    if modes:
        parser.add_argument("--mode", default=modes[0], choices=modes)
    for name, (_, least, most) in own.items():
        parser.add_argument(f"--{name}", type=natural(least, most))
    config = parser.parse_args()
    config.mode = config.mode if modes else ""
    config.options = [[name, getattr(config, name)] for name in own if getattr(config, name) is not None]
    for name, (default, _, _) in own.items():
        if getattr(config, name) is None:
            setattr(config, name, default)
    if not re.fullmatch(r"-?\d+,-?\d+", config.perf_fds):
        parser.error("--perf-fds takes two file descriptors, CONTROL,ACK.")
    if config.cpu not in os.sched_getaffinity(0):
        parser.error(f"CPU {config.cpu} is not one this process may use.")
    config.control_fd, config.ack_fd = (int(fd) for fd in config.perf_fds.split(","))
    config.kernel, config.packed = kernel, config.layout == "packed"
    return config


# ---- memory


@dataclass(frozen=True)
class Arena:
    base: int
    bytes: int
    stride: int
    working_set: int
    mthp_before: tuple[int, int]  # 64 kB pages allocated, fallen back, before the first touch

    def words(self) -> np.ndarray:
        """The arena as uint64 words, shape (bytes / 8,)."""
        return np.ctypeslib.as_array((ctypes.c_uint64 * (self.bytes // 8)).from_address(self.base))


def _number(path: Path, if_absent: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return if_absent


def _selects(path: Path, *words: str) -> bool:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return False
    return any(f"[{word}]" in text for word in words)


def _mthp_faults() -> tuple[int, int]:
    stats = THP / "hugepages-64kB/stats"
    return _number(stats / "anon_fault_alloc", 0), _number(stats / "anon_fault_fallback", 0)


def _page_bytes(pages: str, base_page: int) -> int:
    by_name = {"64k": 64 << 10, "thp": _number(THP / "hpage_pmd_size", 2 * MIB), "2m": 2 * MIB, "1g": GIB}
    return by_name.get(pages, base_page)


def _advise(base: int, size: int, advice: int) -> int:
    """0, or the errno."""
    return ctypes.get_errno() if libc.madvise(base, size, advice) else 0


def _mthp_on(kib: int) -> bool:
    """"inherit" means what the setting for all sizes says."""
    own = THP / f"hugepages-{kib}kB/enabled"
    return _selects(THP / "enabled" if _selects(own, "inherit") else own, "always", "madvise")


def _ask_for_64k(base: int, size: int) -> None:
    if not (THP / "hugepages-64kB/enabled").exists():
        unavailable("page-size-unsupported", "this kernel has no transparent pages of 64 kB")
    for between in (128, 256, 512, 1024):
        if _mthp_on(between):
            unavailable("mthp-off", f"hugepages-{between}kB is enabled too and would be taken first")
    if not _mthp_on(64):
        unavailable("mthp-off", "hugepages-64kB/enabled selects neither always nor madvise")
    if error := _advise(base, size, MADV_HUGEPAGE):
        unavailable("mthp-off", f"madvise: {os.strerror(error)}")
    for at in range(0, size, 2 * MIB):
        if error := _advise(base + at, min(MIB, size - at), MADV_DONTDUMP):
            unavailable("memory-short", f"too many mappings for 64 kB pages: {os.strerror(error)}")


def map_arena(config: argparse.Namespace, fault_in: Callable[[int, int, int], int] = _advise) -> Arena:
    """Map, advise and fault in room for `config.lines` lines on `config.pages`, at a virtual base aligned to 1 GiB.

    fault_in: called with base, bytes and MADV_POPULATE_WRITE; returns 0 or the errno.
    """
    stride = mmap.PAGESIZE
    if config.pages == "4k" and stride != 4096:
        unavailable("page-size-unsupported", f"the base page here is {stride} bytes")
    working_set = config.lines * (LINE if config.packed else stride)
    page = _page_bytes(config.pages, stride)
    size = -(-working_set // page) * page
    failed = ctypes.c_void_p(-1).value
    room = libc.mmap(None, size + GIB, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if room == failed:
        unavailable("memory-short", f"no address space for {size} bytes")
    base = -(-room // GIB) * GIB
    huge = {"2m": MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, "1g": MAP_HUGETLB | 30 << MAP_HUGE_SHIFT}.get(config.pages, 0)
    pool = _number(Path(f"/sys/kernel/mm/hugepages/hugepages-{page >> 10}kB/free_hugepages"), -1) if huge else 0
    if pool < 0:
        unavailable("page-size-unsupported", f"the kernel has no pool of {config.pages} pages")
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED | huge
    if libc.mmap(base, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == failed:
        if huge:
            why = os.strerror(ctypes.get_errno())
            folder = Path(f"/sys/kernel/mm/hugepages/hugepages-{page >> 10}kB")
            left = max(0, _number(folder / "free_hugepages", 0) - _number(folder / "resv_hugepages", 0))
            gone = GONE if left >= size // page else ""
            unavailable("pool-empty", f"{size // page} pages of {config.pages} needed, {left} free: {why}{gone}")
        unavailable("memory-short", f"{size} bytes could not be mapped")
    if config.pages == "64k":
        _ask_for_64k(base, size)
    elif config.pages == "thp" and (libc.prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 or _selects(THP / "enabled", "never")
                                    or _advise(base, size, MADV_HUGEPAGE)):
        unavailable("thp-never", "the kernel refuses MADV_HUGEPAGE")
    elif config.pages == "4k":
        _advise(base, size, MADV_NOHUGEPAGE)
    arena = Arena(base, size, stride, working_set, _mthp_faults())
    if error := fault_in(base, size, MADV_POPULATE_WRITE):
        if error != 22:  # EINVAL: a kernel before 5.14
            reason = "pool-empty" if huge else "memory-short"
            unavailable(reason, f"{size} bytes could not be faulted in: {os.strerror(error)}{GONE if huge else ''}")
        arena.words()[:: stride // 8] = 1
    return arena


def verify_backing(config: argparse.Namespace, arena: Arena) -> None:
    """Every byte of the arena on the page size asked for, by /proc/self/smaps, or exit 3."""
    thp_kb = mapped_kb = odd = 0
    lacking: set[str] = set()  # what the mapping has not stated yet; without it, it proves nothing
    inside = False
    expected = arena.stride if config.pages in ("thp", "64k") else _page_bytes(config.pages, arena.stride)
    with open("/proc/self/smaps", errors="replace") as smaps:
        for line in smaps:
            if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                odd += bool(lacking)
                inside = int(span[1], 16) < arena.base + arena.bytes and int(span[2], 16) > arena.base
                lacking = {"KernelPageSize", "AnonHugePages"} if inside else set()
            elif inside and (field := re.match(r"(\w+): *([0-9]{1,15}) kB$", line)):
                name, kb = field[1], int(field[2])
                lacking.discard(name)
                if name in ("Rss", "Private_Hugetlb", "Shared_Hugetlb"):
                    mapped_kb += kb
                elif name == "KernelPageSize":
                    odd += kb != expected >> 10
                elif name in ("AnonHugePages", "ShmemPmdMapped"):
                    thp_kb += kb
    odd += bool(lacking)
    whole = arena.bytes >> 10
    if odd or mapped_kb < whole or thp_kb != (whole if config.pages == "thp" else 0):
        unavailable("backing-partial", f"asked for {whole} kB on {config.pages}; smaps shows {mapped_kb} kB resident, "
                    f"{thp_kb} kB on THP, {odd} mappings of another size or none")
    if config.pages == "64k":
        got, fell_back = (after - before for after, before in zip(_mthp_faults(), arena.mthp_before, strict=True))
        if got < arena.bytes >> 16 or fell_back:
            unavailable("backing-partial", f"{got} of {arena.bytes >> 16} 64 kB pages allocated, {fell_back} fell back")


# ---- numbers


@njit(inline="always")
def next_random(state, below):
    """splitmix64 as in harness.h: (new state, a number in [0, below))."""
    state = uint64(state + uint64(0x9E3779B97F4A7C15))
    z = state
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return state, ((z ^ (z >> uint64(31))) >> uint64(32)) * uint64(below) >> uint64(32)


@njit(inline="always")
def mix(checksum, line):
    return uint64((checksum ^ uint64(line)) * uint64(0x100000001B3))


@njit(inline="always")
def line_offset(line, packed, stride):
    """Byte offset of a line in the arena; the placement is explained in harness.h."""
    line = uint64(line)
    turned = line + ((line >> uint64(6)) * uint64(0x9E3779B97F4A7C15) >> uint64(58))
    return line * uint64(64) if packed else line * uint64(stride) + turned % uint64(64) * uint64(64)


@intrinsic
def load(typing, address):
    """The uint64 at an address: a plain load, so that a chase in numba is the same instruction as in C."""

    def emit(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.uint64(types.uint64), emit


@intrinsic
def sixteen_additions(typing, a, b):
    """a + 16 b by 16 dependent register additions, which no compiler may fold."""

    def emit(context, builder, signature, args):
        word = ir.IntType(64)
        one = "add $0, $0, $2" if os.uname().machine == "aarch64" else "addq $2, $0"
        kind = ir.FunctionType(word, [word, word])
        return builder.call(ir.InlineAsm(kind, "\n".join([one] * 16), "=r,0,r", side_effect=True), args)

    return types.uint64(types.uint64, types.uint64), emit


@njit(cache=True)
def _additions(times):
    a, b = uint64(1), uint64(3)
    for _ in range(times):
        a = sixteen_additions(a, b)
    return a


def core_ghz() -> float:
    """Core clock in GHz, from dependent one-cycle additions; one call's overhead (under 1 us in 50) makes it a lower bound."""
    begin = now_ns()
    _additions(62_500)  # 1e6 additions, a few hundred microseconds
    return 1e6 / (now_ns() - begin)


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


def _must_be(got: int, expected: int) -> None:
    if got != expected:
        unavailable("kernel-garbage", f"the accesses ended in {got:x} where {expected:x} was due: not all were made")


def measure(config: argparse.Namespace, arena: Arena, started_ns: int, work: Callable[[int], int],
            accesses_a_round: int, expected: int, checksum: int, also: Mapping[str, float] = MappingProxyType({})) -> None:
    """Warm up by whole rounds, choose the batches, time them behind the gate, verify again, print the record.

    also: what this kernel alone measures, with its unit in the name.
    """
    core_ghz()  # compiled, or loaded from numba's cache
    begin, rounds, took = now_ns(), 0, 0
    while took < 5_000_000:
        more = max(rounds, 1)
        _must_be(work(more), expected)
        rounds += more
        took = now_ns() - begin
    round_ns = took / rounds
    verify_backing(config, arena)
    ghz = [core_ghz() for _ in range(8)]
    prepare_ns = now_ns() - started_ns
    region_ns = max(prepare_ns, config.region_ms * 1e6)
    batches = min(max(int(region_ns / round_ns), MIN_BATCHES), MAX_BATCHES)
    rounds_a_batch = max(int(region_ns / round_ns / batches + 0.5), 1)
    _must_be(work(1), expected)
    elapsed, cpus = [], []
    _gate(config, b"enable\n")
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(batches):
        t0 = now_ns()
        end = work(rounds_a_batch)
        elapsed.append(now_ns() - t0)
        _must_be(end, expected)
        cpus.append(libc.sched_getcpu())
    after = resource.getrusage(resource.RUSAGE_SELF)
    _gate(config, b"disable\n")
    ghz += [core_ghz() for _ in range(8)]
    verify_backing(config, arena)
    accesses_a_batch = rounds_a_batch * accesses_a_round
    batch_ns = [ns / accesses_a_batch for ns in elapsed]
    print(json.dumps({
        "kernel": config.kernel, "engine": "numba", "pages": config.pages, "backing": config.pages,
        "layout": config.layout, "order": config.order, "lines": config.lines, "mode": config.mode,
        "options": config.options, "also": dict(also), "stride_bytes": arena.stride,
        "working_set_bytes": arena.working_set, "arena_bytes": arena.bytes, "seed": config.seed, "cpu": config.cpu,
        "accesses": accesses_a_batch * batches, "elapsed_ns": float(sum(elapsed)),
        "ns_per_access": float(f"{statistics.median(batch_ns):.9g}"),
        "batch_ns_per_access": [float(f"{ns:.6g}") for ns in batch_ns],
        "core_ghz": float(f"{statistics.median(ghz):.6g}"), "prepare_ns": float(prepare_ns),
        "minor_faults": after.ru_minflt - before.ru_minflt, "major_faults": after.ru_majflt - before.ru_majflt,
        "voluntary_switches": after.ru_nvcsw - before.ru_nvcsw,
        "involuntary_switches": after.ru_nivcsw - before.ru_nivcsw,
        "migrations": sum(cpu != config.cpu for cpu in cpus), "checksum": f"{checksum:016x}",
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
