"""data/: append records so that nothing finished is lost, and read back only lines that prove
whole.

`<root>/<machine>/` is published: what git keeps. `<root>/own/<machine>/` is what this computer has
measured, which git ignores; only lab.publishing adds the one to the other.

`<kernel>.jsonl` holds the rows of a kernel, each once (lab.lines). `grids.json` has the points that
each experiment asked for, by kernel, and so which rows belong to which experiment. Readers never
write. A writer of rows holds the file's lock, cuts off a torn last line and moves corrupt lines to
`<kernel>.quarantine.jsonl`. A writer of a document holds the folder's lock."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlb.lab import columns, lines
from tlb.lab.grids import GRIDS_SCHEMA, Grids, listed_grids
from tlb.lab.lines import Stored
from tlb.lab.record import NAME, Point, Record
from tlb.reasons import Unavailable
from tlb.system import files
from tlb.system.files import OPEN_FLAGS, disk_errors, lock

if TYPE_CHECKING:
    import pandas as pd

MACHINE = re.compile(r"[a-z0-9-]{1,64}")
OWN = "own/"  # before a machine's id: of the rows measured here, as `tlb compare` names them
RESERVED = {"this", "reference", "literature", "own"}  # what is no machine's id
GRIDS = "grids"  # the document of the points that each experiment asked for
LACKS = "lacking"  # the document of what this computer could not do; not published

_NO_GRIDS = (
    f"has no readable {GRIDS}.json, which says whose rows are whose; put it back from a copy or "
    "from git, or delete it and run each chapter once more, which measures no row again"
)


def data_root() -> Path:
    """Return TLB_DATA, else data/ of this clone, else the user's folder."""
    return Path(os.environ.get("TLB_DATA") or files.data_root())


class Store:
    """The records under one root.

    Methods raise Unavailable: bad-parameter for a name or a symbolic link, no-data for what is not
    there and for an unreadable grids.json, disk-full, disk-read-only.
    """

    def __init__(self, root: Path | str, top: Path | None = None):
        """top: the folder, by default `root`, below which nothing may be a symbolic link."""
        self.root = Path(root)
        self._top = top or self.root
        # Inode, size and time of each file after the last append here; if changed, check it again.
        self._seen: dict[Path, tuple[int, int, int]] = {}

    @property
    def own(self) -> Store:
        return Store(self.root / "own", self.root)

    # ---- rows

    def ask(self, machine: str, experiment: str, points: Iterable[Point]) -> None:
        """Add to the points that an experiment asked for, on disk when this returns.

        An unreadable grids.json is refused: to start anew would orphan all other experiments' rows.
        """
        _checked(experiment)

        def merged() -> dict[str, dict[str, list[str]]]:
            asked: dict[str, set[str]] = {}
            for point in points:
                asked.setdefault(point.kernel, set()).add(lines.point_id(point))
            return listed_grids(self.grids(machine), {experiment: asked})

        self._rewrite(machine, GRIDS, merged)

    def append(self, machine: str, record: Record, kernel_digest: str) -> str:
        """Add one line to its kernel's rows, on disk when this returns; return its key. Raises
        ValueError for a record that fits no column."""
        key, line = lines.write(record, kernel_digest)
        path = self._path(machine, record.kernel, ".jsonl")
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked(path) as fd:
                is_new = os.fstat(fd).st_size == 0
                files.append_whole(fd, line)
                self._seen[path] = _stamp(fd)
                if is_new:
                    files.sync_folder(path.parent)
                    files.sync_folder(self.root)
        return key

    def load(self, machine: str, experiment: str) -> pd.DataFrame:
        """Return `columns.frame` of the rows of an experiment's points, whoever had them measured:
        by kernel, in the order of appending. Empty where nothing was measured."""
        rows = self._asked(machine, experiment).values()
        return columns.frame([row.record for row in rows], [row.kernel_digest for row in rows])

    def keys(self, machine: str, experiment: str) -> set[str]:
        return set(self._asked(machine, experiment))

    def records(self, machine: str, kernels: Collection[str]) -> dict[str, Record]:
        """Return the records of all `rows` of some kernels by key."""
        rows = [row for kernel in kernels for row in self.rows(machine, kernel).items()]
        return {key: row.record for key, row in rows}

    def broken(self, machine: str) -> dict[str, int]:
        """Return the number of corrupt or torn lines of each kernel that has any."""
        counts = {}
        for kernel, entries, torn in self._entries(machine):
            count = sum(isinstance(row, ValueError) for row, _ in entries) + bool(torn)
            counts |= {kernel: count} if count else {}
        return counts

    def whole(self, machine: str) -> dict[str, list[Stored]]:
        """Return the whole rows in the order of appending, by kernel that an experiment asked
        for."""
        found = {}
        for kernel, entries, _ in self._entries(machine):
            if rows := [row for row, _ in entries if isinstance(row, Stored)]:
                found[kernel] = rows
        return found

    def _entries(self, machine: str) -> Iterator[tuple[str, list, bytes]]:
        """Yield each kernel that an experiment asked for, its lines and its torn last line."""
        for kernel in self.kernels(machine):
            yield kernel, *lines.read(self._path(machine, kernel, ".jsonl"))

    def _asked(self, machine: str, experiment: str) -> dict[str, Stored]:
        grid = self.grids(machine).get(_checked(experiment), {})
        rows = [(k, row) for k in sorted(grid) for row in self.rows(machine, k).items()]
        return {key: row for kernel, (key, row) in rows if row.point in grid[kernel]}

    def rows(self, machine: str, kernel: str) -> dict[str, Stored]:
        """Return the rows of a kernel by key: the first of each key, unless a later one has counters
        that it lacks."""
        rows: dict[str, Stored] = {}
        for row, _ in lines.read(self._path(machine, kernel, ".jsonl"))[0]:
            if not isinstance(row, Stored) or row.record.kernel != kernel:
                continue
            if row.key not in rows or row.record.counts_more_than(rows[row.key].record):
                rows[row.key] = row
        return rows

    def grids(self, machine: str) -> Grids:
        try:
            return GRIDS_SCHEMA.validate_json(self._path(machine, GRIDS, ".json").read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise Unavailable("no-data", f"{machine} {_NO_GRIDS}") from None

    def experiments(self, machine: str) -> list[str]:
        """Return the experiments that asked for points of a machine, sorted."""
        return sorted(self.grids(machine))

    def kernels(self, machine: str, experiment: str = "") -> list[str]:
        """Return the kernels that an experiment, by default any, asked for points of, sorted."""
        grids = self.grids(machine)
        asked = [grids.get(experiment, {})] if experiment else grids.values()
        return sorted({kernel for grid in asked for kernel in grid})

    # ---- machines

    def machines(self) -> list[str]:
        """Return the ids that have a folder with a machine.json or rows, sorted."""
        if not self.root.is_dir():
            return []
        named = [d for d in self.root.iterdir() if MACHINE.fullmatch(d.name)]
        real = [d for d in named if d.name not in RESERVED and d.is_dir() and not d.is_symlink()]
        return sorted(
            d.name for d in real if (d / "machine.json").is_file() or any(d.glob("*.jsonl"))
        )

    def reference(self, experiment: str = "") -> str:
        """Return the first id in data/reference, whose results are published for comparison; for an
        experiment that was not measured there, the first that has it. Pages name their machine."""
        try:
            listed = (self.root / "reference").read_text("ascii").split() or [""]
        except (OSError, UnicodeDecodeError):
            raise Unavailable("no-data", "data/reference names no machine") from None
        for machine in set(listed) - set(self.machines()):
            why = f"data/reference names {machine[:64]!r}, which is not in data/"
            raise Unavailable("no-data", why)
        return next((machine for machine in listed if self._has(machine, experiment)), listed[0])

    def _has(self, machine: str, experiment: str) -> bool:
        """Return whether an experiment asked for points there, or has a document of its name."""
        has_document = bool(experiment) and self._path(machine, experiment, ".json").is_file()
        return has_document or experiment in self.experiments(machine)

    def resolve(self, machine: str, this: str = "this", experiment: str = "") -> str:
        """Return the id that a notebook's `machine` means for its experiment. "this" gives `this`,
        which need have no data yet."""
        if machine == "this":
            return this
        if machine == "reference":
            return self.reference(experiment)
        self.folder(machine)
        if machine not in self.machines():
            raise Unavailable("no-data", f"no machine {machine!r} in data/")
        return machine

    # ---- documents

    def write_machine(self, machine: str, host_json: dict[str, Any]) -> None:
        self.write_document(machine, "machine", host_json)

    def write_document(self, machine: str, name: str, content: dict[str, Any]) -> None:
        """Write <name>.json in one step, and only if it changes."""
        self._rewrite(machine, name, lambda: content)

    def _rewrite(self, machine: str, name: str, content: Callable[[], dict[str, Any]]) -> None:
        """content: called under the folder's lock, so that what it reads is what it replaces."""
        path = self._path(machine, name, ".json")
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(path.parent, os.O_RDONLY | OPEN_FLAGS)
            try:
                lock(folder)
                text = json.dumps(content(), indent=2, sort_keys=True, allow_nan=False) + "\n"
                if not path.is_file() or path.read_bytes() != text.encode():
                    files.replace(path, text.encode())
            finally:
                os.close(folder)

    def read_machine(self, machine: str) -> dict[str, Any]:
        return self.read_document(machine, "machine")

    def read_document(self, machine: str, name: str) -> dict[str, Any]:
        """Return <name>.json as it was given to `write_document`."""
        try:
            content = json.loads(self._path(machine, name, ".json").read_bytes())
        except (OSError, ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise Unavailable("no-data", f"{machine} has no readable {name}.json")
        return content

    # ---- paths and locks

    def folder(self, machine: str) -> Path:
        """Return the folder of a machine's files."""
        if not (isinstance(machine, str) and MACHINE.fullmatch(machine)):
            name = f"machine {str(machine)[:80]!r}"
            raise Unavailable("bad-parameter", f"{name} is not 1 to 64 of a-z 0-9 -")
        if machine in RESERVED:
            raise Unavailable("bad-parameter", f"{machine!r} names no machine by its id")
        return self._inside(self.root / machine)

    def _path(self, machine: str, name: str, suffix: str) -> Path:
        return self._inside(self.folder(machine) / (_checked(name) + suffix))

    def _inside(self, path: Path) -> Path:
        real = os.path.join(os.path.realpath(self._top), path.relative_to(self._top))
        if os.path.realpath(path) != real:
            why = f"{path} is a symbolic link, and data/ may hold none"
            raise Unavailable("bad-parameter", why)
        return path

    @contextmanager
    def _locked(self, path: Path) -> Iterator[int]:
        """Yield a descriptor that appends to `path`, exclusively locked, all its lines whole."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o644)
            try:
                lock(fd)
                # The last holder of the lock may have replaced the file; so may mend(), just now.
                is_current = files.is_at(fd, path)
                if is_current and (self._seen.get(path) == _stamp(fd) or lines.mend(fd, path)):
                    yield fd
                    return
            finally:
                os.close(fd)


def _checked(name: str) -> str:
    """Return the name of an experiment, a kernel or a document if it may be part of a path."""
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        why = f"the name {str(name)[:80]!r} is not 1 to 64 of a-z 0-9 _ -"
        raise Unavailable("bad-parameter", why)
    return name


def _stamp(fd: int) -> tuple[int, int, int]:
    status = os.fstat(fd)
    return status.st_ino, status.st_size, status.st_mtime_ns
