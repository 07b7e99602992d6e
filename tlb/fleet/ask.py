"""`tlb atlas ask`: an atlas by SQL, in DuckDB, which reads its parts and nothing else, writes
nothing and fetches nothing.

A question is one SELECT over the views `rows`, `machines`, `profile` and `verdicts`, or the name of
one in questions.sql. Anybody may ask, and anybody may have built the atlas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from scipy.stats import binom

from tlb.reasons import Unavailable

VERSION, MANIFEST = 4, "manifest.json"
MEMORY, SPILL, THREADS = (
    "2GiB",
    "8GiB",
    "4",
)  # what a question may take of memory, of the disk, and of the CPUs
MOST_VALUES = 200_000  # a median of more has no interval
BATCH = 10_000  # rows that are fetched at once
_PART = re.compile(r"(rows/kernel=[a-z0-9_-]{1,64}/[0-9]+|machines|profile|verdicts)\.parquet")
_OFF = (
    "autoinstall_known_extensions",
    "autoload_known_extensions",
    "allow_community_extensions",
    "python_enable_replacements",
)
_SETTINGS = dict.fromkeys((*_OFF, "preserve_insertion_order"), "false") | {
    "threads": THREADS,
    "max_temp_directory_size": SPILL,
}
_SQL = Path(__file__).with_name("questions.sql").read_text("ascii")
# name -> (what it asks, SQL)
QUESTIONS = {
    name: (says, sql)
    for name, says, sql in re.findall(
        r"^-- (\w+): (.+)\n((?:(?!-- \w+: ).*\n)+)", _SQL, re.MULTILINE
    )
}
_, VIEWS = QUESTIONS.pop("views")
_OF_QUESTIONS = (
    duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError, duckdb.IntegrityError,
    duckdb.PermissionException,
    duckdb.OutOfMemoryException, TypeError, UnicodeError,
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
    """Open an atlas with its views, locked. Raises Unavailable: no-atlas, atlas-broken where a part
    is gone or cut off."""
    paths = {
        part: "'" + str(atlas.resolve() / part).replace("'", "''") + "'" for part in _parts(atlas)
    }
    with (
        TemporaryDirectory() as spill,
        duckdb.connect(":memory:", config=_SETTINGS | {"memory_limit": memory}) as connection,
    ):
        connection.execute(
            "SET enable_progress_bar=false; SET temp_directory=$spill", {"spill": spill}
        )
        connection.register("computed", pa.table(_ranks()))
        connection.execute("CREATE TABLE ranks AS FROM computed")
        connection.unregister("computed")
        for table in ("rows", "machines", "profile", "verdicts"):
            own = ", ".join(path for part, path in paths.items() if re.match(table, part))
            how = (
                ", hive_partitioning=true, hive_types={kernel: VARCHAR}, union_by_name=true"
                if table == "rows"
                else ""
            )
            sql = f"CREATE VIEW {table} AS FROM read_parquet([{own}]{how})"
            _answered(lambda sql=sql: connection.execute(sql))
        _answered(lambda: connection.execute(VIEWS))
        allowed = ", ".join(paths.values())
        connection.execute(
            f"SET allowed_paths=[{allowed}]; SET enable_external_access=false; SET "
            "lock_configuration=true"
        )
        yield connection


def _parts(atlas: Path) -> list[str]:
    try:
        manifest = json.loads((atlas / MANIFEST).read_bytes())
        parts = dict(manifest["parts"]) if manifest["version"] == VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        parts = {}
    if not parts or not all(_PART.fullmatch(part) for part in parts):
        raise Unavailable("no-atlas", f"{atlas} has no {MANIFEST} of this version of the project")
    for part, size in parts.items():
        path = atlas / part
        if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
            raise Unavailable("atlas-broken", str(path))
    return sorted(parts)


def ask(connection: duckdb.DuckDBPyConnection, sql: str) -> Answer:
    """Answer one SELECT. Raises Unavailable: bad-query for anything else, and for what DuckDB
    objects to; atlas-broken for a part that cannot be read."""
    statements = _answered(lambda: duckdb.extract_statements(sql))
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise Unavailable("bad-query", "it is no single SELECT")
    return _answered(lambda: Answer(connection.execute(statements[0])))


def _answered(do: Callable[[], Any]) -> Any:
    """Call, and put what DuckDB objects to into a sentence: the question, or else the files."""
    try:
        return do()
    except (duckdb.Error, RuntimeError, TypeError, UnicodeError) as error:
        is_file = isinstance(error, duckdb.InvalidInputException) and ".parquet" in str(error)
        code = "bad-query" if isinstance(error, _OF_QUESTIONS) and not is_file else "atlas-broken"
        text = re.split(r"\n\s*\n|\nLINE ", str(error))[
            0
        ]  # without its drawing, and its advice on settings that are locked here
        raise Unavailable(
            code, " ".join(text.split()).rstrip(".") or type(error).__name__
        ) from None


def _ranks() -> dict[str, np.ndarray]:
    """Return n, r, coverage: between which order statistics r and n + 1 - r of n values a median
    lies (`intervals.median_interval`)."""
    n = np.arange(1, MOST_VALUES + 1)
    r = np.maximum(1, binom.ppf(0.025, n, 0.5)).astype(np.int64)
    return {"n": n, "r": r, "coverage": 1 - 2 * binom.cdf(r - 1, n, 0.5)}
