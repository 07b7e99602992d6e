"""`tlb atlas ask`: an atlas by SQL, in DuckDB, which reads its parts and nothing else, writes nothing and fetches nothing.

    rows, machines, profile, verdicts     views of the parts; `rows` with kernel and microarchitecture, all with microarchitecture
    median_interval(list(x))              {n, median, low, high, coverage}, as inference/intervals.py has it

A question is one SELECT. Who asks may be anybody, and so may be who built the atlas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.stats import binom

from experiments.fleet import atlas_build
from experiments.fleet.atlas_build import Manifest, is_whole
from experiments.fleet.atlas_schema import MACHINES, ROWS, SCHEMAS
from experiments.words.reasons import Unavailable

MEMORY, SPILL = "2GiB", "8GiB"  # what a question may take of memory, and of the disk beside it
THREADS = 4
LEAST_RANKS = 10_000  # of so many values, or as many as there are machines, a median has its interval
BATCH = 10_000  # rows that are fetched at once
_TAIL = 0.025  # what an interval of 95 % leaves on each side

# As `intervals.median_interval`: low and high are the order statistics r and n + 1 - r of the list.
_MEDIAN = """CREATE MACRO median_interval(xs) AS (
    SELECT {n: n, median: list_median(xs), low: list_sort(xs)[r], high: list_sort(xs)[n + 1 - r], coverage: coverage}
    FROM ranks WHERE n = len(xs))"""
# Of a machine's states, the one that was measured last.
_LATEST = "row_number() OVER (PARTITION BY machine ORDER BY measured_until DESC NULLS LAST, state) = 1 AS is_latest"


class Answer:
    """What a question gave: its columns, and its rows as they are fetched."""

    def __init__(self, found: duckdb.DuckDBPyConnection):
        self._found = found
        self.columns = [column[0] for column in found.description]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while rows := _answered(lambda: _interruptible(self._found, lambda: self._found.fetchmany(BATCH))):
            yield from rows

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(list(self), columns=self.columns)


@contextmanager
def opened(atlas: Path, memory: str = MEMORY, threads: int = THREADS) -> Iterator[duckdb.DuckDBPyConnection]:
    """An atlas with its views, locked. Raises Unavailable: no-atlas, atlas-broken where a part is gone or cut off."""
    manifest = atlas_build.read(atlas)
    lacking = next((part.path for part in manifest.parts if not is_whole(atlas, part)), None)
    if lacking:
        raise Unavailable("atlas-broken", f"{atlas / lacking}")
    with TemporaryDirectory() as spill, duckdb.connect(":memory:", config={
            "autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "allow_community_extensions": "false",
            "python_enable_replacements": "false", "memory_limit": memory, "threads": threads}) as connection:
        connection.execute(f"SET temp_directory={_quoted(spill)}; SET max_temp_directory_size='{SPILL}'")
        connection.execute("SET preserve_insertion_order=false; SET enable_progress_bar=false")
        _answered(lambda: _views(connection, atlas, manifest))
        paths = ", ".join(_quoted(str(atlas.resolve() / part.path)) for part in manifest.parts)
        connection.execute(f"SET allowed_paths=[{paths}]; SET enable_external_access=false; SET lock_configuration=true")
        yield connection


def ask(connection: duckdb.DuckDBPyConnection, sql: str) -> Answer:
    """Raises Unavailable: bad-query for what is no single SELECT, and for what DuckDB says of it; atlas-broken for a part that cannot be
    read."""
    statements = _answered(lambda: duckdb.extract_statements(sql))
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise Unavailable("bad-query", "it is no single SELECT")
    return _answered(lambda: Answer(_interruptible(connection, lambda: connection.execute(statements[0]))))


def _interruptible(connection: duckdb.DuckDBPyConnection, do: Callable[[], Any]) -> Any:
    """What `do` gives, with Ctrl-C heard at once: DuckDB looks for it between its tasks, and one task of a join may take hours."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(do)
        try:
            return answer.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


def _answered(do: Any) -> Any:
    """What `do` gives; in a sentence, what DuckDB says against it: of the question, or else of the files."""
    try:
        return do()
    except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError, duckdb.IntegrityError, duckdb.PermissionException,
            duckdb.OutOfMemoryException, TypeError, UnicodeError) as error:
        is_file = isinstance(error, duckdb.InvalidInputException) and ".parquet" in str(error)
        raise Unavailable("atlas-broken" if is_file else "bad-query", _sentence(error)) from None
    except (duckdb.Error, RuntimeError) as error:
        raise Unavailable("atlas-broken", _sentence(error)) from None


def _sentence(error: Exception) -> str:
    """DuckDB's message without its drawing of the line, and its own advice on settings that are locked here."""
    text = re.split(r"\n\s*\n|\nLINE ", str(error))[0]
    return " ".join(text.split()).rstrip(".") or type(error).__name__


def _views(connection: duckdb.DuckDBPyConnection, atlas: Path, manifest: Manifest) -> None:
    for name, schema in SCHEMAS.items():
        paths = [_quoted(str(atlas.resolve() / part.path)) for part in manifest.parts if part.table == name]
        partitions = ["kernel", "microarchitecture"] if name == ROWS else ["microarchitecture"]
        types = ", ".join(f"'{partition}': VARCHAR" for partition in partitions)
        source = f"read_parquet([{', '.join(paths)}], hive_partitioning=true, hive_types={{{types}}})"
        if not paths:
            empty = pa.schema([*schema, *(pa.field(partition, pa.string()) for partition in partitions)]).empty_table()
            connection.register(f"no_{name}", empty)
            source = f"no_{name}"
        connection.execute(f"CREATE VIEW {name} AS SELECT *{f', {_LATEST}' if name == MACHINES else ''} FROM {source}")
    machines = len({staged.machine for staged in manifest.inputs.values()})
    connection.register("computed", pa.table(ranks(max(LEAST_RANKS, machines))))
    connection.execute("CREATE TABLE ranks AS FROM computed")
    connection.unregister("computed")
    connection.execute(_MEDIAN)


def ranks(most: int) -> dict[str, np.ndarray]:
    """n, r, coverage: of n values, between which order statistics r and n + 1 - r a median lies (`intervals.median_interval`)."""
    n = np.arange(1, most + 1)
    r = np.maximum(1, binom.ppf(_TAIL, n, 0.5)).astype(np.int64)
    return {"n": n, "r": r, "coverage": 1 - 2 * binom.cdf(r - 1, n, 0.5)}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


