"""What articles say of page faults and of a fifth level, as predicates on the chapter's
Analysis."""

from __future__ import annotations

from experiments.page_faults.analysis import (
    FIRST_TOUCH_OF_BASE_PAGES,
    FIRST_TOUCH_OF_HUGE_PAGES,
    Analysis,
)
from tlb.machine.host import is_x86
from tlb.report.claims import (
    Answer,
    Band,
    Fact,
    PointPredicate,
    claim,
    count_inside_band,
    points_where,
)
from tlb.stats.curves import select_rows
from tlb.stats.effects import effect_inside_band
from tlb.stats.intervals import median_interval
from tlb.system.page_sizes import BASE_PAGES, page_words
from tlb.system.reasons import Unavailable, Undecided, require_nonempty
from tlb.system.units import format_size, list_in_words, number_in_words, with_thousands

# Fresh memory that the kernel does not enter beforehand, on either page size.
_FRESH = points_where("page_fault", mode="anonymous", populate=0)


def _prefault(threads: int, pages: str = BASE_PAGES) -> PointPredicate:
    """Select up to so many threads that touch memory of their own."""
    some = tuple(range(1, threads + 1))
    return points_where("prefault", mode="touch", pages=pages, threads=some)


@claim("only-used-parts-have-tables", points=_FRESH)
def only_used_parts_have_tables(a: Analysis, band: Band) -> Answer:
    way = a.touch(FIRST_TOUCH_OF_BASE_PAGES)
    added, filled = int(way["untouched_table_bytes"]), int(way["filled_table_bytes"])
    return count_inside_band(
        added,
        band,
        f"Mapping as much as the published file adds {format_size(added)} of page tables, and touching "
        f"it adds {format_size(filled)}.",
    )


@claim("fault-affects-2-mib", points=_prefault(1, "thp"))
def a_fault_takes_a_whole_page(a: Analysis, band: Band) -> Answer:
    rows = select_rows(a.frame, kernel="prefault", mode="touch", pages=["thp", "2m"])
    resident = require_nonempty(rows, "no huge page was faulted in")["one_byte_resident_bytes"]
    sizes = list_in_words(format_size(int(n)) for n in sorted(set(resident)))
    return Fact(
        bool(resident.between(*band).all()),
        f"One byte written to an untouched huge page makes {sizes} resident.",
        float(resident.max()),
    )


@claim("fewer-faults-on-large-pages", points=_FRESH)
def fewer_faults(a: Analysis, band: Band) -> Answer:
    base, large = (
        float(a.touch(way)["faults_per_access"])
        for way in (FIRST_TOUCH_OF_BASE_PAGES, FIRST_TOUCH_OF_HUGE_PAGES)
    )
    if not large > 0:
        raise Unavailable("too-few-points", "no huge page faulted")
    return count_inside_band(
        base / large,
        band,
        f"The same memory takes {with_thousands(base / large)} times as many faults on base pages as on "
        f"{page_words('thp')}.",
    )


@claim("kernel-walks-elsewhere-too", points=_FRESH)
def the_kernel_walks_elsewhere(a: Analysis, band: Band) -> Answer:
    rows = require_nonempty(a.rows(FIRST_TOUCH_OF_BASE_PAGES), "fresh memory was not touched")
    ratios = {
        name: median_interval(rows[f"{call}_ns_per_access"] / rows[f"{call}_empty_ns_per_access"])
        for name, call in (("mprotect", "protect"), ("fork", "fork"), ("munmap", "unmap"))
    }
    times = list_in_words(f"{name} takes {ratio:median}" for name, ratio in ratios.items())
    return (
        [effect_inside_band(ratio, *band, what=name) for name, ratio in ratios.items()],
        f"On a filled mapping {times} times as long as on an untouched one.",
    )


@claim("lower-locks-per-page", points=_prefault(2))
def lower_locks_are_per_page(a: Analysis, band: Band) -> Answer:
    """Most of a fault runs outside these locks, so two threads gain under a lock of the whole table
    too: a gain does not show which one is taken. Without any, the sentence fails."""
    rate = a.prefaulted(1) / a.prefaulted(2)
    gain, evidence = (
        effect_inside_band(rate, *band),
        (
            f"Two threads in different parts of fresh memory take {rate:rounded} times as many faults a "
            "second as one thread."
        ),
    )
    if gain.decided() is False:
        return gain, evidence
    return Undecided("ambiguous", "a speed-up does not show the lock"), evidence


# --- what Linux reports


@claim("five-levels-by-default", points=None)
def five_levels_by_default(a: Analysis, band: Band) -> Answer:
    if not a.host.la57:
        raise Unavailable("no-five-levels" if is_x86(a.host) else "other-arch")
    if a.side.no5lvl:
        raise Unavailable("too-few-points", "it was booted with no5lvl, and not by default")
    levels = a.host.page_table_levels
    if not levels:
        raise Unavailable("no-data", "the kernel does not say how many levels it uses")
    evidence = f"The CPU has five levels, and the kernel uses {number_in_words(levels)}."
    if levels == band[0]:
        return Fact(True, evidence, levels)
    # A kernel of one's own may use four for other reasons than a distribution's would.
    return Undecided("conditions"), evidence


@claim("lscpu-tells-five-levels", points=None)
def lscpu_tells(a: Analysis) -> Answer:
    if not is_x86(a.host):
        raise Unavailable("other-arch")
    flag, mapping = a.side.la57_flag, a.side.high_mapping
    if mapping is None:
        raise Unavailable("no-data", "no mapping above 47 bits was asked for")
    return Fact(
        flag == mapping,
        f"The flag is {'there' if flag else 'not there'}, and the kernel "
        f"{'gives' if mapping else 'does not give'} a mapping above 47 bits.",
        f"{'flag' if flag else 'no flag'}, {'mapping' if mapping else 'no mapping'} above 47 bits",
    )


# --- arithmetic on what was printed


@claim("fault-difference-is-significant", points=None)
def the_difference_is_significant(a: Analysis, band: Band) -> Answer:
    test = a.published_test
    return Fact(
        bool(band[0] <= test.p < band[1]),
        f"From the printed means, intervals and counts: t = {test.t:.2f}, p = {test.p:.7f}, a "
        f"difference of {test.relative:.2%}.",
        float(test.p),
    )


@claim("mode-holds-most-faults", points=None)
def faults_cluster_in_one_bucket(a: Analysis, band: Band) -> Answer:
    """As the source says of four levels."""
    fullest = a.published_buckets.query("page_table_levels == 4").nlargest(1, "share").iloc[0]
    return Fact(
        bool(band[0] <= fullest["from_ns"] <= band[1]),
        f"The fullest bucket, from {fullest['from_ns']:.0f} ns, holds {fullest['share']:.1%} of the "
        "faults with four levels.",
        float(fullest["from_ns"]),
    )
