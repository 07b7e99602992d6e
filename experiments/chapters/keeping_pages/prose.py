"""The sentences of the chapter about getting pages, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

import pandas as pd

from experiments.article.chapter import literature
from experiments.article.setting import about_pages, change, run_this, set_up
from experiments.article.verdicts import LEAST_COVERAGE
from experiments.chapters.keeping_pages.analysis import Analysis
from experiments.chapters.keeping_pages.languages import runtime_words
from experiments.chapters.keeping_pages.ways import Ways
from experiments.inference.curves import select
from experiments.words.pages import BASE, PAGES, SWEPT, words
from experiments.words.prose import Prose, count, listed, side
from experiments.words.reasons import if_available, required
from experiments.words.units import format_size

__all__ = ["set_up", "lead", "ways_said", "files_said", "freed_said", "runtimes_said", "ladder_said", "prefault_said",
           "published_said", "waste_said", "change", "run_this"]

WHOLE, NONE = 0.99, 0.01  # shares that count as all and as nothing: a heap's edges are no whole pages
_FEWER = 0.8  # of the walks on base pages: fewer than that, and entries have been joined


def lead(a: Analysis) -> Prose:
    """The result in brief, as `brief`; and what could not be had."""
    return Prose(f"{brief(a)}\n\n{about_pages(a.notes)}".rstrip())


def brief(a: Analysis) -> Prose:
    """How many ways of asking give large pages; what faulting in gains by them."""
    said = [told for told in (if_available(_which, a), if_available(_gain, a)) if told]
    return Prose(" ".join(required(said, "nothing was tried")))


def _which(a: Analysis) -> str:
    got = required(a.ways.got, "no way of asking gave memory")
    whole = [one for one in got if one.huge_share >= WHOLE]
    return (f"Of {len(got)} ways of asking for memory that this kernel granted, {len(whole)} gave large pages throughout "
            f"and {len(_empty(a.ways))} gave base pages. No call said which.")


def _gain(a: Analysis) -> str:
    alone = select(a.faults, threads=1, mode="touch").set_index("pages")["gb_per_s"]
    large = required([pages for pages in ("thp", "2m") if pages in alone.index and BASE in alone.index], "prefault", "engine-lacks")[0]
    return (f"One thread faults memory in at {alone[BASE]:.1f} GB/s on base pages and at {alone[large]:.1f} on {words(large)}.")


def _empty(ways: Ways) -> list[str]:
    return [got.way for got in ways.got if got.huge_share <= NONE]


# --- ways of asking


def ways_said(a: Analysis) -> Prose:
    """What a program has that asks for nothing, that advises all of it, and that advises half."""
    plain, advised = a.ways.of("anonymous"), a.ways.of("advised")
    said = (f"A mapping that asks for nothing has {plain.huge_share:.0%} of its bytes on large pages here, where the setting is "
            f"`{a.ways.thp}`; one that was advised {advised.huge_share:.0%}.")
    half = if_available(a.ways.of, "half")
    if half:
        rest = format_size(half.rest_huge_bytes) if half.rest_huge_bytes else "nothing"
        said += (f" Advice holds for the range it is given: of the half that was advised {half.huge_share:.0%} lie on large pages, and "
                 f"{rest} of the rest of the process.")
    return Prose(said)


def files_said(a: Analysis) -> Prose:
    """What lies on large pages of memory that has a name, or is shared."""
    named = {way: a.ways.of(way) for way in ("file", "file-advised", "tmpfs", "tmpfs-huge", "hugetlbfs", "memfd", "memfd-pool", "shared")
             if way not in a.ways.lacking}
    required(named, "no file could be mapped")
    large = [a.ways.asked(way, in_words=True) for way, got in named.items() if got.huge_share >= WHOLE]
    none = [a.ways.asked(way, in_words=True) for way, got in named.items() if got.huge_share <= NONE]
    said = f"Memory that is shared or has a name is another matter. Large pages lie under {listed(large)}. " if large else (
        "Memory that is shared or has a name is another matter: all of it is on base pages here. ")
    said += f"Base pages lie under {listed(none)}. " if none and large else ""
    if a.ways.shmem in ("never", "deny"):
        said += (f"Shared memory has a switch of its own, shmem\\_enabled, and that is `{a.ways.shmem}` here: madvise on it succeeds and "
                 "does nothing.")
    return Prose(said.rstrip())


def freed_said(a: Analysis) -> Prose:
    """Say what giving one base page of a large one back frees."""
    got, whole = a.ways.of("dropped"), a.ways.of("advised")
    freed, split = got.mapped_bytes - got.resident_bytes, (whole.huge_bytes - got.huge_bytes) // (2 << 20)
    said = f"When a program gives one base page back with `madvise(MADV_DONTNEED)`, smaps shows {format_size(freed)} less resident. "
    if not split:
        return Prose(f"{said}All of its large pages are still mapped whole.")
    return Prose(f"{said}No memory is free for it yet. From then on the kernel maps the rest of that large page with base pages, but it "
                 "keeps all of its 2 MiB until memory runs short; then the *deferred split* gives the unused part back. "
                 "That is how an allocator that trims its heap loses large pages before it frees anything.")


def runtimes_said(a: Analysis) -> Prose:
    """What each language's array got, a list."""
    return Prose("\n".join(f"- {sentence}" for sentence in runtime_words.sentences(a.programs)))


# --- the ladder


def ladder_said(a: Analysis) -> Prose:
    """The price on base pages and on the sizes between, and the first that is cheaper, of those that enough processes were on."""
    between = required({pages: price for pages, price in a.ladder.items() if PAGES[pages].source == "mthp"},
                       "no page size between was to be had", "mthp-off")
    rungs = {pages: price for pages, price in a.ladder.items() if price.coverage >= LEAST_COVERAGE}
    between = required({pages: price for pages, price in between.items() if pages in rungs and BASE in rungs},
                       "fewer than five processes were on base pages or on each size between")
    base = rungs[BASE]
    cheaper = [pages for pages, price in between.items() if side(price.share_of(base), slack=0.05) == "below"]
    best = min(between, key=lambda pages: between[pages].value)
    said = (f"Over {count(a.ladder_lines)} base pages translation costs {base.value:.1f} ns a load on base pages and "
            f"{between[best].value:z.1f} on {words(best)}. ")
    if not cheaper:
        pieces = a.splintering()
        return Prose(said + "No size between them is cheaper. " + (
            "The host backs this guest with base pages, and a TLB can join neighbouring pages only where the host's lie side by side too."
            if pieces and pieces.is_splintered else
            "So no entry of this TLB holds more than a base page of them, as far as these prices show."))
    return Prose(f"{said}The first rung that is cheaper is {words(cheaper[0])}. {_why_cheaper(a, best)}".rstrip())


def _why_cheaper(a: Analysis, best: str) -> str:
    """Whether a rung saves walks or makes them cheaper, by the counters; in a guest, by what. Nothing where walks are not counted."""
    if not {BASE, best} <= a.walks.keys():
        return ""
    told = f"The counters have {a.walks[BASE]:.2f} walks a load on base pages and {a.walks[best]:.2f} there"
    if a.walks[best] < _FEWER * a.walks[BASE]:
        return f"{told}: an entry spans more than a base page."
    return f"{told}, so it is no entry that spans more: each walk is cheaper." + (
        " That fits a guest, whose pages that lie together have neighbouring entries in the host's table, eight to a line of the cache."
        if a.host.hypervisor != "none" else "")


# --- what large pages cost


def _rates(rates: pd.Series, unit: str, digits: int) -> str:
    """On base pages and on the largest pages that there were, in the order of the table."""
    return listed(f"{rates[pages]:.{digits}f} {unit} on {words(pages)}" for pages in dict.fromkeys((BASE, rates.index[-1])))


def prefault_said(a: Analysis) -> Prose:
    """How fast one thread makes memory ready and gives it back, and how fast many do."""
    alone = select(a.faults, threads=1, mode="touch").set_index("pages")
    required(select(a.faults, threads=1, mode="touch", pages=BASE), "prefault", "engine-lacks")
    said = (f"One thread that touches its memory has it ready at {_rates(alone['gb_per_s'], 'GB/s', 2)}. Given "
            f"back, {format_size(a.base_page_bytes)} of it take {_rates(alone['free_ns'], 'ns', 1)}.")
    many = a.faults[a.faults["threads"] > 1]
    best = many.groupby("pages", sort=False)["gb_per_s"].max()
    return Prose(said + (f"\n\nWith {many['threads'].max()} threads the best is {_rates(best, 'GB/s', 2)}." if BASE in best else ""))


def published_said(a: Analysis) -> Prose:
    """Say what the published pre-touch of a large heap took."""
    rows = literature("pretouch_4tb").set_index("pages")
    base, thp = (f"{seconds // 60} min {seconds % 60} s" for seconds in (round(rows.loc[pages, "real_s"]) for pages in (BASE, "thp")))
    return Prose(f"The published case is a Java heap of {format_size(int(rows['heap_bytes'].iloc[0]))} that is touched at the start. From "
                 f"there to the exit the JVM takes {base} on base pages and {thp} on transparent ones.")


def waste_said(a: Analysis) -> Prose:
    """What one byte makes resident."""
    faults = a.faults[a.faults["pages"].isin(SWEPT)].drop_duplicates("pages")
    rows = required(faults, "prefault", "engine-lacks")
    told = listed(f"{format_size(int(row.one_byte_bytes))} on {words(row.pages)}" for row in rows.itertuples())
    return Prose(f"One byte touched in a fresh mapping makes resident, by smaps: {told}.")
