"""The memory that a numba kernel measures: kernels/arena.h, which gives the reasons, in numpy's
terms."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kernels.twins.arguments import PAGES, NoNumber, unavailable

GIB, MIB = 1 << 30, 1 << 20
MAP_NORESERVE, MAP_FIXED, MAP_HUGETLB, MAP_HUGE_SHIFT = 0x4000, 0x10, 0x40000, 26
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_POPULATE_WRITE = 14, 15, 16, 23
PR_GET_THP_DISABLE, SET_MEMPOLICY = 42, 237 if os.uname().machine == "aarch64" else 238
CHUNK = 1 << 19  # bytes that take as long to fault in as a thread to start
THP = Path("/sys/kernel/mm/transparent_hugepage")
GONE = "; the pool was emptied meanwhile, or the cgroup's hugetlb limit"

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class Arena:
    """A mapping, or its first bytes."""

    pages: str
    room: int  # the reserved addresses' beginning; `base` is the first whole GiB
    base: int
    bytes: int
    stride: int
    working_set: int
    page: int
    mapping_bytes: int
    mthp_before: tuple[
        int, int
    ]  # pages of this size allocated, fallen back, before the first touch

    def words(self) -> np.ndarray:
        """The arena as uint64 words, shape (bytes / 8,)."""
        return np.ctypeslib.as_array((ctypes.c_uint64 * (self.bytes // 8)).from_address(self.base))

    def first(self, working_set: int) -> Arena:
        """The mapping's first pages, as many as these bytes take."""
        return replace(
            self, working_set=working_set, bytes=-(-working_set // self.page) * self.page
        )


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


def _mthp_faults(page: int) -> tuple[int, int]:
    stats = THP / f"hugepages-{page >> 10}kB/stats"
    return _number(stats / "anon_fault_alloc", 0), _number(stats / "anon_fault_fallback", 0)


def base_page() -> int:
    return mmap.PAGESIZE


def page_bytes(pages: str) -> int:
    source, size = PAGES[pages]
    return (
        base_page()
        if source == "base"
        else _number(THP / "hpage_pmd_size", size)
        if source == "thp"
        else size
    )


def advise(base: int, size: int, advice: int) -> int:
    """0, or the errno."""
    return ctypes.get_errno() if libc.madvise(base, size, advice) else 0


def _mthp_on(kib: int) -> bool:
    own = THP / f"hugepages-{kib}kB/enabled"
    return _selects(THP / "enabled" if _selects(own, "inherit") else own, "always", "madvise")


def _thp_is_off(page: int) -> bool:
    """Since Linux 6.8 each size has its own setting, THP included."""
    has_own = (THP / f"hugepages-{page >> 10}kB/enabled").exists()
    off = not _mthp_on(page >> 10) if has_own else _selects(THP / "enabled", "never")
    return off or libc.prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1


def _ask_for_mthp(base: int, size: int, page: int) -> None:
    kib = page >> 10
    if not (THP / f"hugepages-{kib}kB/enabled").exists():
        unavailable("page-size-unsupported", f"this kernel has no transparent pages of {kib} kB")
    if not _mthp_on(kib):
        unavailable("mthp-off", f"hugepages-{kib}kB/enabled selects neither always nor madvise")
    if error := advise(base, size, MADV_HUGEPAGE):
        unavailable("mthp-off", f"madvise: {os.strerror(error)}")
    piece = page
    while piece < MIB and not _mthp_on(2 * piece >> 10):
        piece *= 2
    for at in range(0, size, 2 * piece):
        if error := advise(base + at, min(piece, size - at), MADV_DONTDUMP):
            unavailable(
                "memory-short", f"too many mappings for {kib} kB pages: {os.strerror(error)}"
            )


def _reserve(size: int) -> int:
    """Return where addresses begin that have room for so many bytes from a whole GiB on, and for a
    base page on both sides of them.

    That page stays without memory. A thread's stack right beside the arena would be joined with it
    into one mapping: both are VM_NOHUGEPAGE on base pages, since Linux 6.7 made stacks so. smaps
    would then state the stack's pages as the arena's.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    room = libc.mmap(None, size + base_page() + GIB, 0, flags, -1, 0) if size < 1 << 62 else FAILED
    if room == FAILED:
        unavailable("memory-short", f"no address space for {size} bytes")
    return room


def _from_pool(base: int, size: int, pages: str, page: int) -> None:
    folder = Path(f"/sys/kernel/mm/hugepages/hugepages-{page >> 10}kB")
    if _number(folder / "free_hugepages", -1) < 0:
        unavailable("page-size-unsupported", f"the kernel has no pool of {pages} pages")
    flags = (
        mmap.MAP_PRIVATE
        | mmap.MAP_ANONYMOUS
        | MAP_FIXED
        | MAP_HUGETLB
        | (page.bit_length() - 1) << MAP_HUGE_SHIFT
    )
    if libc.mmap(base, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == FAILED:
        why = os.strerror(ctypes.get_errno())
        left = max(0, _number(folder / "free_hugepages", 0) - _number(folder / "resv_hugepages", 0))
        gone = GONE if left >= size // page else ""
        unavailable(
            "pool-empty", f"{size // page} pages of {pages} needed, {left} free: {why}{gone}"
        )


def _ask(base: int, size: int, pages: str, page: int) -> None:
    source, _ = PAGES[pages]
    if source == "pool":
        _from_pool(base, size, pages, page)
        return
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
    if libc.mmap(base, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == FAILED:
        unavailable("memory-short", f"{size} bytes could not be mapped")
    if source == "mthp":
        _ask_for_mthp(base, size, page)
    elif source == "thp" and (_thp_is_off(page) or advise(base, size, MADV_HUGEPAGE)):
        unavailable("thp-never", "the kernel refuses MADV_HUGEPAGE")
    elif source == "base":
        advise(base, size, MADV_NOHUGEPAGE)


def stay_on_this_node() -> None:
    cpu, node = ctypes.c_uint(), ctypes.c_uint()
    if not libc.getcpu(ctypes.byref(cpu), ctypes.byref(node)) and node.value < 64:
        libc.syscall(
            SET_MEMPOLICY, 1, ctypes.byref(ctypes.c_ulong(1 << node.value)), ctypes.c_ulong(64)
        )


def _populate(base: int, size: int, pages: str, page: int, cpus: list[int]) -> None:
    """Fault the memory in by a thread on each CPU."""
    chunk = max(page, CHUNK)
    chunks = -(-size // chunk)
    threads = min(len(cpus), chunks)

    def part(i: int) -> int:
        os.sched_setaffinity(0, {cpus[i]})
        begin, end = (min(chunks * k // threads * chunk, size) for k in (i, i + 1))
        return advise(base + begin, end - begin, MADV_POPULATE_WRITE)

    stay_on_this_node()
    with ThreadPoolExecutor(threads) as pool:
        error = max(pool.map(part, range(threads)))
    if error == errno.EINVAL:  # a kernel before 5.14
        ctypes.memset(base, 1, size)
    elif error:
        pool = PAGES[pages][0] == "pool"
        unavailable(
            "pool-empty" if pool else "memory-short",
            f"{size} bytes could not be faulted in: {os.strerror(error)}{GONE if pool else ''}",
        )


def map_arena(pages: str, working_set: int, cpus: list[int]) -> Arena:
    """Map, advise and fault in `working_set` bytes on `pages`, aligned to 1 GiB, by two of the
    CPUs."""
    page = page_bytes(pages)
    size = -(-working_set // page) * page
    room = _reserve(size)
    base = -(-(room + base_page()) // GIB) * GIB
    arena = Arena(pages, room, base, size, base_page(), working_set, page, size, _mthp_faults(page))
    try:
        _ask(base, size, pages, page)
        _populate(base, size, pages, page, cpus[-2:])
    except NoNumber:
        unmap(arena)
        raise
    return arena


def unmap(arena: Arena) -> None:
    libc.munmap(arena.room, arena.mapping_bytes + base_page() + GIB)


def verify_backing(arena: Arena) -> None:
    """Raise unless every byte of the mapping is on the page size asked for, by /proc/self/smaps."""
    thp_kb = mapped_kb = odd = 0
    lacking: set[str] = set()  # fields without which a mapping proves nothing
    inside = False
    source, size, page = PAGES[arena.pages][0], arena.mapping_bytes, arena.page
    expected = page if source == "pool" else arena.stride
    with open("/proc/self/smaps", errors="replace") as smaps:
        for line in smaps:
            if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                odd += bool(lacking)
                inside = int(span[1], 16) < arena.base + size and int(span[2], 16) > arena.base
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
    whole = size >> 10
    if odd or mapped_kb < whole or thp_kb != (whole if source == "thp" else 0):
        unavailable(
            "backing-partial",
            f"asked for {whole} kB on {arena.pages}; smaps shows {mapped_kb} kB resident, "
            f"{thp_kb} kB on THP, {odd} mappings of another size or none",
        )
    if source == "mthp":
        got, fell_back = (
            after - before
            for after, before in zip(_mthp_faults(page), arena.mthp_before, strict=True)
        )
        if got < size // page or fell_back:
            unavailable(
                "backing-partial",
                f"{got} of {size // page} pages of {arena.pages} allocated, {fell_back} fell back",
            )


def page_table_bytes() -> int | None:
    """This process's page tables, if /proc states them."""
    try:
        stated = re.search(
            r"^VmPTE:\s*(\d{1,12}) kB$",
            Path("/proc/self/status").read_text(errors="replace"),
            re.MULTILINE,
        )
    except OSError:
        return None
    return int(stated[1]) << 10 if stated else None


def largest_cache_bytes(cpu: int) -> int:
    """A CPU's largest cache by sysfs; 0 if unknown."""
    sizes = Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*/size")
    found = (re.match(r"(\d{1,9})K", size.read_text()) for size in sizes)
    return max((int(one[1]) << 10 for one in found if one), default=0)
