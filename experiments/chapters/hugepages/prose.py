"""The sentences of the chapter about page sizes, chosen by the rows of experiment `hugepages`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pandas as pd

from experiments.article.machine_words import Prose, Said, about_pages, say_each
from experiments.chapters.hugepages import analysis as huge
from experiments.chapters.your_machine.address import listed
from experiments.inference import splinter
from experiments.inference.curves import PAGE
from experiments.lab.record import PAGE_BYTES
from experiments.machine.host import Host
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

NAMES = {"4k": "base pages", "64k": "64 KiB pages", "thp": "transparent 2 MiB pages", "2m": "2 MiB pages of the pool", "1g": "1 GiB pages"}
_ASKED = {"4k": "mmap, MADV_NOHUGEPAGE", "64k": "mmap, MADV_HUGEPAGE, mTHP of 64 kB", "thp": "mmap, MADV_HUGEPAGE",
          "2m": "mmap, MAP_HUGETLB of 2 MiB", "1g": "mmap, MAP_HUGETLB of 1 GiB"}


def offered(frame: pd.DataFrame) -> pd.DataFrame:
    """What was asked for and what was had: a row a page size, each row of data verified on it."""
    rows = []
    for pages in huge.PAGES:
        mine = frame[frame["pages"] == pages]
        spread = mine[(mine["kernel"] == "page_chase") & (mine["layout"] == "spread")]
        most = format_size(int(spread["working_set_bytes"].max())) if len(spread) else "–"
        rows.append((pages, NAMES[pages], _ASKED[pages], f"{len(mine):,}" if len(mine) else "none", most))
    return pd.DataFrame(rows, columns=["pages", "what they are", "asked for by", "processes verified on them", "largest chase"])


def lacking(frame: pd.DataFrame, notes: Sequence[str]) -> Prose:
    """Why a page size has no rows: the reasons of this run, or that the data hold none."""
    missing = [NAMES[pages] for pages in huge.PAGES if pages not in huge.kinds(frame)]
    if not missing:
        return Prose("This machine gave all five.")
    why = about_pages(notes)
    return Prose(f"No rows lie on {listed(missing)}." + (f"\n\n{why}" if why else ""))


def say(frame: pd.DataFrame, host: Host, entries: Sequence[int], notes: Sequence[str] = ()) -> Said:
    """Every sentence of the chapter that hangs on the data; each that cannot be said gives its reason in its place."""
    return {"lacking": lacking(frame, notes)} | say_each({
        "lead": lambda: lead(frame), "levers": lambda: _levers(frame), "below": lambda: _below(frame, entries),
        "splinter_verdict": lambda: _splinter(frame, host), "thp_pool": lambda: _same(frame), "touch_said": lambda: _touch(frame),
        "prefault_said": lambda: _prefault(frame), "waste_said": lambda: _waste(frame)})


def _largest(frame: pd.DataFrame, *kinds: str) -> tuple[int, dict[str, float]]:
    """The most lines that all these page sizes were measured at, and the medians there, ns."""
    curves = huge.curves(frame)
    sides = {pages: curves[curves["pages"] == pages].set_index("lines")["median"] for pages in kinds}
    both = sorted(set.intersection(*(set(side.index) for side in sides.values())))
    if not both:
        raise Unavailable("too-few-points", f"no size was measured on {listed(kinds)} alike")
    return both[-1], {pages: float(side[both[-1]]) for pages, side in sides.items()}


def lead(frame: pd.DataFrame) -> str:
    """The result in brief: the chase at the largest size on base pages and on large ones. Raises Unavailable."""
    large = huge.best_large(frame)
    lines, ns = _largest(frame, "4k", large)
    found = huge.speedup(frame, large).set_index("lines").loc[lines]
    said = (f"One line to each 4 KiB of {format_size(lines * PAGE)}: a dependent load takes {ns['4k']:.0f} ns on base pages and "
            f"{ns[large]:.0f} ns on {NAMES[large]}, {found['value']:.2f} times as fast ({found['low']:.2f} to {found['high']:.2f}).")
    with suppress(Unavailable):  # no size was measured on all three
        lines, ns = _largest(frame, "4k", large, "1g")
        said += (f" At {format_size(lines * PAGE)}, the most that was to be had on 1 GiB pages, the three take {ns['4k']:.0f}, "
                 f"{ns[large]:.0f} and {ns['1g']:.0f} ns.")
    return said


def _levers(frame: pd.DataFrame) -> str:
    """The price at the largest size, by page size, with the size of the last level of the table beside it."""
    prices = huge.prices(frame)
    large = huge.best_large(frame)
    lines, _ = _largest(frame, "4k", large)
    at = prices[prices["lines"] == lines].set_index("pages")
    told = []
    for pages in (one for one in huge.PAGES if one in at.index):
        table = format_size(max(lines * PAGE // PAGE_BYTES[pages], 1) * 8)
        row = at.loc[pages]
        told.append(f"{row['median']:z.0f} ns on {NAMES[pages]} ({row['low']:z.0f} to {row['high']:z.0f}; the table's last level takes "
                    f"{table})")
    if not told:
        raise Unavailable("too-few-points", "no chase there has its packed control")
    return f"At {format_size(lines * PAGE)} the price of translation is {listed(told)}."


def _below(frame: pd.DataFrame, entries: Sequence[int]) -> str:
    if not entries:
        raise Unavailable("no-geometry", "CPUID names no TLB level here")
    large = huge.best_large(frame)
    found = huge.speedup(frame, large)
    inside = found[found["lines"] <= 0.9 * entries[0]]
    if inside.empty:
        raise Unavailable("too-few-points", "nothing was measured below the first level's reach")
    value, low, high, _ = huge.typical(inside)
    said = (f"Up to {int(inside['lines'].max()):,} pages, which the first level holds, {NAMES[large]} are {value:.2f} times as fast as "
            f"base pages ({low:.2f} to {high:.2f})")
    said += (": nothing to gain." if low > 0.95 and high < 1.05 else ". No miss of the TLB explains that." if low > 1.05 or high < 0.95
             else ". Noise leaves it open.")
    between = found[found["lines"].between(1.3 * entries[0], 0.6 * entries[-1])] if len(entries) > 1 else found[:0]
    if len(between):
        value, low, high, _ = huge.typical(between)
        said += f" Between the two levels' reaches it is {value:.2f} ({low:.2f} to {high:.2f}). "
        said += ("Base pages pay a hit in the second level there, which large ones spare." if low > 1.05 else
                 "Both pay the second level's hit." if high < 1.2 else "Noise leaves it open.")
    return said


CONSEQUENCE = {
    "not splintered": "So here both levers work. An entry holds 512 times as much, and what still misses walks one level less.",
    "splintered by the host": (
        "So the first lever is not in your hands. An entry spans the smaller of the guest's page and the host's, and no setting in the "
        "guest changes the host's. What is left is the second: the guest's own tree is a level shorter and its table 512 times smaller, "
        "so each miss costs less, and there are as many. If you rent such a machine, ask for one whose memory the host backs by huge "
        "pages, or measure another."),
    "cannot tell": "So what follows from the curves has to be read with both possibilities in mind.",
}


def _splinter(frame: pd.DataFrame, host: Host) -> str:
    found = splinter.judge(frame, host.hypervisor)
    said = f"The verdict is **{found.verdict}**. {found.evidence} {CONSEQUENCE[found.verdict]}"
    if found.verdict == "splintered by the host" and found.walk and found.walk.share.high < 1:
        said += (f" On the sizes above, such a miss costs {found.walk.large:.0f} {found.unit} in place of {found.walk.base:.0f}, "
                 f"{found.walk.share.value:.2f} of it ({found.walk.share.low:.2f} to {found.walk.share.high:.2f}).")
    return said


def _same(frame: pd.DataFrame) -> str:
    if not {"2m", "thp"} <= set(huge.kinds(frame)):
        raise Unavailable("pool-empty" if "2m" not in huge.kinds(frame) else "no-data", "the two kinds of 2 MiB pages cannot be compared")
    found = huge.speedup(frame, "2m", "thp")
    if found.empty:
        raise Unavailable("too-few-points", "no size was measured on both kinds of 2 MiB pages")
    value, low, high, _ = huge.typical(found)
    return (f"In the median over {len(found)} sizes the pool's pages are {value:.2f} times as fast as transparent ones ({low:.2f} to "
            f"{high:.2f}). The hardware page is the same; what differs is how you come by it.")


def _touch(frame: pd.DataFrame) -> str:
    found = huge.touches(frame)
    base = found[found["pages"] == "4k"].set_index("array_bytes")
    large = huge.best_large(frame, "random_touch")
    other = found[found["pages"] == large].set_index("array_bytes")
    both = sorted(set(base.index) & set(other.index))
    if not both:
        raise Unavailable("too-few-points", "no array was read on both page sizes")
    size = both[-1]
    drawn = float(found["generator_ns"].median())
    return (f"The draw alone takes {drawn:.2f} ns here. In {both[0]:,} bytes a read takes {base.loc[both[0], 'median']:.2f} ns with it; "
            f"in {size:,} bytes {base.loc[size, 'median']:.1f} ns on base pages and {other.loc[size, 'median']:.1f} on {NAMES[large]}. "
            "These loads do not wait for each other, so this is the throughput of a core that keeps several misses and walks in "
            "flight.")


def _prefault(frame: pd.DataFrame) -> str:
    found = huge.prefaults(frame)
    alone = found[(found["threads"] == 1) & (found["mode"] == "touch")].set_index("pages")
    if "4k" not in alone.index:
        raise Unavailable("engine-lacks", "prefault")
    told = [f"{row['gb_per_s']:.2f} GB/s on {NAMES[pages]}" for pages, row in alone.iterrows()]
    said = f"One thread that touches its memory has it ready at {listed(told)}."
    back = [f"{row['free_ns']:.1f} ns on {NAMES[pages]}" for pages, row in alone.iterrows()]
    said += f" Giving 4 KiB back takes {listed(back)}."
    many = found[found["threads"] > 1]
    if len(many):
        best = many.loc[many.groupby("pages")["gb_per_s"].idxmax()].set_index("pages")
        said += f" With {int(many['threads'].max())} threads the best is " + listed(
            f"{best.loc[pages, 'gb_per_s']:.2f} GB/s on {NAMES[pages]}" for pages in huge.PAGES if pages in best.index) + "."
    return said


def _waste(frame: pd.DataFrame) -> str:
    found = huge.prefaults(frame).drop_duplicates("pages")
    if found.empty:
        raise Unavailable("engine-lacks", "prefault")
    told = [f"{format_size(int(row.one_byte_bytes))} on {NAMES[row.pages]}" for row in found.itertuples()]
    return f"One byte touched in a fresh mapping makes resident, by smaps: {listed(told)}."
