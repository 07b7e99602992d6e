"""`tlb atlas ask`: an atlas by SQL, in DuckDB, which reads its Parquet files and nothing else,
writes nothing and fetches nothing.

A question is one SELECT over the views `rows`, `machines`, `profile` and `verdicts`, or the name of
one in questions.sql. Neither the question nor the atlas is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from tlb.stats import intervals
from tlb.system.reasons import Unavailable

VERSION_FILE, VERSION = "version", "5"
MEMORY = "2GiB"  # that a question may take
BATCH = 10_000  # rows that are fetched at once
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "preserve_insertion_order": "false",
    "threads": "4",
    "max_temp_directory_size": "8GiB",
}
_INTERVAL = {"n": "BIGINT", "median": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE"}
_INTERVAL |= {"coverage": "DOUBLE"}
_SQL = Path(__file__).with_name("questions.sql").read_text("ascii")
_QUESTION = re.compile(r"^-- (\w+): (.+)\n((?:(?!-- \w+: ).*\n)+)", re.MULTILINE)
QUESTIONS = {name: (about, sql) for name, about, sql in _QUESTION.findall(_SQL)}
_, VIEWS = QUESTIONS.pop("views")
_OF_QUESTIONS = (
    duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError, duckdb.IntegrityError,
    duckdb.PermissionException, duckdb.OutOfMemoryException, TypeError, UnicodeError,
)  # fmt: skip


class Answer:
    """Its columns, and its rows as they are fetched."""

    def __init__(self, found: duckdb.DuckDBPyConnection):
        self._found = found
        self.columns = [column[0] for column in found.description]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while rows := _answered(lambda: self._found.fetchmany(BATCH)):
            yield from rows


@contextmanager
def opened(atlas: Path, memory: str = MEMORY) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an atlas with its views, locked. Raises Unavailable: no-atlas, atlas-broken where a file
    is missing or cut off."""
    version = atlas / VERSION_FILE
    if not version.is_file() or version.read_bytes() != VERSION.encode():
        raise Unavailable("no-atlas", f"{atlas} is no atlas of this version of the project")
    config = _SETTINGS | {"memory_limit": memory}
    with TemporaryDirectory() as spill, duckdb.connect(":memory:", config=config) as connection:
        connection.execute("SET enable_progress_bar=false")
        connection.execute("SET temp_directory=$spill", {"spill": spill})
        connection.create_function(
            "median_interval", _median_interval, ["DOUBLE[]"], duckdb.struct_type(_INTERVAL)
        )
        kernels = _quoted(sorted(atlas.glob("rows/*/*.parquet")))
        partitions = "hive_partitioning=true, hive_types={kernel: VARCHAR}, union_by_name=true"
        views = {
            name: _quoted([atlas / f"{name}.parquet"])
            for name in ("machines", "profile", "verdicts")
        }
        for name, files in views.items():
            _run(connection, f"CREATE VIEW {name} AS FROM read_parquet([{files}])")
        _run(connection, f"CREATE VIEW rows AS FROM read_parquet([{kernels}], {partitions})")
        _run(connection, VIEWS)
        allowed = ", ".join([kernels, *views.values()])
        connection.execute(f"SET allowed_paths=[{allowed}]; SET enable_external_access=false")
        connection.execute("SET lock_configuration=true")
        yield connection


def _quoted(paths: list[Path]) -> str:
    """Return paths as a list of SQL strings."""
    return ", ".join("'" + str(path.resolve()).replace("'", "''") + "'" for path in paths)


def _run(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    _answered(lambda: connection.execute(sql))


def ask(connection: duckdb.DuckDBPyConnection, sql: str) -> Answer:
    """Answer one SELECT. Raises Unavailable: bad-query for anything else and for what DuckDB
    rejects, atlas-broken for a file that cannot be read."""
    statements = _answered(lambda: duckdb.extract_statements(sql))
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise Unavailable("bad-query", "it is no single SELECT")
    return _answered(lambda: Answer(connection.execute(statements[0])))


def _answered(do: Callable[[], Any]) -> Any:
    """Call, and turn DuckDB's errors into a sentence about the question or about the files."""
    try:
        return do()
    except (duckdb.Error, RuntimeError, TypeError, UnicodeError) as error:
        is_file = isinstance(error, duckdb.InvalidInputException) and ".parquet" in str(error)
        code = "bad-query" if isinstance(error, _OF_QUESTIONS) and not is_file else "atlas-broken"
        # Without its drawing, and its advice on settings that are locked here.
        text = " ".join(re.split(r"\n\s*\n|\nLINE ", str(error))[0].split()).rstrip(".")
        raise Unavailable(code, text or type(error).__name__) from None


def _median_interval(values: list[float]) -> dict[str, float] | None:
    """Return the book's interval of a median, in SQL's terms."""
    found = intervals.median_interval(values)
    numbers = (len(values), *found.value_and_bounds, found.coverage)
    return dict(zip(_INTERVAL, numbers, strict=True)) if values else None
