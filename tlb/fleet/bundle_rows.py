"""The rows of a bundle: read from Parquet within limits on sizes and memory, each checked against its
schema, its kernel and its computer.

The rules find mistakes, other units and other versions; they cannot find real rows that were multiplied
by a factor.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tlb.fleet.public_text import is_public_text, keep_public_words
from tlb.machine.host import Host
from tlb.measure import build, kernels, row_tables
from tlb.measure.machine_states import RecordWithExperiments
from tlb.measure.plan import order_seed
from tlb.measure.record import Record
from tlb.measure.row_tables import INT64_MAX
from tlb.system.reasons import REASON_TEXTS, LazyModule, Unavailable, current_reason_code

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet
else:
    pa, parquet = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

ROWS_FILE_NAME = "rows.parquet"
MAX_ROWS = 100_000  # the largest published machine has 16,817
MAX_COLUMNS = 512
MAX_UNPACKED_BYTES = 256 << 20  # of all columns
BATCH_ROWS, MOST_BATCH_BYTES = 1024, 64 << 20  # that are read at once
MOST_READING_BYTES = 400 << 20  # memory, beyond what the process has

FASTEST_GHZ = 10.0  # above every core's clock
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)  # before the first kernel was written
AHEAD = timedelta(hours=25)  # by which a clock may be wrong: an hour, and a zone mistaken for UTC
SLACK = 1e-3  # a kernel prints times to six digits
# which numba measured once
GONE_TWINS = {"graph_walk", "radix_partition", "random_touch", "stride_sum"}
Rules = Iterator[tuple[bool, str]]  # whether a rule holds, and what is wrong otherwise


def bundle_refused_error(why: str) -> Unavailable:
    """Return the error of a bundle that is not accepted, in which a stranger's text is escaped."""
    return Unavailable("bundle-refused", ascii(why)[1:-1])


def shortened_error_text(error: Exception) -> str:
    """Return the beginning of what an error says; of a model's first error the field and the message."""
    text = str(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return text.partition("\n")[0][:120]


def read_bundle_rows(
    content: bytes, host: Host, by_state: dict[str, Host], now: datetime
) -> Iterator[RecordWithExperiments]:
    """Yield the rows of a Parquet file, each with the experiments that asked for its point. host: of
    rows in a state that is not in by_state. Raises Unavailable."""
    known, seen = experiments(), set[str]()
    for number, row in enumerate(_columns_of(content), 1):
        try:
            asked = row[row_tables.EXPERIMENTS_COLUMN]
            record = row_tables.record_of(row)
            row_tables.check_record(record)
            why = _breach(record, by_state.get(record.state, host), now)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            why = shortened_error_text(error)
        else:
            if not asked or None in asked or not known.issuperset(asked):
                why = why or "no chapter asked for it"
            if record.key in seen:
                why = why or "it is there twice"
            seen.add(record.key)
        if why:
            raise bundle_refused_error(f"{ROWS_FILE_NAME}, row {number}: {why}")
        yield record, sorted({*asked})


@cache
def experiments() -> frozenset[str]:
    """Return the names of experiments that ask for points."""
    # With NumPy and pandas, which a worker has not
    from tlb.measure import survey
    from tlb.report import notebooks

    return frozenset({*notebooks.chapter_names_in_order(), survey.NAME})


# --- Parquet


def _columns_of(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, each by its columns. Raises Unavailable for a file that is no Parquet, too
    large, or of another schema."""
    try:
        with _limited_memory():
            file = parquet.ParquetFile(
                pa.BufferReader(content),
                page_checksum_verification=True,
                thrift_string_size_limit=1 << 20,
                thrift_container_size_limit=1 << 16,
            )
            _check_file(file)
            batches = file.iter_batches(BATCH_ROWS, use_threads=False)
        while True:
            with _limited_memory():
                batch = next(batches, None)
                if batch is None:
                    return
                if batch.nbytes > MOST_BATCH_BYTES:
                    raise bundle_refused_error(f"{ROWS_FILE_NAME} has rows that are too long")
                rows = batch.to_pylist()
            yield from rows
    # pyarrow's own are of these kinds
    except (OSError, ValueError, NotImplementedError, KeyError, MemoryError) as error:
        raise bundle_refused_error(
            f"{ROWS_FILE_NAME} cannot be read: {shortened_error_text(error)}"
        ) from None


def _check_file(file: parquet.ParquetFile) -> None:
    """Check sizes and schema before any row is read."""
    about, schema = file.metadata, file.schema_arrow
    own = {*schema.names} - row_tables.shared_names()
    is_known = len(own) <= MAX_COLUMNS and schema.equals(row_tables.arrow_schema(sorted(own)))
    if not is_known or {*(about.metadata or {})} - {b"ARROW:schema"}:
        raise bundle_refused_error(f"{ROWS_FILE_NAME} has other columns than rows have")
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    unpacked = sum(group.total_byte_size for group in groups)
    if not (1 <= about.num_rows <= MAX_ROWS and unpacked <= MAX_UNPACKED_BYTES):
        raise bundle_refused_error(f"{ROWS_FILE_NAME} has no rows, or more than a machine gives")


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Let this process allocate no more than MOST_READING_BYTES more, on Linux."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[5])
        used = pages * resource.getpagesize()
        limits = resource.getrlimit(resource.RLIMIT_DATA)
    except (ImportError, OSError, ValueError):
        yield
        return
    pool, most = pa.default_memory_pool(), used + MOST_READING_BYTES
    if limits[1] != resource.RLIM_INFINITY:
        most = min(most, limits[1])
    pa.set_memory_pool(pa.system_memory_pool())  # others reserve a GiB at once
    resource.setrlimit(resource.RLIMIT_DATA, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
        pa.set_memory_pool(pool)


# --- rules


def _breach(record: Record, host: Host, now: datetime) -> str:
    """Return what is wrong with a row by the first rule that it breaks, "" if it breaks none."""
    is_gone = record.engine == "numba" and record.kernel in GONE_TWINS
    if not is_gone and build.source(record.kernel, record.engine) is None:
        return f"there is no kernel {record.kernel} in {record.engine}"
    rules = _point(record), _computer(record, host), _times(record, now), _counts(record)
    broken = (wrong for group in rules for holds, wrong in group if not holds)
    return next(broken, "")


def _point(record: Record) -> Rules:
    """Yield what a point may ask of its kernel, and the seed that follows from it."""
    kernel = kernels.declaration(record.kernel)
    options = {option.name for option in record.options}
    is_known = record.mode in {*kernel.modes, ""} and options <= kernel.options.keys()
    yield is_known, "its kernel has no such mode or option"
    newest = build.declared_measures(record.kernel, record.engine)
    yield record.measures <= newest, "its kernel does not measure in that version"
    words = {word for name in record.also for word in name.split("_") if not word.isdigit()}
    yield words <= _kernel_words(), "its kernel has no such result"
    is_drawn = record.seed == order_seed(record.point, record.repeat)
    yield is_drawn, "its seed is not that of its point and repeat"


@cache
def _kernel_words() -> frozenset[str]:
    """Return every word of the kernels' sources; the names of results are made of them."""
    sources = (
        path for kind in ("c", "h", "py") for path in build.KERNELS_FOLDER.rglob(f"*.{kind}")
    )
    text = " ".join(path.read_text(encoding="utf-8") for path in sources)
    return frozenset(re.findall(r"[a-z][a-z0-9]*", text))


def _computer(record: Record, host: Host) -> Rules:
    yield (
        keep_public_words(record.compiler) == record.compiler,
        "its compiler is no name and version",
    )
    has_cpu = record.cpu < host.logical_cpus or record.cpu in host.usable_cpus
    yield has_cpu and host.logical_cpus > 0, "it ran on a CPU that this computer does not have"
    is_stride = record.stride_bytes == host.base_page_bytes * record.stride_pages
    yield is_stride, "its stride is not of this computer's base pages"
    has_room = record.arena_bytes <= host.memory.total_bytes
    yield has_room, "its arena is larger than this computer's memory"


def _times(record: Record, now: datetime) -> Rules:
    batches = record.batch_ns_per_access
    off = abs(statistics.median(batches) / record.ns_per_access - 1)
    yield off <= SLACK, "its time per access is not the median of its batches"
    mean = record.elapsed_ns / record.accesses
    is_mean = min(batches) * (1 - SLACK) <= mean <= max(batches) * (1 + SLACK)
    yield is_mean, "its accesses and its time are not those of its batches"
    is_nested = record.elapsed_ns + record.prepare_ns <= record.wall_ns <= INT64_MAX
    yield is_nested, "its region took longer than its process"
    cycles = record.ns_per_access * (record.core_ghz or FASTEST_GHZ)
    least = kernels.declaration(record.kernel).least_cycles
    yield record.core_ghz <= FASTEST_GHZ and cycles >= least, "no core is as fast"
    began = datetime.strptime(record.started_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    is_possible = FIRST_DAY <= began <= now + AHEAD
    yield is_possible, "it began before there was a kernel, or begins in the future"


def _counts(record: Record) -> Rules:
    values = [*record.also.values(), *(edge.least_ns for edge in record.histogram)]
    values += [counter.value or 0 for counter in record.counters.values()]
    yield all(abs(value) <= INT64_MAX for value in values), "a result is beyond 64 bits"
    for counter in record.counters.values():
        is_known = current_reason_code(counter.reason or "no-data") in REASON_TEXTS
        yield (
            is_known and is_public_text(counter.event or ""),
            "a counter has an unknown reason or event",
        )
