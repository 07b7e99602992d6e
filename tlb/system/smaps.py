"""What pages a process has, as its /proc/PID/smaps states them: a strict reader, and what a given
array can have of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tlb.reasons import Unavailable


class Mapping(NamedTuple):
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

    @property
    def huge_bytes(self) -> int:
        return self.thp_bytes + self.pool_bytes


class Pages(NamedTuple):
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
_SIZE = re.compile(r"(\w+): +([0-9]{1,12}) kB")
# anonymous memory of a pool, which Linux keeps as a file without a name
_POOL = "/anon_hugepage (deleted)"
_OTHER = re.compile(r"\w+: .*")
# since Linux 4.8
_STATED = (
    "KernelPageSize",
    "Rss",
    "AnonHugePages",
    "ShmemPmdMapped",
    "Private_Hugetlb",
    "Shared_Hugetlb",
)


def mappings(smaps: str) -> list[Mapping]:
    """Return the mappings of a process. ValueError for a line that is not of smaps, and for a field
    that is missing, repeated or absurd."""
    heads: list[tuple[re.Match[str], dict[str, int]]] = []
    # splitlines() would split the name of a mapped file at a form feed
    for line in smaps.removesuffix("\n").split("\n"):
        if head := _HEAD.fullmatch(line):
            heads.append((head, {}))
        elif not heads or not _OTHER.fullmatch(line):
            raise ValueError(f"no line of smaps: {line[:80]!r}")
        elif field := _SIZE.fullmatch(line):
            stated = heads[-1][1]
            if field[1] in stated:
                raise ValueError(f"{field[1]} is there twice")
            stated[field[1]] = int(field[2]) << 10
    parsed: list[Mapping] = []
    for head, fields in heads:
        found = _mapping(head, fields)
        if (parsed[-1].end if parsed else 0) > found.start:
            raise ValueError(f"the mapping at {found.start:x} overlaps the one before")
        parsed.append(found)
    if not parsed:
        raise ValueError("empty")
    return parsed


def _mapping(head: re.Match[str], fields: dict[str, int]) -> Mapping:
    if missing := [name for name in _STATED if name not in fields]:
        raise ValueError(f"{missing[0]} is missing")
    start, end = int(head[1], 16), int(head[2], 16)
    pool = fields["Private_Hugetlb"] + fields["Shared_Hugetlb"]
    resident, referenced = fields["Rss"] + pool, fields.get("Referenced", 0)
    # FilePmdMapped since Linux 5.4
    thp = fields["AnonHugePages"] + fields["ShmemPmdMapped"] + fields.get("FilePmdMapped", 0)
    if start >= end or not thp + pool <= resident <= end - start:
        raise ValueError(f"{thp + pool} of {resident} bytes are huge from {start:x} to {end:x}")
    is_private = head[3].startswith("rw") and head[3].endswith("p")
    private = is_private and (head[4] == "0" or head[5] == _POOL)
    page_bytes = fields["KernelPageSize"]
    return Mapping(start, end, private, page_bytes, resident, thp, pool, referenced)


def pages(parsed: Iterable[Mapping], address: int | None, array_bytes: int) -> Pages:
    """The pages of the mappings that hold the array, which is written: all of it has to be
    resident.

    Raises Unavailable: kernel-garbage where the address is not mapped, memory-short where part of
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
            "kernel-garbage", f"{covered} of the array's {array_bytes} bytes are mapped"
        )
    resident, huge = (
        sum(getattr(m, name) for m in holding) for name in ("resident_bytes", "huge_bytes")
    )
    if resident < array_bytes:
        raise Unavailable(
            "memory-short", f"{resident >> 20} of the array's {array_bytes >> 20} MiB are resident"
        )
    rest = sum(m.huge_bytes for m in parsed) - huge
    return Pages(resident, huge, rest, max(huge - (resident - array_bytes), 0))


class Rollup(NamedTuple):
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

    def __add__(self, other: Rollup) -> Rollup:  # type: ignore[override]
        """Of two processes: a page that they share counts in both."""
        return Rollup(*(mine + its for mine, its in zip(self, other, strict=True)))


def rollup(text: str) -> Rollup:
    """The sums of smaps_rollup (Linux 4.14). ValueError where a field is missing, or is no size."""
    stated = {
        field[1]: int(field[2]) << 10
        for line in text.splitlines()
        if (field := _SIZE.fullmatch(line))
    }
    if missing := [
        name
        for name in ("Rss", "Anonymous", "AnonHugePages", "Private_Hugetlb", "Shared_Hugetlb")
        if name not in stated
    ]:
        raise ValueError(f"{missing[0]} is missing")
    pool = stated["Private_Hugetlb"] + stated["Shared_Hugetlb"]
    thp = stated["AnonHugePages"] + stated.get("ShmemPmdMapped", 0) + stated.get("FilePmdMapped", 0)
    return Rollup(stated["Rss"] + pool, stated["Anonymous"], thp, pool)
