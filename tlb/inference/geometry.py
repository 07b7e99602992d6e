"""The geometry of the data TLBs from measured curves alone: entries, hit costs, ways, and the price
of a walk.

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

from tlb.inference import misses
from tlb.inference.geometry_curves import ALIAS_FROM as ALIAS_FROM
from tlb.inference.geometry_curves import aliased, curve, has_clock, priced, steps, stride_of
from tlb.inference.geometry_curves import base_stride as base_stride
from tlb.inference.geometry_walks import MOST_PAGES as MOST_PAGES
from tlb.inference.geometry_walks import TABLE_ENTRY_BYTES, Estimate, Model, Walk, walks
from tlb.inference.geometry_walks import walk_points as walk_points
from tlb.inference.intervals import median_interval
from tlb.inference.knees import APART, Knee
from tlb.reasons import Unavailable, explain

WAY_STRIDE = 64  # pages that collide; no first level that is published has more than 32 sets
STEP = 1.1  # a step between two points further apart places no number of entries
BOTH = 0.01  # draws are told apart to a hundredth: a first level is a fortieth of a second
SAME = 0.03  # two opinions nearer to each other than that agree: the grid around a knee is finer
NEVER = 1e9  # entries of a second level that is never missed
MATCH_OCTAVES = 0.75  # further apart, two knees are of two levels
# Or of one whose entries hold neighbours: Zen joins four pages and more whose frames lie in a row,
# an arm64 core up to sixteen. The pages of the alias layout share a few frames, so theirs are never
# joined.
JOINED = (1.5, 20.0)
# A knee whose page table fills a data cache to so much of its size, above the second level, is that
# cache's and no TLB's.
NEAR = 0.2
_ALONE = (
    "One level shows. A smaller one may lie before it or a larger one behind it, so what missing it costs is no walk's price until "
    "it is known that none does."
)


class Level(Model):
    """One level of the data TLB. Costs in `Geometry.unit` per access."""

    level: int
    entries: Estimate  # the opinion to believe; its method says which
    opinions: dict[str, Estimate]  # price, alias, draws: those there are
    stated: int | None  # by CPUID
    hit_cost: (
        Estimate | None
    )  # what missing the level before adds; None for the first, whose hits cost nothing
    ways: int | None = None  # 0: no stride of pages makes it smaller. Of the first level only
    ways_reason: str | None = None
    rise: tuple[float, float]  # pages at which a tenth and nine tenths of the step are done
    # no chase shows another, and CPUID does not state that there is none: which of them it is,
    # nobody knows
    is_alone: bool = False
    verdict: str  # how the opinions compare with each other and with CPUID, and which to believe


class Backing(Model):
    """Whether an entry of the TLB spans a large page (tlb/inference/splinter.py)."""

    verdict: Literal["not splintered", "splintered by the host", "cannot tell"]
    evidence: str


class Geometry(Model):
    """What `tlb geometry` found."""

    pages: str
    unit: Literal["cycles", "ns"]
    core_ghz: float | None
    first_tread: float  # cost of an access that hits everywhere
    levels: list[Level]
    walks: list[Walk]
    alias_penalty: (
        float | None
    )  # what reaching one line by another address than last time adds: AMD's way predictor
    notes: list[str]
    backing: Backing | None = None  # of large pages only


def infer(
    frame: pd.DataFrame,
    stated: Sequence[int] = (),
    cache_bytes: Mapping[int, int] | None = None,
    lacking: Sequence[str] = (),
) -> Geometry:
    """The geometry from the rows of an experiment `geometry` (one row a process, the columns of
    Store.load).

    stated: entries of each level as CPUID gives them, only to be compared with. cache_bytes: level
    -> bytes, to tell a page table that leaves a cache from a TLB that is full. lacking: sentences
    on what could not be measured, kept as notes. Raises Unavailable: no-data, no-step where neither
    curve has a knee.
    """
    if frame.empty:
        raise Unavailable("no-data")
    stride = stride_of(frame)
    alias, price = aliased(frame, stride), priced(frame, stride)
    by_alias, others = _tlb_steps(steps(alias), cache_bytes or {})
    by_price, _ = _tlb_steps(steps(price), cache_bytes or {})
    pairs = _paired(by_price, by_alias)
    if not pairs:
        raise Unavailable(
            "no-step", f"{len(alias)} aliased and {len(price)} priced numbers of pages"
        )
    joined = any(
        knee and aliased_knee and _are_joined(knee.pages, aliased_knee.pages)
        for knee, aliased_knee in pairs
    )
    # What a program pays, where that was measured and has its treads where the entries end.
    levels = _levels(frame, pairs, stride, stated, main=price if by_price and not joined else alias)
    is_alone = len(levels) == 1 and len(stated) != 1
    if is_alone:
        levels = [levels[0].model_copy(update={"is_alone": True})]
    hits = alias[
        alias["lines"].between(
            levels[-2].rise[1] if len(levels) > 1 else 0, levels[-1].rise[0] * 0.9
        )
    ]["cost"]
    clock = frame.loc[frame["core_ghz"] > 0, "core_ghz"]
    return Geometry(
        pages=str(frame["pages"].iloc[0]),
        unit="cycles" if has_clock(frame) else "ns",
        core_ghz=float(clock.median()) if len(clock) else None,
        first_tread=float(price["cost"].iloc[0] if len(price) else alias["cost"].iloc[0]),
        levels=levels,
        walks=[]
        if is_alone
        else walks(frame, hits, levels[-1].entries.value, stride, cache_bytes or {}),
        alias_penalty=_alias_penalty(frame, stride),
        notes=[
            *lacking,
            *[_ALONE] * is_alone,
            *_unseen(stated, levels, len(pairs)),
            *(
                f"Past the TLBs the cost rises again at {round(knee.pages):,} pages: {why}."
                for knee, why in others
            ),
        ],
    )


def _levels(
    frame: pd.DataFrame,
    pairs: Sequence[tuple[Knee | None, Knee | None]],
    stride: int,
    stated: Sequence[int],
    main: pd.DataFrame,
) -> list[Level]:
    """A level for each pair of knees, by price and by alias. main: the curve whose treads give the
    costs of hits."""
    levels: list[Level] = []
    before = None
    for place, (by_price, by_alias) in enumerate(pairs):
        knee = by_alias or by_price
        opinions = {
            name: _from_step(step, name)
            for name, step in (("price", by_price), ("alias", by_alias))
            if step
        }
        if drawn := _from_draws(frame, stride, levels, knee):
            opinions["draws"] = drawn
        entries, states = _believed(opinions), _stated(stated, place, len(pairs), knee)
        ways, ways_reason = (None, None) if levels else _ways(frame, entries, knee, stride)
        verdict = _verdict(
            opinions, entries, knee, states, round(levels[-1].entries.value) if levels else 0
        )
        levels.append(
            Level(
                level=place + 1,
                entries=entries,
                opinions=opinions,
                stated=states,
                hit_cost=_tread(main, before, knee),
                ways=ways,
                ways_reason=ways_reason,
                rise=(knee.tenth, knee.nine_tenths),
                verdict=verdict,
            )
        )
        before = knee
    return levels


def _tlb_steps(
    bends: list[Knee], cache_bytes: Mapping[int, int]
) -> tuple[list[Knee], list[tuple[Knee, str]]]:
    """Those that are a TLB's, and of the others what they are."""
    tlb, others = bends[:2], []
    for knee in bends[2:]:
        table = knee.pages * TABLE_ENTRY_BYTES
        filled = [
            level for level, size in sorted(cache_bytes.items()) if abs(table / size - 1) < NEAR
        ]
        others.append(
            (
                knee,
                f"there the page table fills the L{filled[0]} cache"
                if filled
                else "which no TLB or cache explains",
            )
        )
    return tlb, others


def _paired(by_price: list[Knee], by_alias: list[Knee]) -> list[tuple[Knee | None, Knee | None]]:
    """Knees of the two curves, level by level, ascending; None where one curve does not show the
    level."""
    rest, pairs = list(by_price), []
    for knee in by_alias:
        near = [
            p
            for p in rest
            if abs(np.log2(p.pages / knee.pages)) < MATCH_OCTAVES
            or (p.tenth < knee.nine_tenths and knee.tenth < p.nine_tenths)
        ]
        pairs.append((near[0] if near else None, knee))
        rest = [p for p in rest if p not in near]
    if not any(
        price for price, _ in pairs
    ):  # none where alias has them: each a multiple of its, level by level
        joined = [
            (p, knee) if _are_joined(p.pages, knee.pages) else (None, knee)
            for p, (_, knee) in zip(rest, pairs, strict=False)
        ]
        pairs, rest = (
            joined + pairs[len(joined) :],
            [p for p in rest if p not in [price for price, _ in joined]],
        )
    pairs += [(p, None) for p in rest]
    return sorted(pairs, key=lambda pair: (pair[1] or pair[0]).pages)[:2]


def _are_joined(price: float, alias: float) -> bool:
    """Whether a step of the price so far past that of alias is of the same level, whose entries
    hold neighbours."""
    return JOINED[0] < price / alias < JOINED[1]


def _stated(stated: Sequence[int], k: int, levels: int, knee: Knee) -> int | None:
    """CPUID's entries of the level: by its place, or where it states another number of levels than
    were found, the nearest."""
    if len(stated) == levels:
        return stated[k]
    near = [n for n in stated if abs(np.log2(n / knee.pages)) < APART]
    return min(near, key=lambda n: abs(np.log2(n / knee.pages))) if near else None


def _unseen(stated: Sequence[int], levels: Sequence[Level], pairs: int) -> list[str]:
    """A sentence for each level that CPUID states and no chase shows."""
    missing = (
        sorted(set(stated) - {level.stated for level in levels}) if len(stated) > pairs else []
    )
    return [
        f"CPUID states a level of {n:,} entries that no chase shows. Where a hypervisor backs the pages with smaller ones, an entry "
        "holds a part of a page, and lines one page apart then crowd a few of the sets."
        for n in missing
    ]


def _from_step(knee: Knee, name: str) -> Estimate:
    """LRU holds as many pages as still cost nothing, so a sharp step's last low point; of a smear
    the half."""
    if knee.is_sharp and knee.first_high <= knee.last_low * STEP:
        return Estimate(
            value=knee.last_low,
            low=knee.last_low,
            high=max(knee.last_low, knee.first_high - 1),
            method=f"{name}, step",
        )
    return Estimate(
        value=knee.pages,
        low=knee.tenth,
        high=knee.nine_tenths,
        method=f"{name}, half of a smeared rise",
    )


def draw_window(knee: Knee) -> tuple[float, float]:
    """Pages between which the random draws are fitted: enough on either side, and no further up
    than needed, since walks get dearer as the page table leaves the first-level cache."""
    return knee.tenth * 0.75, knee.pages * 2.25


def _from_draws(
    frame: pd.DataFrame, stride: int, below: Sequence[Level], knee: Knee
) -> Estimate | None:
    """Fit of cost = first tread + hit (1 - C1/M) + walk (1 - C2/M) with the knee of this level
    free.

    The first level is drawn from in the spread layout: aliased, a visit now and then finds its line
    as the last one left it, the less often the more pages there are, and that is a curve of its
    own. So few lines fill no data cache.
    """
    layout = "alias" if below else "spread"
    low, high = draw_window(knee)
    drawn = curve(frame, layout, "random", stride)
    drawn = drawn[drawn["lines"].between(low, high)]
    base = aliased(frame, stride) if below else curve(frame, layout, stride_pages=stride)
    base = base[base["lines"] < (below[0].rise if below else (knee.tenth,))[0]]
    if drawn.empty or base.empty:
        return None
    known = {"l1_entries": below[0].entries.value} if below else {"l2_entries": NEVER}
    try:
        fit = misses.fit_random_curve(
            drawn["lines"], drawn["least"] - base["least"].median(), **known
        )
    except Unavailable:
        return None
    c = fit.l2_entries if below else fit.l1_entries
    return Estimate.of(c, "draws, fit of 1 - C/M") if np.isfinite([c.low, c.high]).all() else None


def _believed(opinions: Mapping[str, Estimate]) -> Estimate:
    """A sharp step is exact; of two the larger, since what disturbs a chase fills a level early,
    unless neighbours share entries, which alias never has. For a smear the draws, which hold for
    any replacement; else half of the rise."""
    if {"alias", "price"} <= opinions.keys() and _are_joined(
        opinions["price"].value, opinions["alias"].value
    ):
        opinions = {name: opinion for name, opinion in opinions.items() if name != "price"}
    steps = [
        opinions[name]
        for name in ("alias", "price")
        if name in opinions and opinions[name].method.endswith("step")
    ]
    if steps:
        return max(steps, key=lambda opinion: opinion.value)
    return opinions.get("draws") or opinions.get("alias") or opinions["price"]


def _verdict(
    opinions: Mapping[str, Estimate],
    entries: Estimate,
    knee: Knee,
    stated: int | None,
    before: int = 0,
) -> str:
    """before: the entries of the level before, which may hold other pages than this one does."""

    def agree(a: Estimate, b: float) -> bool:
        return a.low * (1 - SAME) <= b <= a.high * (1 + SAME) or abs(a.value / b - 1) <= SAME

    def number(name: str) -> str:
        return f"{round(opinions[name].value):,}"

    if entries.method.startswith("draws"):
        sentence = (
            f"The cost does not step, it rises: a tenth of it at {round(knee.tenth):,} pages, nine tenths at "
            f"{round(knee.nine_tenths):,}. Random draws miss as 1 - C/M under any replacement and give {number('draws')} "
            f"({round(entries.low):,} to {round(entries.high):,}): believe those. "
        )
    elif not entries.method.endswith("step"):
        sentence = "The cost does not step, it rises, and no draws could be fitted: the number is where half of the rise is done. "
    elif {"price", "alias"} <= opinions.keys() and _are_joined(
        opinions["price"].value, opinions["alias"].value
    ):
        sentence = (
            f"Alias puts the step at {number('alias')} pages, price at {number('price')}: where the frames of neighbours lie in a "
            f"row an entry holds about {opinions['price'].value / opinions['alias'].value:.0f} of them. Believe alias for the "
            "entries, and price for what such memory reaches. "
        )
    elif {"price", "alias"} <= opinions.keys():
        sentence = (
            f"Price and alias agree on {number('alias')} pages. "
            if agree(opinions["alias"], opinions["price"].value)
            else f"Price puts the step at {number('price')} pages, alias at {number('alias')}: believe {round(entries.value):,}, the "
            "larger, since what disturbs a chase fills a level early. "
        )
    else:
        only = "price" if "price" in opinions else "alias"
        sentence = f"Only {only} shows this level, at {number(only)} pages: believe it with care. "
    if stated is None:
        return sentence + "CPUID states nothing to compare with."
    if entries.method.startswith("draws") and abs(entries.value / (stated + before) - 1) < min(
        BOTH, abs(entries.value / stated - 1)
    ):
        return sentence + (
            f"CPUID states {stated:,}, and with the {before} of the level before, which hold other pages, that is what was "
            "found."
        )
    if agree(entries, stated):
        return sentence + f"CPUID states {stated:,} and agrees."
    return sentence + (
        f"CPUID states {stated:,}: believe the measurement for what a program pays, and CPUID for what was built; entries "
        "may be shared with other page sizes, taken by the system, or reached by a hash that fills its sets unevenly."
    )


def _tread(points: pd.DataFrame, before: Knee | None, knee: Knee) -> Estimate | None:
    """What a hit in a level adds to one in the level `before`: the height of its tread over that
    one. None for the first."""
    if before is None:
        return None
    lower = points[points["lines"] <= before.tenth]["cost"]
    upper = points[points["lines"].between(before.nine_tenths, knee.tenth * 0.9)]["cost"]
    if lower.empty or upper.empty:
        return None
    return Estimate.of(
        median_interval(upper) - median_interval(lower), "difference of two plateaus"
    )


def _ways(
    frame: pd.DataFrame, entries: Estimate, knee: Knee, stride: int
) -> tuple[int | None, str | None]:
    """Ways of the first level from pages that collide: at a stride of as many pages as there are
    sets or more, only as many pages fit as a set has ways. 0 where the stride makes the level no
    smaller; None with a reason."""
    points = curve(frame, "spread", stride_pages=stride * WAY_STRIDE)
    beyond = points["least"][points["lines"] > entries.value]
    if len(points) < 6 or beyond.empty:
        return None, explain("too-few-points", f"a stride of {WAY_STRIDE} pages")
    low = float(points["least"].iloc[:2].median())
    if float(beyond.median()) < low + (knee.after - knee.before) / 2:
        return None, explain(
            "no-step",
            f"{int(points['lines'].max())} pages at a stride of {WAY_STRIDE} cost no more than two",
        )
    fit = int(points["lines"][points["least"] < low + (knee.after - knee.before) / 2].max())
    if fit >= entries.value * 0.85:
        return 0, None
    sets = entries.value / fit
    if abs(2 ** round(np.log2(sets)) / sets - 1) <= SAME:
        return fit, None
    return None, explain(
        "no-step",
        f"{fit} pages fit at a stride of {WAY_STRIDE}, and {sets:.1f} sets are no power of two",
    )


def _alias_penalty(frame: pd.DataFrame, stride: int) -> float | None:
    """The chase over 32 aliased pages, four to a line, less that over 8, one to a line: both inside
    the first level."""
    at = curve(frame, "alias", stride_pages=stride).set_index("lines")["cost"]
    return float(at[32] - at[8]) if {8, 32} <= set(at.index) else None
