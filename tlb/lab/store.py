"""data/: appends each record so that nothing finished is lost, and reads back only what proves
whole.

`<root>/<machine>/` is published: what git keeps. `<root>/own/<machine>/` is what this computer has
measured, which git ignores; lab.publishing alone adds the one to the other.

`<kernel>.jsonl` holds the rows of a kernel, each once (lab.lines); `grids.json` the points that
each experiment asked for, by kernel, and so which rows are whose. Readers never write. A writer of
rows holds the file's lock; it cuts off a torn last line and moves lines that do not prove whole to
`<kernel>.quarantine.jsonl`. A writer of a document holds the folder's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, TypeAdapter

from tlb.lab import columns, lines
from tlb.lab.lines import Stored
from tlb.lab.record import NAME, Point, Record, Slug
from tlb.reasons import Unavailable
from tlb.system.files import (
    OPEN_FLAGS,
    ROOT,
    append_whole,
    disk_errors,
    is_at,
    lock,
    replace,
    sync_folder,
)

MACHINE = re.compile(r"[a-z0-9-]{1,64}")
# Names in data/ and words in a notebook that are no machine's id.
RESERVED = {"this", "reference", "literature", "own"}
GRIDS = "grids"  # the document of which points each experiment asked for
# the document of what this computer could not do, which nobody reads of a published one
LACKS = "lacking"

Grids = dict[str, dict[str, set[str]]]  # the points' ids, by experiment and kernel
GRIDS_SCHEMA = TypeAdapter(
    dict[Slug, dict[Slug, set[Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]]]]
)


def data_root() -> Path:
    """TLB_DATA, or data/ of this checkout."""
    return Path(os.environ.get("TLB_DATA") or ROOT / "data")


class Store:
    """The records under one root. Raises Unavailable: bad-parameter, no-data, disk-full,
    disk-read-only."""

    def __init__(self, root: Path | str, top: Path | None = None):
        """top: the folder above `root`, itself included, under which nothing may be a symbolic
        link; by default `root`, which may."""
        self.root = Path(root)
        self._top = top or self.root
        # What each file looked like after this store's last append. A file is checked again once it
        # has changed.
        self._known: dict[Path, tuple[int, int, int]] = {}

    @property
    def own(self) -> Store:
        """What was measured here, apart from what is published."""
        return Store(self.root / "own", self.root)

    def ask(self, machine: str, experiment: str, points: Iterable[Point]) -> None:
        """Adds to the points that an experiment asked for, on disk when this returns; it takes none
        away. Raises Unavailable("no-data") for a grids.json that is none: to begin it anew would
        make the rows of all other experiments nobody's."""
        _checked(experiment)

        def asked() -> dict[str, dict[str, list[str]]]:
            grids = self.grids(machine)
            for point in points:
                grids.setdefault(experiment, {}).setdefault(point.kernel, set()).add(
                    lines.point_id(point)
                )
            return {
                name: {kernel: sorted(ids) for kernel, ids in grid.items()}
                for name, grid in grids.items()
            }

        self._rewrite(machine, GRIDS, asked)

    def append(self, machine: str, record: Record, kernel_digest: str) -> str:
        """Adds one line to its kernel's rows, on disk when this returns; its key. ValueError for a
        record that fits no column."""
        key, line = lines.write(record, kernel_digest)
        path = self._path(machine, record.kernel, ".jsonl")
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
        """`columns.frame` of the rows of the points that an experiment asked for, whoever had them
        measured: by kernel, in the order of appending. Empty where nothing was measured. Raises
        Unavailable("no-data") for a grids.json that is none."""
        rows = self._asked(machine, experiment).values()
        return columns.frame([row.record for row in rows], [row.kernel_digest for row in rows])

    def keys(self, machine: str, experiment: str) -> set[str]:
        """The keys that `load` has a row for."""
        return set(self._asked(machine, experiment))

    def records(self, machine: str, kernels: Collection[str]) -> dict[str, Record]:
        """All rows of some kernels by key, whoever asked for them. Of two with one key the first,
        so no result is replaced, unless the second counted what the first could not."""
        return {
            key: row.record
            for kernel in kernels
            for key, row in self._rows(machine, kernel).items()
        }

    def broken(self, machine: str) -> dict[str, int]:
        """How many lines do not prove whole, by kernel, of those whose rows an experiment asked
        for: readers leave them out, the next writer moves them aside."""
        kernels = sorted({kernel for grid in self.grids(machine).values() for kernel in grid})
        counts = {kernel: lines.read(self._path(machine, kernel, ".jsonl")) for kernel in kernels}
        return {
            kernel: count
            for kernel, (entries, torn) in counts.items()
            if (count := sum(isinstance(row, ValueError) for row, _ in entries) + bool(torn))
        }

    def whole(self, machine: str) -> dict[str, list[tuple[Stored, bytes]]]:
        """The rows that prove whole, each with its line, in the order of appending, by those
        kernels that an experiment asked for and that have any. Raises Unavailable("no-data") for a
        grids.json that is none."""
        kernels = sorted({kernel for grid in self.grids(machine).values() for kernel in grid})
        rows = {
            kernel: [
                (row, line)
                for row, line in lines.read(self._path(machine, kernel, ".jsonl"))[0]
                if isinstance(row, Stored)
            ]
            for kernel in kernels
        }
        return {kernel: whole for kernel, whole in rows.items() if whole}

    def _asked(self, machine: str, experiment: str) -> dict[str, Stored]:
        grid = self.grids(machine).get(_checked(experiment), {})
        return {
            key: row
            for kernel in sorted(grid)
            for key, row in self._rows(machine, kernel).items()
            if row.point in grid[kernel]
        }

    def _rows(self, machine: str, kernel: str) -> dict[str, Stored]:
        rows: dict[str, Stored] = {}
        for row, _ in lines.read(self._path(machine, kernel, ".jsonl"))[0]:
            if (
                isinstance(row, Stored)
                and row.record.kernel == kernel
                and (row.key not in rows or row.record.counts_more_than(rows[row.key].record))
            ):
                rows[row.key] = row
        return rows

    def grids(self, machine: str) -> Grids:
        """The points that each experiment asked for. Raises Unavailable("no-data") for a grids.json
        that is none."""
        path = self._path(machine, GRIDS, ".json")
        try:
            return GRIDS_SCHEMA.validate_json(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise Unavailable(
                "no-data",
                f"{machine} has no readable {GRIDS}.json, which says whose rows are whose; put it back from a "
                "copy or from git, or delete it and run each chapter once more, which measures no row again",
            ) from None

    def machines(self) -> list[str]:
        """The ids that have a folder with a machine.json or records, sorted."""
        if not self.root.is_dir():
            return []
        folders = (
            d for d in self.root.iterdir() if MACHINE.fullmatch(d.name) and d.name not in RESERVED
        )
        real = (d for d in folders if d.is_dir() and not d.is_symlink())
        return sorted(
            d.name for d in real if (d / "machine.json").is_file() or any(d.glob("*.jsonl"))
        )

    def experiments(self, machine: str) -> list[str]:
        """The names of those that asked for points of a machine, sorted. Raises
        Unavailable("no-data") for a grids.json that is none."""
        return sorted(self.grids(machine))

    def kernels(self, machine: str, experiment: str) -> list[str]:
        """Those that an experiment asked for points of, on a machine, sorted. Raises
        Unavailable("no-data") for a broken grids.json."""
        return sorted(self.grids(machine).get(experiment, {}))

    def reference(self, experiment: str = "") -> str:
        """The first id in data/reference: the machine whose results are published for all to
        compare with. Of an experiment that was not measured there, the first of those below it that
        has it: a deliberate stand-in, as each page names its machine."""
        try:
            listed = (self.root / "reference").read_text("ascii").split() or [""]
        except (OSError, UnicodeDecodeError):
            raise Unavailable("no-data", "data/reference names no machine") from None
        for machine in set(listed) - set(self.machines()):
            raise Unavailable(
                "no-data", f"data/reference names {machine[:64]!r}, which is not in data/"
            )
        return next((machine for machine in listed if self._has(machine, experiment)), listed[0])

    def _has(self, machine: str, experiment: str) -> bool:
        """Whether an experiment was measured there: points that it asked for or, of one that has
        none, a document of its name."""
        return (
            experiment in self.experiments(machine)
            or bool(experiment)
            and self._path(machine, experiment, ".json").is_file()
        )

    def resolve(self, machine: str, this: str = "this", experiment: str = "") -> str:
        """The id that a notebook's `machine` means for its experiment. "this" gives `this`, which
        need have no data yet."""
        if machine == "this":
            return this
        if machine == "reference":
            return self.reference(experiment)
        self.folder(machine)
        if machine not in self.machines():
            raise Unavailable("no-data", f"no machine {machine!r} in data/")
        return machine

    def write_machine(self, machine: str, host_json: dict[str, Any]) -> None:
        """Writes machine.json. From Host.model_dump(mode="json")."""
        self.write_document(machine, "machine", host_json)

    def write_document(self, machine: str, name: str, content: dict[str, Any]) -> None:
        """Writes <name>.json in one step, and only if it changes: what is not rows."""
        self._rewrite(machine, name, lambda: content)

    def _rewrite(self, machine: str, name: str, content: Callable[[], dict[str, Any]]) -> None:
        """content: called under the folder's lock, so that what it reads is what it replaces."""
        path = self._path(machine, name, ".json")
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(path.parent, os.O_RDONLY | OPEN_FLAGS)
            try:
                lock(folder)
                text = (
                    json.dumps(content(), indent=2, sort_keys=True, allow_nan=False).encode()
                    + b"\n"
                )
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

    def folder(self, machine: str) -> Path:
        """Where its files are. Raises Unavailable("bad-parameter") for a name that is none, and for
        a symbolic link."""
        if not (isinstance(machine, str) and MACHINE.fullmatch(machine)):
            raise Unavailable(
                "bad-parameter", f"machine {str(machine)[:80]!r} is not 1 to 64 of a-z 0-9 -"
            )
        if machine in RESERVED:
            raise Unavailable("bad-parameter", f"{machine!r} names no machine by its id")
        return self._inside(self.root / machine)

    def _path(self, machine: str, name: str, suffix: str) -> Path:
        return self._inside(self.folder(machine) / (_checked(name) + suffix))

    def _inside(self, path: Path) -> Path:
        if os.path.realpath(path) != os.path.join(
            os.path.realpath(self._top), path.relative_to(self._top)
        ):
            raise Unavailable(
                "bad-parameter", f"{path} is a symbolic link, and data/ may hold none"
            )
        return path

    @contextmanager
    def _locked(self, path: Path) -> Iterator[int]:
        """A descriptor that appends to `path`, exclusively locked, all its lines whole."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o644)
            try:
                lock(fd)
                # Whoever held the lock before may have replaced the file; and so may the check,
                # just now.
                if is_at(fd, path) and (self._known.get(path) == _look(fd) or lines.mend(fd, path)):
                    yield fd
                    return
            finally:
                os.close(fd)


def _checked(name: str) -> str:
    """The name of an experiment, a kernel or a document, which is part of a path. Raises
    Unavailable("bad-parameter")."""
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise Unavailable(
            "bad-parameter", f"the name {str(name)[:80]!r} is not 1 to 64 of a-z 0-9 _ -"
        )
    return name


def _look(fd: int) -> tuple[int, int, int]:
    seen = os.fstat(fd)
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
