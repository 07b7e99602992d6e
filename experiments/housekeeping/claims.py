"""What articles say of the kernel's work on pages, of forks and of sparse memory, as predicates on
the chapter's Analysis."""

from __future__ import annotations

from experiments.housekeeping.analysis import Analysis
from experiments.housekeeping.document import ALWAYS, FRAGMENTS, FREE, NEVER, NO_DEFRAG_MODE
from experiments.housekeeping.grid import ARENA_BYTES, LARGE
from tlb.report.verdicts import Answer, Band, claim, counted, inside, points_of
from tlb.system.page_sizes import BASE, words
from tlb.system.units import format_ns, format_size


@claim("cow-copies-2-mib", points=points_of("fork_write", mode="write", used=1))
def a_write_copies_2_mib(a: Analysis, band: Band) -> Answer:
    copied, _ = a.single_write(LARGE)
    return inside(
        copied, *band
    ), f"A write to {words(LARGE)} after a fork copies {format_size(round(copied.value))}."


@claim("sparse-small-allocations-hurt", points=points_of("fork_write", mode="touch"))
def sparse_allocations_hurt(a: Analysis, band: Band) -> Answer:
    ratio = a.waste()
    return inside(ratio, *band), (
        f"Arenas of {format_size(ARENA_BYTES)} apart take {ratio:.1f} times as much memory on "
        f"{words(LARGE)} as on {words(BASE)}."
    )


@claim("some-applications-suffer", points=points_of("fork_write", mode="write", used=1))
def some_suffer(a: Analysis, band: Band) -> Answer:
    (_, base_ns), (_, large_ns) = (a.single_write(pages) for pages in (BASE, LARGE))
    ratio = large_ns / base_ns
    return inside(ratio, *band), (
        "A program that forks and then writes here and there, once in each 2 MiB range, "
        f"takes {ratio:.2f} times as long a write on {words(LARGE)} as on {words(BASE)}."
    )


@claim("defrag-costs-time", points=None)
def defrag_costs_time(a: Analysis, band: Band) -> Answer:
    fragmented, free = (a.touch_ns(memory, ALWAYS, "p50") for memory in (FRAGMENTS, FREE))
    return inside(fragmented / free, *band), (
        f"With defrag at {ALWAYS} the first touch of a 2 MiB range takes "
        f"{format_ns(fragmented.value)} where memory is fragmented, "
        f"and {format_ns(free.value)} where it is free."
    )


@claim("defrag-spikes-latency", points=None)
def defrag_spikes(a: Analysis, band: Band) -> Answer:
    large, base = (a.touch_ns(FRAGMENTS, mode, "p999") for mode in (ALWAYS, NO_DEFRAG_MODE))
    return inside(large / base, *band), (
        f"Where memory is fragmented, one first touch in a thousand takes {format_ns(large.value)} "
        f"or more with defrag at {ALWAYS}, and {format_ns(base.value)} on {words(BASE)}."
    )


@claim("short-lived-programs-regress", points=None)
def short_programs_regress(a: Analysis, band: Band) -> Answer:
    mib = a.longest_lives_mib()
    ratio = a.life_ratio(FRAGMENTS, mib)
    return inside(ratio, *band), (
        f"Where memory is fragmented and defrag at {ALWAYS}, a program that writes {mib} MiB and "
        f"ends takes {ratio:.2f} times as long on {words(LARGE)}; on free memory "
        f"{a.life_ratio(FREE, mib):.2f} times."
    )


@claim("defrag-is-paid-at-first-access", points=None)
def defrag_is_paid_first(a: Analysis, band: Band) -> Answer:
    on, off = (a.touch_ns(FRAGMENTS, mode, "p50") for mode in (ALWAYS, NEVER))
    return inside(on / off, *band), (
        "Where memory is fragmented, the first touch of a 2 MiB range takes "
        f"{format_ns(on.value)} with defrag at {ALWAYS}, and {format_ns(off.value)} at {NEVER}."
    )


@claim("thp-promotes-in-background", points=None)
def khugepaged_promotes(a: Analysis, band: Band) -> Answer:
    idle = a.idle()
    share = idle.large_bytes / idle.bytes
    return counted(
        share,
        band,
        f"Of {format_size(idle.bytes)} that no program touched for {idle.seconds:.0f} s, "
        f"{share:.0%} became large.",
    )


@claim("pool-is-lost-to-others", points=None)
def a_pool_is_lost(a: Analysis, band: Band) -> Answer:
    share = a.pool_taken()
    return inside(
        share, *band
    ), f"As a pool grows, what is available to others shrinks by {share:.3f} times as much."


@claim("pool-needs-application-changes", points=None)
def a_pool_needs_changes(a: Analysis, band: Band) -> Answer:
    share = a.pool_plain()
    return counted(
        share,
        band,
        f"Of an array that a program has of its heap beside a free pool, {share:.0%} lie in the "
        "pool.",
    )
