"""The rows measured on this computer, in one SQLite file a machine.

`records` has each row once, by its key: the first, unless a later one has counters that it lacks.
`asked` says which experiments' grids have a point. Each append is on disk when it returns; what a
killed writer had not finished is not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shutil import disk_usage
from threading import Lock
from typing import Any, NamedTuple

from pydantic import ValidationError

from tlb.measure.record import Point, Record, point_id
from tlb.system.files import disk_errors_as_unavailable
from tlb.system.reasons import Unavailable

DATABASE_FILE = "rows.sqlite"
DATABASE_LOG_FILES = (
    f"{DATABASE_FILE}-wal",
    f"{DATABASE_FILE}-shm",
)  # that SQLite keeps beside it while it is open
INDEX_BYTES = 32 << 10  # of the log's index, which SQLite makes first
BUSY_S = 600  # to wait for another writer: each holds the file for milliseconds, on a slow disk too
_TABLES = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, kernel TEXT NOT NULL,
    point TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asked (
    experiment TEXT NOT NULL, kernel TEXT NOT NULL, point TEXT NOT NULL,
    PRIMARY KEY (experiment, kernel, point)) WITHOUT ROWID;
COMMIT;
"""
_ASKED = "(SELECT point FROM asked WHERE experiment = :experiment AND kernel = records.kernel)"
_REASONS = {
    sqlite3.SQLITE_FULL: "disk-refused",
    sqlite3.SQLITE_READONLY: "disk-refused",
    sqlite3.SQLITE_CANTOPEN: "disk-refused",
    sqlite3.SQLITE_PERM: "disk-refused",
    sqlite3.SQLITE_CORRUPT: "file-damaged",
    sqlite3.SQLITE_NOTADB: "file-damaged",
}


class MeasuredValue(NamedTuple):
    """The time of a record, and its quantities whose event could not be requested: enough to decide
    what to measure, in a tenth of the time that whole records take."""

    ns_per_access: float
    uncountable: frozenset[str]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> MeasuredValue:
        counters = record.get("counters", {}).items()
        uncountable = (
            name for name, one in counters if one.get("reason") and one.get("event") is None
        )
        return cls(record["ns_per_access"], frozenset(uncountable))


class RowDatabase:
    """The rows of one machine. Methods raise Unavailable: disk-refused, file-damaged,
    and disk-refused on a file system that SQLite's log cannot use."""

    def __init__(self, path: Path):
        self.path = path
        # Opened with the first write and kept: to open and close it takes longer than to append. A
        # forked process opens its own.
        self._writer: tuple[int, sqlite3.Connection] | None = None
        self._turn = Lock()  # a fleet's worker measures now in one thread and now in another

    def ask(self, experiment: str, points: Iterable[Point]) -> None:
        """Add to the points that an experiment asked for; nothing is written if it asked for all of
        them before."""
        rows = {(experiment, point.kernel, point_id(point)) for point in points}
        if rows.issubset(self._read("SELECT * FROM asked")):
            return
        with self._writing() as database:
            database.executemany("INSERT OR IGNORE INTO asked VALUES (?, ?, ?)", sorted(rows))

    def append(self, *records: Record) -> None:
        """Add records, all or none; each replaces that of its key if it has counters that lacks."""
        with self._writing() as database:
            for record in records:
                _put(database, record)

    def rows(self, experiment: str = "") -> list[dict[str, Any]]:
        """Return the records of an experiment's points, or all, as JSON objects: by kernel, in the
        order of appending."""
        where = f"WHERE point IN {_ASKED}" if experiment else ""
        query = f"SELECT record FROM records {where} ORDER BY kernel, number"
        return [json.loads(text) for (text,) in self._read(query, {"experiment": experiment})]

    def keys(self, experiment: str) -> set[str]:
        """Return the keys of an experiment's rows."""
        query = f"SELECT key FROM records WHERE point IN {_ASKED}"
        return {key for (key,) in self._read(query, {"experiment": experiment})}

    def records(self, kernels: Collection[str] | None = None) -> dict[str, Record]:
        """Return the records of some kernels, by default of all, by key: by kernel, in the order of
        appending."""
        found = self._read("SELECT kernel, key, record FROM records ORDER BY kernel, number")
        return {
            key: Record.model_validate_json(text)
            for kernel, key, text in found
            if kernels is None or kernel in kernels
        }

    def measured(self, kernels: Collection[str]) -> dict[str, MeasuredValue]:
        """Return what each record of some kernels says of its point, by key."""
        found = self._read("SELECT kernel, key, record FROM records")
        return {
            key: MeasuredValue.of(json.loads(text))
            for kernel, key, text in found
            if kernel in kernels
        }

    @property
    def version(self) -> tuple[int, ...] | None:
        """Equal numbers as long as nobody writes; None if this process has written."""
        if self._writer is not None:
            return None
        found = (self.path, self.path.with_name(DATABASE_LOG_FILES[0]))
        states = [path.stat() for path in found if path.exists()]
        return tuple(number for state in states for number in (state.st_mtime_ns, state.st_size))

    def digest(self) -> bytes:
        """Return a digest of all records and of what was asked for. That of the file would change
        when a writer closes it."""
        rows = self._read("SELECT key, record FROM records ORDER BY number")
        asked = self._read("SELECT * FROM asked ORDER BY experiment, kernel, point")
        return hashlib.sha256(repr((rows, asked)).encode()).digest()

    def asked(self) -> dict[tuple[str, str], set[str]]:
        """Return the ids of the points that were asked for, by experiment and kernel."""
        asked: dict[tuple[str, str], set[str]] = {}
        for experiment, kernel, point in self._read("SELECT * FROM asked"):
            asked.setdefault((experiment, kernel), set()).add(point)
        return asked

    def _read(self, query: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        if not self.path.is_file():
            return []
        # A killed writer's log is put in order by the next process that opens the file, which
        # therefore must be able to write. In a read-only folder there is no writer, and the file
        # alone is complete.
        mode = "rw" if os.access(self.path.parent, os.W_OK) else "ro"
        if mode == "ro" and not self.path.with_name(DATABASE_LOG_FILES[0]).exists():
            mode = "ro&immutable=1"
        with self._errors(), closing(self._connected(mode)) as database:
            # A writer killed before it had made the tables leaves a file without any.
            if not database.execute("SELECT 1 FROM sqlite_master").fetchone():
                return []
            return database.execute(query, values or {}).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the database in a transaction that no other writer is in."""
        with self._turn, self._errors():
            if self._writer is None or self._writer[0] != os.getpid():
                self._writer = os.getpid(), self._opened()
            database = self._writer[1]
            database.execute("BEGIN IMMEDIATE")
            with database:  # commits, or rolls back
                yield database

    def _opened(self) -> sqlite3.Connection:
        """Return the database to write to, made if there is none."""
        with disk_errors_as_unavailable(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        database = self._connected("rwc")
        # A reader sees the last whole state while a writer adds to the log.
        (log,) = database.execute("PRAGMA journal_mode=WAL").fetchone()
        if log != "wal":
            raise Unavailable(
                "disk-refused",
                f"no shared memory, as on NFS, for the database in {self.path.parent}",
                "Name a folder on a local disk in TLB_DATA, and run the command again; nothing measured is lost.",
            )
        database.execute("PRAGMA synchronous=FULL")  # a commit is on disk
        database.executescript(_TABLES)
        return database

    def _connected(self, mode: str) -> sqlite3.Connection:
        address = f"{self.path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(
            address, BUSY_S, isolation_level=None, uri=True, check_same_thread=False
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # the low byte of an extended code
            number = getattr(error, "sqlite_errorcode", 0) & 0xFF
            code = _REASONS.get(number)
            # No room for the log's index is an error of input and output.
            if number == sqlite3.SQLITE_IOERR and disk_usage(self.path.parent).free < INDEX_BYTES:
                code = "disk-refused"
            if code is None:
                raise
            raise Unavailable(code, f"{self.path}: {error}") from error


def _put(database: sqlite3.Connection, record: Record) -> None:
    found = database.execute("SELECT record FROM records WHERE key = ?", [record.key])
    text = record.model_dump_json(exclude_defaults=True)
    if (before := found.fetchone()) is None:
        row = (record.key, record.kernel, point_id(record.point), text)
        columns = "(key, kernel, point, record)"
        database.execute(f"INSERT INTO records {columns} VALUES (?, ?, ?, ?)", row)
    elif record.counts_more_than(Record.model_validate_json(before[0])):
        database.execute("UPDATE records SET record = ? WHERE key = ?", [text, record.key])


# --- rows of earlier versions of this book, which were lines of JSON, converted once

_STAYS = re.compile(r"machine|translation\.json|quantities|claims\.json|grids\.json")
KEPT = "json-lines"  # the folder that the files of the earlier version move to
# What the identity of a point left out where it had the default.
_LEFT_OUT = {"stride_pages": 1, "mode": "", "options": ()}


def convert_rows(folder: Path, database: RowDatabase) -> None:
    """Add the rows of `<kernel>.jsonl` to a database, with the experiments that `grids.json` names,
    and move these files aside. Damaged lines are left out, as they were before."""
    lines = [path for path in sorted(folder.glob("*.jsonl")) if "." not in path.stem]
    if not lines or database.path.exists():
        return
    records = [record for path in lines for record in _records(path)]
    grids = folder / "grids.json"
    asked = json.loads(grids.read_bytes()) if grids.is_file() else {}
    for experiment, points in asked.items():
        known = {(kernel, point) for kernel, ids in points.items() for point in ids}
        own = {record.point for record in records if _identity(record.point) in known}
        database.ask(experiment, own)
    database.append(*records)
    with disk_errors_as_unavailable(folder):
        (folder / KEPT).mkdir(exist_ok=True)
        for path in [*folder.glob("*.jsonl"), *folder.glob("grids.json")]:
            path.rename(folder / KEPT / path.name)


def move_documents(folder: Path, documents: Path) -> None:
    """Move documents from beside the rows; delete verdicts, which are computed now."""
    moved = [path for path in folder.glob("*.json") if not _STAYS.match(path.name)]
    if not moved:
        return
    with disk_errors_as_unavailable(folder):
        documents.mkdir(exist_ok=True)
        for path in moved:
            with suppress(FileNotFoundError):  # another process moves them too
                if path.name == "verdicts.json":
                    path.unlink()
                else:
                    path.rename(documents / path.name)


def _records(path: Path) -> list[Record]:
    """Return the records of the lines that prove whole."""
    found = []
    for line in path.read_bytes().split(b"\n"):
        try:
            content = json.loads(line)
            digest, record = content.pop("digest"), dict(content["record"])
            if digest != _digest(content):
                continue
            if record.pop("schema_version") == 1:
                record["source"] = content["kernel_digest"]
            found.append(Record.model_validate_json(json.dumps(record)))
        except (ValidationError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _identity(point: Point) -> tuple[str, str]:
    """Return a point's kernel and the id that grids.json knew it by."""
    fields = point.model_dump()
    kept = {name: value for name, value in fields.items() if _LEFT_OUT.get(name) != value}
    return point.kernel, _digest(kept)


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
