"""What is asked for in each of several ways, by a program of kernels/runtimes, and what it got:
written by one process, read by another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from tlb.lab.build import build_folder
from tlb.lab.held import Survey, answer, held
from tlb.lab.record import Positive
from tlb.lab.toolchains import SOURCES
from tlb.lab.watched import REFUSED, watch
from tlb.machine import host
from tlb.machine.host import Host
from tlb.reasons import Unavailable
from tlb.system import procfs
from tlb.system.smaps import Pages

Got = TypeVar("Got")


class Way(NamedTuple):
    """How something is asked for, and the reason code of a kernel that refuses."""

    asked: str
    words: str  # in a sentence
    refused: str = "memory-short"


class Answer(BaseModel, extra="forbid", frozen=True, strict=True):
    """What the program prints: where the part that was asked for lies, and how much is mapped."""

    way: str
    address: Positive
    array_bytes: Positive
    mapped_bytes: Positive


class Ways(Survey):
    """A survey of all ways. `lacking` holds the reason code of a way that gave nothing; a survey's
    own has `got`, of those that gave."""

    all: ClassVar[Mapping[str, Way]] = {}
    what: ClassVar[str] = ""  # is asked for, in a phrase
    file_system: Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,32}$")]  # of the file on a disk
    got: list[Any]
    lacking: dict[str, str]

    def asked(self, way: str, in_words: bool = False) -> str:
        """How a way asks, by its calls or in a sentence's words, with the file system that it met."""
        return (self.all[way].words if in_words else self.all[way].asked).replace(
            "this disk", f"a disk with {self.file_system}"
        )

    def of(self, way: str) -> Any:
        """What a way gave. Raises Unavailable with the reason why it gave nothing, no-data where it
        was not tried."""
        for got in self.got:
            if got.way == way:
                return got
        raise Unavailable(self.lacking.get(way, "no-data"), f"{self.what} {self.asked(way)}")


def names(ways: Iterable[str]) -> Any:
    """The type of a way's name."""
    return Annotated[str, Field(pattern="^(" + "|".join(ways) + ")$")]


def computer() -> Host:
    """This computer. Raises Unavailable: not-linux; page-size-unsupported where the programs' 2 MiB
    are no large page's."""
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
    """When and on what a survey was made: the fields that all have."""
    return {
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "state": host.state(inspected),
        "thp": inspected.thp.enabled,
        "file_system": procfs.file_system(build_folder().resolve()),
    }


def each(ways: Iterable[str], measure: Callable[[str], Got]) -> dict[str, Any]:
    """Every way once: what a page's size is does not vary as a time does. {"got": what they gave,
    "lacking": why others gave nothing}."""
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
    """Run a program of kernels/runtimes in one way, and read what it got. refused: reason codes by
    exit status, REFUSED among them.

    Raises Unavailable for a refusal, and for a program that hangs, crashes, prints garbage or has
    smaps that prove nothing.
    """
    line, smaps, _ = watch(
        [sys.executable, str(SOURCES / program), way, str(size_bytes), str(build_folder())], refused
    )
    told = answer(line, Answer)
    if told.way != way:
        raise Unavailable("kernel-garbage", f"asked for {way}, got another")
    return told, held(smaps, told.address, told.array_bytes)


__all__ = ["REFUSED", "Answer", "Way", "Ways", "ask", "computer", "each", "met", "names"]
