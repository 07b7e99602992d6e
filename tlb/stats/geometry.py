"""Infer the geometry of the data TLBs from measured curves: entries, hit costs, ways, walk price.

Three opinions on how many entries a level has, from three kinds of chase:

price   spread minus packed in cyclic order: the step of what a program pays
alias   the same pages on eight cached lines (kernels/page_chase.c): the step of translation alone
draws   alias in random order: misses are 1 - C/M whatever the replacement, so C comes out where no
        step is sharp
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from tlb.stats import misses
from tlb.stats.geometry_curves import ALIAS_FROM as ALIAS_FROM
from tlb.stats.geometry_curves import aliased, curve, has_clock, priced, steps, stride_of
from tlb.stats.geometry_curves import base_stride as base_stride
from tlb.stats.geometry_opinions import SAME, are_joined, believed, from_step, paired, verdict
from tlb.stats.geometry_walks import MOST_PAGES as MOST_PAGES
from tlb.stats.geometry_walks import TABLE_ENTRY_BYTES, Estimate, Model, Walk, walks
from tlb.stats.geometry_walks import walk_points as walk_points
from tlb.stats.intervals import median_interval
from tlb.stats.knees import APART, Knee
from tlb.system.reasons import Unavailable, explain

WAY_STRIDE = 64  # pages that collide; no published first level has more than 32 sets
NEVER = 1e9  # entries of a second level that is never missed
# A knee above the second level whose page table fills a data cache within this share of its size
# belongs to that cache, not to a TLB.
NEAR = 0.2
_ALONE = (
    "One level shows. A smaller one may lie before it or a larger one behind it, so what missing "
    "it costs is no walk's price until it is known that none does."
)


class Level(Model):
    """One level of the data TLB. Costs in `Geometry.unit` per access.

    entries: the opinion to believe; opinions: price, alias and draws, as far as there are any.
    stated: entries by CPUID. hit_cost: what missing the level before adds; None for the first.
    ways: of the first level only; 0 if no stride of pages makes it smaller. rise: pages at which a
    tenth and nine tenths of the step are done. is_alone: no chase shows another level, and CPUID
    does not exclude one, so which level this is remains unknown.
    """

    level: int
    entries: Estimate
    opinions: dict[str, Estimate]
    stated: int | None
    hit_cost: Estimate | None
    ways: int | None = None
    ways_reason: str | None = None
    rise: tuple[float, float]
    is_alone: bool = False
    verdict: str


class Backing(Model):
    """Whether an entry of the TLB spans a large page (tlb/stats/splinter.py)."""

    verdict: Literal["not splintered", "splintered by the host", "cannot tell"]
    evidence: str


class Geometry(Model):
    """Result of `tlb geometry`.

    first_tread: cost of an access that hits everywhere. alias_penalty: cost of reaching a line by
    another address than last time (AMD's way predictor). backing: of large pages only.
    """

    pages: str
    unit: Literal["cycles", "ns"]
    core_ghz: float | None
    first_tread: float
    levels: list[Level]
    walks: list[Walk]
    alias_penalty: float | None
    notes: list[str]
    backing: Backing | None = None


def infer(
    frame: pd.DataFrame,
    stated: Sequence[int] = (),
    cache_bytes: Mapping[int, int] | None = None,
    lacking: Sequence[str] = (),
) -> Geometry:
    """Return the geometry from the rows of an experiment `geometry` (columns of Store.load).

    stated: entries of each level by CPUID, only to be compared with. cache_bytes: level -> bytes,
    to tell a page table that leaves a cache from a full TLB. lacking: sentences on what could not
    be measured, kept as notes. Raises Unavailable: no-data, no-step if no curve has a knee.
    """
    if frame.empty:
        raise Unavailable("no-data")
    caches, stride = cache_bytes or {}, stride_of(frame)
    alias, price = aliased(frame, stride), priced(frame, stride)
    alias_knees, price_knees = steps(alias), steps(price)
    pairs = paired(price_knees[:2], alias_knees[:2])
    if not pairs:
        counted = f"{len(alias)} aliased and {len(price)} priced numbers of pages"
        raise Unavailable("no-step", counted)
    joined = any(p and a and are_joined(p.pages, a.pages) for p, a in pairs)
    # The price is what a program pays, if its plateaus are where the entries end.
    main = price if price_knees and not joined else alias
    levels = _levels(frame, pairs, stride, stated, main)
    is_alone = len(levels) == 1 and len(stated) != 1
    notes = [*lacking, *[_ALONE] * is_alone, *_unseen(stated, levels, len(pairs))]
    if is_alone:
        levels = [levels[0].model_copy(update={"is_alone": True})]
    clock = frame.loc[frame["core_ghz"] > 0, "core_ghz"]
    return Geometry(
        pages=str(frame["pages"].iloc[0]),
        unit="cycles" if has_clock(frame) else "ns",
        core_ghz=float(clock.median()) if len(clock) else None,
        first_tread=float((price if len(price) else alias)["cost"].iloc[0]),
        levels=levels,
        walks=[] if is_alone else _walks(frame, alias, levels, stride, caches),
        alias_penalty=_alias_penalty(frame, stride),
        notes=notes + _later_rises(alias_knees, caches),
    )


def _walks(
    frame: pd.DataFrame,
    alias: pd.DataFrame,
    levels: Sequence[Level],
    stride: int,
    cache_bytes: Mapping[int, int],
) -> list[Walk]:
    first = levels[-2].rise[1] if len(levels) > 1 else 0
    hits = alias[alias["lines"].between(first, levels[-1].rise[0] * 0.9)]["cost"]
    return walks(frame, hits, levels[-1].entries.value, stride, cache_bytes)


def _levels(
    frame: pd.DataFrame,
    pairs: Sequence[tuple[Knee | None, Knee | None]],
    stride: int,
    stated: Sequence[int],
    main: pd.DataFrame,
) -> list[Level]:
    """Return a level for each pair of knees, by price and by alias. main: curve of the hit
    costs."""
    levels: list[Level] = []
    before = None
    for place, (by_price, by_alias) in enumerate(pairs):
        knee = by_alias or by_price
        named = {"price": by_price, "alias": by_alias}
        opinions = {name: from_step(step, name) for name, step in named.items() if step}
        if drawn := _from_draws(frame, stride, levels, knee):
            opinions["draws"] = drawn
        entries, states = believed(opinions), _stated(stated, place, len(pairs), knee)
        ways, ways_reason = (None, None) if levels else _ways(frame, entries, knee, stride)
        smaller = round(levels[-1].entries.value) if levels else 0
        levels.append(
            Level(
                level=place + 1,
                entries=entries,
                opinions=opinions,
                stated=states,
                hit_cost=_hit_cost(main, before, knee) if before else None,
                ways=ways,
                ways_reason=ways_reason,
                rise=(knee.tenth, knee.nine_tenths),
                verdict=verdict(opinions, entries, knee, states, smaller),
            )
        )
        before = knee
    return levels


def _later_rises(knees: list[Knee], cache_bytes: Mapping[int, int]) -> list[str]:
    """Return a note for each knee past the second level: a cache that the page table fills, or
    none."""
    notes = []
    for knee in knees[2:]:
        why = "which no TLB or cache explains"
        for level, size in sorted(cache_bytes.items(), reverse=True):
            if abs(knee.pages * TABLE_ENTRY_BYTES / size - 1) < NEAR:
                why = f"there the page table fills the L{level} cache"
        notes.append(f"Past the TLBs the cost rises again at {round(knee.pages):,} pages: {why}.")
    return notes


def _stated(stated: Sequence[int], place: int, levels: int, knee: Knee) -> int | None:
    """Return CPUID's entries: by place, or the nearest where CPUID states another number of
    levels."""
    if len(stated) == levels:
        return stated[place]
    away = {n: abs(np.log2(n / knee.pages)) for n in stated}
    nearest = min(away, key=away.get, default=None)
    return nearest if nearest and away[nearest] < APART else None


def _unseen(stated: Sequence[int], levels: Sequence[Level], pairs: int) -> list[str]:
    """Return a sentence for each level that CPUID states and no chase shows."""
    if len(stated) <= pairs:
        return []
    return [
        f"CPUID states a level of {n:,} entries that no chase shows. Where a hypervisor backs the "
        "pages with smaller ones, an entry "
        "holds a part of a page, and lines one page apart then crowd a few of the sets."
        for n in sorted(set(stated) - {level.stated for level in levels})
    ]


def draw_window(knee: Knee) -> tuple[float, float]:
    """Return the pages between which random draws are fitted: enough on either side, and no further
    up than needed, since walks get dearer as the page table leaves the first-level cache."""
    return knee.tenth * 0.75, knee.pages * 2.25


def _from_draws(
    frame: pd.DataFrame, stride: int, below: Sequence[Level], knee: Knee
) -> Estimate | None:
    """Fit cost = first plateau + hit (1 - C1/M) + walk (1 - C2/M) with the knee of this level free.

    The first level is drawn from in the spread layout: aliased, a visit now and then finds its line
    as the last one left it, the less often the more pages there are, which is a curve of its own.
    So few lines fill no data cache.
    """
    layout = "alias" if below else "spread"
    drawn = curve(frame, layout, "random", stride)
    drawn = drawn[drawn["lines"].between(*draw_window(knee))]
    base = aliased(frame, stride) if below else curve(frame, layout, stride_pages=stride)
    base = base[base["lines"] < (below[0].rise[0] if below else knee.tenth)]
    if drawn.empty or base.empty:
        return None
    known = {"l1_entries": below[0].entries.value} if below else {"l2_entries": NEVER}
    costs = drawn["least"] - base["least"].median()
    try:
        fit = misses.fit_random_curve(drawn["lines"], costs, **known)
    except Unavailable:
        return None
    c = fit.l2_entries if below else fit.l1_entries
    return Estimate.of(c, "draws, fit of 1 - C/M") if np.isfinite([c.low, c.high]).all() else None


def _hit_cost(points: pd.DataFrame, before: Knee, knee: Knee) -> Estimate | None:
    """Return what a hit in a level adds to one in the level before: a difference of two
    plateaus."""
    lower = points[points["lines"] <= before.tenth]["cost"]
    upper = points[points["lines"].between(before.nine_tenths, knee.tenth * 0.9)]["cost"]
    if lower.empty or upper.empty:
        return None
    difference = median_interval(upper) - median_interval(lower)
    return Estimate.of(difference, "difference of two plateaus")


def _ways(
    frame: pd.DataFrame, entries: Estimate, knee: Knee, stride: int
) -> tuple[int | None, str | None]:
    """Return (ways, reason) of the first level, from pages that collide; 0 ways if none do.

    At a stride of as many pages as there are sets or more, only as many pages fit as a set has
    ways.
    """
    points = curve(frame, "spread", stride_pages=stride * WAY_STRIDE)
    lines, least = points["lines"], points["least"]
    at_stride = f"at a stride of {WAY_STRIDE}"
    if len(points) < 6 or not (lines > entries.value).any():
        return None, explain("too-few-points", f"a stride of {WAY_STRIDE} pages")
    height = float(least.iloc[:2].median()) + (knee.after - knee.before) / 2
    if float(least[lines > entries.value].median()) < height:
        return None, explain(
            "no-step", f"{int(lines.max())} pages {at_stride} cost no more than two"
        )
    fit = int(lines[least < height].max())
    if fit >= entries.value * 0.85:
        return 0, None
    sets = entries.value / fit
    if abs(2 ** round(np.log2(sets)) / sets - 1) <= SAME:
        return fit, None
    odd = f"{fit} pages fit {at_stride}, and {sets:.1f} sets are no power of two"
    return None, explain("no-step", odd)


def _alias_penalty(frame: pd.DataFrame, stride: int) -> float | None:
    """Return the cost of 32 aliased pages, four to a line, less that of 8, one to a line."""
    at = curve(frame, "alias", stride_pages=stride).set_index("lines")["cost"]
    return float(at[32] - at[8]) if {8, 32} <= set(at.index) else None
