"""What articles say of work that empties TLBs, of switches and cold starts, and of Linux's own work
on pages, as predicates on the chapter's Analysis."""

from __future__ import annotations

from experiments.flushes.analysis import SWITCH_TO_NEW_PROCESS, Analysis
from experiments.flushes.document import (
    DEFRAG_ALWAYS,
    DEFRAG_NEVER,
    DEFRAG_NOT_APPLICABLE,
    FRAGMENTED_MEMORY,
    UNFRAGMENTED_MEMORY,
)
from experiments.flushes.grid import (
    HOPS_TIMED_AFTER_SWITCH,
    HUGE_PAGE_KIND,
    MALLOC_ARENA_BYTES,
    PAGES_WITHIN_STLB,
)
from tlb.report.claims import Answer, Band, claim, count_inside_band, points_where
from tlb.stats.effects import effect_inside_band
from tlb.system.page_sizes import BASE_PAGES, page_words
from tlb.system.units import format_ns, format_size

# --- shootdowns, switches, neighbours


@claim(
    "page-management-slows-a-loop", points=points_where("neighbour_chase", lines=PAGES_WITHIN_STLB)
)
def page_management_slows(a: Analysis, band: Band) -> Answer:
    ratio = a.beside_discards()
    return effect_inside_band(ratio, *band), (
        f"Beside a thread that gives its pages back, a chase through {PAGES_WITHIN_STLB} other pages takes "
        f"{ratio:rounded} times as long. The slowdown of its packed control, which interrupts cause, is "
        "divided out."
    )


@claim(
    "switch-flushes-walk-caches", points=points_where("switch_chase", hops=HOPS_TIMED_AFTER_SWITCH)
)
def a_switch_flushes(a: Analysis, band: Band) -> Answer:
    ratio = a.first_walks()
    evidence = (
        f"The first {HOPS_TIMED_AFTER_SWITCH} walks after a switch of processes take {ratio:rounded} times as long "
        "as those after one of threads."
    )
    if a.host.pcid and a.host.arch == "x86_64":
        evidence += (
            " By its source, Linux reloads CR3 without a flush on a CPU with PCID, if it still "
            "knows the address space."
        )
    return effect_inside_band(ratio, *band), evidence


@claim(
    "warm-workers-win", points=points_where(("cold_chase", "switch_chase"), lines=PAGES_WITHIN_STLB)
)
def a_warm_worker_wins(a: Analysis, band: Band) -> Answer:
    """By all that a start takes: what it adds in translation is a hundredth of that."""
    ratio = a.start("exec_ns") / a.switch_ns("process")
    new, worker = a.price_after(SWITCH_TO_NEW_PROCESS), a.price_after("process")
    cold_ns = (new.value - worker.value) * PAGES_WITHIN_STLB
    return effect_inside_band(ratio, *band), (
        f"Starting a program takes {ratio:rounded} times as long as switching to a waiting worker and "
        f"back. Its cold TLB adds {format_ns(cold_ns)} to a request through {PAGES_WITHIN_STLB} pages."
    )


# --- forks, sparse memory, defragmenting, pools


@claim("cow-copies-2-mib", points=points_where("fork_write", mode="write", used=1))
def a_write_copies_2_mib(a: Analysis, band: Band) -> Answer:
    copied, _ = a.single_write(HUGE_PAGE_KIND)
    return (
        effect_inside_band(copied, *band, what="on 2 MiB pages (THP)"),
        f"A write to {page_words(HUGE_PAGE_KIND)} after a fork copies {format_size(round(copied.value))}. "
        "Pages of the pool were not tested.",
    )


@claim("sparse-small-allocations-hurt", points=points_where("fork_write", mode="touch"))
def sparse_allocations_hurt(a: Analysis, band: Band) -> Answer:
    ratio = a.waste()
    return effect_inside_band(ratio, *band), (
        f"Arenas of {format_size(MALLOC_ARENA_BYTES)}, far apart, take {ratio:rounded} times as much memory on "
        f"{page_words(HUGE_PAGE_KIND)} as on {page_words(BASE_PAGES)}."
    )


@claim("defrag-costs-time", points=None)
def defrag_costs_time(a: Analysis, band: Band) -> Answer:
    fragmented, free = (
        a.first_touch_ns(memory, DEFRAG_ALWAYS)
        for memory in (FRAGMENTED_MEMORY, UNFRAGMENTED_MEMORY)
    )
    return effect_inside_band(fragmented / free, *band), (
        f"With defrag at {DEFRAG_ALWAYS} the first touch of a 2 MiB range takes "
        f"{format_ns(fragmented.value)} in fragmented memory and {format_ns(free.value)} in free memory."
    )


@claim("defrag-spikes-latency", points=None)
def defrag_spikes(a: Analysis, band: Band) -> Answer:
    large, base = (
        a.touch_ns(FRAGMENTED_MEMORY, mode, lambda run: run.p999_ns)
        for mode in (DEFRAG_ALWAYS, DEFRAG_NOT_APPLICABLE)
    )
    return effect_inside_band(large / base, *band), (
        f"In fragmented memory one first touch in a thousand takes {format_ns(large.value)} "
        f"or more with defrag at {DEFRAG_ALWAYS}, and {format_ns(base.value)} on {page_words(BASE_PAGES)}."
    )


@claim("defrag-is-paid-at-first-access", points=None)
def defrag_is_paid_first(a: Analysis, band: Band) -> Answer:
    on, off = (a.first_touch_ns(FRAGMENTED_MEMORY, mode) for mode in (DEFRAG_ALWAYS, DEFRAG_NEVER))
    return effect_inside_band(on / off, *band), (
        "In fragmented memory the first touch of a 2 MiB range takes "
        f"{format_ns(on.value)} with defrag at {DEFRAG_ALWAYS}, and {format_ns(off.value)} at {DEFRAG_NEVER}."
    )


@claim("thp-promotes-in-background", points=None)
def khugepaged_promotes(a: Analysis, band: Band) -> Answer:
    idle = a.idle()
    share = a.idle_share()
    return count_inside_band(
        share,
        band,
        f"After {idle.seconds:.0f} s without a touch, {share:.0%} of {format_size(idle.bytes)} was on "
        "huge pages.",
    )


@claim("pool-is-lost-to-others", points=None)
def a_pool_is_lost(a: Analysis, band: Band) -> Answer:
    share = a.pool_taken()
    return effect_inside_band(
        share, *band
    ), f"A pool that grows by 1 GiB takes {share:rounded} GiB from other programs."


@claim("pool-needs-application-changes", points=None)
def a_pool_needs_changes(a: Analysis, band: Band) -> Answer:
    share = a.pool_plain()
    return count_inside_band(
        share,
        band,
        f"The pool, which is free, holds {share:.0%} of an array that a program takes from its heap.",
    )
