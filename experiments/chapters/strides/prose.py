"""The sentences of the chapter about strides, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from experiments.article.setting import about_pages, change, run_this, set_up
from experiments.chapters.strides.analysis import Analysis
from experiments.chapters.strides.grid import LINE_BYTES, NARROW, PAGE_STRIDE, TWO_PAGES, WIDE
from experiments.inference.curves import Curve, select
from experiments.inference.intervals import Interval
from experiments.words.pages import BASE, words
from experiments.words.prose import Prose, choose, side
from experiments.words.reasons import Unavailable, if_available, required
from experiments.words.units import format_size

__all__ = ["set_up", "lead", "beside_said", "order_said", "sets_said", "translation_said", "random_said", "walks_said", "change",
           "run_this"]

MATTERS = 0.1  # of a load's time: what is less no reader would notice


def _base(a: Analysis) -> Curve:
    return required(a.times.get(BASE, ()), "no stride was measured on base pages")


def lead(a: Analysis) -> Prose:
    """The result in brief, as `brief`; and what could not be had."""
    return Prose(f"{brief(a)}\n\n{about_pages(a.notes)}".rstrip())


def brief(a: Analysis) -> Prose:
    """What a page's stride costs, and how much of that a line more takes off."""
    base = _base(a)
    said = f"A load in order takes {base.at(8).value:.2f} ns at a stride of 8 B and {base.at(PAGE_STRIDE).value:.1f} at a page's."
    saved = if_available(lambda: base.at(PAGE_STRIDE) - a.staggered[BASE].at(PAGE_STRIDE)) if BASE in a.staggered else None
    if saved is None or side(saved, 0.0) != "above":
        return Prose(said)
    left = base.at(PAGE_STRIDE).value - saved.value
    return Prose(f"{said} A stride of a page and a line visits as many pages and takes {left:.1f}: "
                 f"{saved.value:.1f} ns of the step that was read as a miss are a few sets of the caches.")


def beside_said(a: Analysis) -> Prose:
    """The published shape beside this machine's."""
    rows = required(a.side_by_side.dropna(), "no published stride was measured")
    page, wide = (select(rows, stride_bytes=stride) for stride in (PAGE_STRIDE, TWO_PAGES))
    required(page, "a page's stride was not measured")
    said = (f"At a page's stride the published load took {page['their_ratio'].iloc[0]:.1f} times as long as at 8 B; here it takes "
            f"{page['ratio'].iloc[0]:.0f} times.")
    if len(wide):
        ratio = _base(a).at(TWO_PAGES) / _base(a).at(PAGE_STRIDE)
        said += choose(ratio, {
            "above": f" Twice the stride is not alike: a load takes {ratio.value:.2f} times as long again.",
            "below": f" Twice the stride is faster: a load takes {ratio.value:.2f} of it, for half as many lines are visited.",
            "open": " At twice the stride no difference was found."}, slack=MATTERS)
    return Prose(said)


def _by_order(a: Analysis, stride: int) -> tuple[Interval, Interval]:
    """How many times as fast a stride's lines are read in order as shuffled: side by side, and apart. Raises Unavailable."""
    lists = [required(a.listed.get((where, order), ()), "no list was read in both orders, apart and side by side")
             for where in ("packed", "apart") for order in ("cycle", "sequential")]
    near, near_in_order, far, far_in_order = (curve.at(stride) for curve in lists)
    return near / near_in_order, far / far_in_order


def order_said(a: Analysis) -> Prose:
    """What order saves: of lines that fit a cache and of lines that do not."""
    near, far = _by_order(a, NARROW)
    said = (f"At a stride of {format_size(NARROW)} the lines are {format_size(a.array_bytes // NARROW * LINE_BYTES)}. Side by side order "
            f"makes them {near.value:.1f} times as fast, apart {far.value:.1f} times" + (
                ": a prefetcher runs ahead of the loop, and less well where lines stand apart." if near.low > far.high else "."))
    near, far = _by_order(a, PAGE_STRIDE)
    lines = format_size(a.array_bytes // PAGE_STRIDE * LINE_BYTES)
    said += (f"\n\nThose of a page's stride are {lines}, and side by side order gains a factor of "
             f"{near.value:.2f}; a page apart {far.value:.2f}. ")
    if side(far, slack=MATTERS) != "above":
        return Prose(said + "So no order helps a loop that takes a line of each page.")
    return Prose(said + (
        "The lines come as fast in either order, so what order saves there is translation: neighbouring pages have neighbouring entries, "
        "eight to a line of the page table, and the next walk finds the line that the last one brought."
        if side(near, slack=MATTERS) != "above" else
        "The lines gain by order themselves, so how much of it is translation these two do not tell."))


def sets_said(a: Analysis) -> Prose:
    """What a line more than the stride changes, where pages and lines stay as many."""
    times, staggered = (required(curves.get(BASE, ()), "no stride was measured with a line more") for curves in (a.times, a.staggered))
    ratio = times.at(PAGE_STRIDE) / staggered.at(PAGE_STRIDE)
    said = (f"A stride of a page and a line visits as many lines on as many pages as one of a page, and takes "
            f"{staggered.at(PAGE_STRIDE).value:.1f} ns a load in place of {times.at(PAGE_STRIDE).value:.1f}. ")
    return Prose(said + choose(ratio, {
        "above": "So the difference is no translation: lines a power of two apart share a few sets of the caches, and put each other out "
                 "before the next pass comes by.",
        "open": "No difference was found, so few sets cost little here: the lines leave those caches anyway, or a hash spreads them.",
        "below": "So the stride that meets few sets is the faster one here."}, slack=MATTERS))


def translation_said(a: Analysis) -> Prose:
    """The price of a page's stride by large pages, and whether they are a control."""
    price = required(a.price, "no stride was measured on base pages and on large ones", "pool-empty").at(PAGE_STRIDE)
    said = (f"On {words(a.large)} a load at a page's stride takes {price.value:z.1f} ns less than on base pages, of "
            f"{_base(a).at(PAGE_STRIDE).value:.1f}.")
    if not a.is_splintered:
        return Prose(said + " That is what translation costs the published loop.")
    walks = if_available(lambda: a.counted("walk", a.large).at(PAGE_STRIDE))
    counted = f" ({walks.value:.2f} walks a load were counted on them)" if walks else ""
    return Prose(f"{said} But the host backs large pages with base pages here, so they miss as often{counted}, and their walks alone are "
                 "shorter: the whole price is more than that, and no large page of this guest can show it.")


def random_said(a: Analysis) -> Prose:
    """What translation costs loads that do not wait and come in no order, at a page's stride and at the widest."""
    page, wide = a.random_price.at(PAGE_STRIDE), a.random_price.at(WIDE)
    said = (f"Shuffled, the lines of a page's stride take {page.value:z.1f} ns longer apart than side by side, and those of a stride of "
            f"{format_size(WIDE)} {wide.value:z.1f} ns longer. No prefetcher follows such an order, and both layouts visit all sets alike, "
            "so the difference is translation, for loads that need not wait for each other.")
    if page.low <= 0:
        return Prose(said)
    return Prose(f"{said} The wide stride costs {wide.share_of(page):.2f} times as much a load{_within_reach(a)}. The published loop reads "
                 "in order, so that one line of the page table serves several loads in a row; what a miss costs it, and whether that is "
                 "fixed, does not follow from these.")


def _within_reach(a: Analysis) -> str:
    """Why the widest stride may pay less than a page's: its pages may all be in the TLB."""
    pages = a.array_bytes // WIDE
    return f", since all of its {pages:,} pages fit in the TLB" if a.entries and pages <= a.entries[-1] else ""


def walks_said(a: Analysis) -> Prose:
    """Walks an access of the published loop as they were counted."""
    walks = required(a.counted("walk"), "no walks were counted here", a.host.pmu.reason or "no-data")
    narrow, page, more = (walks.get(stride) for stride in (NARROW, PAGE_STRIDE, PAGE_STRIDE + LINE_BYTES))
    if not page.value == page.value:
        raise Unavailable("too-few-points", "no walks were counted at a page's stride")
    beside = f", and {narrow.value:.3f} at 512 B, where one load in eight is the first on its page" if narrow.value == narrow.value else ""
    line = f", {more.value:.2f} with a line more" if more.value == more.value else ""
    return Prose(f"Counted were {page.value:.2f} walks a load at a page's stride{line}{beside}.")
