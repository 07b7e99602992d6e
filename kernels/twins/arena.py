"""The memory that a numba kernel measures: kernels/arena.h, which gives the reasons, in numpy's terms."""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels.twins.arguments import LINE, PAGES, unavailable

GIB, MIB = 1 << 30, 1 << 20
MAP_NORESERVE, MAP_FIXED, MAP_HUGETLB, MAP_HUGE_SHIFT = 0x4000, 0x10, 0x40000, 26
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_POPULATE_WRITE = 14, 15, 16, 23
PR_GET_THP_DISABLE = 42
THP = Path("/sys/kernel/mm/transparent_hugepage")
GONE = "; the pool was emptied meanwhile, or the cgroup's hugetlb limit"

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class Arena:
    base: int
    bytes: int
    stride: int
    working_set: int
    page: int
    mthp_before: tuple[int, int]  # pages of this size allocated, fallen back, before the first touch

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


def _mthp_faults(page: int) -> tuple[int, int]:
    stats = THP / f"hugepages-{page >> 10}kB/stats"
    return _number(stats / "anon_fault_alloc", 0), _number(stats / "anon_fault_fallback", 0)


def base_page() -> int:
    return mmap.PAGESIZE


def page_bytes(pages: str) -> int:
    """Of one page of this name."""
    source, size = PAGES[pages]
    return base_page() if source == "base" else _number(THP / "hpage_pmd_size", size) if source == "thp" else size


def advise(base: int, size: int, advice: int) -> int:
    """0, or the errno."""
    return ctypes.get_errno() if libc.madvise(base, size, advice) else 0


def _mthp_on(kib: int) -> bool:
    """"inherit" means what the setting for all sizes says."""
    own = THP / f"hugepages-{kib}kB/enabled"
    return _selects(THP / "enabled" if _selects(own, "inherit") else own, "always", "madvise")


def _thp_is_off(page: int) -> bool:
    """Since Linux 6.8 each size has a setting of its own, THP's too; before, one was for all."""
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
            unavailable("memory-short", f"too many mappings for {kib} kB pages: {os.strerror(error)}")


def _reserve(size: int) -> int:
    """Addresses for so many bytes, from a whole GiB on."""
    room = libc.mmap(None, size + GIB, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) if size < 1 << 62 else FAILED
    if room == FAILED:
        unavailable("memory-short", f"no address space for {size} bytes")
    return -(-room // GIB) * GIB


def _from_pool(base: int, size: int, pages: str, page: int) -> None:
    folder = Path(f"/sys/kernel/mm/hugepages/hugepages-{page >> 10}kB")
    if _number(folder / "free_hugepages", -1) < 0:
        unavailable("page-size-unsupported", f"the kernel has no pool of {pages} pages")
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB | (page.bit_length() - 1) << MAP_HUGE_SHIFT
    if libc.mmap(base, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == FAILED:
        why = os.strerror(ctypes.get_errno())
        left = max(0, _number(folder / "free_hugepages", 0) - _number(folder / "resv_hugepages", 0))
        gone = GONE if left >= size // page else ""
        unavailable("pool-empty", f"{size // page} pages of {pages} needed, {left} free: {why}{gone}")


def _ask(base: int, size: int, pages: str, page: int) -> None:
    """Memory on the page size asked for, both ways, before the first touch."""
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


def map_arena(config: argparse.Namespace, fault_in: Callable[[int, int, int], int] = advise) -> Arena:
    """Map, advise and fault in room for `config.lines` lines on `config.pages`, at a virtual base aligned to 1 GiB.

    fault_in: called with base, bytes and MADV_POPULATE_WRITE; returns 0 or the errno.
    """
    stride, page = base_page(), page_bytes(config.pages)
    working_set = config.lines * (LINE if config.packed else stride)
    size = -(-working_set // page) * page
    base = _reserve(size)
    _ask(base, size, config.pages, page)
    arena = Arena(base, size, stride, working_set, page, _mthp_faults(page))
    if error := fault_in(base, size, MADV_POPULATE_WRITE):
        if error != 22:  # EINVAL: a kernel before 5.14
            pool = PAGES[config.pages][0] == "pool"
            unavailable("pool-empty" if pool else "memory-short",
                        f"{size} bytes could not be faulted in: {os.strerror(error)}{GONE if pool else ''}")
        arena.words()[:: stride // 8] = 1
    return arena


def verify_backing(config: argparse.Namespace, arena: Arena) -> None:
    """Every byte of the arena on the page size asked for, by /proc/self/smaps, or exit 3."""
    thp_kb = mapped_kb = odd = 0
    lacking: set[str] = set()  # what the mapping has not stated yet; without it, it proves nothing
    inside = False
    source, page = PAGES[config.pages][0], page_bytes(config.pages)
    expected = page if source == "pool" else arena.stride
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
    if odd or mapped_kb < whole or thp_kb != (whole if source == "thp" else 0):
        unavailable("backing-partial", f"asked for {whole} kB on {config.pages}; smaps shows {mapped_kb} kB resident, "
                    f"{thp_kb} kB on THP, {odd} mappings of another size or none")
    if source == "mthp":
        got, fell_back = (after - before for after, before in zip(_mthp_faults(page), arena.mthp_before, strict=True))
        if got < arena.bytes // page or fell_back:
            unavailable("backing-partial", f"{got} of {arena.bytes // page} pages of {config.pages} allocated, {fell_back} fell back")


def page_table_bytes() -> int | None:
    """This process's page tables; None where /proc does not state them."""
    try:
        stated = re.search(r"^VmPTE:\s*(\d{1,12}) kB$", Path("/proc/self/status").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return int(stated[1]) << 10 if stated else None


def largest_cache_bytes(cpu: int) -> int:
    """What sysfs states of a CPU's largest cache; 0 where it states none."""
    sizes = Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*/size")
    found = (re.match(r"(\d{1,9})K", size.read_text()) for size in sizes)
    return max((int(one[1]) << 10 for one in found if one), default=0)
