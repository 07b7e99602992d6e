"""What articles say of TLBs that needs no measurement: what the literature, the machine's own words, or arithmetic can judge."""

from __future__ import annotations

from experiments.article.verdicts import Answer, claim
from experiments.chapters.your_machine.analysis import Analysis
from experiments.chapters.your_machine.tables import ways_text
from experiments.machine.host import data_tlbs
from experiments.words.pages import page_bytes
from experiments.words.prose import listed
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

ONE_CYCLE = 1
ENTRIES, POOL_PAGES = 32, 2200


@claim("hit-costs-one-cycle", source="padho_tlb", says="A TLB hit costs one cycle.")
def hit_costs_one_cycle(a: Analysis, most: float = ONE_CYCLE) -> Answer:
    more = a.hit_costs["difference"]
    return bool((more <= most).all()), (f"A second-level hit adds {more.min()} to {more.max()} cycles on {len(more)} published cores; a "
                                        "first-level hit is part of the cache's own latency.")


@claim("fully-associative", source="padho_tlb", says="A TLB is fully associative.")
def fully_associative(a: Analysis) -> Answer:
    levels = {tlb.level: ways_text(tlb) for tlb in data_tlbs(a.host)}
    if not levels:
        raise Unavailable(a.host.tlb_reason or "no-geometry")
    phrase = {None: "is of unstated associativity", "full": "is fully associative"}
    evidence = listed(f"level {level} {phrase.get(ways, f'has {ways} ways')}" for level, ways in levels.items())
    apart = set(levels.values()) - {None, "full"}
    return False if apart else None if None in levels.values() else True, f"By CPUID, {evidence}."


@claim("entries-cover-a-pool", source="padho_tlb", says="32 entries for 2 MiB pages cover 4.4 GB.")
def entries_cover_a_pool(a: Analysis, entries: int = ENTRIES, pool_pages: int = POOL_PAGES) -> Answer:
    reach, pool = (n * page_bytes("2m", a.base_page_bytes) for n in (entries, pool_pages))
    return reach >= pool, (f"{entries} × 2 MiB are {format_size(reach)}. The other figure is that of a pool of {pool_pages:,} pages, and a "
                           "pool holds no translations.")
