"""The measured geometry in words: two tables and what the opinions say. Without a figure, so that a command starts at once."""

from __future__ import annotations

import pandas as pd

from experiments.inference import geometry
from experiments.inference.geometry import Backing, Estimate, Geometry, Level
from experiments.words.units import format_size

_NAMES = {1: "L1 dTLB", 2: "STLB"}


def level_name(one: Level) -> str:
    return _NAMES.get(one.level, f"level {one.level}")


def _text(one: Estimate | None, decimals: int = 1) -> str:
    if one is None:
        return "–"
    bounds = f" ({one.low:,.{decimals}f} to {one.high:,.{decimals}f})" if one.high - one.low >= 10**-decimals / 2 else ""
    return f"{one.value:,.{decimals}f}{bounds}"


def _ways(one: Level) -> str:
    if one.ways is None:
        return "–"
    return str(one.ways) if one.ways else "all"


def levels_table(found: Geometry) -> pd.DataFrame:
    """A row a level: entries by each opinion, CPUID's word, hit cost, ways."""
    rows = []
    for one in found.levels:
        rows.append({
            "level": level_name(one), "entries": _text(one.entries, 0), "by": one.entries.method.partition(",")[0],
            **{name: _text(one.opinions.get(name), 0) for name in ("price", "alias", "draws")},
            "CPUID": "–" if one.stated is None else f"{one.stated:,}",
            f"hit, {found.unit}": "0" if one.level == 1 else _text(one.hit_cost), "ways": _ways(one)})
    return pd.DataFrame(rows)


def walks_table(found: Geometry) -> pd.DataFrame:
    """A row a place of the page table: how many pages, and what a walk adds to a hit in the last level."""
    rows = []
    for walk in found.walks:  # one page in: of `stride_pages` neighbours one is touched
        cost = walk.cost
        in_ns = None
        if cost and found.core_ghz and found.unit == "cycles":
            in_ns = cost.model_copy(update={k: getattr(cost, k) / found.core_ghz for k in ("value", "low", "high")})
        rows.append({"page table in": walk.table_in, "lines of it": format_size(walk.table_bytes), "pages": f"{walk.pages:,}",
                     "one in": str(walk.stride_pages), f"walk, {found.unit}": _text(cost, 0),
                     **({"ns": _text(in_ns, 0)} if found.unit == "cycles" else {})})
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else ["page table in", "pages"])


def sentences(found: Geometry) -> list[str]:
    """What the opinions say of each level, of the ways, of the alias layout, and what was lacking."""
    said = [f"{level_name(one)}: {one.verdict}" for one in found.levels]
    said += [f"{level_name(one)}: all pages fit wherever they lie, up to {geometry.WAY_STRIDE} pages apart, so it has no sets."
             for one in found.levels if one.ways == 0]
    said += [f"Its ways are not known: {one.ways_reason}" for one in found.levels if one.ways_reason]
    for reason in dict.fromkeys(walk.reason for walk in found.walks if walk.reason):
        places = " and ".join(walk.table_in for walk in found.walks if walk.reason == reason)
        said.append(f"Walks with the page table in {places} were not measured. {reason}")
    return said + penalty(found) + found.notes + ([backing_sentence(found.backing)] if found.backing else [])


def backing_sentence(backing: Backing) -> str:
    return f"Large pages: {backing.verdict}. {backing.evidence}"


def penalty(found: Geometry) -> list[str]:
    """What the alias layout pays for being aliased, where it pays."""
    if found.alias_penalty is None or found.alias_penalty < 1:
        return []
    return [f"Reaching one line by another address than the last visit did adds {found.alias_penalty:.0f} {found.unit} here. AMD's "
            "first-level caches predict their way from a hash of the virtual address and pay for a wrong guess; others may have a price "
            "of their own. Every tread of alias pays it alike, so its steps stand where they would without."]
