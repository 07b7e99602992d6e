"""What Linux grants of page sizes: memory that a program asks for, proved by smaps while the program
waits, and documents of such surveys."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field, field_validator, model_validator

from tlb.machine import host
from tlb.machine.host import Host
from tlb.measure.build import build_folder
from tlb.measure.record import NonNegativeInt, PositiveInt, parse_program_answer, utc_now
from tlb.measure.toolchains import RUNTIME_SOURCES_FOLDER, clean_environment
from tlb.system import procfs
from tlb.system.files import ROOT
from tlb.system.reasons import REASON_TEXTS, Unavailable, current_reason_code
from tlb.system.smaps import (
    PagesOfArray,
    measure_pages_of_array,
    parse_smaps_mappings,
    unknown_smaps_format_error,
)

Granted = TypeVar("Granted")
# a program takes a second or two; under load ten times more; beyond that it hangs
TIME_LIMIT_S = 120.0
# the exit status of a program that the kernel refuses what it asks for; programs may have more such
EXIT_STATUS_REQUEST_REFUSED = 3


# --- documents


class ArrayPageBacking(BaseModel, extra="forbid", frozen=True, strict=True):
    """Bytes by smaps. resident and huge (THP or pool) are of the mappings that hold the array;
    rest_huge of all others of the process."""

    array_bytes: PositiveInt
    resident_bytes: PositiveInt
    huge_bytes: NonNegativeInt
    rest_huge_bytes: NonNegativeInt

    @property
    def huge_share(self) -> float:
        """Return the share of resident bytes on large pages."""
        return self.huge_bytes / self.resident_bytes

    @model_validator(mode="after")
    def _parts_of_wholes(self) -> ArrayPageBacking:
        if not self.huge_bytes <= self.resident_bytes >= self.array_bytes:
            raise ValueError("what was written and its huge pages are parts of what is resident")
        return self


class SurveyDocument(BaseModel, extra="forbid", frozen=True, strict=True):
    """A document of data/. `lacking` of a subclass has reason codes by what gave nothing."""

    schema_version: Literal[1] = 1
    measured_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]  # UTC
    state: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]  # host.state_digest()
    # the setting: always, madvise, never, absent, unknown
    thp: Annotated[str, Field(pattern=r"^[a-z+_]{1,32}$")]

    @field_validator("lacking", check_fields=False)
    @classmethod
    def _known(cls, lacking: dict[str, str]) -> dict[str, str]:
        lacking = {name: current_reason_code(code) for name, code in lacking.items()}
        if unknown := set(lacking.values()) - set(REASON_TEXTS):
            raise ValueError(f"no reason has the code {min(unknown)!r}")
        return lacking


def survey_time_and_host_fields(inspected: Host) -> dict[str, Any]:
    """Return the fields that all surveys have: when, on what."""
    return {
        "measured_at": utc_now(),
        "state": host.state_digest(inspected),
        "thp": inspected.thp.enabled,
    }


class MemoryRequest(NamedTuple):
    """A way of requesting memory, and the reason code if Linux refuses it."""

    asked: str
    words: str  # in a sentence
    refused: str = "memory-short"


class MemoryRequestsDocument(SurveyDocument, frozen=True):
    """A survey of all ways. A subclass has `got`, of those that succeeded; `lacking` has the
    others' reason codes."""

    all: ClassVar[Mapping[str, MemoryRequest]] = {}
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


def inspect_for_ways() -> Host:
    """Return this computer. Raises Unavailable: not-linux; page-size-unsupported unless large pages
    are 2 MiB."""
    inspected = host.inspect_machine()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    if inspected.base_page_bytes != 4096:
        raise Unavailable(
            "page-size-unsupported",
            "the program asks for 2 MiB, which goes with base pages of 4 KiB",
        )
    return inspected


def ways_fields(inspected: Host) -> dict[str, Any]:
    """Return the fields that all surveys of ways have: when, on what."""
    return survey_time_and_host_fields(inspected) | {
        "file_system": procfs.file_system(build_folder().resolve())
    }


def try_each_way(ways: Iterable[str], measure: Callable[[str], Granted]) -> dict[str, Any]:
    """Try every way once, since page sizes do not vary as times do. Return the fields got and
    lacking."""
    got: list[Granted] = []
    lacking: dict[str, str] = {}
    for way in ways:
        try:
            got.append(measure(way))
        except Unavailable as why:
            lacking[way] = why.code
    return {"got": got, "lacking": lacking}


# --- programs


class WayAnswer(BaseModel, extra="forbid", frozen=True, strict=True):
    """What the program prints: address and bytes of the requested part, bytes mapped."""

    way: str
    address: PositiveInt
    array_bytes: PositiveInt
    mapped_bytes: PositiveInt


def run_way(
    program: str, way: str, size_bytes: int, refused: Mapping[int, str]
) -> tuple[WayAnswer, PagesOfArray]:
    """Run a program of kernels/runtimes in one way; return its answer and what smaps says.

    refused: reason codes by exit status. Raises Unavailable for those, and for a program that
    hangs, crashes, prints garbage or proves nothing.
    """
    line, smaps, _ = run_and_read_smaps(
        [
            sys.executable,
            str(RUNTIME_SOURCES_FOLDER / program),
            way,
            str(size_bytes),
            str(build_folder()),
        ],
        refused,
    )
    answer = parse_program_answer(line, WayAnswer)
    if answer.way != way:
        raise Unavailable("kernel-failed", f"asked for {way}, got another")
    return answer, pages_of_array(smaps, answer.address, answer.array_bytes)


def pages_of_array(smaps: str, address: int | None, array_bytes: int) -> PagesOfArray:
    """Return what holds an array, by smaps. Raises Unavailable: linux-lacks, and what `pages`
    raises."""
    try:
        return measure_pages_of_array(parse_smaps_mappings(smaps), address, array_bytes)
    except ValueError as error:
        raise unknown_smaps_format_error(str(error)) from None


class ObservedRun(NamedTuple):
    """A program's line, and its /proc smaps and status while it waited."""

    line: bytes
    smaps: str
    status: str


def run_and_read_smaps(
    command: Sequence[str], refused: Mapping[int, str], pass_fds: Sequence[int] = ()
) -> ObservedRun:
    """Run a program to its line, read its smaps, let it end. Nothing of it outlives the call.

    refused: reason codes by exit status. Raises Unavailable: those, kernel-failed,
    oom-killed, kernel-failed.
    """
    name = Path(command[0]).name
    with tempfile.TemporaryFile() as stderr:
        child = _started(command, stderr, pass_fds)
        late = threading.Event()

        def end_late() -> None:
            late.set()
            _end(child)

        watchdog = threading.Timer(TIME_LIMIT_S, end_late)
        watchdog.start()
        with child:
            try:
                ran, more = _listen(child)
                code = child.wait() if not more else 0
            finally:
                watchdog.cancel()
                _end(child)
                watchdog.join()
        last = _last_line(stderr)
    if late.is_set():
        raise Unavailable("kernel-failed", f"{name} gave no answer in {TIME_LIMIT_S:.0f} s")
    if more:
        raise Unavailable("kernel-failed", "more than one line")
    if code in refused:
        raise Unavailable(refused[code], last or "the kernel refuses it")
    if code == -signal.SIGKILL:
        raise Unavailable("oom-killed", name)
    if code or not ran.line:
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        raise Unavailable("kernel-failed", "; ".join(filter(None, (how, last))))
    return ran


def _started(
    command: Sequence[str], stderr: IO[bytes], pass_fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    try:  # without buffers, of which nothing is left to write to one that has ended
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=ROOT,
            bufsize=0,
            start_new_session=True,
            env=clean_environment(),
            pass_fds=tuple(pass_fds),
        )
    except OSError as error:
        name = Path(command[0]).name
        raise Unavailable("kernel-failed", f"{name}: {error.strerror}") from None


def _last_line(stderr: IO[bytes]) -> str:
    """Return the last line of what was printed, "" for nothing."""
    stderr.seek(0)
    lines = stderr.read(1 << 16).decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _listen(child: subprocess.Popen[bytes]) -> tuple[ObservedRun, bytes]:
    """Return what a program printed, and the first byte beyond its line."""
    assert child.stdin and child.stdout  # pipes
    line = child.stdout.readline(1 << 16)
    smaps = status = ""
    if line.endswith(b"\n"):
        with contextlib.suppress(OSError):  # it has ended: its exit status says why
            with open(f"/proc/{child.pid}/smaps", errors="replace", newline="\n") as file:
                smaps = file.read()
            status = procfs.text(Path(f"/proc/{child.pid}/status"))
        with contextlib.suppress(OSError):
            child.stdin.write(b"\n")
    return ObservedRun(line, smaps, status), child.stdout.read(1)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a program with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
