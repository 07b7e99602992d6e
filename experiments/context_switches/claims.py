"""What articles say of context switches, cold starts and neighbours, as predicates on the chapter's
Analysis."""

from __future__ import annotations

from experiments.context_switches.analysis import NEW_PROCESS, Analysis
from experiments.context_switches.grid import (
    HOPS_AFTER_SWITCH,
    PAGES_THE_TLB_HOLDS,
    STREAMED_MIB,
    far_lines,
)
from tlb.report.verdicts import Answer, Band, claim, inside, points_of
from tlb.system.units import format_size

# The chase beside the largest stream, and beside none.
_STREAMS = points_of("neighbour_chase", lines=far_lines, stream_kib=(0, STREAMED_MIB[-1] << 10))


@claim("switch-flushes-walk-caches", points=points_of("switch_chase", hops=HOPS_AFTER_SWITCH))
def a_switch_flushes(a: Analysis, band: Band) -> Answer:
    ratio = a.first_walks()
    evidence = (
        f"The first {HOPS_AFTER_SWITCH} walks after a switch of processes take {ratio:.2f} times as long "
        "as those after one of threads."
    )
    if a.host.pcid:
        evidence += (
            " By its source, Linux reloads CR3 without a flush on a CPU with PCID, if it still "
            "knows the address space."
        )
    return inside(ratio, *band), evidence


@claim(
    "warm-workers-win", points=points_of(("cold_chase", "switch_chase"), lines=PAGES_THE_TLB_HOLDS)
)
def a_warm_worker_wins(a: Analysis, band: Band) -> Answer:
    ratio = a.price_after(NEW_PROCESS) / a.price_after("process")
    return inside(ratio, *band), (
        f"Translation of a request through {PAGES_THE_TLB_HOLDS} pages costs {ratio:.1f} times as much in a new "
        "process as in a worker that is switched to."
    )


@claim("neighbours-evict-the-table", points=_STREAMS)
def neighbours_evict_the_table(a: Analysis, band: Band) -> Answer:
    ratio = a.under_load()
    return inside(ratio, *band), (
        f"Beside a thread that streams {STREAMED_MIB[-1]} MiB, translation through "
        f"{format_size(a.far_lines * a.base_page_bytes)} costs {ratio:.2f} times what it costs "
        "beside one that only runs."
    )
