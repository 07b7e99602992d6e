"""The sentences of the chapter about page sizes, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from contextlib import suppress

from experiments.article.setting import about_pages, counters, run_this, set_up, smaller, tlb
from experiments.article.verdicts import decided, inside
from experiments.chapters.hugepages import calculator
from experiments.chapters.hugepages.analysis import SAME, Analysis, typical
from experiments.chapters.hugepages.languages import jmh
from experiments.inference.curves import select
from experiments.inference.splinter import large_pages
from experiments.words.pages import BASE, LARGE, PAGES, SWEPT, hardware, page_bytes, words
from experiments.words.prose import Prose, choose, listed
from experiments.words.reasons import Unavailable, required
from experiments.words.units import format_size

__all__ = ["set_up", "tlb", "lead", "levers", "lacking", "below", "splinter_verdict", "thp_pool", "touch_said", "counters", "jvm_said",
           "calculator_said", "heap_said", "change", "run_this"]

_ENTRY_BYTES = 8  # of a page table
_HEAP_BYTES = 20 * 10**9  # an example beyond the sweep, as a reader may have it


def lead(a: Analysis) -> Prose:
    """The result in brief, as `brief`; and why a page size is missing, where one is."""
    why = about_pages(a.notes) if not set(LARGE) <= set(a.kinds) else ""
    return _paragraphs(brief(a), why)


def _paragraphs(*texts: str) -> Prose:
    return Prose("\n\n".join(filter(None, texts)))


def brief(a: Analysis) -> Prose:
    """The chase at the largest size on base pages and on large ones; and where 1 GiB pages were to be had, on those."""
    large = a.large
    lines, ns = a.largest(BASE, large)
    said = (f"Over {format_size(lines * a.base_page_bytes)}, one line to each base page, a dependent load takes {ns[BASE]:.0f} ns on base "
            f"pages and {ns[large]:.0f} on {words(large)}, {a.speedup(large).at(lines).value:.2f} times as fast.")
    with suppress(Unavailable):  # no size was measured on all three
        lines, ns = a.largest(BASE, large, "1g")
        said += (f" Over {format_size(lines * a.base_page_bytes)}, the most that was to be had on 1 GiB pages, it takes {ns['1g']:.0f} ns "
                 "there.")
    return Prose(said)


def lacking(a: Analysis) -> Prose:
    """Why a page size has no rows: the reasons of this run, or that the data hold none."""
    missing = [PAGES[pages].words for pages in SWEPT if pages not in a.kinds]
    if not missing:
        return Prose("This machine gave all of them.")
    return _paragraphs(f"No rows lie on {listed(missing)}.", about_pages(a.notes))


def levers(a: Analysis) -> Prose:
    """The price at the largest size, by page size, with the size of the last level of the table beside it."""
    lines, _ = a.largest(BASE, a.large)
    size = lines * a.base_page_bytes
    # A page of 64 KiB is mapped by entries of base pages.
    tables = {pages: max(size // page_bytes(hardware(pages), a.base_page_bytes), 1) * _ENTRY_BYTES for pages in a.price}
    told = required([f"{a.price[pages].at(lines).value:z.0f} ns on {words(pages)}, whose table's last level takes "
                     f"{format_size(tables[pages])}"
                     for pages in (BASE, a.large) if lines in a.price[pages].xs], "no chase there has its packed control")
    return Prose(f"At {format_size(size)} translation costs {', and '.join(told)}.")


_GAINED = {True: ": nothing to gain.", False: ". No miss of the TLB explains that.", None: ". Noise leaves it open."}


def below(a: Analysis) -> Prose:
    """What large pages gain where base pages miss little."""
    parts = a.below_reach()
    first = required(parts.get("inside the first level", ()), "nothing was measured below the first level's reach")
    said = (f"Up to {first.xs[-1]:,} pages, which the first level holds, {words(a.large)} are {typical(first):.2f} times as fast as base "
            f"pages{_GAINED[decided(inside(typical(first), 1 - SAME, 1 + SAME))]}")
    if "between the two" in parts:
        between = typical(parts["between the two"])
        said += f" Between the two levels' reaches it is {between.value:.2f}. " + (
            "Base pages pay a hit in the second level there, which large ones spare." if between.low > 1 + SAME else
            "Both pay the second level's hit." if between.high < 1 + 4 * SAME else "Noise leaves it open.")
    return Prose(said)


_CONSEQUENCE = {
    "not splintered": "So here both levers work. An entry holds 512 times as much, and what still misses walks one level less.",
    "splintered by the host": (
        "So the first lever is not in your hands. An entry spans the smaller of the guest's page and the host's, and no setting in the "
        "guest changes the host's. What is left is the second: the guest's own tree is a level shorter and its table 512 times smaller, "
        "so each miss costs less, and there are as many. If you rent such a machine, ask for one whose memory the host backs by huge "
        "pages, or measure another."),
    "cannot tell": "So what follows from the curves has to be read with both possibilities in mind.",
}


def splinter_verdict(a: Analysis) -> Prose:
    """Whether an entry spans a large page, and what follows from it."""
    said, walk = f"The verdict is **{a.pieces.verdict}**. {a.pieces.evidence}\n\n{_CONSEQUENCE[a.pieces.verdict]}", a.pieces.walk
    if a.pieces.is_splintered and walk and walk.share.high < 1:
        said += (f" On the sizes above, such a miss costs {walk.large:.0f} {a.pieces.unit} in place of {walk.base:.0f}, "
                 f"{walk.share:.2f} of it.")
    return Prose(said)


def thp_pool(a: Analysis) -> Prose:
    """Transparent 2 MiB pages against those of the pool."""
    if missing := set(LARGE) - set(a.kinds):
        raise Unavailable("pool-empty" if "2m" in missing else "no-data", "the two kinds of 2 MiB pages cannot be compared")
    speedup = required(a.speedup("2m", "thp"), "no size was measured on both kinds of 2 MiB pages")
    return Prose(f"In the median over {len(speedup)} sizes the pool's pages are {typical(speedup):.2f} times as fast as transparent ones. "
                 + choose(typical(speedup), _ALIKE, slack=SAME))


_ALIKE = {"open": "What the processor maps is alike; what differs is how you come by it.", "above": "So they are not alike to the "
                                                                                                    "processor here."}


# --- reads


def touch_said(a: Analysis) -> Prose:
    """A read of the smallest array and of the largest, on base pages and on large ones."""
    large = large_pages(a.touches)
    reads = {pages: select(a.touches, pages=pages).set_index("array_bytes")["median"] for pages in (BASE, large)}
    shared = required(set(reads[BASE].index) & set(reads[large].index), "no array was read on both page sizes")
    least, most = min(shared), max(shared)
    return Prose(
        f"The draw alone takes {a.touches['generator_ns'].median():.2f} ns here. In {least:,} bytes a read takes {reads[BASE][least]:.2f} "
        f"ns with it; in {most:,} bytes {reads[BASE][most]:.1f} ns on base pages and {reads[large][most]:.1f} on {words(large)}. These "
        "loads do not wait for each other, so this is the throughput of a core that keeps several misses and walks in flight.")


def jvm_said(a: Analysis) -> Prose:
    """JMH's scores, and how they compare with the loop in C."""
    return _paragraphs(*jmh.sentences(a.scores), *jmh.compared(jmh.against(a.scores, a.touches), a.reads_apart))


def calculator_said(a: Analysis) -> Prose:
    """Whose entries the calculator counts with."""
    counted, base = calculator.basis(a), format_size(a.base_page_bytes)
    calculator.model(a, counted)  # without the figure there is nothing to explain, but why
    spans = f"an entry spans {base}, since the host splinters larger pages" if counted.is_splintered else "an entry spans the page"
    return Prose(
        f"It counts with {counted.first:,.0f} and {counted.last:,.0f} entries ({counted.source}), {counted.hit_ns:.2f} ns for a hit in the "
        f"second level, and takes it that {spans}. It holds for independent draws, one line to each {base}, and for no size that was not "
        "measured.")


def heap_said(a: Analysis) -> Prose:
    """What a heap larger than any sweep takes of entries and tables, on base pages and on 2 MiB ones: arithmetic; and what was measured."""
    pages = {kind: _HEAP_BYTES / page_bytes(kind, a.base_page_bytes) for kind in (BASE, LARGE[0])}
    tables = {kind: format_size(int(n * _ENTRY_BYTES) >> 10 << 10) for kind, n in pages.items()}
    l3 = a.cache_bytes(3)
    beside = f", where the third-level cache has {format_size(l3)}" if l3 else ""
    entries = f", for {a.known_entries[-1]:,} entries of the last level" if a.entries else ""
    size, at = a.largest(BASE, a.large)
    return Prose(f"**A heap of 20 GB,** which no sweep here reaches, is {pages[BASE] / 1e6:.1f} million base pages{entries}. The last "
                 f"level of its table takes {tables[BASE]}{beside}; that of 2 MiB pages takes {tables[LARGE[0]]}.\n\nMeasured was "
                 f"{format_size(size * a.base_page_bytes)}, where a load that waits takes {at[BASE]:.0f} ns on base pages and "
                 f"{at[a.large]:.0f} on {words(a.large)}. A program gains that only as far as it waits for such loads: "
                 "`.venv/bin/tlb try -- PROGRAM` runs it both ways, in turns. Where it gains, ask for the pages as the next chapter "
                 "has it; where loads overlap or its hot part is small, there is little to ask for.")


# --- again


def change(a: Analysis) -> Prose:
    size, gain = 64 << 20, a.speedup(a.large)
    there = gain.at(size // a.base_page_bytes).value
    return smaller(a, size, f"a load on {words(a.large)} to be {there:.2f} times as fast as on base pages", f"{gain.last.value:.2f}")
