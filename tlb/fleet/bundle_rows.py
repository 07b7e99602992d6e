"""The rows of a bundle: read from Parquet within limits on sizes and memory, each checked against its
schema and against what its kernel could have printed on its computer.

A test holds that no published row breaks a rule. The rules find mistakes, other versions and invented
rows; they cannot find real rows that were multiplied by a factor.
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

from tlb.fleet import public_text
from tlb.machine.host import Host
from tlb.measure import build, kernels, row_tables
from tlb.measure.plan import order_seed
from tlb.measure.record import Record
from tlb.measure.row_tables import INT64_MAX
from tlb.measure.states import RecordWithExperiments
from tlb.system.page_sizes import BASE_PAGES, TABLE_ENTRY_BYTES, page_bytes
from tlb.system.reasons import REASON_TEXTS, LazyModule, Unavailable, current_reason_code

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet
else:
    pa, parquet = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

# Remedies for a bundle that is refused
REPACKED_BUNDLE_REMEDY = (
    "Use the file as `tlb bundle make` wrote it, not one that was repacked or extended."
)
UPDATE_BOTH_REMEDY = (
    "Update both checkouts to the same version, and make it again where it was measured."
)
IMPOSSIBLE_ROW_REMEDY = (
    "No kernel and no computer can print that: accept nothing of it, and ask its sender to measure "
    "again with an unchanged checkout."
)
ROWS_FILE_NAME = "rows.parquet"
MAX_ROWS = 100_000  # the largest published machine has 16,817
MAX_ROW_VALUES = 512  # in all lists of a row's column, on average
MAX_UNPACKED_BYTES = 256 << 20  # of all columns
BATCH_ROWS, MOST_BATCH_BYTES = 1024, 64 << 20  # that are read at once
MOST_READING_BYTES = 400 << 20  # memory, beyond what the process has

FASTEST_GHZ = 10.0  # above every core's clock
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)  # before the first kernel was written
AHEAD = timedelta(hours=25)  # by which a clock may be wrong: an hour, and a zone mistaken for UTC
SLACK = 1e-3  # a kernel prints times to six digits
TICK_MS = 100.0  # the resolution of counters of stolen time
# Their batches end when another program's do, so some batches are longer.
UNEVEN = {"collapse_chase", "neighbour_chase", "switch_chase"}
MOST_RESULTS = 64  # of a kernel's own, beside the columns that all have
# which numba measured once
GONE_TWINS = {"graph_walk", "radix_partition", "random_touch", "stride_sum"}
Rules = Iterator[tuple[bool, str]]  # whether a rule holds, and what is wrong otherwise


def read_bundle_rows(
    content: bytes, host: Host, by_state: dict[str, Host], now: datetime
) -> Iterator[RecordWithExperiments]:
    """Yield the rows of a Parquet file, each with the experiments that asked for its point. host: of
    rows in a state that is not in by_state. Raises Unavailable."""
    known, seen = experiments(), set[str]()
    for number, row in enumerate(_columns_of(content), 1):
        place = f"{ROWS_FILE_NAME}, row {number}"
        try:
            asked = row[row_tables.EXPERIMENTS_COLUMN]
            record = row_tables.record_of(row)
            row_tables.check_record(record)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            why = f"{place}: {escape_untrusted_text(str(error).splitlines()[0])}: {escape_untrusted_text(_input(error))}"
            raise Unavailable("bundle-refused", why, IMPOSSIBLE_ROW_REMEDY) from None
        if not asked or None in asked or not known.issuperset(asked):
            raise Unavailable(
                "bundle-refused", f"{place}: no chapter asked for it", UPDATE_BOTH_REMEDY
            )
        if record.key in seen:
            raise Unavailable("bundle-refused", f"{place} is there twice", IMPOSSIBLE_ROW_REMEDY)
        seen.add(record.key)
        described = by_state.get(record.state, host)
        if why := breach(record, described, now):
            raise Unavailable("bundle-refused", f"{place}: {why}", IMPOSSIBLE_ROW_REMEDY)
        yield record, sorted({*asked})


def _input(error: Exception) -> str:
    """Return the field that a model refused."""
    errors = error.errors() if isinstance(error, ValidationError) else []
    return ".".join(map(str, errors[0]["loc"])) if errors else "a field"


@cache
def experiments() -> frozenset[str]:
    """Return the names of experiments that ask for points."""
    # With NumPy and pandas, which a worker has not
    from tlb.measure import survey
    from tlb.report import discovery

    return frozenset({*discovery.table_of_contents(), survey.NAME})


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
        more = True
        while more:
            with _limited_memory():
                batch = next(batches, None)
                if batch is not None and batch.nbytes > MOST_BATCH_BYTES:
                    raise Unavailable(
                        "bundle-refused",
                        f"{ROWS_FILE_NAME} has rows that are too long",
                        REPACKED_BUNDLE_REMEDY,
                    )
                rows = batch.to_pylist() if batch is not None else []
            more = batch is not None
            yield from rows
    # pyarrow's own are of these kinds
    except (OSError, ValueError, NotImplementedError, KeyError, MemoryError) as error:
        why = f"{ROWS_FILE_NAME} cannot be read: {escape_untrusted_text(str(error).splitlines()[0] if str(error) else '')}"
        raise Unavailable("bundle-refused", why, REPACKED_BUNDLE_REMEDY) from None


def _check_file(file: parquet.ParquetFile) -> None:
    """Check sizes and schema before any row is read."""
    about = file.metadata
    if not 1 <= about.num_rows <= MAX_ROWS or about.num_columns > MAX_ROW_VALUES:
        raise Unavailable(
            "bundle-refused",
            f"{ROWS_FILE_NAME} has no rows, or more than {MAX_ROWS:,}",
            REPACKED_BUNDLE_REMEDY,
        )
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    if (
        len(groups) > MAX_ROWS
        or sum(group.total_byte_size for group in groups) > MAX_UNPACKED_BYTES
    ):
        raise Unavailable(
            "bundle-refused",
            f"{ROWS_FILE_NAME} has more than {MAX_UNPACKED_BYTES >> 20} MiB",
            REPACKED_BUNDLE_REMEDY,
        )
    values = [group.column(at).num_values for group in groups for at in range(about.num_columns)]
    if max(values) > MAX_ROWS * MAX_ROW_VALUES:
        raise Unavailable(
            "bundle-refused",
            f"{ROWS_FILE_NAME} has lists that are too long",
            REPACKED_BUNDLE_REMEDY,
        )
    schema = file.schema_arrow
    own = {*schema.names} - row_tables.shared_names()
    is_known = len(own) <= MAX_ROW_VALUES and schema.equals(row_tables.arrow_schema(sorted(own)))
    if not is_known or {*(about.metadata or {})} - {b"ARROW:schema"}:
        raise Unavailable(
            "bundle-refused",
            f"{ROWS_FILE_NAME} has other columns than rows have",
            UPDATE_BOTH_REMEDY,
        )


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


def escape_untrusted_text(text: str) -> str:
    """Return the beginning of a stranger's text so that it can be printed."""
    return ascii(text[:80])[1:-1]


# --- rules


def breach(record: Record, host: Host, now: datetime) -> str:
    """Return what is wrong with a row by the first rule that it breaks, "" if it breaks none."""
    is_gone = record.engine == "numba" and record.kernel in GONE_TWINS
    if not is_gone and build.source(record.kernel, record.engine) is None:
        return f"there is no kernel {record.kernel} in {record.engine}"
    rules = _point(record), _sizes(record, host), _times(record), _counts(record)
    for holds, wrong in (rule for group in rules for rule in group):
        if not holds:
            return wrong
    if public_text.compiler(record.compiler) != record.compiler:
        return "its compiler is no known name and version"
    if record.cpu >= host.logical_cpus and record.cpu not in host.usable_cpus:
        return "it ran on a CPU that this computer does not have"
    try:
        began = datetime.strptime(record.started_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return "it began on no day"
    is_possible = FIRST_DAY <= began <= now + AHEAD
    return "" if is_possible else "it began before there was a kernel, or begins in the future"


def _point(record: Record) -> Rules:
    """Yield what a point may ask of its kernel, and the seed that follows from it."""
    kernel = kernels.declaration(record.kernel)
    newest = build.declared_measures(record.kernel, record.engine)
    yield record.measures <= newest, "its kernel does not measure in that version"
    yield record.mode in {*kernel.modes, ""}, "its kernel has no such mode"
    options = {option.name for option in record.options}
    yield options <= kernel.options.keys(), "its kernel has no such option"
    results = {word for name in record.also for word in name.split("_") if not word.isdigit()}
    is_known = len(record.also) <= MOST_RESULTS and results <= _words()
    yield is_known, "its kernel has no such result"
    try:
        seed = order_seed(record.point, record.repeat)
    except ValueError:
        yield False, "no grid can contain its point"
    else:
        yield record.seed == seed, "its seed is not that of its point and repeat"


@cache
def _words() -> frozenset[str]:
    """Return every word of the kernels' sources; the names of results are made of them."""
    sources = (
        path for kind in ("c", "h", "py") for path in build.KERNELS_FOLDER.rglob(f"*.{kind}")
    )
    text = " ".join(path.read_text(encoding="utf-8") for path in sources)
    return frozenset(re.findall(r"[a-z][a-z0-9]*", text))


def _sizes(record: Record, host: Host) -> Rules:
    base, page = host.base_page_bytes, page_bytes(record.pages, host.base_page_bytes)
    is_stride = record.stride_bytes == base * record.stride_pages
    yield is_stride, "its stride is not of this computer's base pages"
    step = kernels.LINE_BYTES if record.layout == "packed" else record.stride_bytes
    is_whole = record.working_set_bytes == record.lines * step
    yield is_whole, "its working set is not that of its lines"
    # Lines that are farther apart than a page have a page each; with alias all share one.
    spread = record.lines * min(record.stride_bytes, page)
    least = {"alias": page, "packed": record.working_set_bytes}.get(record.layout, spread)
    has_room = least <= record.arena_bytes <= host.memory.total_bytes
    yield has_room, "its arena is smaller than its lines, or larger than this computer's memory"
    if record.pages == BASE_PAGES and record.page_table_bytes is not None:
        least = record.arena_bytes // base * TABLE_ENTRY_BYTES
        yield record.page_table_bytes >= least, "its page tables have no room for its pages"


def _times(record: Record) -> Rules:
    batches, total = record.batch_ns_per_access, record.elapsed_ns + record.prepare_ns
    is_nested = max(batches) <= record.elapsed_ns <= total <= record.wall_ns <= INT64_MAX
    yield is_nested, "its region took longer than its process, or an access longer than its region"
    off = abs(statistics.median(batches) / record.ns_per_access - 1)
    yield off <= SLACK, "its time per access is not the median of its batches"
    low = high = statistics.fmean(batches)
    if record.kernel in UNEVEN:
        low, high = min(batches), max(batches)
    is_mean = low * (1 - SLACK) <= record.elapsed_ns / record.accesses <= high * (1 + SLACK)
    yield is_mean, "its accesses and its time are not those of its batches"
    cycles = record.ns_per_access * (record.core_ghz or FASTEST_GHZ)
    least = kernels.declaration(record.kernel).least_cycles
    yield record.core_ghz <= FASTEST_GHZ and cycles >= least, "no core is as fast"
    stolen = (record.steal_ms or 0) <= record.wall_ns / 1e6 + TICK_MS
    yield stolen, "more time was stolen than it took"


def _counts(record: Record) -> Rules:
    results = [*record.also.values(), *(edge.least_ns for edge in record.histogram)]
    yield all(abs(value) <= INT64_MAX for value in results), "a result is beyond 64 bits"
    for counter in record.counters.values():
        ran = 0 <= (counter.running_percent or 0) <= 100 + SLACK
        in_range = 0 <= (counter.value or 0) <= INT64_MAX
        yield ran and in_range, "a counter is below zero, beyond 64 bits, or ran too long"
        is_known = current_reason_code(counter.reason or "no-data") in REASON_TEXTS
        is_event = public_text.is_known(counter.event or "")
        yield is_known and is_event, "a counter has an unknown reason or event"
