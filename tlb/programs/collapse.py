"""Move the memory of running processes to huge pages from outside, with MADV_COLLAPSE, and forecast
what that takes: memory, free blocks and time."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import NamedTuple

from tlb.programs import children
from tlb.system import procfs
from tlb.system.processes import collapse_range_of_process, errno_name, refused_system_calls
from tlb.system.reasons import Unavailable
from tlb.system.smaps import SmapsMapping, mappings_of_process, unreadable_process_error

_PROC = Path("/proc")
_HUGE = Path("/sys/kernel/mm/transparent_hugepage")
_CHUNK_BYTES = 64 << 20  # per call, a fifth of a second: afterwards `stop` is looked at again
# Documentation/admin-guide/mm/pagemap.rst: bit 63 of an entry, the page is in memory; bit 62, it is
# in swap. Both stand in the entry's last byte on the little-endian computers that Linux has them on.
_ENTRY_BYTES, _PRESENT, _SWAPPED = 8, 0x80, 0x40
_IS_PRESENT = bytes(bool(top & _PRESENT) for top in range(256))
_IS_THERE = bytes(bool(top & (_PRESENT | _SWAPPED)) for top in range(256))
_READ_BLOCKS = 256  # of a huge page each, whose entries are read at once: a MiB

Processes = Callable[[], dict[int, bool]]  # a program's, by PID, and whether each runs
AddressRange = tuple[int, int]  # from its first byte to the one after its last


def parsed_range(text: str) -> AddressRange:
    """Return the addresses of a mapping, as /proc/PID/maps and `tlb watch` write them. Raises
    Unavailable("bad-parameter")."""
    match = re.fullmatch("([0-9a-f]{1,16})-([0-9a-f]{1,16})", text)
    start, end = (int(part, 16) for part in match.groups()) if match else (0, 0)
    if start >= end:
        raise Unavailable("bad-parameter", f"--only takes FROM-TO with --pid, not '{text}'")
    return start, end


class CollapseResult(NamedTuple):
    """What one collapse did. bytes: growth of AnonHugePages; errors: names, such as EINVAL, or why
    the process's memory could not be read."""

    at_s: float
    took_s: float
    bytes: int
    errors: tuple[str, ...]


def huge_page_bytes() -> int | None:
    """Return the size of a transparent huge page; None without them in this Linux kernel."""
    return procfs.number(_HUGE / "hpage_pmd_size")


def not_permitted() -> Unavailable:
    """Return why another process's memory is not collapsed."""
    return Unavailable(
        "not-permitted",
        "to move another process's memory to large pages by process_madvise",
        "Run the same command as root or with the capabilities CAP_SYS_NICE and CAP_SYS_PTRACE, "
        "where a container's seccomp profile allows process_madvise; or use --lever advise.",
    )


# Of MADV_COLLAPSE on another process
_COLLAPSE_REMEDY = "Use Linux 6.1 or newer, built with CONFIG_TRANSPARENT_HUGEPAGE."


def check() -> None:
    """Raise Unavailable unless a process's memory can be collapsed: linux-lacks without transparent
    huge pages, pidfd_open or process_madvise, not-permitted."""
    if huge_page_bytes() is None:
        raise Unavailable("linux-lacks", f"there is no {_HUGE}")
    refused = refused_system_calls()
    if "pidfd_open" in refused:
        raise children.no_pidfd(refused["pidfd_open"])
    if (why := refused.get("process_madvise")) == "ENOSYS":
        raise Unavailable("linux-lacks", "process_madvise: ENOSYS", _COLLAPSE_REMEDY)
    if why:
        raise not_permitted()


def collapse_all(
    processes: Processes,
    start_s: float,
    after_s: float,
    stop: Event,
    only: AddressRange | None = None,
) -> CollapseResult:
    """Collapse the memory of all processes that run after_s after start_s (monotonic clock). only:
    no memory but that of these addresses."""
    stop.wait(max(start_s + after_s - time.monotonic(), 0))
    begin, size_bytes, errors = time.monotonic(), 0, set[str]()
    huge_bytes = huge_page_bytes()
    for pid, runs in processes().items():
        if runs and huge_bytes and not stop.is_set():
            more, failed = collapse(pid, huge_bytes, stop, only)
            size_bytes, errors = size_bytes + more, errors | failed
    return CollapseResult(
        begin - start_s, time.monotonic() - begin, size_bytes, tuple(sorted(errors))
    )


def collapse(
    pid: int, huge_bytes: int, stop: Event, only: AddressRange | None = None
) -> tuple[int, set[str]]:
    """Collapse the private anonymous memory of a process, where a whole huge page fits and holds a
    page already.

    Return the growth of its AnonHugePages in bytes, and errors as in `CollapseResult`."""
    errors = set[str]()
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0, errors
    before = _anonymous_huge_bytes(pid)
    try:
        for mapping in collapsible(mappings_of_process(pid, _PROC), only):
            blocks = [block.start for block in blocks_of(pid, mapping, huge_bytes, _PROC)]
            for start, end in _runs(blocks, huge_bytes):
                errors |= _collapse_range(pidfd, start, end, huge_bytes, stop)
    except Unavailable as why:
        if why.code != "process-gone":
            errors.add(f"{why.code}, {why.detail}")
    finally:
        os.close(pidfd)
    errors.discard("ESRCH")  # it ended meanwhile
    return max(_anonymous_huge_bytes(pid) - before, 0), errors


def _collapse_range(pidfd: int, start: int, end: int, huge_bytes: int, stop: Event) -> set[str]:
    """Collapse a range in one call. If that fails, go page by page, because Linux stops at the
    first huge page that it cannot collapse. Return the names of errors."""
    if stop.is_set() or not collapse_range_of_process(pidfd, start, end - start):
        return set()
    pages = range(start, end, huge_bytes)
    return {
        collapse_range_of_process(pidfd, page, huge_bytes) for page in pages if not stop.is_set()
    } - {""}


def _anonymous_huge_bytes(pid: int) -> int:
    """Return the AnonHugePages of a process; 0 if it has ended."""
    fields = procfs.fields(procfs.text(_PROC / str(pid) / "smaps_rollup"))
    return procfs.kib(fields.get("AnonHugePages", "")) or 0


def refusal(pid: int) -> str:
    """Return the name of the error that keeps this user from collapsing a process' memory, "" if
    it is allowed. Nothing is collapsed."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        return errno_name(error)
    try:
        return collapse_range_of_process(pidfd, 0, 0)
    finally:
        os.close(pidfd)


# --- which memory is collapsed, and what that takes


class Block(NamedTuple):
    """Aligned memory of a huge page's size in which something is there. present: its base pages in
    memory, those of a huge page and zero pages included."""

    start: int
    present: int


class CollapseForecast(NamedTuple):
    """What a collapse takes. blocks: huge pages that it makes. growth_bytes: of resident memory, by
    pages that are not there yet. free_blocks: of a huge page's size, free now in all of Linux;
    available_bytes: memory that Linux can give, by moving other pages if need be."""

    blocks: int
    huge_bytes: int
    growth_bytes: int
    free_blocks: int
    available_bytes: int

    @property
    def fits_now(self) -> bool:
        """Whether no page has to be moved to make room."""
        return self.blocks <= self.free_blocks


def collapsible(
    mappings: Iterable[SmapsMapping], only: AddressRange | None = None
) -> Iterator[SmapsMapping]:
    """Yield the mappings that a collapse reaches, cut to a range of addresses."""
    for mapping in mappings:
        start, end = only or (mapping.start, mapping.end)
        cut = mapping._replace(start=max(start, mapping.start), end=min(end, mapping.end))
        if (
            mapping.private_anonymous
            and mapping.resident_bytes > mapping.huge_bytes
            and not mapping.refuses_thp
            and cut.start < cut.end
        ):
            yield cut


def blocks_of(
    pid: int, mapping: SmapsMapping, huge_bytes: int, proc: Path = _PROC, page_bytes: int = 0
) -> Iterator[Block]:
    """Yield the blocks of a mapping in which something is there, also in swap. Raises Unavailable:
    process-gone, not-permitted, linux-lacks."""
    pages = huge_bytes // (page_bytes or os.sysconf("SC_PAGE_SIZE"))
    first, end = -(-mapping.start // huge_bytes), mapping.end // huge_bytes
    try:
        with (proc / str(pid) / "pagemap").open("rb", buffering=0) as file:
            for start in range(first, end, _READ_BLOCKS):
                number = min(_READ_BLOCKS, end - start)
                file.seek(start * pages * _ENTRY_BYTES)
                tops = file.read(number * pages * _ENTRY_BYTES)[_ENTRY_BYTES - 1 :: _ENTRY_BYTES]
                there, present = tops.translate(_IS_THERE), tops.translate(_IS_PRESENT)
                for n in range(number):
                    part = slice(n * pages, (n + 1) * pages)
                    if 1 in there[part]:
                        yield Block((start + n) * huge_bytes, present[part].count(1))
    except OSError as error:
        raise unreadable_process_error(pid, error) from None


def _runs(starts: Iterable[int], huge_bytes: int) -> Iterator[AddressRange]:
    """Yield neighbouring blocks together, up to a call's size."""
    begin = end = -1
    for start in starts:
        if start != end or end - begin >= _CHUNK_BYTES:
            if end > begin:
                yield begin, end
            begin = start
        end = start + huge_bytes
    if end > begin:
        yield begin, end


def forecast(
    pids: Iterable[int], only: AddressRange | None = None, proc: Path = _PROC
) -> CollapseForecast:
    """Return what collapsing these processes would take now. Raises Unavailable: linux-lacks, and
    what reading a process raises; one that has ended is left out."""
    page_bytes, huge_bytes = os.sysconf("SC_PAGE_SIZE"), huge_page_bytes()
    if huge_bytes is None:
        raise Unavailable("linux-lacks", f"there is no {_HUGE}")
    made = growth = 0
    for pid in pids:
        try:
            for mapping in collapsible(mappings_of_process(pid, proc), only):
                blocks = [*blocks_of(pid, mapping, huge_bytes, proc)]
                more, size_bytes = _growth(mapping, blocks, huge_bytes, page_bytes)
                made, growth = made + more, growth + size_bytes
        except Unavailable as why:
            if why.code != "process-gone":
                raise
    memory = procfs.fields(procfs.text(proc / "meminfo"))
    available = procfs.kib(memory.get("MemAvailable", "")) or 0
    free = free_blocks(procfs.text(proc / "buddyinfo"), huge_bytes // page_bytes)
    return CollapseForecast(made, huge_bytes, growth, free, available)


def _growth(
    mapping: SmapsMapping, blocks: list[Block], huge_bytes: int, page_bytes: int
) -> tuple[int, int]:
    """Return how many huge pages a mapping gets, and by how much its resident memory grows.

    Resident memory counts no zero page, which pagemap shows as present: what pagemap shows beyond
    it is zero pages, if the mapping is whole."""
    absent = sum(huge_bytes - block.present * page_bytes for block in blocks)
    present = sum(block.present for block in blocks) * page_bytes
    zero_bytes = max(present - mapping.resident_bytes, 0)
    return max(len(blocks) - mapping.huge_bytes // huge_bytes, 0), absent + zero_bytes


def free_huge_bytes() -> int | None:
    """Return the memory that is free in whole huge pages, which Linux can give without moving
    others; None if it does not say."""
    huge_bytes, text = huge_page_bytes(), procfs.text(_PROC / "buddyinfo")
    if not huge_bytes or not text:
        return None
    return free_blocks(text, huge_bytes // os.sysconf("SC_PAGE_SIZE")) * huge_bytes


def free_blocks(buddyinfo: str, pages: int) -> int:
    """Return the free blocks of so many pages, a power of two, larger ones split, from the text of
    /proc/buddyinfo."""
    order, free = pages.bit_length() - 1, 0
    for line in buddyinfo.splitlines():
        counts = line.partition("zone")[2].split()[1:]
        free += sum(int(count) << (n - order) for n, count in enumerate(counts) if n >= order)
    return free
