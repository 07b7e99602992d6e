"""The sentences of the chapter about blocking, chosen by the rows of experiment `tlb_blocking`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pandas as pd

from experiments.article.machine_words import Prose, Said, about_pages, cache_bytes, say_each
from experiments.chapters.hugepages.prose import NAMES
from experiments.chapters.tlb_blocking import analysis as blocking
from experiments.chapters.tlb_blocking.analysis import BLOCKED, LARGE, NONE, SAME, graph_size
from experiments.chapters.your_machine.address import listed
from experiments.inference import intervals as stats
from experiments.inference.curves import PAGE
from experiments.machine.host import Host
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

MOST_OF_IT = 0.8
NO_WALKS = 0.01  # one hop in a hundred: a walk of a hundred ns then costs one


def say(frame: pd.DataFrame, host: Host, entries: Sequence[int], notes: Sequence[str] = ()) -> Said:
    """Every sentence of the chapter that hangs on the data; each that cannot be said gives its reason in its place. notes: what
    this run could not measure; those about page sizes stand behind the lead where one is missing."""
    parts = {"lead": lambda: lead(frame, entries), "blocks_said": lambda: _blocks(frame, host, entries),
             "prefetch_said": lambda: _prefetch(frame, entries), "mitigations_said": lambda: _mitigations(frame, entries),
             "fan_out_said": lambda: _fan_out(frame, entries), "join_said": lambda: _join(frame, entries)}
    said = say_each(parts)
    if not set(LARGE) <= set(frame.get("pages", ())) and (why := about_pages(notes)):
        said["lead"] = Prose(f"{said['lead']}\n\n{why}")
    return said


def _times(value: float, low: float, high: float) -> str:
    return f"{value:.2f} times as fast ({low:.2f} to {high:.2f})"


def _few(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _gain(row: pd.Series) -> str:
    return _times(row["gain"], row["gain_low"], row["gain_high"])


def lead(frame: pd.DataFrame, entries: Sequence[int]) -> str:
    """The result in brief: the tail of a hop with and without blocks, and the join. Raises Unavailable."""
    found = blocking.mitigations(frame, entries)
    base, cut = blocking.remedy(found, NONE, "4k"), blocking.remedy(found, BLOCKED, "4k")
    said = (f"Over {graph_size(base['vertices'])} on base pages, a random hop takes {base['p50']:.0f} ns in the median "
            f"and {base['p95']:.0f} at the 95th percentile. In blocks of {graph_size(cut['block_vertices'])} it takes "
            f"{cut['p50']:.0f} and {cut['p95']:.0f}")
    with suppress(Unavailable):  # no large pages: blocking is what there is
        large = blocking.remedy(found, LARGE, "2m", "thp")
        said += f", without blocks on {NAMES[large['pages']]} {large['p50']:.0f} and {large['p95']:.0f}"
    with suppress(Unavailable):  # no join was measured
        best = blocking.best_gain(blocking.by_join(frame), "4k")
        said += f". A join that partitions first is {_gain(best)} on base pages"
    return said + "."


def _blocks(frame: pd.DataFrame, host: Host, entries: Sequence[int]) -> str:
    found = blocking.by_block(frame)
    base = found[(found["pages"] == "4k") & found["gain"].notna()]
    if base.empty:
        raise Unavailable("too-few-points", "no walk with and without blocks was measured on base pages")
    if not entries:
        raise Unavailable("no-geometry", "CPUID names no TLB level here")
    best = base.loc[base["median"].idxmin()]
    said = [f"Without blocks a hop takes {best['plain']:.1f} ns over {graph_size(best['vertices'])}. The fastest, with "
            f"{int(best['block_steps']):,} steps in each block of {format_size(int(best['block_bytes']))}, takes {best['median']:.1f}: "
            f"{_gain(best)}."]
    said += [*_visits(base, entries), *_past(base, entries), _optima(base, entries), *_caches(found, base, host)]
    return " ".join(said)


def _visits(base: pd.DataFrame, entries: Sequence[int]) -> list[str]:
    """The largest block inside the reach, by the number of steps in it: the condition that is often forgotten."""
    inside = base[base["block_pages"] <= entries[-1]]
    if inside.empty:
        return []
    part = inside[inside["block_pages"] == inside["block_pages"].max()].sort_values("block_steps")
    pages = int(part["block_pages"].iloc[0])
    walks = blocking.walks_per_hop(pages, part["block_steps"], entries[-1])
    told = [f"{row.gain:.2f} times as fast with {row.block_steps:,} steps ({_few(row.visits)} a page; walks per hop by the model: "
            f"{share:.2g})" for row, share in zip(part.itertuples(), walks, strict=True)]
    few = part.iloc[0]
    said = f"The largest block inside the STLB's reach, {format_size(pages * PAGE)} of {pages:,} pages, is {listed(told)}."
    if few["visits"] < 1:
        said += (" Left before its pages are used again, such a block gains nothing." if few["gain_high"] < 1 + SAME else
                 " Even with less than one step a page there is a gain, which the TLB does not explain." if few["gain_low"] > 1 + SAME
                 else "")
    return [said]


def _past(base: pd.DataFrame, entries: Sequence[int]) -> list[str]:
    """The smallest block that is well past the reach, with the most steps: the other condition."""
    part = base[(base["block_steps"] == base["block_steps"].max()) & (base["block_pages"] >= 2 * entries[-1])]
    if part.empty:
        return []
    row = part.loc[part["block_pages"].idxmin()]
    walks = float(blocking.walks_per_hop(row["block_pages"], row["block_steps"], entries[-1]))
    return [f"A block of {format_size(int(row['block_bytes']))}, {row['block_pages'] / entries[-1]:.1f} times the STLB's reach, is "
            f"{row['gain']:.2f} times as fast even with {int(row['block_steps']):,} steps: {walks:.2g} walks per hop by the model."]


def _optima(base: pd.DataFrame, entries: Sequence[int]) -> str:
    """Where the model that knows walks alone puts the best block, and where it was."""
    found = blocking.optima(base, entries[-1])
    told, elsewhere = [], []
    for one in found:
        told.append(f"{format_size(one.predicted_bytes)} against {format_size(one.measured_bytes)} with {one.block_steps:,} steps")
        if one.predicted_bytes != one.measured_bytes and one.predicted_bytes not in one.unresolved:
            elsewhere.append(one)
    said = ("A model that counts nothing but walks has its best block where the pages are fewest. Predicted against measured: "
            f"{listed(told)}.")
    if not elsewhere:
        return said + " Where they differ at all, noise covers it." if any(
            one.predicted_bytes != one.measured_bytes for one in found) else said + " They agree."
    far = max(elsewhere, key=lambda one: abs(one.measured_walks - one.predicted_walks))
    apart = abs(far.measured_walks - far.predicted_walks)
    return said + f" With {far.block_steps:,} steps the two differ by {apart:.2g} walks a hop" + (
        ", too few to matter: something else than walks decides there." if apart < NO_WALKS else ": there the model is wrong.")


def _caches(found: pd.DataFrame, base: pd.DataFrame, host: Host) -> list[str]:
    """A small block is near in the caches too: what the same blocks gain on larger pages, or that this is not told apart."""
    said = []
    last = cache_bytes(host, 3) or cache_bytes(host, 2)
    best = base.loc[base["median"].idxmin()]
    control = found[(found["pages"] != "4k") & (found["block_steps"] == best["block_steps"])
                    & (found["block_vertices"] == best["block_vertices"])]
    if len(control):
        row = control.iloc[-1]
        said.append(f"The same blocks on {NAMES[row['pages']]} take {row['median']:.1f} ns, so of what a hop saves there no more than "
                    f"{best['plain'] - row['median']:.1f} ns can be had at all, and blocking on base pages has "
                    f"{best['plain'] - best['median']:.1f}.")
    elif last:
        within = int(best["block_bytes"]) <= last
        said.append(f"The last-level cache has {format_size(last)}. " + (
            "The fastest block is inside it, so a part of this gain is the caches' own and not the TLB's." if within else
            "The fastest block is larger, so no cache holds it, and the gain is the TLB's."))
    return said


def _prefetch(frame: pd.DataFrame, entries: Sequence[int]) -> str:
    found = blocking.by_distance(frame)
    told = []
    for pages in dict.fromkeys(found["pages"]):
        with suppress(Unavailable):  # one page size without distance 0 is no reason to be silent of the others
            best = blocking.best_gain(found, pages)
            told.append(f"{best['median']:.1f} ns on {NAMES[pages]}, {int(best['distance'])} hops ahead, which is {_gain(best)} as without")
    if not told:
        raise Unavailable("too-few-points", "no walk was measured with prefetches and without")
    said = f"At the best distance a hop takes {'; '.join(told)}."
    base = blocking.best_gain(found, "4k")
    near = found[(found["pages"] == "4k") & (found["distance"] == 1)]
    if len(near) and float(near["gain"].iloc[0]) > 1 + MOST_OF_IT * (base["gain"] - 1) > 1 + SAME:
        said += (f" One hop ahead is nearly as good already, {float(near['gain'].iloc[0]):.2f}: prefetches wait for nothing, so the "
                 "core runs ahead of the walk by as many as its window holds.")
    try:
        most = blocking.prefetched_hits(int(base["vertices"]), entries)
    except Unavailable as why:
        return f"{said} {why}"
    if base["gain_low"] > most * (1 + SAME):
        said += (f" If prefetches were dropped where the TLB misses, {most:.2f} would be the most on base pages. So they walk: a prefetch "
                 "hides the translation as well as the line.")
    elif base["gain_high"] < most * (1 + SAME):
        said += f" That is no more on base pages than prefetches could gain that are dropped where the TLB misses, {most:.2f} at the most."
    else:
        said += f" Whether it is more on base pages than the {most:.2f} of prefetches that never walk, noise leaves open."
    return said


def _mitigations(frame: pd.DataFrame, entries: Sequence[int]) -> str:
    found = blocking.mitigations(frame, entries)
    names = [f"{row.p50:.0f} and {row.p95:.0f} ns " + (
        f"in blocks of {graph_size(row.block_vertices)} on base pages" if row.remedy == BLOCKED else f"on {NAMES[row.pages]}")
        for row in found.itertuples()]
    said = (f"Median and 95th percentile of a hop over {graph_size(found['vertices'].max())}: {listed(names)}.")
    base = blocking.remedy(found, NONE, "4k")
    others = found[found["remedy"] != NONE]
    if others.empty:
        raise Unavailable("too-few-points", "no remedy was measured hop by hop beside the walk on base pages")
    best = others.loc[others["p95"].idxmin()]
    ratio = stats.interval_of_ratio(blocking.interval(base, "p95"), blocking.interval(best, "p95"))
    what = "blocking" if best["remedy"] == BLOCKED else NAMES[best["pages"]]
    if ratio.low > 1:
        said += (f" The tail is shortest with {what}, by a factor of {ratio.value:.2f} against base pages ({ratio.low:.2f} to "
                 f"{ratio.high:.2f}).")
    else:
        said += f" No remedy shortens the tail by more than noise; {what} comes nearest."
    return said


def _fan_out(frame: pd.DataFrame, entries: Sequence[int]) -> str:
    found = blocking.by_fan_out(frame)
    if not entries:
        raise Unavailable("no-geometry", "CPUID names no TLB level here")
    told, rises = [], {}
    for pages in dict.fromkeys(found["pages"]):
        with suppress(Unavailable):  # one page size with too few points is no reason to be silent of the others
            rises[pages], few, many = blocking.fan_out_rise(found, pages, entries[0])
            told.append(f"{rises[pages].value:.2f} times as long with {many:,} partitions as with {few:,} on {NAMES[pages]} "
                        f"({rises[pages].low:.2f} to {rises[pages].high:.2f})")
    if not told:
        raise Unavailable("too-few-points", f"partitioning was not measured on both sides of {entries[0]:,} partitions")
    said = f"To scatter a row takes {listed(told)}; the first level has {entries[0]:,} entries."
    if "4k" in rises:
        said += (" On base pages the limit shows." if rises["4k"].low > 1 + SAME else
                 " On base pages nothing gives way there: while a translation comes from the second level, stores can wait in a buffer."
                 if rises["4k"].high < 1 + 2 * SAME else " Noise leaves open whether base pages have their limit there.")
    steep = steepest(found, "4k")
    if steep is not None:
        said += f" The steepest step on base pages lies between {steep[0]:,} and {steep[1]:,} partitions, a factor of {steep[2]:.2f}."
    return said + _in_two_passes(found)


def _in_two_passes(found: pd.DataFrame) -> str:
    """What it is worth to stay below the limit twice, at the most partitions that base pages saw in one pass and in two."""
    one, two = (found[(found["pages"] == "4k") & (found["passes"] == n)].set_index("bits") for n in (1, 2))
    both = sorted(set(one.index) & set(two.index))
    if not both:
        return ""
    once, twice = one.loc[both[-1]], two.loc[both[-1]]
    ratio = stats.interval_of_ratio(blocking.interval(once), blocking.interval(twice))
    verdict = ("So two passes below the limit are faster than one past it." if ratio.low > 1 else
               "So one pass past the limit is still faster than two below it." if ratio.high < 1 else
               "Noise leaves open which is faster.")
    return (f" In two passes, {int(once['partitions']):,} partitions take {twice['median']:.1f} ns a row, in one {once['median']:.1f}. "
            f"{verdict}")


def steepest(found: pd.DataFrame, pages: str) -> tuple[int, int, float] | None:
    """Between which neighbouring numbers of partitions a row's time grows most for each doubling, and by which factor; None if nowhere.
    A frame of `blocking.by_fan_out`."""
    mine = found[(found["pages"] == pages) & (found["passes"] == 1)].sort_values("bits")
    pairs = [((after.median / before.median) ** (1 / (after.bits - before.bits)), before, after)
             for before, after in zip(list(mine.itertuples()), list(mine.itertuples())[1:], strict=False)]
    rising = [one for one in pairs if one[2].low > one[1].high]
    if not rising:
        return None
    _, before, after = max(rising, key=lambda one: one[0])
    return before.partitions, after.partitions, after.median / before.median


def _join(frame: pd.DataFrame, entries: Sequence[int]) -> str:
    found = blocking.by_join(frame)
    naive = found[found["mode"] == "naive"].set_index("pages")["median"]
    told, best = [], {}
    for pages in dict.fromkeys(found["pages"]):
        with suppress(Unavailable):  # a page size without its naive join
            best[pages] = row = blocking.best_gain(found, pages)
            told.append(f"{naive[pages]:.1f} ns a row naive and {row['median']:.1f} with {int(row['partitions']):,} partitions on "
                        f"{NAMES[pages]}, {_gain(row)}")
    if not told:
        raise Unavailable("too-few-points", "no join was measured naive and partitioned on the same pages")
    rows = int(found["tuples"].max())
    said = f"A join of two tables of {rows:,} rows takes {'; '.join(told)}."
    table = 2 * rows * blocking.ROW_BYTES  # two slots a row
    if entries and table <= entries[-1] * PAGE:
        return (f"{said} The hash table is {format_size(table)}, within the STLB's reach: measure larger ones to see what partitioning is "
                "for.")
    with suppress(Unavailable):
        large = blocking.best_large(found)
        if "4k" in best and large in naive and best["4k"]["gain_low"] > 1:
            bound = found.loc[(found["mode"] == "naive") & (found["pages"] == large)].iloc[0]
            said += (" Partitioning on base pages is faster than a naive join on large ones." if best["4k"]["high"] < bound["low"] else
                     " Large pages alone do more than partitioning on base pages." if bound["high"] < best["4k"]["low"] else
                     " Partitioning on base pages does as much as large pages alone.")
    return said
