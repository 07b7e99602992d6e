"""Whether its kernel could have printed a row on its computer: what follows from the point, from
the clock, from the memory.

Each rule holds for every published row, and a test keeps it so. They find mistakes, other versions
and made-up rows; they cannot find someone who runs the kernels and multiplies, and nothing could.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache

from tlb.lab import build, kernels, measure
from tlb.lab.columns import INT64_MAX
from tlb.lab.record import Record
from tlb.machine.host import Host
from tlb.page_sizes import BASE, page_bytes
from tlb.reasons import REASONS

ENTRY_BYTES = 8  # of a page table, on x86-64 and arm64 alike
FASTEST_GHZ = 10.0  # no core comes near it
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)  # before the first kernel was written
AHEAD = timedelta(hours=25)  # by which a clock may be wrong: an hour, and a zone mistaken for UTC
SLACK = 1e-3  # a kernel prints times to six digits
TICK_MS = 100.0  # the coarseness of counters of stolen time
UNEVEN = {
    "collapse_chase",
    "neighbour_chase",
    "switch_chase",
}  # whose batches end when another program's do, so that some are longer
MOST_RESULTS = 64  # of a kernel's own, beside the columns that all have
EVENT = re.compile(r"[ -~]{1,200}")


def breaches(record: Record, host: Host, now: datetime) -> Iterator[str]:
    """Yield a phrase for each rule that a row breaks."""
    if (
        record.kernel not in kernels.CATALOGUE
        or not build.source(record.kernel, record.engine).is_file()
    ):
        yield f"there is no kernel {record.kernel} in {record.engine}"
        return
    yield from _point(record)
    yield from _sizes(record, host)
    yield from _times(record)
    yield from _counts(record)
    if record.cpu >= host.logical_cpus and record.cpu not in host.usable_cpus:
        yield "it ran on a CPU that this computer does not have"
    try:
        began = datetime.strptime(record.started_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        yield "it began on no day"
    else:
        if not FIRST_DAY <= began <= now + AHEAD:
            yield "it began before there was a kernel, or begins in the future"


def _point(record: Record) -> Iterator[str]:
    """What a point may ask of its kernel, and the seed that follows from it."""
    kernel = kernels.of(record.kernel)
    if record.measures > build.declared_measures(record.kernel, record.engine):
        yield "its kernel does not measure in that version"
    if record.mode not in {*kernel.modes, ""}:
        yield "its kernel has no such mode"
    if not {option.name for option in record.options} <= kernel.options.keys():
        yield "its kernel has no such option"
    results = {word for name in record.also for word in name.split("_") if not word.isdigit()}
    if len(record.also) > MOST_RESULTS or not results <= _words():
        yield "its kernel has no such result"
    try:
        if record.seed != measure.seed_of(record.point, record.repeat):
            yield "its seed is not that of its point and repeat"
    except ValueError:
        yield "no grid can contain its point"


def _sizes(record: Record, host: Host) -> Iterator[str]:
    base, page = host.base_page_bytes, page_bytes(record.pages, host.base_page_bytes)
    if record.stride_bytes != base * record.stride_pages:
        yield "its stride is not of this computer's base pages"
    packed = record.layout == "packed"
    if record.working_set_bytes != record.lines * (
        kernels.LINE_BYTES if packed else record.stride_bytes
    ):
        yield "its working set is not that of its lines"
    # Lines that are spread farther apart than a page have a page each; with alias all share one.
    least = {"alias": page, "packed": record.working_set_bytes}.get(
        record.layout, record.lines * min(record.stride_bytes, page)
    )
    if not least <= record.arena_bytes <= host.memory.total_bytes:
        yield "its arena is smaller than what lies in it, or larger than this computer's memory"
    if (
        record.pages == BASE
        and record.page_table_bytes is not None
        and record.page_table_bytes < record.arena_bytes // base * ENTRY_BYTES
    ):
        yield "its page tables have no room for its pages"


def _times(record: Record) -> Iterator[str]:
    batches = record.batch_ns_per_access
    if (
        not max(batches)
        <= record.elapsed_ns
        <= record.elapsed_ns + record.prepare_ns
        <= record.wall_ns
        <= INT64_MAX
    ):
        yield "its region and its preparation took longer than its process, or an access longer than its region"
        return
    if abs(statistics.median(batches) / record.ns_per_access - 1) > SLACK:
        yield "its time per access is not the median of its batches"
    low = high = statistics.fmean(batches)
    if record.kernel in UNEVEN:
        low, high = min(batches), max(batches)
    if not low * (1 - SLACK) <= record.elapsed_ns / record.accesses <= high * (1 + SLACK):
        yield "its accesses and its time are not those of its batches"
    if (
        record.core_ghz > FASTEST_GHZ
        or record.ns_per_access * (record.core_ghz or FASTEST_GHZ)
        < kernels.of(record.kernel).least_cycles
    ):
        yield "no core is as fast"
    if (record.steal_ms or 0) > record.wall_ns / 1e6 + TICK_MS:
        yield "more time was stolen than it took"


def _counts(record: Record) -> Iterator[str]:
    if any(
        abs(value) > INT64_MAX
        for value in [*record.also.values(), *(edge.least_ns for edge in record.histogram)]
    ):
        yield "a result is beyond 64 bits"
    for quantity in record.counters.values():
        if (
            not 0 <= (quantity.value or 0) <= INT64_MAX
            or not 0 <= (quantity.running_percent or 0) <= 100 + SLACK
        ):
            yield "a counter is below zero, beyond 64 bits, or ran longer than its region"
        if (quantity.reason or "no-data") not in REASONS or not EVENT.fullmatch(
            quantity.event or "cycles"
        ):
            yield "a counter has a reason or an event that does not exist"


@cache
def _words() -> frozenset[str]:
    """Return every word of the kernels' sources; the names of results are made of them."""
    texts = (
        path.read_text(encoding="utf-8")
        for kind in ("c", "h", "py")
        for path in build.KERNELS.rglob(f"*.{kind}")
    )
    return frozenset(word for text in texts for word in re.findall(r"[a-z][a-z0-9]*", text))


def visits(record: Record) -> tuple[object, ...]:
    """Return what decides which lines a process visits in which order: rows that agree in it have
    one checksum, on any computer. numpy's programs draw their orders by themselves."""
    names = (
        "kernel",
        "measures",
        "order",
        "lines",
        "layout",
        "stride_pages",
        "mode",
        "options",
        "seed",
        "accesses",
    )
    return record.engine == "numpy", *(getattr(record, name) for name in names)


def process(record: Record) -> tuple[object, ...]:
    """Return what no two processes have in common."""
    return record.kernel, record.started_at, record.elapsed_ns, record.wall_ns, record.checksum
