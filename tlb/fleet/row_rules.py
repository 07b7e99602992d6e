"""Decide whether its kernel could have printed a row on its computer, by what follows from the
point, the clock and the memory.

A test holds that no published row breaks a rule. The rules find mistakes, other versions and
invented rows; they cannot find real rows that were multiplied by a factor.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache

from tlb.fleet import public_text
from tlb.machine.host import Host
from tlb.measure import build, kernels
from tlb.measure.columns import INT64_MAX
from tlb.measure.plan import seed_of
from tlb.measure.record import Record
from tlb.system.page_sizes import BASE, LINE_BYTES, TABLE_ENTRY_BYTES, page_bytes
from tlb.system.reasons import REASON_TEXTS

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
        seed = seed_of(record.point, record.repeat)
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
    step = LINE_BYTES if record.layout == "packed" else record.stride_bytes
    is_whole = record.working_set_bytes == record.lines * step
    yield is_whole, "its working set is not that of its lines"
    # Lines that are farther apart than a page have a page each; with alias all share one.
    spread = record.lines * min(record.stride_bytes, page)
    least = {"alias": page, "packed": record.working_set_bytes}.get(record.layout, spread)
    has_room = least <= record.arena_bytes <= host.memory.total_bytes
    yield has_room, "its arena is smaller than its lines, or larger than this computer's memory"
    if record.pages == BASE and record.page_table_bytes is not None:
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
        is_known = (counter.reason or "no-data") in REASON_TEXTS
        is_event = public_text.is_own(counter.event or "")
        yield is_known and is_event, "a counter has an unknown reason or event"
