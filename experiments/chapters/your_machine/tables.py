"""TLB reach in tables: what a machine states of its own, what that reaches, and what others published."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from experiments.article.machine_words import Said, data_tlbs
from experiments.article.render import Html, data_table, lacking_note
from experiments.chapters.your_machine.address import ENTRY_BYTES, listed
from experiments.inference.curves import Verdict, judge
from experiments.machine.host import Host
from experiments.machine.tlb import Tlb
from experiments.words.reasons import Unavailable, explain
from experiments.words.units import format_size, parse_size

LOADS = ("data", "unified", "load")  # the kinds of TLB that translate a load
# 4 MiB pages exist in 32-bit paging alone, which no machine of this book uses.
_PAGES = {"4k": 2**12, "2m": 2**21, "1g": 2**30}


class Reach(NamedTuple):
    """What one level of the TLB covers with one page size."""

    level: int
    page_bytes: int
    entries: int

    @property
    def reach_bytes(self) -> int:
        return self.entries * self.page_bytes


def reaches(host: Host) -> list[Reach]:
    """A row for each level and page size, for loads; parts of a level that hold the same size add up."""
    rows = []
    for level in sorted({tlb.level for tlb in host.tlb}):
        here = [tlb for tlb in host.tlb if tlb.level == level and tlb.kind in LOADS]
        for name, page_bytes in _PAGES.items():
            if entries := sum(tlb.entries for tlb in here if name in tlb.pages):
                rows.append(Reach(level, page_bytes, entries))
    return rows


def ways_text(tlb: Tlb) -> str | None:
    """The associativity as stated: "full", "12", "8 to 15"; None where nothing is."""
    if tlb.ways_between:
        return f"{tlb.ways_between[0]} to {tlb.ways_between[1]}"
    return None if tlb.ways is None else "full" if tlb.ways == 0 else str(tlb.ways)


def reach_table(host: Host) -> Html:
    """The multiplication, row by row; or why there is nothing to multiply."""
    rows = reaches(host)
    if not rows:
        return _silent(host)
    return data_table(pd.DataFrame({
        "TLB level": [str(row.level) for row in rows],
        "page": [format_size(row.page_bytes) for row in rows],
        "entries": [row.entries for row in rows],
        "reach": [format_size(row.reach_bytes) for row in rows],
    }))


def tlb_table(host: Host) -> Html:
    """Every TLB as CPUID states it, with the leaf that does; or why there is none."""
    if not host.tlb:
        return _silent(host)
    return data_table(pd.DataFrame({
        "level": [str(tlb.level) for tlb in host.tlb],
        "for": [tlb.kind for tlb in host.tlb],
        "pages": [listed(_size(page) for page in tlb.pages) for tlb in host.tlb],
        "entries": [tlb.entries for tlb in host.tlb],
        "ways": [ways_text(tlb) for tlb in host.tlb],
        "stated by": [tlb.source for tlb in host.tlb],
    }))


def _silent(host: Host) -> Html:
    return lacking_note(explain(host.tlb_reason or "no-geometry"))


def _size(page: str) -> str:
    try:
        return format_size(parse_size(page))
    except ValueError:
        return page


def outgrow_table(host: Host) -> Html:
    """The working set at which the last level of the page table, alone, fills each cache."""
    caches = [cache for cache in host.caches if cache.kind != "instruction"]
    if not caches:
        return lacking_note("Nothing states the caches of this machine. A measurement shows them as steps.")
    each = host.base_page_bytes // ENTRY_BYTES
    return data_table(pd.DataFrame({
        "cache": [f"L{cache.level}" for cache in caches],
        "size": [format_size(cache.size_bytes) for cache in caches],
        "filled at a working set of": [format_size(cache.size_bytes * each) for cache in caches],
    }))


# --- what others published; `cores` is the literature's frame `microarchitectures` ---


def published(cores: pd.DataFrame) -> Said:
    """Numbers that a sentence of the chapter needs. IndexError where the literature lost one."""
    loads = cores[(cores["structure"] == "l1_dtlb") & (cores["quantity"] == "load_to_use")]
    walks = {name: _fact(cores, name, "page_walker", "load_to_use") for name in ("Apple M1 P core", "Oryon")}
    return {
        "least_load_cycles": float(loads["value_low"].min()),
        "most_load_cycles": float(loads["value_high"].max()),
        "zen2_l2_ways": _fact(cores, "Zen 2", "l2_tlb", "ways")[0],
        "zen5_l2_ways": _fact(cores, "Zen 5", "l2_tlb", "ways")[0],
        "golden_cove_l1_ways": _fact(cores, "Golden Cove", "l1_dtlb", "ways")[0],
        "m1_l1_ways": _fact(cores, "Apple M1 P core", "l1_dtlb", "ways")[0],
        "m1_walk_cycles": walks["Apple M1 P core"][0],
        "oryon_walk_low_cycles": walks["Oryon"][0],
        "oryon_walk_high_cycles": walks["Oryon"][1],
    }


def _fact(cores: pd.DataFrame, name: str, structure: str, quantity: str) -> tuple[float, float]:
    """(low, high) of one fact about one core; measured where it was, else stated."""
    rows = cores[cores["microarchitecture"] == name]
    rows = rows[(rows["structure"] == structure) & (rows["quantity"] == quantity)]
    row = rows.sort_values("kind").iloc[0]  # "measured" sorts before "stated"
    return float(row["value_low"]), float(row["value_high"])


def hit_costs(cores: pd.DataFrame) -> pd.DataFrame:
    """Cycles of a whole load when the first or the second level of the TLB answers, as measured.

    A row for each core with both, or with their difference alone.
    """
    rows = []
    measured = cores[cores["kind"] == "measured"]
    for core, facts in measured.groupby("microarchitecture", sort=False):
        values = facts.set_index(["structure", "quantity"])["value_low"]
        first, second = (values.get((level, "load_to_use")) for level in ("l1_dtlb", "l2_tlb"))
        both = first is not None and second is not None
        more = second - first if both else values.get(("l2_tlb", "penalty_over_l1_dtlb"))
        if more is not None:
            rows.append((core, first, second, more))
    columns = ["core", "first level answers", "second level answers", "difference"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:], "Int64"))


_WHAT = {
    ("l1_dtlb", "entries"): "first level, entries",
    ("l2_tlb", "entries"): "second level, entries",
    ("l2_tlb", "ways"): "second level, ways",
    ("l2_tlb", "penalty_over_l1_dtlb"): "second level, cycles added",
}


def disagreements(cores: pd.DataFrame) -> pd.DataFrame:
    """Facts that a vendor states and somebody measured, where the two differ."""
    keys = ["microarchitecture", "structure", "pages", "quantity"]
    known = cores.fillna({"pages": "any"})
    both = known[known["kind"] == "stated"].merge(known[known["kind"] == "measured"], on=keys)
    apart = both[both["value_high_x"] != both["value_high_y"]]
    return pd.DataFrame({
        "core": apart["microarchitecture"],
        "what": [_WHAT[pair] for pair in zip(apart["structure"], apart["quantity"], strict=True)],
        "stated": apart["value_high_x"].astype(int),
        "measured": apart["value_high_y"].astype(int),
    })


# --- the claims that need no measurement ---


def verdicts(host: Host, cores: pd.DataFrame) -> list[Verdict]:
    """Claims about TLBs that the literature, what this machine states, or arithmetic can judge."""

    def cycle() -> tuple[bool | None, str]:
        more = hit_costs(cores)["difference"]
        said = f"A second-level hit adds {more.min()} to {more.max()} cycles on {len(more)} published cores"
        return bool((more <= 1).all()), f"{said}; a first-level hit is part of the cache's own latency."

    def associative() -> tuple[bool | None, str]:
        found = data_tlbs(host)
        if not found:
            raise Unavailable(host.tlb_reason or "no-geometry")
        said = [f"level {tlb.level} {_words(ways_text(tlb))}" for tlb in found]
        apart = [tlb for tlb in found if ways_text(tlb) not in (None, "full")]
        unknown = any(ways_text(tlb) is None for tlb in found)
        return False if apart else None if unknown else True, f"By CPUID, {listed(said)}."

    def cover() -> tuple[bool | None, str]:
        reach, pool = 32 * _PAGES["2m"], 2200 * _PAGES["2m"]
        said = f"32 × 2 MiB are {format_size(reach)}. The other figure is that of a pool of 2,200 pages"
        return reach >= pool, f"{said}, and a pool holds no translations."

    return [
        judge("A TLB hit costs one cycle.", cycle),
        judge("A TLB is fully associative.", associative),
        judge("32 entries for 2 MiB pages cover 4.4 GB.", cover),
    ]


def _words(ways: str | None) -> str:
    if ways is None:
        return "is of unstated associativity"
    return "is fully associative" if ways == "full" else f"has {ways} ways"
