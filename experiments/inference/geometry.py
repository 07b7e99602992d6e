"""The geometry of the data TLBs from measured curves alone: entries, hit costs, ways, and the price of a walk.

Three opinions on how many entries a level has, from three kinds of chase:

price   spread minus packed in cyclic order: the step of what a program pays
alias   the same pages on eight cached lines (kernels/page_chase.c): the step of translation alone
draws   alias in random order: misses are 1 - C/M whatever the replacement, so C comes out where no step is sharp

Costs are in core cycles, ns per access times the core clock that each process measured beside its region: so a change of
frequency between two processes is no step. Where an engine has no clock they are in ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict

from experiments.inference import misses as model
from experiments.inference.intervals import Interval, interval_of_difference, median_interval
from experiments.inference.knees import APART, Knee, knees
from experiments.words.reasons import Unavailable, explain

TABLE_ENTRY_BYTES, LINE_BYTES = 8, 64
WAY_STRIDE = 64  # pages that collide; no first level that is published has more than 32 sets
STEP = 1.1  # a step between two points further apart places no number of entries
SAME = 0.03  # two opinions nearer to each other than that agree: the grid around a knee is finer
COLUMNS = ["lines", "cost", "low", "high", "n", "least"]
ALIAS_FROM = 16  # pages, two to a line
REPEATS_FOR_BOUNDS = 3
NEVER = 1e9  # entries of a second level that is never missed
MATCH_OCTAVES = 0.75  # further apart, two knees are of two levels
MOST_PAGES = 1 << 26  # base pages that an aliased chase spans: its visits have 32 bits, in units of a line
# A knee whose page table fills a data cache to so much of its size, above the second level, is that cache's and no TLB's.
NEAR = 0.2


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Estimate(_Model):
    """A number with its bounds; `method` says where it comes from."""

    value: float
    low: float
    high: float
    method: str


class Level(_Model):
    """One level of the data TLB. Costs in `Geometry.unit` per access."""

    level: int
    entries: Estimate  # the opinion to believe; its method says which
    opinions: dict[str, Estimate]  # price, alias, draws: those there are
    stated: int | None  # by CPUID
    hit_cost: Estimate | None  # what missing the level before adds; None for the first, whose hits cost nothing
    ways: int | None = None  # 0: no stride of pages makes it smaller. Of the first level only
    ways_reason: str | None = None
    rise: tuple[float, float]  # pages at which a tenth and nine tenths of the step are done
    verdict: str  # how the opinions compare with each other and with CPUID, and which to believe


class Walk(_Model):
    """The price of a walk, on top of a hit in the last level, with the page table in one place."""

    table_in: Literal["L2", "L3", "memory"]
    pages: int
    stride_pages: int
    table_bytes: int  # lines of page-table entries that the walks touch
    cost: Estimate | None
    reason: str | None = None


class Backing(_Model):
    """Whether an entry of the TLB spans a large page (experiments/splinter.py)."""

    verdict: Literal["not splintered", "splintered by the host", "cannot tell"]
    evidence: str


class Geometry(_Model):
    """What `tlb geometry` found."""

    pages: str
    unit: Literal["cycles", "ns"]
    core_ghz: float | None
    first_tread: float  # cost of an access that hits everywhere
    levels: list[Level]
    walks: list[Walk]
    alias_penalty: float | None  # what reaching one line by another address than last time adds: AMD's way predictor
    notes: list[str]
    backing: Backing | None = None  # of large pages only


def curve(frame: pd.DataFrame, layout: str, order: str = "cycle", stride_pages: int = 1) -> pd.DataFrame:
    """One row a number of pages, ascending: lines, cost (median over processes), low, high, n, least.

    least: the least disturbed process. What disturbs a chase (an interrupt, a neighbour) only ever adds to it, so where a
    level ends is read off the least, and what it costs off the median, which has an interval.
    """
    kept = frame[(frame["layout"] == layout) & (frame["order"] == order)]
    if layout != "packed":  # whose lines have no stride
        kept = kept[kept["stride_pages"] == stride_pages]
    rows = []
    for lines, cost in kept.assign(cost=costs(kept)).groupby("lines")["cost"]:
        middle = median_interval(cost)
        rows.append((lines, middle.value, middle.low, middle.high, len(cost), cost.min()))
    return pd.DataFrame(rows, columns=COLUMNS)


def aliased(frame: pd.DataFrame, stride_pages: int = 1) -> pd.DataFrame:
    """The aliased cycle from as many pages on as pay the way predictor's price alike."""
    points = curve(frame, "alias", stride_pages=stride_pages)
    return points[points["lines"] >= ALIAS_FROM].reset_index(drop=True)


def costs(frame: pd.DataFrame) -> pd.Series:
    """Core cycles per access of each row, or ns where no row has a core clock."""
    return frame["ns_per_access"] * (frame["core_ghz"] if has_clock(frame) else 1.0)


def has_clock(frame: pd.DataFrame) -> bool:
    return bool((frame["core_ghz"] > 0).all())


def base_stride(pages: str) -> int:
    """Base pages from one page of the size to the next: lines stand one to a page of that size."""
    return {"4k": 1, "2m": 512}[pages]


def priced(frame: pd.DataFrame, stride_pages: int = 1) -> pd.DataFrame:
    """Spread minus packed, plus the packed chase in the smallest set: what a load costs where the caches always hit."""
    spread, packed = curve(frame, "spread", stride_pages=stride_pages), curve(frame, "packed")
    both = spread.merge(packed, on="lines", suffixes=("", "_packed"))
    if both.empty:
        return pd.DataFrame(columns=COLUMNS)
    floor = float(both["cost_packed"].iloc[0])
    rows = []
    for row in both.itertuples():
        difference = interval_of_difference(Interval(row.cost, row.low, row.high, 1.0),
                                            Interval(row.cost_packed, row.low_packed, row.high_packed, 1.0))
        # A control dearer than its chase is noise; a logarithm still has to be taken of what is left.
        value, low, high, least = (max(x, -0.9 * floor) + floor for x in (*difference[:3], row.least - row.least_packed))
        rows.append((row.lines, value, low, high, row.n, least))
    return pd.DataFrame(rows, columns=COLUMNS)


def steps(points: pd.DataFrame) -> list[Knee]:
    """The knees of a curve of `curve` or `priced`."""
    return knees(points["lines"], points["least"]) if len(points) else []


def infer(frame: pd.DataFrame, stated: Sequence[int] = (), cache_bytes: Mapping[int, int] | None = None,
          lacking: Sequence[str] = ()) -> Geometry:
    """The geometry from the rows of an experiment `geometry` (one row a process, the columns of Store.load).

    stated: entries of each level as CPUID gives them, only to be compared with. cache_bytes: level -> bytes, to tell a
    page table that leaves a cache from a TLB that is full. lacking: sentences on what could not be measured, kept as
    notes. Raises Unavailable: no-data, no-step where neither curve has a knee.
    """
    if frame.empty:
        raise Unavailable("no-data")
    pages = str(frame["pages"].iloc[0])
    stride = base_stride(pages)
    alias, price = aliased(frame, stride), priced(frame, stride)
    by_alias, others = _tlb_steps(steps(alias), cache_bytes or {})
    by_price, _ = _tlb_steps(steps(price), cache_bytes or {})
    pairs = _paired(by_price, by_alias)
    if not pairs:
        raise Unavailable("no-step", f"{len(alias)} aliased and {len(price)} priced numbers of pages")
    main = price if by_price else alias  # what a program pays, where its control was measured
    levels: list[Level] = []
    before = None
    for k, (from_price, from_alias) in enumerate(pairs):
        found = from_alias or from_price
        opinions = {name: _from_step(knee, name) for name, knee in (("price", from_price), ("alias", from_alias)) if knee}
        if drawn := _from_draws(frame, stride, levels, found):
            opinions["draws"] = drawn
        entries = _believed(opinions)
        ways, ways_reason = _ways(frame, entries, found, stride) if k == 0 else (None, None)
        states = _stated(stated, k, len(pairs), found)
        levels.append(Level(
            level=k + 1, entries=entries, opinions=opinions, stated=states, hit_cost=_tread(main, before, found), ways=ways,
            ways_reason=ways_reason, rise=(found.tenth, found.nine_tenths), verdict=_verdict(opinions, entries, found, states)))
        before = found
    clock = frame.loc[frame["core_ghz"] > 0, "core_ghz"]
    return Geometry(
        pages=pages, unit="cycles" if has_clock(frame) else "ns", core_ghz=float(clock.median()) if len(clock) else None,
        first_tread=float(price["cost"].iloc[0] if len(price) else alias["cost"].iloc[0]), levels=levels,
        walks=_walks(frame, levels, stride, cache_bytes or {}), alias_penalty=_alias_penalty(frame, stride),
        notes=[*lacking, *_unseen(stated, levels, len(pairs)),
               *(f"Past the TLBs the cost rises again at {round(knee.pages):,} pages: {why}." for knee, why in others)])


def _tlb_steps(found: list[Knee], cache_bytes: Mapping[int, int]) -> tuple[list[Knee], list[tuple[Knee, str]]]:
    """Those that are a TLB's, and of the others what they are."""
    tlb, others = found[:2], []
    for knee in found[2:]:
        table = knee.pages * TABLE_ENTRY_BYTES
        filled = [level for level, size in sorted(cache_bytes.items()) if abs(table / size - 1) < NEAR]
        others.append((knee, f"there the page table fills the L{filled[0]} cache" if filled else "which no TLB or cache explains"))
    return tlb, others


def _paired(by_price: list[Knee], by_alias: list[Knee]) -> list[tuple[Knee | None, Knee | None]]:
    """Knees of the two curves, level by level, ascending; None where one curve does not show the level."""
    rest, pairs = list(by_price), []
    for knee in by_alias:
        near = [p for p in rest if abs(np.log2(p.pages / knee.pages)) < MATCH_OCTAVES
                or (p.tenth < knee.nine_tenths and knee.tenth < p.nine_tenths)]
        pairs.append((near[0] if near else None, knee))
        rest = [p for p in rest if p not in near]
    pairs += [(p, None) for p in rest]
    return sorted(pairs, key=lambda pair: (pair[1] or pair[0]).pages)[:2]


def _stated(stated: Sequence[int], k: int, levels: int, knee: Knee) -> int | None:
    """CPUID's entries of the level: by its place, or where it states another number of levels than were found, the nearest."""
    if len(stated) == levels:
        return stated[k]
    near = [n for n in stated if abs(np.log2(n / knee.pages)) < APART]
    return min(near, key=lambda n: abs(np.log2(n / knee.pages))) if near else None


def _unseen(stated: Sequence[int], levels: Sequence[Level], found: int) -> list[str]:
    """A sentence for each level that CPUID states and no chase shows."""
    missing = sorted(set(stated) - {one.stated for one in levels}) if len(stated) > found else []
    return [f"CPUID states a level of {n:,} entries that no chase shows. Where a hypervisor backs the pages with smaller ones, an entry "
            "holds a part of a page, and lines one page apart then crowd a few of the sets." for n in missing]


def _from_step(knee: Knee, name: str) -> Estimate:
    """LRU holds as many pages as still cost nothing, so a sharp step's last low point; of a smear the half."""
    if knee.is_sharp and knee.first_high <= knee.last_low * STEP:
        return Estimate(value=knee.last_low, low=knee.last_low, high=max(knee.last_low, knee.first_high - 1), method=f"{name}, step")
    return Estimate(value=knee.pages, low=knee.tenth, high=knee.nine_tenths, method=f"{name}, half of a smeared rise")


def draw_window(knee: Knee) -> tuple[float, float]:
    """Pages between which the random draws are fitted: enough on either side, and no further up than needed, since walks
    get dearer as the page table leaves the first-level cache."""
    return knee.tenth * 0.75, knee.pages * 2.25


def _from_draws(frame: pd.DataFrame, stride: int, below: Sequence[Level], knee: Knee) -> Estimate | None:
    """Fit of cost = first tread + hit (1 - C1/M) + walk (1 - C2/M) with the knee of this level free.

    The first level is drawn from in the spread layout: aliased, a visit now and then finds its line as the last one left it,
    the less often the more pages there are, and that is a curve of its own. So few lines fill no data cache.
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
        fit = model.fit_random_curve(drawn["lines"], drawn["least"] - base["least"].median(), **known)
    except Unavailable:
        return None
    c = fit.l2_entries if below else fit.l1_entries
    return Estimate(value=c.value, low=c.low, high=c.high, method="draws, fit of 1 - C/M") if np.isfinite([c.low, c.high]).all() else None


def _believed(opinions: Mapping[str, Estimate]) -> Estimate:
    """A sharp step is exact; of two the larger, since what disturbs a chase fills a level early. For a smear the draws, which
    hold for any replacement; else half of the rise."""
    stepped = [one for one in (opinions.get("alias"), opinions.get("price")) if one and one.method.endswith("step")]
    if stepped:
        return max(stepped, key=lambda one: one.value)
    return opinions.get("draws") or opinions.get("alias") or opinions["price"]


def _verdict(opinions: Mapping[str, Estimate], entries: Estimate, knee: Knee, stated: int | None) -> str:
    def agree(a: Estimate, b: float) -> bool:
        return a.low * (1 - SAME) <= b <= a.high * (1 + SAME) or abs(a.value / b - 1) <= SAME

    def number(name: str) -> str:
        return f"{round(opinions[name].value):,}"

    if entries.method.startswith("draws"):
        said = (f"The cost does not step, it rises: a tenth of it at {round(knee.tenth):,} pages, nine tenths at "
                f"{round(knee.nine_tenths):,}. Random draws miss as 1 - C/M under any replacement and give {number('draws')} "
                f"({round(entries.low):,} to {round(entries.high):,}): believe those. ")
    elif not entries.method.endswith("step"):
        said = "The cost does not step, it rises, and no draws could be fitted: the number is where half of the rise is done. "
    elif {"price", "alias"} <= opinions.keys():
        said = (f"Price and alias agree on {number('alias')} pages. " if agree(opinions["alias"], opinions["price"].value) else
                f"Price puts the step at {number('price')} pages, alias at {number('alias')}: believe {round(entries.value):,}, the "
                "larger, since what disturbs a chase fills a level early and hardly anything makes it hold more. ")
    else:
        only = "price" if "price" in opinions else "alias"
        said = f"Only {only} shows this level, at {number(only)} pages: believe it with care. "
    if stated is None:
        return said + "CPUID states nothing to compare with."
    if agree(entries, stated):
        return said + f"CPUID states {stated:,} and agrees."
    return said + (f"CPUID states {stated:,}: believe the measurement for what a program pays, and CPUID for what was built; entries "
                   "may be shared with other page sizes, taken by the system, or reached by a hash that fills its sets unevenly.")


def _tread(points: pd.DataFrame, before: Knee | None, knee: Knee) -> Estimate | None:
    """What a hit in a level adds to one in the level `before`: the height of its tread over that one. None for the first."""
    if before is None:
        return None
    lower = points[points["lines"] <= before.tenth]["cost"]
    upper = points[points["lines"].between(before.nine_tenths, knee.tenth * 0.9)]["cost"]
    if lower.empty or upper.empty:
        return None
    difference = interval_of_difference(median_interval(upper), median_interval(lower))
    return Estimate(value=difference.value, low=difference.low, high=difference.high, method="difference of two treads")


def _ways(frame: pd.DataFrame, entries: Estimate, knee: Knee, stride: int) -> tuple[int | None, str | None]:
    """Ways of the first level from pages that collide: at a stride of as many pages as there are sets or more, only as
    many pages fit as a set has ways. 0 where the stride makes the level no smaller; None with a reason."""
    points = curve(frame, "spread", stride_pages=stride * WAY_STRIDE)
    beyond = points["least"][points["lines"] > entries.value]
    if len(points) < 6 or beyond.empty:
        return None, explain("too-few-points", f"a stride of {WAY_STRIDE} pages")
    low = float(points["least"].iloc[:2].median())
    if float(beyond.median()) < low + (knee.after - knee.before) / 2:
        return None, explain("no-step", f"{int(points['lines'].max())} pages at a stride of {WAY_STRIDE} cost no more than two")
    fit = int(points["lines"][points["least"] < low + (knee.after - knee.before) / 2].max())
    if fit >= entries.value * 0.85:
        return 0, None
    sets = entries.value / fit
    if abs(2 ** round(np.log2(sets)) / sets - 1) <= SAME:
        return fit, None
    return None, explain("no-step", f"{fit} pages fit at a stride of {WAY_STRIDE}, and {sets:.1f} sets are no power of two")


def _walks(frame: pd.DataFrame, levels: Sequence[Level], stride: int, cache_bytes: Mapping[int, int]) -> list[Walk]:
    """Walks with the page table in L2, L3 and memory: aliased chases far beyond the last level's entries."""
    last = levels[-1]
    tread = aliased(frame, stride)
    low = levels[-2].rise[1] if len(levels) > 1 else 0
    tread = tread[tread["lines"].between(low, last.rise[0] * 0.9)]
    found = []
    for where, lines, apart in walk_points(last.entries.value, stride, cache_bytes):
        table = lines * min(TABLE_ENTRY_BYTES * apart // stride, LINE_BYTES)
        said = {"table_in": where, "pages": lines, "stride_pages": apart, "table_bytes": table}
        if lines * apart > MOST_PAGES:
            found.append(Walk(**said, cost=None, reason=explain("out-of-reach")))
            continue
        there = frame[(frame["layout"] == "alias") & (frame["order"] == "cycle") & (frame["lines"] == lines) &
                      (frame["stride_pages"] == apart)]
        if there.empty or tread.empty:
            found.append(Walk(**said, cost=None, reason=explain("too-few-points", "this chase was left out")))
            continue
        difference = interval_of_difference(_between_processes_or_batches(there), median_interval(tread["cost"]))
        found.append(Walk(**said, cost=Estimate(value=difference.value, low=difference.low, high=difference.high,
                                                method=f"median of {len(there)} processes, less the tread before")))
    return found


def _between_processes_or_batches(rows: pd.DataFrame) -> Interval:
    """Fewer than three processes have no interval worth the name: then the bounds are those of all their batches."""
    cost = costs(rows)
    if len(rows) >= REPEATS_FOR_BOUNDS:
        return median_interval(cost)
    scale = cost / rows["ns_per_access"]
    batches = np.concatenate([np.asarray(ns) * k for ns, k in zip(rows["batch_ns_per_access"], scale, strict=True)])
    return Interval(float(cost.median()), float(min(batches.min(), cost.min())), float(max(batches.max(), cost.max())), 0.0)


def walk_points(entries: float, stride: int, cache_bytes: Mapping[int, int]) -> list[tuple[Literal["L2", "L3", "memory"], int, int]]:
    """(where, pages, stride) of the chases whose page-table lines fit the named cache and not the one before.

    At a stride of eight pages each page has a line of entries of its own. At least five times the entries, so that nearly
    every access walks, under random replacement too. A place that no such chase has (a cache too small) is left out.
    """
    sizes = [size for _, size in sorted(cache_bytes.items())]
    least = 5 * entries
    found = []
    if len(sizes) > 1 and sizes[0] < (n := 2 ** int(np.ceil(np.log2(least)))) * TABLE_ENTRY_BYTES <= sizes[1] / 2:
        found.append(("L2", n, stride))
    if len(sizes) > 2:
        n = round(float(np.sqrt(sizes[1] * sizes[2])) / LINE_BYTES)
        if n >= least and sizes[1] < n * LINE_BYTES < sizes[2]:
            found.append(("L3", n, 8 * stride))
    if sizes:
        n = 2 * sizes[-1] // LINE_BYTES
        found.append(("memory", int(max(n, least)), 8 * stride))
    return found


def _alias_penalty(frame: pd.DataFrame, stride: int) -> float | None:
    """The chase over 32 aliased pages, four to a line, less that over 8, one to a line: both inside the first level."""
    at = curve(frame, "alias", stride_pages=stride).set_index("lines")["cost"]
    return float(at[32] - at[8]) if {8, 32} <= set(at.index) else None
