"""What pages a process has, as its /proc/PID/smaps states them: a strict reader, one of processes
that run meanwhile, and what a given array can have of the pages."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tlb.system.reasons import Unavailable


class SmapsMapping(NamedTuple):
    """One mapping of /proc/PID/smaps. Pages of a pool count as resident, which Linux counts apart,
    and are never referenced."""

    start: int
    end: int
    private_anonymous: bool
    page_bytes: int  # KernelPageSize, which is larger than a base page for those of a pool alone
    resident_bytes: int
    thp_bytes: int
    pool_bytes: int
    referenced_bytes: int = 0  # whole pages, as they are mapped, that were touched since clear_refs
    name: str = ""  # its file, or what Linux or the program calls it, such as [heap]
    refuses_thp: bool = False  # by MADV_NOHUGEPAGE

    @property
    def huge_bytes(self) -> int:
        return self.thp_bytes + self.pool_bytes


class PagesOfArray(NamedTuple):
    """What holds the array, and the least of it that must be on huge pages whatever else lies in
    the same mappings."""

    resident_bytes: int
    huge_bytes: int
    rest_huge_bytes: int
    sure_bytes: int


_HEAD = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-][w-][x-][sp]) [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ "
    r"([0-9]+)(?: +(.*))?"
)
_SIZE = re.compile(r"\s*([0-9]{1,15}) kB")  # 57-bit addresses span 14 digits of kB
_OTHER = re.compile(r"\w+:.*")  # such as "VmFlags:" without a flag
# anonymous memory of a pool, which Linux keeps as a file without a name
_POOL = "/anon_hugepage (deleted)"
# Fields that are read. Those of pages that a kernel does not have yet are missing: in pools since
# Linux 4.4, of shared memory since 4.8, of files since 5.4. Sandboxes leave out others.
_HUGETLB, _THP = (
    ("Private_Hugetlb", "Shared_Hugetlb"),
    ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"),
)
_REFUSES_THP = "nh"  # Documentation/filesystems/proc.rst, VmFlags
_FIELDS = {"KernelPageSize", "Rss", "Referenced", *_HUGETLB, *_THP}


def parse_smaps_mappings(smaps: str | Iterable[str]) -> list[SmapsMapping]:
    """Return the mappings of a process that waited while its smaps was read, a text or its lines.

    ValueError for a line that is not of smaps, mappings that overlap, and a field that is missing,
    repeated or absurd."""
    found = list[SmapsMapping]()
    for mapping in _parsed(smaps):
        if found and found[-1].end > mapping.start:
            raise ValueError(f"the mapping at {mapping.start:x} overlaps the one before")
        found.append(mapping)
    if not found:
        raise ValueError("empty")
    return found


def mappings_of_process(pid: int, proc: Path = Path("/proc")) -> list[SmapsMapping]:
    """Return the mappings of a process that runs meanwhile. Linux shows some of them at a time, so
    a mapping that grows between two looks is shown again: the later state counts.

    Raises Unavailable: process-gone, not-permitted, linux-lacks."""
    found = list[SmapsMapping]()
    try:
        with (proc / str(pid) / "smaps").open(errors="replace", newline="\n") as file:
            for mapping in _parsed(file):
                while found and found[-1].end > mapping.start:
                    found.pop()
                found.append(mapping)
    except (OSError, ValueError) as error:
        raise unreadable_process_error(pid, error) from None
    if not found:  # it has ended: its memory is gone, its number not yet
        raise Unavailable("process-gone", f"process {pid}")
    return found


def unknown_smaps_format_error(why: str) -> Unavailable:
    """Return why smaps cannot be read: it has a form that is not known here."""
    return Unavailable(
        "linux-lacks",
        f"a form of /proc/PID/smaps that is known here: {why}",
        "Report the words in brackets, with the version of Linux.",
    )


def unreadable_process_error(pid: int, error: Exception) -> Unavailable:
    """Return why a file of a process in /proc could not be read or written, or has an unknown
    form."""
    if isinstance(error, FileNotFoundError | ProcessLookupError):
        return Unavailable("process-gone", f"process {pid}")
    if isinstance(error, PermissionError):
        return Unavailable(
            "not-permitted",
            f"to inspect process {pid}",
            "Run the same command as the owner of the process, or as root.",
        )
    return unknown_smaps_format_error(f"process {pid}: {error}")


def _parsed(smaps: str | Iterable[str]) -> Iterator[SmapsMapping]:
    """Yield each mapping. ValueError names a line that is not of smaps, or a wrong field."""
    head, fields = None, dict[str, int]()
    # splitlines() would split the name of a mapped file at a form feed
    for each in smaps.removesuffix("\n").split("\n") if isinstance(smaps, str) else smaps:
        line = each.removesuffix("\n")
        name, _, value = line.partition(":")
        if head and name in _FIELDS:
            size = _SIZE.fullmatch(value)
            if not size or name in fields:
                raise ValueError(f"{name} is there twice" if size else f"no size: {line[:80]!r}")
            fields[name] = int(size[1]) << 10
        elif head and name == "VmFlags":
            fields[_REFUSES_THP] = _REFUSES_THP in value.split()
        elif head and _OTHER.fullmatch(line):
            continue
        elif begins := _HEAD.fullmatch(line):
            if head:
                yield _mapping(head, fields)
            head, fields = begins, {}
        else:
            raise ValueError(f"no line of smaps: {line[:80]!r}")
    if head:
        yield _mapping(head, fields)


def _mapping(head: re.Match[str], fields: dict[str, int]) -> SmapsMapping:
    start, end = int(head[1], 16), int(head[2], 16)
    if "Rss" not in fields:
        raise ValueError(f"Rss is missing from {start:x} to {end:x}")
    pool, thp = (sum(fields.get(name, 0) for name in names) for names in (_HUGETLB, _THP))
    resident, referenced = fields["Rss"] + pool, fields.get("Referenced", 0)
    if start >= end or not thp + pool <= resident <= end - start:
        raise ValueError(f"{thp + pool} of {resident} bytes are huge from {start:x} to {end:x}")
    is_private = head[3].startswith("rw") and head[3].endswith("p")
    private = is_private and (head[4] == "0" or head[5] == _POOL)
    page_bytes = fields.get("KernelPageSize", mmap.PAGESIZE)
    refuses = bool(fields.get(_REFUSES_THP))
    sizes = resident, thp, pool, referenced
    return SmapsMapping(start, end, private, page_bytes, *sizes, head[5] or "", refuses)


def measure_pages_of_array(
    parsed: Iterable[SmapsMapping], address: int | None, array_bytes: int
) -> PagesOfArray:
    """The pages of the mappings that hold the array, which is written: all of it has to be
    resident.

    Raises Unavailable: kernel-failed where the address is not mapped, memory-short where part of
    the array is not resident.
    """
    parsed = list(parsed)
    if address is None:
        holding = sorted(
            (m for m in parsed if m.private_anonymous), key=lambda m: m.resident_bytes
        )[-1:]
        covered = array_bytes if holding else 0
    else:
        holding = [m for m in parsed if m.start < address + array_bytes and m.end > address]
        covered = sum(min(m.end, address + array_bytes) - max(m.start, address) for m in holding)
    if covered < array_bytes:
        raise Unavailable(
            "kernel-failed", f"{covered} of the array's {array_bytes} bytes are mapped"
        )
    resident, huge = (
        sum(getattr(m, name) for m in holding) for name in ("resident_bytes", "huge_bytes")
    )
    if resident < array_bytes:
        raise Unavailable(
            "memory-short", f"{resident >> 20} of the array's {array_bytes >> 20} MiB are resident"
        )
    rest = sum(m.huge_bytes for m in parsed) - huge
    return PagesOfArray(resident, huge, rest, max(huge - (resident - array_bytes), 0))


class SmapsRollup(NamedTuple):
    """All mappings of a process together, from /proc/PID/smaps_rollup. Pages of a pool count as
    resident. anonymous_bytes: what is nobody's file, of base pages and of transparent large ones.
    """

    resident_bytes: int
    anonymous_bytes: int
    thp_bytes: int
    pool_bytes: int

    @property
    def huge_bytes(self) -> int:
        return self.thp_bytes + self.pool_bytes

    def __add__(self, other: SmapsRollup) -> SmapsRollup:  # type: ignore[override]
        """Of two processes: a page that they share counts in both."""
        return SmapsRollup(*(mine + its for mine, its in zip(self, other, strict=True)))


def parse_smaps_rollup(text: str) -> SmapsRollup:
    """The sums of smaps_rollup (Linux 4.14). ValueError where a field is missing, or is no size."""
    stated = dict[str, int]()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if size := _SIZE.fullmatch(value):
            stated[name] = int(size[1]) << 10
    if missing := [name for name in ("Rss", "Anonymous") if name not in stated]:
        raise ValueError(f"{missing[0]} is missing")
    pool, thp = (sum(stated.get(name, 0) for name in names) for names in (_HUGETLB, _THP))
    return SmapsRollup(stated["Rss"] + pool, stated["Anonymous"], thp, pool)
