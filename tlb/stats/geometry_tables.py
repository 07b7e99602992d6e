"""The measured geometry in words: two tables and what the opinions say. Without a figure, so that a
command starts at once."""

from __future__ import annotations

import pandas as pd

from tlb.stats.geometry import COLLIDING_STRIDE_PAGES, Geometry, PageBacking, TlbLevel
from tlb.stats.geometry_curves import Estimate
from tlb.system.units import format_size

_NAMES = {1: "L1 dTLB", 2: "STLB"}
_MISSING = "–"


def level_name(level: TlbLevel) -> str:
    return "first level seen" if level.is_alone else _NAMES.get(level.level, f"level {level.level}")


def _text(estimate: Estimate | None, decimals: int = 1, per: float = 1.0) -> str:
    """Value and bounds, each divided by `per`; the bounds only where rounding leaves them apart."""
    if estimate is None:
        return _MISSING
    value, low, high = (
        f"{bound / per:,.{decimals}f}" for bound in (estimate.value, estimate.low, estimate.high)
    )
    return (
        f"{value} ({low} to {high})"
        if (estimate.high - estimate.low) / per >= 10**-decimals / 2
        else value
    )


def levels_table(geometry: Geometry) -> pd.DataFrame:
    """A row a level: entries by each opinion, CPUID's word, hit cost, ways."""
    return pd.DataFrame(
        [
            {
                "level": level_name(level),
                "entries": _text(level.entries, 0),
                "by": level.entries.method.partition(",")[0],
                **{
                    name: _text(level.opinions.get(name), 0) for name in ("price", "alias", "draws")
                },
                "CPUID": _MISSING if level.stated is None else f"{level.stated:,}",
                f"hit, {geometry.unit}": "0" if level.level == 1 else _text(level.hit_cost),
                "ways": _MISSING if level.ways is None else str(level.ways or "all"),
            }
            for level in geometry.levels
        ]
    )


def walks_table(geometry: Geometry) -> pd.DataFrame:
    """A row a place of the page table: how many pages, and what a walk adds to a hit in the last
    level."""
    rows = []
    for walk in geometry.walks:  # one page in: of `stride_pages` neighbours one is touched
        row = {
            "page table in": walk.table_in,
            "lines of it": format_size(walk.table_bytes),
            "pages": f"{walk.pages:,}",
            "one in": str(walk.stride_pages),
            f"walk, {geometry.unit}": _text(walk.cost, 0),
        }
        if geometry.unit == "cycles":
            row["ns"] = _text(walk.cost, 0, geometry.core_ghz) if geometry.core_ghz else _MISSING
        rows.append(row)
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else ["page table in", "pages"])


def parts(geometry: Geometry) -> list[pd.DataFrame | str]:
    """Return all that `tlb geometry` shows: the two tables, then the sentences."""
    return [levels_table(geometry), walks_table(geometry), *sentences(geometry)]


def sentences(geometry: Geometry) -> list[str]:
    """What the opinions say of each level, of the ways, of the alias layout, and what was
    lacking."""
    lines = [f"{level_name(level)}: {level.verdict}" for level in geometry.levels]
    lines += [
        f"{level_name(level)}: all pages fit wherever they lie, up to {COLLIDING_STRIDE_PAGES} pages apart, "
        "so it has no sets."
        for level in geometry.levels
        if level.ways == 0
    ]
    lines += [
        f"Its ways are not known: {level.ways_reason}"
        for level in geometry.levels
        if level.ways_reason
    ]
    for reason in dict.fromkeys(walk.reason for walk in geometry.walks if walk.reason):
        places = " and ".join(walk.table_in for walk in geometry.walks if walk.reason == reason)
        lines.append(f"Walks with the page table in {places} were not measured. {reason}")
    return (
        lines
        + penalty(geometry)
        + geometry.notes
        + ([backing_sentence(geometry.backing)] if geometry.backing else [])
    )


def backing_sentence(backing: PageBacking) -> str:
    return f"Large pages: {backing.verdict}. {backing.evidence}"


def penalty(geometry: Geometry) -> list[str]:
    """What the alias layout pays for being aliased, where it pays."""
    if geometry.alias_penalty is None or geometry.alias_penalty < 1:
        return []
    return [
        "Reaching one line by another address than the last visit did adds "
        f"{geometry.alias_penalty:.0f} {geometry.unit} here. AMD's first-level caches predict "
        "their way from a hash of the virtual address and pay for a wrong guess; others may have a "
        "price of their own. Every plateau of the alias layout pays it alike, so its steps are "
        "where they would be without."
    ]
