"""data/: the rows and documents of machines.

`<root>/<machine>/` is published: what git keeps, its rows in `rows.parquet`. `<root>/own/<machine>/`
is what this computer has measured, which git ignores, its rows in `rows.sqlite`; only measure.machine_states
adds the one to the other. A row knows which experiments asked for its point, and so belong to it.
The same folder holds descriptions of the machine and, in documents/, data that are not rows.
Readers never write. A writer of a document holds the folder's lock.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tlb.measure import row_database, row_tables
from tlb.measure.record import NAME_PATTERN, Point, Record, point_id
from tlb.measure.row_database import DATABASE_FILE, DATABASE_LOG_FILES, MeasuredValue, RowDatabase
from tlb.measure.row_tables import EXPERIMENTS_COLUMN
from tlb.system import files
from tlb.system.files import SAFE_OPEN_FLAGS, disk_errors_as_unavailable, lock_file
from tlb.system.reasons import LazyModule, Unavailable, none_if_unavailable

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyarrow import parquet
else:
    pd, pa, parquet = LazyModule("pandas"), LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

MACHINE_ID_PATTERN = re.compile(r"[a-z0-9-]{1,64}")
OWN_MACHINE_PREFIX = (
    "own/"  # before a machine's id: of the rows measured here, as `tlb compare` names them
)
RESERVED_IDS = {"this", "reference", "literature", "own"}  # cannot be a machine's id
UNMEASURED_POINTS_DOCUMENT = (
    "lacking"  # the document of what this computer could not do; not published
)
PUBLISHED_ROWS_FILE = "rows.parquet"
DOCUMENTS = "documents"
# Descriptions of the machine in each of its states, and what is made from rows.
_BESIDE_ROWS = re.compile(r"(machine|quantities)(-[0-9a-f]{12})?|translation|claims")


def data_root() -> Path:
    """Return TLB_DATA, else data/ of this clone, else the user's folder."""
    return Path(os.environ.get("TLB_DATA") or files.default_data_root())


# A page reads the rows of a few machines up to ten times, and the next page most of them again.
@lru_cache(maxsize=8)
def _read_published(path: Path, _modified_ns: int, _size: int) -> pa.Table:
    try:
        return parquet.read_table(path, page_checksum_verification=True)
    except (OSError, ValueError) as error:  # pyarrow's own are of these kinds
        why = f"{path}: {str(error).splitlines()[0]}"
        raise Unavailable("file-damaged", why) from error


@lru_cache(maxsize=8)
def _published_kernels(path: Path, modified_ns: int, size: int) -> set[tuple[str, str]]:
    """Return each experiment of a published file with each of its kernels."""
    table = _read_published(path, modified_ns, size)
    pairs = zip(*(table[name].to_pylist() for name in (EXPERIMENTS_COLUMN, "kernel")), strict=True)
    return {(experiment, kernel) for asked, kernel in pairs for experiment in asked}


@lru_cache(maxsize=12)
def _published_rows(path: Path, modified_ns: int, size: int, experiment: str) -> pd.DataFrame:
    """Return `row_tables.rows_of` an experiment's rows, or of all, which nothing may change."""
    table = _read_published(path, modified_ns, size)
    if experiment:
        is_asked = [experiment in asked for asked in table[EXPERIMENTS_COLUMN].to_pylist()]
        table = table.filter(pa.array(is_asked, pa.bool_()))
    return row_tables.rows_of(table)


def _own_rows(database: RowDatabase, experiment: str) -> pd.DataFrame:
    return pd.DataFrame([row_tables.flat_row(row) for row in database.rows(experiment)])


@lru_cache(maxsize=12)
def _own_frame(path: Path, _version: tuple[int, ...], experiment: str) -> pd.DataFrame:
    """Return `row_tables.rows_frame` of an experiment's own rows, or of all, which nothing may
    change."""
    return row_tables.rows_frame(_own_rows(RowDatabase(path), experiment))


def write_published_rows(file: Path | IO[bytes], rows: Iterable[tuple[Record, list[str]]]) -> None:
    """Write records, each with the experiments that asked for its point, as a published file."""
    parquet.write_table(
        row_tables.arrow_table(rows),
        file,
        compression="zstd",
        compression_level=19,  # written once, read often
        write_page_checksum=True,
    )


class Store:
    """The machines under one root.

    Methods raise Unavailable: bad-parameter for a name or a symbolic link, no-data for what is not
    there, file-damaged, disk-refused.
    """

    def __init__(self, root: Path | str, top: Path | None = None):
        """top: the folder, by default `root`, below which nothing may be a symbolic link."""
        self.root = Path(root)
        self._top = top or self.root
        self._databases: dict[Path, RowDatabase] = {}

    def __reduce__(self) -> tuple[type[Store], tuple[Path, Path]]:
        return Store, (self.root, self._top)  # another process opens its own databases

    @property
    def own(self) -> Store:
        return Store(self.root / "own", self.root)

    # ---- rows

    def ask(self, machine: str, experiment: str, points: Iterable[Point]) -> None:
        """Add to the points that an experiment asked for, on disk when this returns."""
        _checked(experiment)
        self._database(machine).ask(experiment, points)

    def append(self, machine: str, record: Record) -> str:
        """Add a row, on disk when this returns; return its key. Raises ValueError for a record that
        fits no column."""
        row_tables.check_record(record)
        self._database(machine).append(record)
        return record.key

    def load(self, machine: str, experiment: str = "") -> pd.DataFrame:
        """Return `row_tables.rows_frame` of the rows of an experiment's points, also if another
        experiment had them measured, or of all points: by kernel, in the order of appending. Empty where nothing was measured."""
        database = self._database(machine)
        if (file := self._published_file(machine)) is None:
            if version := database.version:
                return _own_frame(database.path, version, experiment).copy(deep=False)
            return row_tables.rows_frame(_own_rows(database, experiment))
        own = _own_rows(database, experiment)
        published = _published_rows(*file, experiment)
        parts = [part for part in (published, own) if len(part)] or [published]
        return row_tables.rows_frame(pd.concat(parts, ignore_index=True))

    def measured(self, machine: str, kernels: Collection[str]) -> dict[str, MeasuredValue]:
        """Return what each record of some kernels says of its point, by key."""
        published = {
            record.key: MeasuredValue(record.ns_per_access, record.uncountable)
            for record, _ in self.published(machine, kernels)
        }
        return published | self._database(machine).measured(kernels)

    def keys(self, machine: str, experiment: str) -> set[str]:
        """Return the keys of an experiment's rows."""
        published = self.published(machine)
        keys = {record.key for record, asked in published if experiment in asked}
        return keys | self._database(machine).keys(experiment)

    def records(self, machine: str, kernels: Collection[str] | None = None) -> dict[str, Record]:
        """Return the records of some kernels, by default of all, by key."""
        published = self.published(machine, kernels)
        found = {record.key: record for record, _ in published}
        return found | self._database(machine).records(kernels)

    def published(
        self, machine: str, kernels: Collection[str] | None = None
    ) -> list[tuple[Record, list[str]]]:
        """Return the records of a published file and the experiments that asked for each."""
        file = self._published_file(machine)
        return [
            (row_tables.record_of(row), row[EXPERIMENTS_COLUMN])
            for row in (_read_published(*file).to_pylist() if file else ())
            if kernels is None or row["kernel"] in kernels
        ]

    def asked_rows(self, machine: str) -> list[tuple[Record, list[str]]]:
        """Return all records, each with the experiments that asked for its point."""
        database = self._database(machine)
        asked = database.asked()
        own = [
            (
                record,
                sorted(
                    experiment
                    for (experiment, kernel), points in asked.items()
                    if kernel == record.kernel and point_id(record.point) in points
                ),
            )
            for record in database.records().values()
        ]
        return self.published(machine) + own

    def experiments(self, machine: str) -> list[str]:
        """Return the experiments that have rows of a machine, or asked for points of it, sorted."""
        return sorted({experiment for experiment, _ in self._measured(machine)})

    def kernels(self, machine: str, experiment: str = "") -> list[str]:
        """Return the kernels that an experiment, by default any, has rows or points of, sorted."""
        pairs = self._measured(machine)
        return sorted({kernel for name, kernel in pairs if experiment in ("", name)})

    def _measured(self, machine: str) -> set[tuple[str, str]]:
        """Return each experiment with each of its kernels."""
        file = self._published_file(machine)
        return {*self._database(machine).asked()} | (_published_kernels(*file) if file else set())

    def _published_file(self, machine: str) -> tuple[Path, int, int] | None:
        """Return the published file, when it was modified and its size; None if there is none."""
        path = self._inside(self.folder(machine) / PUBLISHED_ROWS_FILE)
        if not path.is_file():
            return None
        status = path.stat()
        return path, status.st_mtime_ns, status.st_size

    def _database(self, machine: str) -> RowDatabase:
        folder = self.folder(machine)
        for name in (DATABASE_FILE, *DATABASE_LOG_FILES):
            self._inside(folder / name)
        if folder not in self._databases:
            self._databases[folder] = RowDatabase(folder / DATABASE_FILE)
            row_database.convert_rows(folder, self._databases[folder])
        return self._databases[folder]

    # ---- machines

    def machines(self) -> list[str]:
        """Return the ids that have a folder with a description or rows, sorted."""
        if not self.root.is_dir():
            return []
        named = [d for d in self.root.iterdir() if MACHINE_ID_PATTERN.fullmatch(d.name)]
        real = [
            d for d in named if d.name not in RESERVED_IDS and d.is_dir() and not d.is_symlink()
        ]
        files = ("machine.json", PUBLISHED_ROWS_FILE, DATABASE_FILE)
        return sorted(d.name for d in real if any((d / name).is_file() for name in files))

    def machines_in_order(self) -> list[str]:
        """Return `machines` as pages show them: the reference, others of its family (zen-), the
        rest."""
        first = none_if_unavailable(self.reference) or ""
        family = first.partition("-")[0]

        def place(name: str) -> tuple[bool, bool, str]:
            return name != first, name.partition("-")[0] != family, name

        return sorted(self.machines(), key=place)

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
        has_document = bool(experiment) and self.document_path(machine, experiment).is_file()
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
        """Write a document in one step, and only if it changes."""
        path = self.document_path(machine, name)
        with disk_errors_as_unavailable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(path.parent, os.O_RDONLY | SAFE_OPEN_FLAGS)
            try:
                lock_file(folder)
                text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"
                if not path.is_file() or path.read_bytes() != text.encode():
                    files.replace_file(path, text.encode())
            finally:
                os.close(folder)

    def read_machine(self, machine: str) -> dict[str, Any]:
        return self.read_document(machine, "machine")

    def read_document(self, machine: str, name: str) -> dict[str, Any]:
        """Return a document as it was given to `write_document`."""
        try:
            content = json.loads(self.document_path(machine, name).read_bytes())
        except (OSError, ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise Unavailable("no-data", f"{machine} has no readable {name}.json")
        return content

    def document_path(self, machine: str, name: str) -> Path:
        """Return the path of a document, or of a description of the machine."""
        is_beside = _BESIDE_ROWS.fullmatch(_checked(name))
        folder = self.folder(machine) if is_beside else self._documents_folder(machine)
        return self._inside(folder / f"{name}.json")

    def documents(self, machine: str) -> dict[str, Path]:
        """Return the paths of all documents and descriptions of a machine by name, sorted."""
        beside = self.folder(machine).glob("*.json")
        paths = [path for path in beside if _BESIDE_ROWS.fullmatch(path.stem)]
        paths += self._documents_folder(machine).glob("*.json")
        regular = {path.stem: path for path in paths if path.is_file() and not path.is_symlink()}
        return dict(sorted(regular.items()))

    def _documents_folder(self, machine: str) -> Path:
        folder = self._inside(self.folder(machine) / DOCUMENTS)
        row_database.move_documents(folder.parent, folder)
        return folder

    # ---- paths and locks

    def folder(self, machine: str) -> Path:
        """Return the folder of a machine's files."""
        if not (isinstance(machine, str) and MACHINE_ID_PATTERN.fullmatch(machine)):
            name = f"machine {str(machine)[:80]!r}"
            raise Unavailable("bad-parameter", f"{name} is not 1 to 64 of a-z 0-9 -")
        if machine in RESERVED_IDS:
            raise Unavailable("bad-parameter", f"{machine!r} names no machine by its id")
        return self._inside(self.root / machine)

    def _inside(self, path: Path) -> Path:
        real = os.path.join(os.path.realpath(self._top), path.relative_to(self._top))
        if os.path.realpath(path) != real:
            why = f"{path} is a symbolic link, and data/ may hold none"
            raise Unavailable("bad-parameter", why)
        return path


def _checked(name: str) -> str:
    """Return the name of an experiment, a kernel or a document if it may be part of a path."""
    if not (isinstance(name, str) and NAME_PATTERN.fullmatch(name)):
        why = f"the name {str(name)[:80]!r} is not 1 to 64 of a-z 0-9 _ -"
        raise Unavailable("bad-parameter", why)
    return name
