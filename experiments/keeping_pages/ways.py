"""One region of memory in each of the ways that Linux has of asking for it, and what it got:
written by one process, read by another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tlb.measure import granted_pages
from tlb.measure.granted_pages import EXIT_REFUSED, ArrayPages, RequestWay, WaysDocument
from tlb.measure.record import PositiveCount
from tlb.system import procfs
from tlb.system.reasons import Unavailable

_SHMEM = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_NO_MOUNT = 4  # an exit status of kernels/runtimes/mapping.py

# In the order of a reader's questions; kernels/runtimes/mapping.py has the calls, and a test holds
# the two together.
WAYS_TO_MAP = {
    "anonymous": RequestWay("mmap, and nothing else", "a mapping that asks for nothing"),
    "advised": RequestWay("mmap, madvise(MADV_HUGEPAGE)", "advised memory", "thp-never"),
    "half": RequestWay(
        "mmap, madvise on half of it (that half)", "memory of which half was advised", "thp-never"
    ),
    "pool": RequestWay("mmap(MAP_HUGETLB)", "memory from the pool", "pool-empty"),
    "shared": RequestWay("mmap(MAP_SHARED), madvise", "advised shared memory", "thp-never"),
    "memfd": RequestWay("memfd_create, madvise", "an advised memfd", "thp-never"),
    "memfd-pool": RequestWay("memfd_create(MFD_HUGETLB)", "a memfd from the pool", "pool-empty"),
    "file": RequestWay("a file on this disk, mmap", "a file on this disk"),
    "file-advised": RequestWay(
        "a file on this disk, mmap, madvise", "an advised file on this disk", "thp-never"
    ),
    "tmpfs": RequestWay("a file on tmpfs, mmap", "a file on tmpfs"),
    "tmpfs-huge": RequestWay(
        "a file on tmpfs mounted with huge=always, mmap", "one on a tmpfs that was mounted for it"
    ),
    "hugetlbfs": RequestWay("a file on hugetlbfs, mmap", "a file on hugetlbfs", "pool-empty"),
    "arena": RequestWay(
        "mmap of 2 MiB, madvise; 100 KiB written",
        "an advised page of which 100 KiB were written",
        "thp-never",
    ),
    "dropped": RequestWay(
        "mmap, madvise; one base page given back",
        "advised memory of which a page was given back",
        "thp-never",
    ),
}
_Name = Annotated[str, Field(pattern="^(" + "|".join(WAYS_TO_MAP) + ")$")]


class Got(ArrayPages, frozen=True):
    """What one way gave; of a mapping of mapped_bytes, which may be more than was asked for."""

    way: _Name
    mapped_bytes: PositiveCount


class WaysToGetHugePages(WaysDocument, frozen=True):
    """The document `ways`. `thp` is the setting of anonymous memory, shmem of shared."""

    all = WAYS_TO_MAP
    what = "memory by"
    shmem: Annotated[str, Field(pattern=r"^[a-z+_]{1,32}$")]
    got: list[Got]
    lacking: dict[_Name, str]


def make(profile: str) -> dict[str, Any]:
    """The document `ways` of data/. Raises Unavailable: not-linux, page-size-unsupported,
    memory-short."""
    return survey((8 if profile == "smoke" else 64) << 20).model_dump(mode="json")


def survey(size_bytes: int) -> WaysToGetHugePages:
    """Every way once. size_bytes: whole pages of 8 MiB."""
    inspected = granted_pages.inspect_for_ways()
    if 2 * size_bytes > inspected.memory.usable_bytes // 2:
        raise Unavailable("memory-short")
    return WaysToGetHugePages(
        shmem=procfs.chosen(_SHMEM),
        **granted_pages.ways_fields(inspected),
        **granted_pages.try_each_way(WAYS_TO_MAP, lambda way: measure(way, size_bytes)),
    )


def measure(way: str, size_bytes: int) -> Got:
    """Ask for memory in one way and read what it got. Raises Unavailable, as `measure.granted_pages.run_way`
    does."""
    told, had = granted_pages.run_way(
        "mapping.py",
        way,
        size_bytes,
        {EXIT_REFUSED: WAYS_TO_MAP[way].refused, _NO_MOUNT: "not-permitted"},
    )
    return Got(
        way=way,
        array_bytes=told.array_bytes,
        mapped_bytes=told.mapped_bytes,
        resident_bytes=had.resident_bytes,
        huge_bytes=had.huge_bytes,
        rest_huge_bytes=had.rest_huge_bytes,
    )
