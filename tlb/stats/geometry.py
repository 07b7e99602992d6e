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

from tlb.stats.fits import MIN_KNEE_DISTANCE_RATIO, CurveKnee, fit_random_access_curve
from tlb.stats.geometry_curves import (
    BoundedEstimate,
    GeometryModel,
    WalkPrice,
    aliased_chase_curve,
    base_pages_per_page,
    cost_by_page_count,
    costs_by_mapping,
    curve_knees,
    has_core_clock,
    price_curve,
    walk_prices,
)
from tlb.stats.intervals import Interval, median_interval
from tlb.system.page_sizes import TABLE_ENTRY_BYTES
from tlb.system.reasons import Unavailable, explain_reason

COLLIDING_STRIDE_PAGES = 64  # pages that collide; no published first level has more than 32 sets
UNREACHABLE_ENTRIES = 1e9  # entries of a second level that is never missed
# A knee above the second level whose page table fills a data cache within this share of its size
# belongs to that cache, not to a TLB.
NEAR_OPINIONS = 0.2
_ALONE = (
    "One level shows. A smaller one may lie before it or a larger one behind it, so what missing "
    "it costs is no walk's price until it is known that none does."
)
MATCH_OCTAVES = 0.75  # two knees further apart than this are of two levels
WIDEST_GRID_STEP = (
    1.1  # a step between two points further apart than this places no number of entries
)
PROGRAM_PAGES = 2  # entries that the program's other pages may take, which smears a step by as many
AGREEING_OPINIONS = (
    0.03  # two opinions nearer to each other than this agree: the grid around a knee is finer
)
SUM_OF_LEVELS = (
    0.01  # a first level has a fortieth of a second's entries, so this tells their sum apart
)
# Ratios of price to alias at which both are of one level whose entries hold several neighbours: Zen
# joins four pages and more whose frames lie in a row, an arm64 core up to sixteen. The pages of the
# alias layout share a few frames, so theirs are never joined.
JOINED_LEVELS = (1.5, 20.0)
MAX_ENTRIES_RATIO = 2.0  # one generation of processors to the next differs by less


class TlbLevel(GeometryModel):
    """One level of the data TLB. Costs in `TlbGeometry.unit` per access.

    entries: the opinion to believe; opinions: price, alias and draws, as far as there are any.
    stated: entries by CPUID. hit_cost: what missing the level before adds; None for the first.
    ways: of the first level only; 0 if no stride of pages makes it smaller. rise: pages at which a
    tenth and nine tenths of the step are done. is_alone: no chase shows another level, and CPUID
    does not exclude one, so which level this is remains unknown.
    """

    level: int
    entries: BoundedEstimate
    opinions: dict[str, BoundedEstimate]
    stated: int | None
    hit_cost: BoundedEstimate | None
    ways: int | None = None
    ways_reason: str | None = None
    rise: tuple[float, float]
    is_alone: bool = False
    verdict: str

    @property
    def narrow_entries(self) -> Interval:
        """Return the interval of `entries`. Raises Unavailable("too-few-points") for one so wide
        that any statement agrees with it."""
        found = self.entries.interval
        if found.high > MAX_ENTRIES_RATIO * found.low:
            raise Unavailable("too-few-points", f"the chases find {found:,.0f} entries")
        return found


class EntryPageBacking(GeometryModel):
    """Whether an entry of the TLB spans a large page (tlb/stats/splinter.py)."""

    verdict: Literal["not splintered", "splintered by the host", "cannot tell"]
    evidence: str


class TlbGeometry(GeometryModel):
    """Result of `tlb geometry`.

    first_tread: cost of an access that hits everywhere. alias_penalty: cost of reaching a line by
    another address than last time (AMD's way predictor). backing: of large pages only.
    """

    pages: str
    unit: Literal["cycles", "ns"]
    core_ghz: float | None
    first_tread: float
    levels: list[TlbLevel]
    walks: list[WalkPrice]
    alias_penalty: float | None
    notes: list[str]
    backing: EntryPageBacking | None = None


def infer_tlb_geometry(
    frame: pd.DataFrame,
    stated: Sequence[int] = (),
    cache_bytes: Mapping[int, int] | None = None,
    lacking: Sequence[str] = (),
) -> TlbGeometry:
    """Return the geometry from the rows of an experiment `geometry` (columns of Store.load).

    stated: entries of each level by CPUID, only to be compared with. cache_bytes: level -> bytes,
    to tell a page table that leaves a cache from a full TLB. lacking: sentences on what could not
    be measured, kept as notes. Raises Unavailable: no-data, no-step if no curve has a knee.
    """
    if frame.empty:
        raise Unavailable("no-data")
    caches, stride = cache_bytes or {}, base_pages_per_page(frame)
    alias, price = aliased_chase_curve(frame, stride), price_curve(frame, stride)
    alias_knees, price_knees = curve_knees(alias), curve_knees(price)
    pairs = pair_knees(price_knees[:2], alias_knees[:2])
    if not pairs:
        counted = f"{len(alias)} aliased and {len(price)} priced numbers of pages"
        raise Unavailable("no-step", counted)
    joined = any(p and a and are_joined(p.pages, a.pages) for p, a in pairs)
    # The price is what a program pays, if its plateaus are where the entries end.
    is_priced = bool(price_knees and not joined)
    mappings = costs_by_mapping(frame, "price" if is_priced else "alias", stride)
    levels = _levels(frame, pairs, stride, stated, price if is_priced else alias, mappings)
    is_alone = len(levels) == 1 and len(stated) != 1
    notes = [*lacking, *[_ALONE] * is_alone, *_unseen(stated, levels, len(pairs))]
    if is_alone:
        levels = [levels[0].model_copy(update={"is_alone": True})]
    return TlbGeometry(
        pages=str(frame["pages"].iloc[0]),
        unit="cycles" if has_core_clock(frame) else "ns",
        core_ghz=_core_ghz(frame),
        first_tread=float((price if len(price) else alias)["cost"].iloc[0]),
        levels=levels,
        walks=[] if is_alone else _walks(frame, alias, levels, stride, caches),
        alias_penalty=_alias_penalty(frame, stride),
        notes=notes + _later_rises(alias_knees, caches),
    )


def _core_ghz(frame: pd.DataFrame) -> float | None:
    """Return the median clock of the processes that measured one; None without any."""
    clock = frame.loc[frame["core_ghz"] > 0, "core_ghz"]
    return float(clock.median()) if len(clock) else None


def _walks(
    frame: pd.DataFrame,
    alias: pd.DataFrame,
    levels: Sequence[TlbLevel],
    stride: int,
    cache_bytes: Mapping[int, int],
) -> list[WalkPrice]:
    first = levels[-2].rise[1] if len(levels) > 1 else 0
    hits = alias[alias["lines"].between(first, levels[-1].rise[0] * 0.9)]["cost"]
    return walk_prices(frame, hits, levels[-1].entries.value, stride, cache_bytes)


def _levels(
    frame: pd.DataFrame,
    pairs: Sequence[tuple[CurveKnee | None, CurveKnee | None]],
    stride: int,
    stated: Sequence[int],
    main: pd.DataFrame,
    mappings: pd.DataFrame,
) -> list[TlbLevel]:
    """Return a level for each pair of knees, by price and by alias. main, mappings: of the hit
    costs, see `hit_cost`."""
    levels: list[TlbLevel] = []
    before = None
    for place, (by_price, by_alias) in enumerate(pairs):
        knee = by_alias or by_price
        assert knee is not None  # `paired` gives one of them at least
        named = {"price": by_price, "alias": by_alias}
        opinions = {name: estimate_of_step(step, name) for name, step in named.items() if step}
        if drawn := _from_draws(frame, stride, levels, knee):
            opinions["draws"] = drawn
        entries, states = most_trusted_estimate(opinions), _stated(stated, place, len(pairs), knee)
        ways, ways_reason = (None, None) if levels else _ways(frame, entries, knee, stride)
        smaller = round(levels[-1].entries.value) if levels else 0
        levels.append(
            TlbLevel(
                level=place + 1,
                entries=entries,
                opinions=opinions,
                stated=states,
                hit_cost=level_hit_cost(main, mappings, before, knee) if before else None,
                ways=ways,
                ways_reason=ways_reason,
                rise=(knee.tenth, knee.nine_tenths),
                verdict=level_verdict(opinions, entries, knee, states, smaller),
            )
        )
        before = knee
    return levels


def _later_rises(knees: list[CurveKnee], cache_bytes: Mapping[int, int]) -> list[str]:
    """Return a note for each knee past the second level: a cache that the page table fills, or
    none."""
    notes = []
    for knee in knees[2:]:
        why = "which no TLB or cache explains"
        for level, size in sorted(cache_bytes.items(), reverse=True):
            if abs(knee.pages * TABLE_ENTRY_BYTES / size - 1) < NEAR_OPINIONS:
                why = f"there the page table fills the L{level} cache"
        notes.append(f"Past the TLBs the cost rises again at {round(knee.pages):,} pages: {why}.")
    return notes


def _stated(stated: Sequence[int], place: int, levels: int, knee: CurveKnee) -> int | None:
    """Return CPUID's entries: by place, or the nearest where CPUID states another number of
    levels."""
    if len(stated) == levels:
        return stated[place]
    away = {n: abs(np.log2(n / knee.pages)) for n in stated}
    distance, nearest = min(((off, n) for n, off in away.items()), default=(np.inf, None))
    return nearest if distance < MIN_KNEE_DISTANCE_RATIO else None


def _unseen(stated: Sequence[int], levels: Sequence[TlbLevel], pairs: int) -> list[str]:
    """Return a sentence for each level that CPUID states and no chase shows."""
    if len(stated) <= pairs:
        return []
    return [
        f"CPUID states a level of {n:,} entries that no chase shows. Where a hypervisor backs the "
        "pages with smaller ones, an entry "
        "holds a part of a page, and lines one page apart then crowd a few of the sets."
        for n in sorted(set(stated) - {level.stated for level in levels})
    ]


def draw_window(knee: CurveKnee) -> tuple[float, float]:
    """Return the pages between which random draws are fitted: enough on either side, and no further
    up than needed, since walks get dearer as the page table leaves the first-level cache."""
    return knee.tenth * 0.75, knee.pages * 2.25


def _from_draws(
    frame: pd.DataFrame, stride: int, below: Sequence[TlbLevel], knee: CurveKnee
) -> BoundedEstimate | None:
    """Fit cost = first plateau + hit (1 - C1/M) + walk (1 - C2/M) with the knee of this level free.

    The first level is drawn from in the spread layout: aliased, a visit now and then finds its line
    as the last one left it, the less often the more pages there are, which is a curve of its own.
    So few lines fill no data cache.
    """
    layout = "alias" if below else "spread"
    drawn = cost_by_page_count(frame, layout, "random", stride)
    drawn = drawn[drawn["lines"].between(*draw_window(knee))]
    base = (
        aliased_chase_curve(frame, stride)
        if below
        else cost_by_page_count(frame, layout, stride_pages=stride)
    )
    base = base[base["lines"] < (below[0].rise[0] if below else knee.tenth)]
    if drawn.empty or base.empty:
        return None
    known = {"l1_entries": below[0].entries.value} if below else {"l2_entries": UNREACHABLE_ENTRIES}
    costs = drawn["least"] - base["least"].median()
    try:
        fit = fit_random_access_curve(drawn["lines"], costs, **known)
    except Unavailable:
        return None
    c = fit.l2_entries if below else fit.l1_entries
    return (
        BoundedEstimate.of(c, "draws, fit of 1 - C/M")
        if np.isfinite([c.low, c.high]).all()
        else None
    )


def level_hit_cost(
    points: pd.DataFrame, mappings: pd.DataFrame, before: CurveKnee, knee: CurveKnee
) -> BoundedEstimate | None:
    """Return what a hit in a level adds to one in the level before: a difference of two plateaus.

    points: of a curve. mappings: its costs by mapping; the difference is then taken inside each
    mapping that has all points, since those share its noise. Empty if each process held one point:
    the points are then independent.
    """
    lines = points["lines"]
    lower = points[lines <= before.tenth]
    upper = points[lines.between(before.nine_tenths, knee.tenth * 0.9)]
    if lower.empty or upper.empty:
        return None
    if mappings.empty:
        difference = median_interval(upper["cost"]) - median_interval(lower["cost"])
        return BoundedEstimate.of(difference, "difference of two plateaus")
    whole = mappings[[*lower["lines"], *upper["lines"]]].dropna()
    heights = (whole[side["lines"]].median(axis=1) for side in (upper, lower))
    difference = median_interval(next(heights) - next(heights))
    return BoundedEstimate.of(difference, "difference of two plateaus of each mapping")


def _ways(
    frame: pd.DataFrame, entries: BoundedEstimate, knee: CurveKnee, stride: int
) -> tuple[int | None, str | None]:
    """Return (ways, reason) of the first level, from pages that collide; 0 ways if none do.

    At a stride of as many pages as there are sets or more, only as many pages fit as a set has
    ways.
    """
    points = cost_by_page_count(frame, "spread", stride_pages=stride * COLLIDING_STRIDE_PAGES)
    lines, least = points["lines"], points["least"]
    at_stride = f"at a stride of {COLLIDING_STRIDE_PAGES}"
    if len(points) < 6 or not (lines > entries.value).any():
        return None, explain_reason("too-few-points", f"a stride of {COLLIDING_STRIDE_PAGES} pages")
    height = float(least.iloc[:2].median()) + (knee.after - knee.before) / 2
    if float(least[lines > entries.value].median()) < height:
        return None, explain_reason(
            "no-step", f"{int(lines.max())} pages {at_stride} cost no more than two"
        )
    fit = int(lines[least < height].max())
    if fit >= entries.value * 0.85:
        return 0, None
    sets = entries.value / fit
    if abs(2 ** round(np.log2(sets)) / sets - 1) <= AGREEING_OPINIONS:
        return fit, None
    odd = f"{fit} pages fit {at_stride}, and {sets:.1f} sets are no power of two"
    return None, explain_reason("no-step", odd)


def _alias_penalty(frame: pd.DataFrame, stride: int) -> float | None:
    """Return the cost of 32 aliased pages, four to a line, less that of 8, one to a line."""
    at = cost_by_page_count(frame, "alias", stride_pages=stride).set_index("lines")["cost"]
    return float(at[32] - at[8]) if {8, 32} <= set(at.index) else None


# --- opinions on the entries of a level, from steps, and which to believe


def are_joined(price: float, alias: float) -> bool:
    """Return whether two steps this far apart belong to one level whose entries hold neighbours."""
    return JOINED_LEVELS[0] < price / alias < JOINED_LEVELS[1]


def estimate_of_step(knee: CurveKnee, name: str) -> BoundedEstimate:
    """Return the entries that a step shows: its last low point, its foot if the rise is longer than
    other pages explain, or half of the rise if it is smeared.

    LRU holds as many pages as still cost nothing. Sets fill one after another: with sixteen ways
    half of the rise is done 3 % past that.
    """
    low, high, foot = knee.last_low, knee.first_high, knee.foot
    if knee.is_sharp and not knee.is_between_points and low - foot > PROGRAM_PAGES:
        margin = max((knee.nine_tenths - knee.tenth) / 4, high - low)
        return BoundedEstimate(
            value=foot, low=foot - margin, high=foot + margin, method=f"{name}, step"
        )
    if knee.is_sharp and high <= low * WIDEST_GRID_STEP:
        least = low if knee.is_between_points else min(low, foot)
        return BoundedEstimate(
            value=low, low=least, high=max(low, high - 1), method=f"{name}, step"
        )
    method = f"{name}, half of a smeared rise"
    return BoundedEstimate(value=knee.pages, low=knee.tenth, high=knee.nine_tenths, method=method)


def _joined(opinions: Mapping[str, BoundedEstimate]) -> bool:
    both = {"price", "alias"} <= opinions.keys()
    return both and are_joined(opinions["price"].value, opinions["alias"].value)


def most_trusted_estimate(opinions: Mapping[str, BoundedEstimate]) -> BoundedEstimate:
    """Return the opinion to believe.

    A sharp step is exact; of two the larger, since what disturbs a chase fills a level early. Alias
    alone counts where neighbours share entries. Without a sharp step random draws decide, which
    hold for any replacement; without draws half of the rise.
    """
    if _joined(opinions):
        opinions = {name: opinion for name, opinion in opinions.items() if name != "price"}
    named = [opinions[name] for name in ("alias", "price") if name in opinions]
    steps = [opinion for opinion in named if opinion.method.endswith("step")]
    if steps:
        return max(steps, key=lambda opinion: opinion.value)
    return opinions.get("draws") or named[0]


def _agree(a: BoundedEstimate, b: float) -> bool:
    return (
        a.low * (1 - AGREEING_OPINIONS) <= b <= a.high * (1 + AGREEING_OPINIONS)
        or abs(a.value / b - 1) <= AGREEING_OPINIONS
    )


def _measured(
    opinions: Mapping[str, BoundedEstimate], entries: BoundedEstimate, knee: CurveKnee
) -> str:
    """Return how the opinions compare with each other."""
    number = {name: f"{round(opinion.value):,}" for name, opinion in opinions.items()}
    if entries.method.startswith("draws"):
        return (
            f"The cost does not step, it rises: a tenth of it at {round(knee.tenth):,} pages, nine "
            f"tenths at {round(knee.nine_tenths):,}. Random draws miss as 1 - C/M under any "
            f"replacement and give {number['draws']} ({round(entries.low):,} to "
            f"{round(entries.high):,}): believe those. "
        )
    if not entries.method.endswith("step"):
        return (
            "The cost does not step, it rises, and no draws could be fitted: the number is where "
            "half of the rise is done. "
        )
    if _joined(opinions):
        neighbours = opinions["price"].value / opinions["alias"].value
        return (
            f"Alias puts the step at {number['alias']} pages, price at {number['price']}: where "
            f"the frames of neighbours lie in a row an entry holds about {neighbours:.0f} of them. "
            "Believe alias for the entries, and price for what such memory reaches. "
        )
    if not {"price", "alias"} <= opinions.keys():
        only = "price" if "price" in opinions else "alias"
        return f"Only {only} shows this level, at {number[only]} pages: believe it with care. "
    if _agree(opinions["alias"], opinions["price"].value):
        return f"Price and alias agree on {number['alias']} pages. "
    return (
        f"Price puts the step at {number['price']} pages, alias at {number['alias']}: believe "
        f"{round(entries.value):,}, the larger, since what disturbs a chase fills a level early. "
    )


def level_verdict(
    opinions: Mapping[str, BoundedEstimate],
    entries: BoundedEstimate,
    knee: CurveKnee,
    stated: int | None,
    before: int,
) -> str:
    """Return how the opinions compare with each other and with CPUID, and which to believe.

    stated: CPUID's entries. before: entries of the level before, 0 for the first; it may hold other
    pages than this level does.
    """
    sentence = _measured(opinions, entries, knee)
    if stated is None:
        return sentence + "Nothing states this level's entries to compare with."
    off_alone = abs(entries.value / stated - 1)
    off_together = abs(entries.value / (stated + before) - 1)
    if entries.method.startswith("draws") and off_together < min(SUM_OF_LEVELS, off_alone):
        return sentence + (
            f"CPUID states {stated:,}, and with the {before} of the level before, which hold "
            "other pages, that is what was found."
        )
    if _agree(entries, stated):
        return sentence + f"CPUID states {stated:,} and agrees."
    return sentence + (
        f"CPUID states {stated:,}: believe the measurement for what a program pays, and CPUID for "
        "what was built; entries may be shared with other page sizes, taken by the system, or "
        "reached by a hash that fills its sets unevenly."
    )


def pair_knees(
    by_price: list[CurveKnee], by_alias: list[CurveKnee]
) -> list[tuple[CurveKnee | None, CurveKnee | None]]:
    """Return the knees of both curves level by level, ascending; None where a curve lacks the
    level."""

    def is_near(price: CurveKnee, alias: CurveKnee) -> bool:
        overlaps = price.tenth < alias.nine_tenths and alias.tenth < price.nine_tenths
        return overlaps or abs(np.log2(price.pages / alias.pages)) < MATCH_OCTAVES

    rest = list(by_price)
    pairs: list[tuple[CurveKnee | None, CurveKnee]] = []
    for knee in by_alias:
        near = [price for price in rest if is_near(price, knee)]
        pairs.append((near[0] if near else None, knee))
        rest = [price for price in rest if price not in near]
    if not any(price for price, _ in pairs):  # each may be a multiple of alias, level by level
        for i, price in enumerate(rest[: len(pairs)]):
            if are_joined(price.pages, pairs[i][1].pages):
                pairs[i] = price, pairs[i][1]
        rest = [price for price in rest if price not in [used for used, _ in pairs]]
    levels = [(alias.pages, price, alias) for price, alias in pairs]
    alone = [(price.pages, price, None) for price in rest]
    found = sorted([*levels, *alone], key=lambda level: level[0])
    return [(price, alias) for _, price, alias in found[:2]]
