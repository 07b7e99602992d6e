"""What articles say of TLBs and walks, judged by the survey, the machine's own statements, or
arithmetic."""

from __future__ import annotations

from itertools import pairwise

from experiments.your_machine.analysis import Analysis
from experiments.your_machine.tables import ways_text
from tlb.machine.host import data_tlbs, is_x86
from tlb.report.verdicts import Answer, Band, Fact, claim, inside
from tlb.stats.intervals import Interval
from tlb.system.page_sizes import page_bytes
from tlb.system.prose import listed
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size

ENTRIES, POOL_PAGES = 32, 2200


@claim("fully-associative")
def fully_associative(a: Analysis) -> Answer:
    """Of the first level; the evidence names the others too."""
    levels = {tlb.level: ways_text(tlb) for tlb in data_tlbs(a.host)}
    if not levels:
        raise Unavailable(a.host.tlb_reason or "no-geometry")
    phrase = {None: "is of unstated associativity", "full": "is fully associative"}
    each = [f"level {n} {phrase.get(ways, f'has {ways} ways')}" for n, ways in levels.items()]
    first = levels[min(levels)]
    if first is None:
        raise Unavailable("no-geometry", f"by CPUID, {listed(each)}")
    return Fact(first == "full", f"By CPUID, {listed(each)}.")


@claim("entries-cover-a-pool")
def entries_cover_a_pool(
    a: Analysis, entries: int = ENTRIES, pool_pages: int = POOL_PAGES
) -> Answer:
    reach, pool = (n * page_bytes("2m", a.base_page_bytes) for n in (entries, pool_pages))
    return Fact(
        reach >= pool,
        f"{entries} × 2 MiB are {format_size(reach)}. The other figure is that of a pool of "
        f"{pool_pages:,} pages, and a pool holds no translations.",
    )


# --- what the machine says of itself


@claim("base-page-is-4-kib")
def a_base_page_is_4_kib(a: Analysis) -> Answer:
    size = format_size(a.base_page_bytes)
    return Fact(a.base_page_bytes == 4096, f"A base page has {size} here.")


@claim("four-levels-on-x86")
def four_levels(a: Analysis) -> Answer:
    if not is_x86(a.host):
        raise Unavailable("other-arch", a.host.arch)
    levels = len(a.split.levels)
    return Fact(
        levels in (4, 5),
        f"This machine's page tables have {levels} levels, and translate {a.split.bits} bits of an "
        "address.",
    )


@claim("several-tlbs-a-core")
def several_tlbs(a: Analysis, least: int = 2) -> Answer:
    if not a.stated_entries:
        raise Unavailable(a.host.tlb_reason or "no-geometry")
    levels, entries = len(a.stated_entries), listed(f"{n:,}" for n in a.stated_entries)
    evidence = f"CPUID states {levels} levels for data, of {entries} entries."
    return Fact(levels >= least, evidence)


@claim("two-hugepage-sizes")
def two_huge_page_sizes(a: Analysis) -> Answer:
    sizes = sorted(page_bytes(pool.page, a.base_page_bytes) for pool in a.host.pools)
    named = listed(map(format_size, sizes)) or "no size"
    return Fact(sizes == [2 << 20, 1 << 30], f"This kernel has pools of pages of {named}.")


# --- how many entries: as the survey found them, beside what CPUID states


@claim("first-level-64-to-128", level=0)
@claim("below-100-entries", level=0)
@claim("first-level-64-entries", level=0)
def entries_of_a_level(a: Analysis, band: Band, level: int) -> Answer:
    """Of the first level (0) or the last (-1)."""
    levels = a.geometry.levels
    if level < 0 and len(levels) < 2:
        raise Unavailable("no-step", "our chases show one level")
    if levels[level].is_alone:
        raise Unavailable("no-step", "our chases show one level, and it is not known which")
    found = levels[level]
    stated = f"CPUID states {found.stated:,}" if found.stated else "CPUID states nothing"
    place = "the first level"
    if level < 0:  # walks start past the sum, as a level need not hold what another one holds
        place = f"{'both' if len(levels) == 2 else 'all'} levels together"
        stated += " for the last one" if found.stated else ""
    return inside(found.entries.interval, *band), (
        f"Our chases find {found.entries.interval:,.0f} entries in {place}; {stated}."
    )


claim("second-level-1500-or-2-to-3k", level=-1)(entries_of_a_level)
claim("second-level-1024-to-2048", level=-1)(entries_of_a_level)


# --- what a walk costs by the place of its table: all pages are the same few lines of memory, so
# that nothing else misses


def _walk(a: Analysis, place: str, unit: str) -> Interval:
    """Return what a walk adds to a hit with its table in one place. unit: cycles or ns."""
    geometry = a.geometry
    costs = [walk.cost for walk in geometry.walks if walk.table_in == place and walk.cost]
    if not costs:
        raise Unavailable("too-few-points", f"no walk was measured with its table in {place}")
    if geometry.unit != "cycles":
        raise Unavailable("no-clock")
    if unit == "cycles":
        return costs[0].interval * 1
    if not geometry.core_ghz:
        raise Unavailable("no-clock")
    return costs[0].interval * (1 / geometry.core_ghz)


_PLACES = {"L2": "the second-level cache", "L3": "the last cache", "memory": "memory"}


@claim("hot-walks-30-to-50-cycles", place="L2")
@claim("walk-30-cycles-in-l2", place="L2")
def a_walk_costs(a: Analysis, band: Band, place: str, unit: str = "cycles") -> Answer:
    cost = _walk(a, place, unit)
    evidence = f"A walk costs {cost:.0f} {unit} with its table in {_PLACES[place]}."
    return [inside(cost, *band)], evidence


claim("walk-100-cycles-in-l3", place="L3")(a_walk_costs)
claim("walk-250-cycles-in-memory", place="memory")(a_walk_costs)
claim("cold-walks-200-to-300-cycles", place="memory")(a_walk_costs)
claim("upper-entries-cost-20-to-30-ns", place="L3", unit="ns")(a_walk_costs)


@claim("walk-4-to-5-times-from-memory")
def four_to_five_times_from_memory(a: Analysis, band: Band) -> Answer:
    ratio = _walk(a, "memory", "cycles") / _walk(a, "L2", "cycles")
    return inside(ratio, *band), (
        f"A walk costs {ratio:.1f} times as much with its table in memory as in the second-level "
        "cache."
    )


@claim("tables-go-through-the-caches")
def tables_go_through_the_caches(a: Analysis) -> Answer:
    costs = {name: _walk(a, place, "cycles") for place, name in _PLACES.items()}
    each = listed(f"{cost.value:.0f} with it in {name}" for name, cost in costs.items())
    evidence = f"A walk costs more cycles the farther its table lies: {each}."
    return [inside(far / near, 1) for near, far in pairwise(costs.values())], evidence
