"""Surveys of memory requested in several ways by a program of kernels/runtimes, and what each
got."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from tlb.machine import host
from tlb.machine.host import Host
from tlb.measure import resident
from tlb.measure.build import build_folder
from tlb.measure.observed import REFUSED, watch
from tlb.measure.record import Positive
from tlb.measure.resident import Survey, answer, held
from tlb.measure.toolchains import SOURCES
from tlb.system import procfs
from tlb.system.reasons import Unavailable
from tlb.system.smaps import Pages

Got = TypeVar("Got")


class Way(NamedTuple):
    """How something is requested; the reason code of a kernel that refuses."""

    asked: str
    words: str  # in a sentence
    refused: str = "memory-short"


class Answer(BaseModel, extra="forbid", frozen=True, strict=True):
    """What the program prints: address and bytes of the requested part, bytes mapped."""

    way: str
    address: Positive
    array_bytes: Positive
    mapped_bytes: Positive


class Ways(Survey, frozen=True):
    """A survey of all ways. A subclass has `got`, of those that succeeded; `lacking` has the
    others' reason codes."""

    all: ClassVar[Mapping[str, Way]] = {}
    what: ClassVar[str] = ""  # is asked for, in a phrase
    file_system: Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,32}$")]  # of the file on a disk
    got: list[Any]
    lacking: dict[str, str]

    def asked(self, way: str, in_words: bool = False) -> str:
        """Return a way's calls, or words for a sentence, with the file system's name."""
        return (self.all[way].words if in_words else self.all[way].asked).replace(
            "this disk", f"a disk with {self.file_system}"
        )

    def of(self, way: str) -> Any:
        """Return what a way got. Raises Unavailable with its reason, no-data if it was not
        tried."""
        for got in self.got:
            if got.way == way:
                return got
        raise Unavailable(self.lacking.get(way, "no-data"), f"{self.what} {self.asked(way)}")


def names(ways: Iterable[str]) -> Any:
    """Return the type of a way's name."""
    return Annotated[str, Field(pattern="^(" + "|".join(ways) + ")$")]


def computer() -> Host:
    """Return this computer. Raises Unavailable: not-linux; page-size-unsupported unless large pages
    are 2 MiB."""
    inspected = host.inspect()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    if inspected.base_page_bytes != 4096:
        raise Unavailable(
            "page-size-unsupported",
            "the program asks for 2 MiB, which goes with base pages of 4 KiB",
        )
    return inspected


def met(inspected: Host) -> dict[str, Any]:
    """Return the fields that all surveys of ways have: when, on what."""
    return resident.met(inspected) | {"file_system": procfs.file_system(build_folder().resolve())}


def each(ways: Iterable[str], measure: Callable[[str], Got]) -> dict[str, Any]:
    """Try every way once, since page sizes do not vary as times do. Return the fields got and
    lacking."""
    got: list[Got] = []
    lacking: dict[str, str] = {}
    for way in ways:
        try:
            got.append(measure(way))
        except Unavailable as why:
            lacking[way] = why.code
    return {"got": got, "lacking": lacking}


def ask(
    program: str, way: str, size_bytes: int, refused: Mapping[int, str]
) -> tuple[Answer, Pages]:
    """Run a program of kernels/runtimes in one way; return its answer and what smaps says.

    refused: reason codes by exit status. Raises Unavailable for those, and for a program that
    hangs, crashes, prints garbage or proves nothing.
    """
    line, smaps, _ = watch(
        [sys.executable, str(SOURCES / program), way, str(size_bytes), str(build_folder())], refused
    )
    told = answer(line, Answer)
    if told.way != way:
        raise Unavailable("kernel-garbage", f"asked for {way}, got another")
    return told, held(smaps, told.address, told.array_bytes)


__all__ = ["REFUSED", "Answer", "Way", "Ways", "ask", "computer", "each", "met", "names"]
