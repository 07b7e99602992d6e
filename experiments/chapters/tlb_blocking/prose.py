"""The sentences of the chapter about blocking, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pandas as pd

from experiments.article.setting import about_pages, change, run_this, set_up
from experiments.chapters.tlb_blocking.analysis import (
    AS_PUBLISHED,
    BLOCKED,
    LARGE_PAGES,
    NONE,
    SAME,
    VERTEX_BYTES,
    Analysis,
    graph_size,
    walks_per_hop,
)
from experiments.inference.curves import select
from experiments.inference.intervals import Interval
from experiments.inference.splinter import large_pages
from experiments.lab.kernels import ROW_BYTES
from experiments.words.pages import BASE, LARGE, words
from experiments.words.prose import Prose, choose, count, listed, side
from experiments.words.reasons import Unavailable, if_available, required
from experiments.words.units import format_size

__all__ = ["set_up", "lead", "blocks_said", "apart_said", "prefetch_said", "mitigations_said", "fan_out_said", "join_said", "change",
           "run_this"]

MOST_OF_IT = 0.8
NO_WALKS = 0.01  # one hop in a hundred: a walk of a hundred ns then costs one


def _gain(row: pd.Series) -> str:
    return f"{row['gain']:.{1 if row['gain'] > 9 else 2}f} times as fast"


def _few(number: float) -> str:
    return count(number) if number >= 10 else f"{number:.2g}"


def _by_pages(found: pd.DataFrame, of: Callable[[str], Any]) -> dict[str, Any]:
    """What `of` gives for each page size of a frame; one of which it cannot tell is no reason to be silent of the others."""
    each = {pages: if_available(of, pages) for pages in dict.fromkeys(found["pages"])}
    return {pages: given for pages, given in each.items() if given is not None}


def lead(a: Analysis) -> Prose:
    """The result in brief, as `brief`; and why a page size is missing, where one is."""
    why = "" if set(LARGE) <= set(a.frame["pages"]) else about_pages(a.notes)
    return Prose(f"{brief(a)}\n\n{why}".rstrip())


def brief(a: Analysis) -> Prose:
    """The tail of a hop with and without blocks, and the join."""
    base, cut = a.remedy(NONE, BASE), a.remedy(BLOCKED, BASE)
    said = (f"Over {graph_size(base['vertices'])} on base pages one random hop in twenty takes more than {base['p95']:.0f} ns; in blocks "
            "of "
            f"{graph_size(cut['block_vertices'])} more than {cut['p95']:.0f}")
    with suppress(Unavailable):  # no large pages: blocking is what there is
        large = a.remedy(LARGE_PAGES, *LARGE)
        said += f", and without blocks on {words(large['pages'])} {large['p95']:.0f}"
    with suppress(Unavailable):  # no join was measured
        said += f". A join that partitions first is {_gain(a.best_join(BASE))} on base pages"
    return Prose(said + ".")


# --- blocks


def blocks_said(a: Analysis) -> Prose:
    base = required(a.blocks[(a.blocks["pages"] == BASE) & a.blocks["gain"].notna()],
                    "no walk with and without blocks was measured on base pages")
    entries, best = a.known_entries[-1], base.loc[base["median"].idxmin()]
    said = (f"Without blocks a hop takes {best['plain']:.1f} ns over {graph_size(best['vertices'])}. The fastest, with "
            f"{int(best['block_steps']):,} steps in each block of {format_size(int(best['block_bytes']))}, takes {best['median']:.1f}: "
            f"{_gain(best)}.")
    return Prose("\n\n".join(filter(None, (said, _visits(a, base, entries), _past(base, entries), _optima(a), _caches(a, best)))))


def _visits(a: Analysis, base: pd.DataFrame, entries: int) -> str:
    """The largest block inside the reach, by the number of steps in it: the condition that is often forgotten."""
    inside = base[base["block_pages"] <= entries]
    if inside.empty:
        return ""
    part = inside[inside["block_pages"] == inside["block_pages"].max()].sort_values("block_steps")
    pages = int(part["block_pages"].iloc[0])
    told = [f"{row.gain:.2f} times as fast with {_few(row.visits)} steps to a page" for row in part.iloc[[0, -1]].itertuples()]
    said = (f"The largest block inside the STLB's reach, {format_size(pages * a.base_page_bytes)} of {pages:,} pages, is "
            f"{listed(dict.fromkeys(told))}.")
    few = part.iloc[0]
    return said + (choose(Interval.of(few, "gain"), {
        "below": " Left before its pages are used again, such a block gains nothing.",
        "above": " Even with less than one step a page there is a gain, which the TLB does not explain."}, 1 + SAME)
        if few["visits"] < 1 else "")


def _past(base: pd.DataFrame, entries: int) -> str:
    """The smallest block that is well past the reach, with the most steps: the other condition."""
    part = base[(base["block_steps"] == base["block_steps"].max()) & (base["block_pages"] >= 2 * entries)]
    if part.empty:
        return ""
    row = part.loc[part["block_pages"].idxmin()]
    walks = float(walks_per_hop(row["block_pages"], row["block_steps"], entries))
    return (f"A block of {format_size(int(row['block_bytes']))}, {row['block_pages'] / entries:.1f} times the STLB's reach, is "
            f"{row['gain']:.2f} times as fast even with {int(row['block_steps']):,} steps: {walks:.2g} walks per hop by the model.")


def _optima(a: Analysis) -> str:
    """Where the model that knows walks alone puts the best block, and where it was."""
    said = "A model that counts nothing but walks has its best block where the pages are fewest."
    apart = [best for best in a.optima if best.predicted_bytes != best.measured_bytes]
    elsewhere = [best for best in apart if best.predicted_bytes not in best.unresolved]
    if not elsewhere:
        return said + (" Where the fastest block is another one, noise covers it." if apart else " So it was measured.")
    far = max(elsewhere, key=lambda best: abs(best.measured_walks - best.predicted_walks))
    walks = abs(far.measured_walks - far.predicted_walks)
    return said + (f" With {far.block_steps:,} steps that is {format_size(far.predicted_bytes)}, and {format_size(far.measured_bytes)} was "
                   "fastest.") + f" The two differ by {walks:.2g} walks a hop" + (
        ", too few to matter: something else than walks decides there." if walks < NO_WALKS else ": there the model is wrong.")


def _caches(a: Analysis, best: pd.Series) -> str:
    """A small block is near in the caches too: what the same blocks gain on larger pages, or that this is not told apart."""
    control = select(a.blocks[a.blocks["pages"] != BASE], block_steps=best["block_steps"], block_vertices=best["block_vertices"])
    if len(control):
        row = control.iloc[-1]
        return (f"The same blocks on {words(row['pages'])} take {row['median']:.1f} ns, so of what a hop saves there no more than "
                f"{best['plain'] - row['median']:.1f} ns can be had at all, and blocking on base pages has "
                f"{best['plain'] - best['median']:.1f}.")
    if not (last := a.cache_bytes(3) or a.cache_bytes(2)):
        return ""
    return f"The last-level cache has {format_size(last)}. " + (
        "The fastest block is inside it, so a part of this gain is the caches' own and not the TLB's." if best["block_bytes"] <= last else
        "The fastest block is larger, so no cache holds it, and the gain is the TLB's.")


def apart_said(a: Analysis) -> Prose:
    """How much of the price of translation blocks inside the reach leave, and blocks past it."""
    price, (inside, left, full) = a.block_price, a.left_by_blocks
    said = (f"In a graph of {price.xs[-1]:,} pages translation costs a hop {full.value:z.0f} ns; in blocks of {inside:,} pages, inside the "
            f"reach, {left.value:z.1f}.")
    if full.low <= 0:
        return Prose(f"{said} There is nothing for blocks to save.")
    past = [pages for pages in price.xs[:-1] if pages > inside]
    if past:
        said += f" Blocks of {past[0]:,} pages, past the reach, leave {price.get(past[0]).value:z.0f}."
    return Prose(said + choose(left.share_of(full), {
        "below": " So blocks save translation, whatever they do for the caches.",
        "above": " So blocks save no translation here.", "open": " Whether that is less, noise leaves open."})
        + _inside_cache(a, inside))


def _inside_cache(a: Analysis, pages: int) -> str:
    """That a line to each page of a block fits in a cache, so that this is no test of blocks whose lines do not."""
    lines = pages * VERTEX_BYTES
    level = next((level for level in (1, 2, 3) if lines <= (a.cache_bytes(level) or 0)), 0)
    return (f"\n\nThe lines of such a block, {format_size(lines)}, fit in the level {level} cache, so this does not test blocks that "
            "exceed the caches.") if level else ""


# --- prefetches and remedies


def prefetch_said(a: Analysis) -> Prose:
    best = required(_by_pages(a.ahead, a.best_ahead), "no walk was measured with prefetches and without")
    said = "At the best distance a hop takes " + "; ".join(
        f"{row['median']:.1f} ns on {words(pages)}, {_gain(row)} as without" for pages, row in (*best.items(),)[:2]) + "."
    base, near = a.best_ahead(BASE), select(a.ahead, pages=BASE, distance=1)["gain"]
    if len(near) and near.iloc[0] > 1 + MOST_OF_IT * (base["gain"] - 1) > 1 + SAME:
        said += (f" One hop ahead is nearly as good already, {near.iloc[0]:.2f}: prefetches wait for nothing, so the core runs ahead of "
                 "the walk by as many as its window holds.")
    try:
        most = a.most_from_hits
    except Unavailable as why:
        return Prose(f"{said} {why}")
    return Prose(said + choose(Interval.of(base, "gain"), {
        "above": f" If prefetches were dropped where the TLB misses, {most:.2f} would be the most on base pages. So they walk: a prefetch "
                 "hides the translation as well as the line.",
        "below": f" That is no more on base pages than prefetches could gain that are dropped on a miss of the TLB, {most:.2f} at most.",
        "open": f" Whether it is more on base pages than the {most:.2f} of prefetches that never walk, noise leaves open.",
    }, most * (1 + SAME)))


def mitigations_said(a: Analysis) -> Prose:
    base, others = a.remedy(NONE, BASE), a.remedies[~a.remedies["remedy"].isin((NONE, AS_PUBLISHED))]
    required(others, "no remedy was measured hop by hop beside the walk on base pages")
    best = others.loc[others["p95"].idxmin()]
    ratio = Interval.of(base, "p95") / Interval.of(best, "p95")
    what = f"blocks of {graph_size(best['block_vertices'])}" if best["remedy"] == BLOCKED else words(best["pages"])
    told = (f"Over {graph_size(a.remedies['vertices'].max())} one hop in twenty takes more than {base['p95']:.0f} ns on base pages, "
                 f"and more than {best['p95']:.0f} with {what}. " + (
        f"That is the shortest tail of all remedies, by a factor of {ratio.value:.2f}." if side(ratio) == "above" else
        "No remedy shortens the tail by more than noise."))
    return Prose("\n\n".join(filter(None, (told, if_available(_as_published, a)))))


def _as_published(a: Analysis) -> str:
    """The published block beside one inside the reach."""
    stay, inside, base = a.remedy(AS_PUBLISHED, BASE), a.remedy(BLOCKED, BASE), a.remedy(NONE, BASE)
    reach = a.known_entries[-1] * a.base_page_bytes
    block_bytes = stay["block_vertices"] * VERTEX_BYTES
    said = (f"What was published as blocking never leaves one block of {graph_size(stay['block_vertices'])}. Here such a walk has a tail "
            f"of {stay['p95']:.0f} ns, and one in blocks of {graph_size(inside['block_vertices'])} {inside['p95']:.0f}.")
    if block_bytes <= reach or Interval.of(stay, "p95").high >= Interval.of(base, "p95").low:
        return said
    return (f"{said} The large block is {block_bytes / reach:.0f} times what the TLB reaches, so it saves few misses: what it saves is "
            "the price of each, since the tables of so few pages stay in the caches.")


# --- the join


def fan_out_said(a: Analysis) -> Prose:
    entries = a.known_entries[0]
    rises = required(_by_pages(a.fan_out, lambda pages: a.fan_out_rise(pages, entries)),
                     f"partitioning was not measured on both sides of {entries:,} partitions")
    (first, (rise, few, many)), *others = rises.items()
    said = (f"To scatter a row takes {rise.value:.2f} times as long with {many:,} partitions as with {few:,} on {words(first)}"
            + "".join(f", and {rise.value:.2f} on {words(pages)}" for pages, (rise, _, _) in others[:1])
            + f"; the first level has {entries:,} entries.")
    if BASE in rises:
        rise, _, _ = rises[BASE]
        said += (" Past them a row takes longer on base pages." if rise.low > 1 + SAME else
                 " On base pages no limit shows there: while a translation comes from the second level, stores can wait in a buffer."
                 if rise.high < 1 + 2 * SAME else " Noise leaves open whether base pages have their limit there.")
        said += " Large pages cannot tell whether that is the TLB, since the host splinters them." * (
            rise.low > 1 + SAME and bool((found := a.splintering()) and found.is_splintered))
    return Prose("\n\n".join(filter(None, (said, (_steepest(a) + _in_two_passes(a)).strip()))))


def _steepest(a: Analysis) -> str:
    """Between which neighbouring numbers of partitions a row's time grows most for each doubling on base pages."""
    mine = select(a.fan_out, pages=BASE, passes=1).sort_values("bits").itertuples()
    rising = [(before, after) for before, after in pairwise(mine) if after.low > before.high]
    if not rising:
        return ""
    before, after = max(rising, key=lambda ends: (ends[1].median / ends[0].median) ** (1 / (ends[1].bits - ends[0].bits)))
    return (f" The steepest step on base pages lies between {before.partitions:,} and {after.partitions:,} partitions, a factor of "
            f"{after.median / before.median:.2f}.")


def _in_two_passes(a: Analysis) -> str:
    """What it is worth to stay below the limit twice, at the most partitions that base pages saw in one pass and in two."""
    once, twice = (select(a.fan_out, pages=BASE, passes=n).set_index("bits") for n in (1, 2))
    both = once.index.intersection(twice.index)
    if both.empty:
        return ""
    one, two = once.loc[both.max()], twice.loc[both.max()]
    return (f" In two passes, {int(one['partitions']):,} partitions take {two['median']:.1f} ns a row, in one {one['median']:.1f}. "
            + choose(Interval.of(one) / Interval.of(two), {
                "above": "So two passes below the limit are faster than one past it.",
                "below": "So one pass past the limit is still faster than two below it.", "open": "Noise leaves open which is faster."}))


def join_said(a: Analysis) -> Prose:
    naive = select(a.joins, mode="naive").set_index("pages")
    best = required(_by_pages(a.joins, a.best_join), "no join was measured naive and partitioned on the same pages")
    (first, row), *others = best.items()
    told = (f"{naive.loc[first, 'median']:.1f} ns a row naive and {row['median']:.1f} with {int(row['partitions']):,} partitions on "
            f"{words(first)}, {_gain(row)}" + "".join(f"; on {words(pages)} it is {_gain(other)}" for pages, other in others[-1:]))
    rows = int(a.joins["tuples"].max())
    said, table = f"A join of two tables of {rows:,} rows takes {told}.", 2 * rows * ROW_BYTES  # two slots a row
    if a.entries and table <= a.entries[-1] * a.base_page_bytes:
        return Prose(f"{said} The hash table is {format_size(table)}, within the STLB's reach: measure larger ones to see what "
                     "partitioning is for.")
    large = if_available(large_pages, a.joins)
    if BASE in best and large in naive.index and best[BASE]["gain_low"] > 1:
        said += choose(Interval.of(naive.loc[large]) / Interval.of(best[BASE]), {
            "above": " Partitioning on base pages is faster than a naive join on large ones.",
            "below": " Large pages alone do more than partitioning on base pages.",
            "open": " Partitioning on base pages does as much as large pages alone."})
    return Prose(said)
