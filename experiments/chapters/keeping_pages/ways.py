"""One region of memory in each of the ways that Linux has of asking for it, and what it got: written by one process, read by another."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from experiments.lab.build import build_folder
from experiments.lab.held import Held, Survey, answer, held
from experiments.lab.record import Positive
from experiments.lab.toolchains import SOURCES
from experiments.lab.watched import REFUSED, watch
from experiments.machine import host
from experiments.system import procfs
from experiments.words.reasons import Unavailable

_SHMEM = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_NO_MOUNT = 4  # an exit status of kernels/runtimes/mapping.py


class Way(NamedTuple):
    """How a region is asked for, and the reason code of a kernel that refuses."""

    asked: str
    words: str  # in a sentence
    refused: str = "memory-short"


# In the order of a reader's questions; kernels/runtimes/mapping.py has the calls, and a test holds the two together.
WAYS = {
    "anonymous": Way("mmap, and nothing else", "a mapping that asks for nothing"),
    "advised": Way("mmap, madvise(MADV_HUGEPAGE)", "advised memory", "thp-never"),
    "half": Way("mmap, madvise on its first half", "memory of which half was advised", "thp-never"),
    "pool": Way("mmap(MAP_HUGETLB)", "memory from the pool", "pool-empty"),
    "shared": Way("mmap(MAP_SHARED), madvise", "advised shared memory", "thp-never"),
    "memfd": Way("memfd_create, madvise", "an advised memfd", "thp-never"),
    "memfd-pool": Way("memfd_create(MFD_HUGETLB)", "a memfd from the pool", "pool-empty"),
    "file": Way("a file on this disk, mmap", "a file on this disk"),
    "file-advised": Way("a file on this disk, mmap, madvise", "an advised file on this disk", "thp-never"),
    "tmpfs": Way("a file on tmpfs, mmap", "a file on tmpfs"),
    "tmpfs-huge": Way("a file on tmpfs mounted with huge=always, mmap", "one on a tmpfs that was mounted for it"),
    "hugetlbfs": Way("a file on hugetlbfs, mmap", "a file on hugetlbfs", "pool-empty"),
    "arena": Way("mmap of 2 MiB, madvise; 100 KiB written", "an advised page of which 100 KiB were written", "thp-never"),
    "dropped": Way("mmap, madvise; one base page given back", "advised memory of which a page was given back", "thp-never"),
}
_NAMES = "^(" + "|".join(WAYS) + ")$"


class Answer(BaseModel, extra="forbid", frozen=True, strict=True):
    """What the program prints: where the part that was asked for lies, and how much is mapped."""

    way: str
    address: Positive
    array_bytes: Positive
    mapped_bytes: Positive


class Got(Held):
    """What one way gave; of a mapping of mapped_bytes, which may be more than was asked for."""

    way: Annotated[str, Field(pattern=_NAMES)]
    mapped_bytes: Positive


class Ways(Survey):
    """A survey. `lacking` holds the reason code of a way that gave nothing; `thp` is the setting of anonymous memory, shmem of shared."""

    shmem: Annotated[str, Field(pattern=r"^[a-z+_]{1,32}$")]
    file_system: Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,32}$")]  # of the file on a disk
    got: list[Got]
    lacking: dict[Annotated[str, Field(pattern=_NAMES)], str]

    def asked(self, way: str, in_words: bool = False) -> str:
        """How a way asks, by its calls or in a sentence's words, with the file system that it met."""
        return (WAYS[way].words if in_words else WAYS[way].asked).replace("this disk", f"a disk with {self.file_system}")

    def of(self, way: str) -> Got:
        """What a way gave. Raises Unavailable with the reason why it gave nothing, no-data where it was not tried."""
        for got in self.got:
            if got.way == way:
                return got
        raise Unavailable(self.lacking.get(way, "no-data"), f"memory by {self.asked(way)}")


def make(profile: str) -> dict[str, Any]:
    """The document `ways` of data/. Raises Unavailable: not-linux, page-size-unsupported, memory-short."""
    return survey((8 if profile == "smoke" else 64) << 20).model_dump(mode="json")


def survey(size_bytes: int) -> Ways:
    """Every way once: what a page's size is does not vary as a time does. size_bytes: whole pages of 8 MiB."""
    inspected = host.inspect()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    if inspected.base_page_bytes != 4096:
        raise Unavailable("page-size-unsupported", "the program asks for 2 MiB, which goes with base pages of 4 KiB")
    if 2 * size_bytes > inspected.memory.usable_bytes // 2:
        raise Unavailable("memory-short")
    got, lacking = [], {}
    for way in WAYS:
        try:
            got.append(measure(way, size_bytes))
        except Unavailable as why:
            lacking[way] = why.code
    return Ways(measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), state=host.state(inspected), thp=inspected.thp.enabled,
                shmem=procfs.chosen(_SHMEM), file_system=procfs.file_system(build_folder().resolve()), got=got, lacking=lacking)


def measure(way: str, size_bytes: int) -> Got:
    """Ask for memory in one way and read what it got. Raises Unavailable for a refusal, and for a program that hangs, crashes, prints
    garbage or has smaps that prove nothing."""
    command = [sys.executable, str(SOURCES / "mapping.py"), way, str(size_bytes), str(build_folder())]
    line, smaps, _ = watch(command, {REFUSED: WAYS[way].refused, _NO_MOUNT: "mount-refused"})
    told = answer(line, Answer)
    if told.way != way:
        raise Unavailable("kernel-garbage", f"asked for {way}, got another")
    had = held(smaps, told.address, told.array_bytes)
    return Got(way=way, array_bytes=told.array_bytes, mapped_bytes=told.mapped_bytes, resident_bytes=had.resident_bytes,
               huge_bytes=had.huge_bytes, rest_huge_bytes=had.rest_huge_bytes)
