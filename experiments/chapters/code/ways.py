"""Code in each of the ways that Linux has of making it executable, and whether it lies on large pages: written by one process, read by
another."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
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

TEXT_BYTES = 8 << 20  # four large pages: what one way gets does not vary with the size
_NO_CODE, _NO_JOINING = 4, 5  # exit statuses of kernels/runtimes/text.py


class Way(NamedTuple):
    """How code is made executable, and the reason code of a kernel that refuses the memory."""

    asked: str
    short: str  # in a sentence
    refused: str = "memory-short"


# In the order of a reader's questions; kernels/runtimes/text.py has the calls, and a test holds the two together.
WAYS = {
    "file": Way("a file on this disk, mapped as a loader maps it", "a mapped file"),
    "file-collapsed": Way("the same, madvise(MADV_COLLAPSE)", "a mapped file that was joined on request"),
    "anonymous": Way("copied to memory that asks for nothing, mprotect", "a plain copy"),
    "advised": Way("copied to memory advised with MADV_HUGEPAGE, mprotect", "a copy in advised memory", "thp-never"),
    "memfd": Way("copied to a memfd, mapped", "a copy in a memfd"),
    "memfd-collapsed": Way("the same, madvise(MADV_COLLAPSE)", "one in a memfd that was joined on request"),
    "memfd-pool": Way("copied to a memfd from the pool, mapped", "one in the pool", "pool-empty"),
}
_NAMES = "^(" + "|".join(WAYS) + ")$"


class Answer(BaseModel, extra="forbid", frozen=True, strict=True):
    """What the program prints: where the code lies, and how much is mapped."""

    way: str
    address: Positive
    array_bytes: Positive
    mapped_bytes: Positive


class Got(Held):
    """What one way gave."""

    way: Annotated[str, Field(pattern=_NAMES)]


class Texts(Survey):
    """A survey: `lacking` holds the reason code of a way that gave nothing."""

    file_system: Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,32}$")]  # of the file on a disk
    got: list[Got]
    lacking: dict[Annotated[str, Field(pattern=_NAMES)], str]

    def asked(self, way: str) -> str:
        return WAYS[way].asked.replace("this disk", f"a disk with {self.file_system}")

    def of(self, way: str) -> Got:
        """What a way gave. Raises Unavailable with the reason why it gave nothing, no-data where it was not tried."""
        for got in self.got:
            if got.way == way:
                return got
        raise Unavailable(self.lacking.get(way, "no-data"), f"code as {WAYS[way].asked}")


def make(profile: str) -> dict[str, Any]:
    """The document `texts` of data/, whatever the profile. Raises Unavailable: not-linux, page-size-unsupported."""
    inspected = host.inspect()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    if inspected.base_page_bytes != 4096:
        raise Unavailable("page-size-unsupported", "the program asks for 2 MiB, which goes with base pages of 4 KiB")
    got, lacking = [], {}
    for way in WAYS:
        try:
            got.append(measure(way))
        except Unavailable as why:
            lacking[way] = why.code
    return Texts(measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), state=host.state(inspected), thp=inspected.thp.enabled,
                 file_system=procfs.file_system(build_folder().resolve()), got=got, lacking=lacking).model_dump(mode="json")


def measure(way: str, size_bytes: int = TEXT_BYTES) -> Got:
    """Make code executable in one way and read what it lies on. Raises Unavailable for a refusal, and for a program that hangs, crashes,
    prints garbage or has smaps that prove nothing."""
    command = [sys.executable, str(SOURCES / "text.py"), way, str(size_bytes), str(build_folder())]
    line, smaps, _ = watch(command, {REFUSED: WAYS[way].refused, _NO_CODE: "code-refused", _NO_JOINING: "no-collapse"})
    told = answer(line, Answer)
    if told.way != way:
        raise Unavailable("kernel-garbage", f"asked for {way}, got another")
    had = held(smaps, told.address, told.array_bytes)
    return Got(way=way, array_bytes=told.array_bytes, resident_bytes=had.resident_bytes, huge_bytes=had.huge_bytes,
               rest_huge_bytes=had.rest_huge_bytes)
