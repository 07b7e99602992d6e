"""The sentences of the chapter about code, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from experiments.article.setting import about_pages, change, run_this, set_up
from experiments.chapters.code.analysis import Analysis
from experiments.chapters.code.grid import LARGE_TEXT
from experiments.chapters.code.ways import WAYS
from experiments.inference.curves import Curve
from experiments.inference.intervals import Interval
from experiments.words.pages import words
from experiments.words.prose import Prose, choose, count, listed, side
from experiments.words.reasons import Unavailable, if_available, required

__all__ = ["set_up", "lead", "foreseen_said", "entries_said", "counted_said", "large_said", "text_said", "hot_said", "ways_said",
           "change", "run_this"]

SAME = 0.1  # of a time: what no reader would notice
HALF = 0.5  # of a drawn jump
MOST = 0.99  # of a text, that it lies on large pages
TENTH_NS = 0.1  # what no reader would notice of a jump


def lead(a: Analysis) -> Prose:
    """The result in brief, as `brief`; and what could not be had."""
    return Prose(f"{brief(a)}\n\n{about_pages(a.notes)}".rstrip())


def _far(a: Analysis, kind: str) -> tuple[int, Interval, Interval]:
    """The most pages, and a jump of that kind to as many lines: apart, and side by side. Raises Unavailable."""
    apart, near = (required(curves.get(kind, ()), "no such jumps were measured") for curves in (a.spread, a.packed))
    pages = min(apart.xs[-1], near.xs[-1])
    return pages, apart.at(pages), near.at(pages)


def brief(a: Analysis) -> Prose:
    """What a jump nobody foresees costs more where each has a page to itself, and where that begins."""
    pages, apart, near = _far(a, "drawn")
    said = (f"A jump that nothing foresees takes {near.value:.0f} ns among {count(pages)} lines of code side by side, and "
            f"{apart.value:.0f} where each has a page to itself. ")
    if a.tlb:
        said += (f"Behind it is a TLB of its own for instructions, of {a.tlb.first.value:.0f} entries and then "
                 f"{count(a.tlb.last.value)}.")
    return Prose(said.rstrip())


def _begins(price: Curve) -> float | None:
    """The fewest pages from which on a kind of jump costs more apart."""
    dear = [x for x, interval in price if side(interval, TENTH_NS) == "above"]
    rest = [x for x, interval in price if side(interval, TENTH_NS) != "above"]
    return next((x for x in dear if not rest or x > max(rest)), None)


def foreseen_said(a: Analysis) -> Prose:
    """What a front end that knows the way hides."""
    pages, apart, _ = _far(a, "direct")
    drawn = _far(a, "drawn")[1]
    share = apart / drawn
    said = (f"A direct jump, whose target stands in the instruction, takes {apart.value:.1f} ns at {count(pages)} pages where a drawn one "
            f"takes {drawn.value:.0f}. ")
    if share.high < HALF:
        said += ("The front end knows where it leads, runs ahead, and most of the walk is done before the jump is due. So a loop over many "
                 "pages of code shows little of the TLB, and what it shows first may be the predictor giving way.")
    else:
        said += choose(share, {"below": "So knowing the way saves a part of that.", "open": "So knowing the way saves nothing here.",
                               "above": "So knowing the way saves nothing here."}, slack=SAME)
    begins = _begins(a.price["direct"]) if "direct" in a.price else None
    return Prose(said + (f" Apart and side by side part for good at {count(begins)} pages." if begins else ""))


def entries_said(a: Analysis) -> Prose:
    """The entries by aliased draws, beside those that CPUID states."""
    tlb = a.found()
    said = (f"On eight pages of memory behind as many addresses no cache of instructions fills, and drawn jumps miss as 1 - C/M: "
            f"{tlb.first.value:.0f} entries, past which a jump takes {tlb.hit_ns.value:.1f} ns longer, and "
            f"{count(tlb.last.value)}, past which a walk takes {tlb.walk_ns.value:.0f}. ")
    if len(a.stated) < 2:
        return Prose(said + "CPUID states no two levels to compare with.")
    away = max(abs(found.value / stated - 1) for found, stated in zip((tlb.first, tlb.last), a.stated, strict=False))
    return Prose(said.rstrip() + f"\n\nCPUID states {listed(map(count, a.stated))}" + (" and agrees." if away <= SAME else
                 f"; the fit differs from that by up to {away:.0%}. Entries in excess of CPUID's are an error of the fit."))


def counted_said(a: Analysis) -> Prose:
    """Walks for instructions as they were counted, of the jumps that are drawn and of those that are foreseen."""
    drawn, direct = (required(a.counted("itlb_walk", kind), "no walks for instructions were counted here", a.host.pmu.reason or "no-data")
                     for kind in ("drawn", "direct"))
    pages = min(drawn.xs[-1], direct.xs[-1])
    many, few = drawn.at(pages).value, direct.at(pages).value
    said = f"Counted were {many:.2f} walks a drawn jump at {count(pages)} pages, and {few:.2f} a direct one"
    return Prose(said + (": what the front end hides is the wait, and not the walk." if few > HALF * many else
                         ": where it runs ahead, it saves walks too." if many > 0 else "."))


def large_said(a: Analysis) -> Prose:
    """What large pages leave of a drawn jump's price, and whether they are a control."""
    base, large = required(a.spread.get("drawn", ()), "no drawn jumps were measured"), required(a.on_large, "no large text was measured")
    pages = min(base.xs[-1], large.xs[-1])
    ratio = base.at(pages) / large.at(pages)
    said = f"On {words(LARGE_TEXT)} a drawn jump to {count(pages)} lines a page apart takes {large.at(pages).value:.0f} ns"
    said += choose(ratio, {"above": f", in place of {base.at(pages).value:.0f}. ", "open": ", no less than on base pages. ",
                           "below": ", more than on base pages. "})
    return Prose((said + ("The host backs them with base pages, so an entry still holds a base page and only the walk is shorter: this is "
                          "the least that they gain." if a.is_splintered else "")).rstrip())


def text_said(a: Analysis) -> Prose:
    """What large pages gain for a text that is used all over, by its size."""
    gains = [(mib, gain) for mib in a.texts["mib"] if (gain := if_available(a.gain, mib))]
    required(gains, "no text was measured on both page sizes")
    (small, least), (large, most) = gains[0], gains[-1]
    said = (f"Used all over, {large} MiB of code takes {most.value:.2f} times as long on base pages as on {words(LARGE_TEXT)}, and "
            f"{small} MiB {least.value:.2f} times. ")
    return Prose(said + choose(most, {
        "above": "Such a program jumps at random through all of its code; one whose hot code lies together pays as a smaller one does.",
        "open": f"A gain past {most.high - 1:.0%} would have shown.", "below": "So large pages cost here."}))


def hot_said(a: Analysis) -> Prose:
    """What it costs that hot code is strewn over the whole text, and what large pages take off that."""
    rows = required(a.hot, "no text was measured of which a part is hot")
    least = rows.iloc[-1]
    apart, large, together = least["apart"], least["large"], least["together"]
    if not together.coverage:
        raise Unavailable("too-few-points", "no text was measured of which a part is hot")
    said = (f"With {least['share']:.0%} of {least['mib']} MiB hot, a line here and there in every page, a jump takes {apart.value:.0f} ns. "
            f"As many hot lines side by side take {together.value:.0f}. ")
    if side(apart - together, SAME * together.value) != "above":
        return Prose(said + "So it does not matter here where hot code lies.")
    said += ("The lines are as many. What is more is pages, and neighbours that a prefetcher brings in vain: that is what a linker which "
             "puts hot functions together saves")
    if not large.coverage:
        return Prose(f"{said}.")
    return Prose(said + choose(apart / large, {
        "above": f", and {words(LARGE_TEXT)} take it to {large.value:.0f} without one.",
        "open": f". On {words(LARGE_TEXT)} it takes {large.value:.0f}, no less.",
        "below": f". On {words(LARGE_TEXT)} it takes {large.value:.0f}, even more."}))


def ways_said(a: Analysis) -> Prose:
    """Which ways of making code executable put it on large pages here."""
    got = required(a.huge_shares, "no way of making code executable was tried", "no-data")
    whole = [WAYS[way].words for way, share in got.items() if share > MOST]
    as_loaded = got.get("file")
    said = "" if as_loaded is None else (
        "A file mapped as a loader maps it lies on large pages already. " if as_loaded > MOST else
        "A file mapped as a loader maps it lies on base pages. ")
    return Prose(said + (f"On large pages throughout: {listed(whole)}." if whole else "No way that was tried gave it large pages here."))
