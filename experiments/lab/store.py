"""data/: appends each record so that nothing finished is lost, and reads back only what proves whole.

`<root>/<machine>/<experiment>.jsonl` is published: what git keeps. `<root>/own/<machine>/` is what this computer has measured, which
git ignores; `publish` alone puts the one in the place of the other.

A file of rows holds one canonical JSON object a line: key, digest, kernel_digest, record. Readers never write. A writer holds the
file's lock; it cuts off a torn last line and moves lines that do not prove whole to `<experiment>.quarantine.jsonl`. Lines of another
schema version stay where they are and are not loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from experiments.lab import columns
from experiments.lab.record import NAME, SCHEMA, Point, Record
from experiments.system.files import OPEN_FLAGS, ROOT, append_whole, disk_errors, is_at, lock, replace, sync_folder
from experiments.words.reasons import Unavailable

MACHINE = re.compile(r"[a-z0-9-]{1,64}")
# Names in data/ and words in a notebook that are no machine's id.
RESERVED = {"this", "reference", "literature", "own"}

# Fields of a point that older rows lack, with what they have in their place.
_LATER = {"stride_pages": 1, "mode": "", "options": ()}


class Stored(NamedTuple):
    key: str
    kernel_digest: str
    record: Record


def record_key(point: Point, repeat: int, kernel_digest: str, state: str) -> str:
    """What makes two measurements the same: 16 hex digits of the SHA-256 of its canonical JSON."""
    asked = point.model_dump()
    for name, default in _LATER.items():  # rows measured before there were such fields keep their keys
        if asked[name] == default:
            del asked[name]
    return _sha16({"point": asked, "repeat": repeat, "kernel_digest": kernel_digest, "state": state})


def data_root() -> Path:
    """TLB_DATA, or data/ of this checkout."""
    return Path(os.environ.get("TLB_DATA") or ROOT / "data")


class Store:
    """The records under one root. Raises Unavailable: bad-parameter, no-data, disk-full, disk-read-only."""

    def __init__(self, root: Path | str, top: Path | None = None):
        """top: the folder above `root`, itself included, under which nothing may be a symbolic link; by default `root`, which may."""
        self.root = Path(root)
        self._top = top or self.root
        # What each file looked like after this store's last append. A file is checked again once it has
        # changed.
        self._known: dict[Path, tuple[int, int, int]] = {}

    @property
    def own(self) -> Store:
        """What was measured here, apart from what is published."""
        return Store(self.root / "own", self.root)

    def append(self, machine: str, experiment: str, record: Record, kernel_digest: str) -> str:
        """Adds one line, on disk when this returns; its key. ValueError for a record that fits no column."""
        columns.check(record, kernel_digest)
        key = record_key(record.point, record.repeat, kernel_digest, record.state)
        content = {"key": key, "kernel_digest": kernel_digest, "record": record.model_dump(exclude_none=True)}
        line = _canonical({**content, "digest": _sha16(content)}) + b"\n"
        path = self._path(machine, experiment, ".jsonl")
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked(path) as fd:
                is_new = os.fstat(fd).st_size == 0
                append_whole(fd, line)
                self._known[path] = _look(fd)
                if is_new:
                    sync_folder(path.parent)
                    sync_folder(self.root)
        return key

    def load(self, machine: str, experiment: str) -> pd.DataFrame:
        """`columns.frame` of `records`, empty where nothing was measured."""
        whole = self._entries(machine, experiment).values()
        return columns.frame([entry.record for entry in whole], [entry.kernel_digest for entry in whole])

    def records(self, machine: str, experiment: str) -> dict[str, Record]:
        """By key, in the order of appending. Of two with one key the first, so no result is replaced, unless the second counted what
        the first could not."""
        return {key: entry.record for key, entry in self._entries(machine, experiment).items()}

    def keys(self, machine: str, experiment: str) -> set[str]:
        """The keys that `load` has a row for."""
        return set(self._entries(machine, experiment))

    def _entries(self, machine: str, experiment: str) -> dict[str, Stored]:
        stored: dict[str, Stored] = {}
        for entry, _ in _read(self._path(machine, experiment, ".jsonl"))[0]:
            if isinstance(entry, Stored) and (entry.key not in stored or entry.record.counts_more_than(stored[entry.key].record)):
                stored[entry.key] = entry
        return stored

    def machines(self) -> list[str]:
        """The ids that have a folder with a machine.json or records, sorted."""
        if not self.root.is_dir():
            return []
        folders = (d for d in self.root.iterdir() if MACHINE.fullmatch(d.name) and d.name not in RESERVED)
        real = (d for d in folders if d.is_dir() and not d.is_symlink())
        return sorted(d.name for d in real if (d / "machine.json").is_file() or any(d.glob("*.jsonl")))

    def experiments(self, machine: str) -> list[str]:
        """The names of a machine's files of records, sorted."""
        return sorted(path.stem for path in self._folder(machine).glob("*.jsonl") if NAME.fullmatch(path.stem))

    def reference(self) -> str:
        """The id in data/reference: the machine whose results are published for all to compare with."""
        try:
            machine = (self.root / "reference").read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise Unavailable("no-data", "data/reference names no machine") from None
        if machine not in self.machines():
            raise Unavailable("no-data", f"data/reference names {machine[:64]!r}, which is not in data/")
        return machine

    def resolve(self, machine: str, this: str = "this") -> str:
        """The id that a notebook's `machine` means. "this" gives `this`, which need have no data yet."""
        if machine == "this":
            return this
        if machine == "reference":
            return self.reference()
        self._folder(machine)
        if machine not in self.machines():
            raise Unavailable("no-data", f"no machine {machine!r} in data/")
        return machine

    def write_machine(self, machine: str, host_json: dict[str, Any]) -> None:
        """Writes machine.json. From Host.model_dump(mode="json")."""
        self.write_document(machine, "machine", host_json)

    def write_document(self, machine: str, name: str, content: dict[str, Any]) -> None:
        """Writes <name>.json in one step, and only if it changes: what is not rows."""
        path = self._path(machine, name, ".json")
        text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(path.parent, os.O_RDONLY | OPEN_FLAGS)
            try:
                lock(folder)
                if not path.is_file() or path.read_bytes() != text:
                    replace(path, text)
            finally:
                os.close(folder)

    def read_machine(self, machine: str) -> dict[str, Any]:
        """machine.json as `write_machine` was given it."""
        return self.read_document(machine, "machine")

    def read_document(self, machine: str, name: str) -> dict[str, Any]:
        """<name>.json as `write_document` was given it. Raises Unavailable("no-data")."""
        try:
            content = json.loads(self._path(machine, name, ".json").read_bytes())
        except (OSError, ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise Unavailable("no-data", f"{machine} has no readable {name}.json")
        return content

    def publish(self, machine: str) -> Path:
        """Puts what was measured here of a machine in the place of what is published of it: whole rows and documents.

        Nothing is merged. The new folder is on disk before the old one is moved aside, and that one goes last: after a kill -9 the same
        call begins again. Raises Unavailable("no-data") where nothing was measured.
        """
        target, own = self._folder(machine), self.own
        source = own._folder(machine)
        new, old = (self._inside(self.root / f".{machine}.{age}") for age in ("new", "old"))
        rows = {name: [line for entry, line in _read(own._path(machine, name, ".jsonl"))[0] if isinstance(entry, Stored)]
                for name in own.experiments(machine)}
        if not any(rows.values()):
            raise Unavailable("no-data", f"nothing was measured of {machine} here")
        files = {f"{name}.jsonl": b"".join(line + b"\n" for line in lines) for name, lines in rows.items() if lines}
        files |= {path.name: path.read_bytes() for path in source.iterdir() if path.suffix == ".json" and not path.is_symlink()}
        with disk_errors(target):
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(exist_ok=True)
            for name, content in files.items():
                replace(new / name, content)
            if target.exists():
                shutil.rmtree(old, ignore_errors=True)
                target.rename(old)
            new.rename(target)
            sync_folder(self.root)
            shutil.rmtree(old, ignore_errors=True)
        return target

    def _folder(self, machine: str) -> Path:
        if not (isinstance(machine, str) and MACHINE.fullmatch(machine)):
            raise Unavailable("bad-parameter", f"machine {str(machine)[:80]!r} is not 1 to 64 of a-z 0-9 -")
        if machine in RESERVED:
            raise Unavailable("bad-parameter", f"{machine!r} names no machine by its id")
        return self._inside(self.root / machine)

    def _path(self, machine: str, experiment: str, suffix: str) -> Path:
        if not (isinstance(experiment, str) and NAME.fullmatch(experiment)):
            raise Unavailable("bad-parameter", f"experiment {str(experiment)[:80]!r} is not 1 to 64 of a-z 0-9 _ -")
        return self._inside(self._folder(machine) / (experiment + suffix))

    def _inside(self, path: Path) -> Path:
        if os.path.realpath(path) != os.path.join(os.path.realpath(self._top), path.relative_to(self._top)):
            raise Unavailable("bad-parameter", f"{path} is a symbolic link, and data/ may hold none")
        return path

    @contextmanager
    def _locked(self, path: Path) -> Iterator[int]:
        """A descriptor that appends to `path`, exclusively locked, all its lines whole."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o644)
            try:
                lock(fd)
                # Whoever held the lock before may have replaced the file; and so may the check, just now.
                if is_at(fd, path) and (self._known.get(path) == _look(fd) or _mend(fd, path)):
                    yield fd
                    return
            finally:
                os.close(fd)


def _look(fd: int) -> tuple[int, int, int]:
    seen = os.fstat(fd)
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def _mend(fd: int, path: Path) -> bool:
    """Cuts off a torn last line and quarantines corrupt ones. False: `path` is another file now."""
    entries, torn = _read(path)
    if torn:
        os.ftruncate(fd, os.fstat(fd).st_size - len(torn))
    corrupt = [line for entry, line in entries if isinstance(entry, ValueError)]
    if not corrupt:
        return True
    quarantine = path.with_name(f"{path.stem}.quarantine.jsonl")
    out = os.open(quarantine, os.O_RDWR | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o644)
    try:
        # A kill -9 before the replacement below brings the same lines here again: once is enough.
        *there, torn = os.pread(out, os.fstat(out).st_size, 0).split(b"\n")
        new = [b""] * bool(torn) + [line for line in corrupt if line not in there]
        append_whole(out, b"".join(line + b"\n" for line in new))
    finally:
        os.close(out)
    whole = [line for entry, line in entries if not isinstance(entry, ValueError)]
    replace(path, b"".join(line + b"\n" for line in whole), like=os.fstat(fd))
    return False


def _read(path: Path) -> tuple[list[tuple[Stored | ValueError | None, bytes]], bytes]:
    """Each line with what it holds (None: another schema version; ValueError: corrupt), and the torn one."""
    try:
        *lines, torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], b""
    return [(_parse(line), line) for line in lines], torn


def _parse(line: bytes) -> Stored | ValueError | None:
    try:
        signed = json.loads(line)
        # To the byte: of a member that is there twice, JSON's readers take now the first and now the last.
        if line.removesuffix(b"\r") != _canonical(signed):
            return ValueError("the line is not written as append writes it")
        content = {name: value for name, value in signed.items() if name != "digest"}
        if content.keys() != {"key", "kernel_digest", "record"} or signed["digest"] != _sha16(content):
            return ValueError("the digest is of another line")
        if content["record"].get("schema_version") != SCHEMA:
            return None
        record, kernel_digest = Record.model_validate(content["record"]), content["kernel_digest"]
        columns.check(record, kernel_digest)
        if content["key"] != record_key(record.point, record.repeat, kernel_digest, record.state):
            return ValueError("the key is of another record")
        return Stored(content["key"], kernel_digest, record)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        return ValueError(f"{type(e).__name__}: {e}")


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _sha16(content: Any) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()[:16]
