"""What travels from a computer that measures to the one that collects: whole lines of rows, the digest of each, and who measured them.

No line is believed for having arrived. It is a row where its digest is that of its bytes, where it is to the byte what `Store.append` would
write, and where it is of a point that was asked for, of the kernels and the state that the sender named. A parcel of which one line is
none is refused whole. Nothing here knows a network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from experiments.lab import kernels, lines, measure
from experiments.lab.grid import MOST_REPEATS
from experiments.lab.record import Point, Record
from experiments.machine import host as hosts
from experiments.machine.host import Host
from experiments.system.files import ROOT
from experiments.words.reasons import Unavailable

MOST_LINE_BYTES = 1 << 20  # a row has some thousand; a histogram of every hop some ten thousand
SOURCES = {"kernels": ("*.c", "*.h", "*.py"), "experiments": ("*.py", "*.yaml")}  # what decides on a row, by folder

Digests = dict[str, str]


def program(point: Point) -> str:
    """What has one identity: a kernel in an engine and the functions of it that the point times, as "page_chase/c/follow"."""
    return "/".join((point.kernel, point.engine, *kernels.of(point.kernel).timed(point)))


class Sender(BaseModel):
    """A computer that measures: its description, the version of its book, and of each program of a task what its kernel's file declares
    to measure and the digest of its code."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Digests
    host: Host
    identities: dict[str, tuple[int, str]] = {}

    @property
    def machine(self) -> str:
        return hosts.machine_id(self.host)

    @property
    def state(self) -> str:
        return hosts.state(self.host)

    @property
    def shares_its_cpu(self) -> bool:
        """Whether the worker could not be kept off the CPU that is measured."""
        return len(self.host.usable_cpus) < 2


class Task(BaseModel):
    """What is asked of a computer: points of one kernel, by the experiment that they are of.

    have: of the rows that the client holds, by key, how many quantities each counted. Others are sent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    grids: dict[str, tuple[Point, ...]]
    repeats: int = Field(ge=1, le=MOST_REPEATS)
    most: int = Field(ge=0, le=MOST_REPEATS)
    seconds: float = Field(ge=0, allow_inf_nan=False)
    have: dict[str, int] = {}

    @property
    def points(self) -> set[Point]:
        return {point for points in self.grids.values() for point in points}

    @property
    def processes(self) -> int:
        """Of each point at most: those that a ledger has beyond are another task's."""
        return max(self.repeats, self.most)


class _Lack(BaseModel):
    """A point that cannot be measured there, or with none the task itself, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: str
    detail: str = ""
    point: Point | None = None


class Lacks(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    points: tuple[_Lack, ...] = ()
    stopped: _Lack | None = None


class Opened(NamedTuple):
    """What a parcel was found to hold. stopped: why the sender ended before all was measured."""

    sender: Sender
    rows: list[lines.Stored]
    lacking: dict[Point, Unavailable]
    stopped: Unavailable | None


@cache
def version() -> Digests:
    """Of each folder of sources that decides on a row, 12 hex digits over its files' names and contents."""
    return {folder: _of_folder(folder, patterns) for folder, patterns in SOURCES.items()}


def _of_folder(folder: str, patterns: Iterable[str]) -> str:
    files = sorted(path for pattern in patterns for path in (ROOT / folder).rglob(pattern))
    parts = (f"{path.relative_to(ROOT).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def counted(record: Record) -> int:
    """How many quantities a row counted: of two with one key, more are worth more (`Record.counts_more_than`)."""
    return len(record.counters) - len(record.uncountable)


def pack(sender: Sender, task: Task, records: Mapping[str, Record], lacking: dict[Point, Unavailable],
         stopped: Unavailable | None = None) -> dict[str, Any]:
    """A parcel of builtins: of these records, by their keys, the rows of the task that the client does not hold."""
    points, packed = task.points, []
    for key, record in records.items():
        if record.point in points and record.repeat < task.processes and record.state == sender.state:
            measures, digest = sender.identities.get(program(record.point), (0, ""))
            # The ledger may hold the same point of another version of the kernel.
            if record.measures == measures and lines.key_of(record, digest) == key and counted(record) > task.have.get(key, -1):
                packed.append(lines.write(record, digest)[1])
    lacks = Lacks(points=tuple(_Lack(code=why.code, detail=why.detail, point=point) for point, why in lacking.items()),
                  stopped=_Lack(code=stopped.code, detail=stopped.detail) if stopped else None)
    return {"sender": sender.model_dump_json(), "lines": packed, "sha256": [hashlib.sha256(line).hexdigest() for line in packed],
            "lacks": lacks.model_dump_json()}


def check_sender(text: object) -> Sender:
    """Who a worker says that it is. Raises Unavailable: fleet-garbage, and fleet-version where its book is another."""
    try:
        sender = TypeAdapter(Sender).validate_json(text)
    except (ValidationError, ValueError, TypeError, RecursionError) as error:
        raise Unavailable("fleet-garbage", f"its description is none: {_first(error)}") from None
    if sender.version != version():
        other = sorted(name for name in {*sender.version, *version()} if sender.version.get(name) != version().get(name))
        raise Unavailable("fleet-version", "; ".join(f"{name}/ is {sender.version.get(name)} there and {version().get(name)} here"
                                                     for name in other))
    return sender


def open_parcel(parcel: object, task: Task, known: Sender) -> Opened:
    """The rows of a parcel, each proved. known: who was asked. Raises Unavailable("fleet-garbage") with the first thing that is wrong;
    fleet-version. A sender that is no longer what it was when it was asked is "state-changed": ask who it is again."""
    if not isinstance(parcel, dict) or parcel.keys() != {"sender", "lines", "sha256", "lacks"}:
        raise Unavailable("fleet-garbage", f"a parcel of type {type(parcel).__name__}")
    sender, packed, digests = check_sender(parcel["sender"]), parcel["lines"], parcel["sha256"]
    if sender.machine != known.machine:
        raise Unavailable("fleet-garbage", f"rows of {sender.machine}, which is another computer")
    if sender.state != known.state:
        raise Unavailable("state-changed")
    points = task.points
    if not (isinstance(packed, list) and isinstance(digests, list) and len(packed) == len(digests) <= MOST_REPEATS * len(points)):
        raise Unavailable("fleet-garbage", "not a digest a line")
    rows = [_proved(line, digest, sender, task, points) for line, digest in zip(packed, digests, strict=True)]
    if len({row.key for row in rows}) < len(rows):
        raise Unavailable("fleet-garbage", "one row twice")
    try:
        lacks = Lacks.model_validate_json(parcel["lacks"])
        lacking = {lack.point: Unavailable(lack.code, lack.detail) for lack in lacks.points if lack.point in points}
        stopped = lacks.stopped and Unavailable(lacks.stopped.code, lacks.stopped.detail)
    except (ValidationError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unavailable("fleet-garbage", f"its reasons are none: {_first(error)}") from None
    return Opened(sender, rows, lacking, stopped)


def _proved(line: object, digest: object, sender: Sender, task: Task, points: Collection[Point]) -> lines.Stored:
    if not isinstance(line, bytes) or len(line) > MOST_LINE_BYTES or not line.endswith(b"\n"):
        raise Unavailable("fleet-garbage", f"a line of type {type(line).__name__}, or too long, or without its end")
    if hashlib.sha256(line).hexdigest() != digest:
        raise Unavailable("fleet-garbage", "a digest is of another line")
    row = lines.parse(line[:-1])
    if not isinstance(row, lines.Stored):
        raise Unavailable("fleet-garbage", str(row or "a line of another schema"))
    record, point = row.record, row.record.point
    if point not in points or record.repeat >= task.processes:
        raise Unavailable("fleet-garbage", f"a row of {point.kernel} that was not asked for")
    if record.state != sender.state or (record.measures, row.kernel_digest) != sender.identities.get(program(point)):
        raise Unavailable("fleet-garbage", "a row of another state, or of another kernel, than the worker named")
    if record.seed != measure.seed_of(point, record.repeat):
        raise Unavailable("fleet-garbage", f"a row whose order is not that of its point ({point.kernel})")
    if lines.write(record, row.kernel_digest)[1] != line:
        raise Unavailable("fleet-garbage", "a row that would be written otherwise")
    return row


def _first(error: Exception) -> str:
    return str(error.errors()[0]["msg"]) if isinstance(error, ValidationError) else type(error).__name__


