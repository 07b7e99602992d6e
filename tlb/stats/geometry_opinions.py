"""Opinions on how many entries a level of the TLB has: from a step, and which one to believe."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tlb.stats.geometry_walks import Estimate
from tlb.stats.knees import Knee

MATCH_OCTAVES = 0.75  # two knees further apart than this are of two levels
STEP = 1.1  # a step between two points further apart than this places no number of entries
OTHER_PAGES = 2  # entries that the program's other pages may take, which smears a step by as many
SAME = 0.03  # two opinions nearer to each other than this agree: the grid around a knee is finer
BOTH = 0.01  # a first level has a fortieth of a second's entries, so this tells their sum apart
# Ratios of price to alias at which both are of one level whose entries hold several neighbours: Zen
# joins four pages and more whose frames lie in a row, an arm64 core up to sixteen. The pages of the
# alias layout share a few frames, so theirs are never joined.
JOINED = (1.5, 20.0)


def are_joined(price: float, alias: float) -> bool:
    """Return whether two steps this far apart belong to one level whose entries hold neighbours."""
    return JOINED[0] < price / alias < JOINED[1]


def from_step(knee: Knee, name: str) -> Estimate:
    """Return the entries that a step shows: its last low point, its foot if the rise is longer than
    other pages explain, or half of the rise if it is smeared.

    LRU holds as many pages as still cost nothing. Sets fill one after another: with sixteen ways
    half of the rise is done 3 % past that.
    """
    low, high, foot = knee.last_low, knee.first_high, knee.foot
    if knee.is_sharp and not knee.is_between_points and low - foot > OTHER_PAGES:
        margin = max((knee.nine_tenths - knee.tenth) / 4, high - low)
        return Estimate(value=foot, low=foot - margin, high=foot + margin, method=f"{name}, step")
    if knee.is_sharp and high <= low * STEP:
        least = low if knee.is_between_points else min(low, foot)
        return Estimate(value=low, low=least, high=max(low, high - 1), method=f"{name}, step")
    method = f"{name}, half of a smeared rise"
    return Estimate(value=knee.pages, low=knee.tenth, high=knee.nine_tenths, method=method)


def _joined(opinions: Mapping[str, Estimate]) -> bool:
    both = {"price", "alias"} <= opinions.keys()
    return both and are_joined(opinions["price"].value, opinions["alias"].value)


def believed(opinions: Mapping[str, Estimate]) -> Estimate:
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


def _agree(a: Estimate, b: float) -> bool:
    return a.low * (1 - SAME) <= b <= a.high * (1 + SAME) or abs(a.value / b - 1) <= SAME


def _measured(opinions: Mapping[str, Estimate], entries: Estimate, knee: Knee) -> str:
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


def verdict(
    opinions: Mapping[str, Estimate], entries: Estimate, knee: Knee, stated: int | None, before: int
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
    if entries.method.startswith("draws") and off_together < min(BOTH, off_alone):
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


def paired(by_price: list[Knee], by_alias: list[Knee]) -> list[tuple[Knee | None, Knee | None]]:
    """Return the knees of both curves level by level, ascending; None where a curve lacks the
    level."""

    def is_near(price: Knee, alias: Knee) -> bool:
        overlaps = price.tenth < alias.nine_tenths and alias.tenth < price.nine_tenths
        return overlaps or abs(np.log2(price.pages / alias.pages)) < MATCH_OCTAVES

    rest, pairs = list(by_price), []
    for knee in by_alias:
        near = [price for price in rest if is_near(price, knee)]
        pairs.append((near[0] if near else None, knee))
        rest = [price for price in rest if price not in near]
    if not any(price for price, _ in pairs):  # each may be a multiple of alias, level by level
        for i, price in enumerate(rest[: len(pairs)]):
            if are_joined(price.pages, pairs[i][1].pages):
                pairs[i] = price, pairs[i][1]
        rest = [price for price in rest if price not in [used for used, _ in pairs]]
    pairs += [(price, None) for price in rest]
    return sorted(pairs, key=lambda pair: (pair[1] or pair[0]).pages)[:2]
