"""The sentences of the chapter about the graph, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from experiments.article.setting import about_pages, run_this, set_up, smaller
from experiments.article.verdicts import decided
from experiments.chapters.graph_walk import whose as whose_trips
from experiments.chapters.graph_walk.analysis import REGIMES, SIZE, WALK, Analysis
from experiments.chapters.graph_walk.claims import page_walkers_as_stated
from experiments.chapters.graph_walk.grid import LARGE_PAGES, VERTEX_BYTES
from experiments.chapters.graph_walk.two_terms import two_terms
from experiments.inference.cost import WRONG
from experiments.inference.counts import why_not_counted
from experiments.inference.curves import select
from experiments.words.pages import BASE, ordered, words
from experiments.words.prose import Prose, choose, in_words, listed
from experiments.words.reasons import Unavailable, explain, if_available, required
from experiments.words.units import format_size

__all__ = ["set_up", "lead", "clock", "regimes", "heaps", "whose", "explained", "first_touch", "misses_are", "walkers_said", "model_said",
           "change", "run_this"]

LOOSE = 10  # a factor between the ends of a parameter's interval: one this wide is not determined
MET = 0.1  # of all hops: shares nearer to each other than that are as near as two campaigns of a shared computer
_ORDERS = {"cycle": "cyclic order", "random": "random order"}


def lead(a: Analysis) -> Prose:
    """The result in brief; and which page sizes are missing, and why."""
    missing = [words(pages) for pages in LARGE_PAGES if pages not in set(a.frame["pages"])]
    lacking = f"\n\nNo walk lies on {listed(missing)}.\n\n{about_pages(a.notes)}" if missing else ""
    return Prose((brief(a) + lacking).rstrip())


def brief(a: Analysis) -> Prose:
    """Median and 95th percentile at the largest size that base and large pages share, and at the smallest."""
    if BASE not in a.p50:
        raise Unavailable("too-few-points", "no walk on base pages was timed hop by hop")
    medians, tails = ({pages: curve.medians for pages, curve in curves.items()} for curves in (a.p50, a.p95))
    least, most = medians[BASE].index[[0, -1]]
    larger = [pages for pages in medians if pages != BASE and most in medians[pages].index][-1:]
    return Prose(f"In the smallest graph half of all hops take {medians[BASE][least]:.0f} ns or less; in one of {format_size(most)}, on "
                 "base "
                 f"pages, {medians[BASE][most]:.0f}, and one in twenty more than {tails[BASE][most]:.0f}."
                 + "".join(f" On {words(pages)} the same walk takes {medians[pages][most]:.0f} and {tails[pages][most]:.0f}."
                           for pages in larger))


def clock(a: Analysis) -> Prose:
    """What the clock costs, how it steps, and what it does to the smallest and the largest graph on base pages."""
    rows = required(a.walks(1), "no walk was timed hop by hop")
    cost, step = rows[["clock_ns", "clock_step_ns"]].median()
    timed = select(rows, pages=BASE).groupby(SIZE)[["mean_ns", "ns_per_access"]].median()
    if BASE in a.means:
        timed = timed.join(a.means[BASE].medians.rename("batch_ns"), how="inner")
    sentences = [f"Two serialised readings around nothing differ by {cost:.1f} ns here, and the counter advances {step:.2g} ns at once."]
    if "batch_ns" not in timed or timed.empty:
        return Prose(sentences[0])
    first, last = timed.iloc[0], timed.iloc[-1]
    sentences.append(f"A hop in {format_size(first.name)} takes {first['batch_ns']:.1f} ns per batch" + (
        f"; the clock costs {cost / first['batch_ns']:.1f} times that. Timed one by one, readings and counting included, it takes "
        f"{first['ns_per_access']:.0f}." if cost > first["batch_ns"] else
        f" and {first['ns_per_access']:.0f} with a reading before and after it."))
    large = []
    if len(timed) > 1:
        large.append(f"In {format_size(last.name)} the mean is {last['batch_ns']:.0f} ns per batch and {last['mean_ns']:.0f} from "
                         "single readings, less the clock's own cost.")
    if step > 2:
        large.append("So a reading tells a hop to a step and no better; the figures spread each reading evenly over its step.")
    return Prose("\n\n".join(filter(None, (" ".join(sentences), " ".join(large)))))


def regimes(a: Analysis) -> Prose:
    """Where on base pages the median hop leaves the caches, and where it pays for a walk that reads memory."""
    cache, memory, walk = (a.regimes.sizes(name) for name in REGIMES)
    places = [*(f"a cache up to {format_size(size)}" for size in cache[-1:]),
              *(f"memory from {format_size(size)} to {format_size(memory[-1])}" for size in memory[:1]),
              *(f"memory and a walk that reads memory too at {format_size(size)} and more" for size in walk[:1])]
    said = (f"On base pages the median hop is answered by {listed(places)}. The lines between these are drawn from the times: a load from "
            f"memory is taken to need {a.regimes.memory_ns:.0f} ns, the median on {words(a.regimes.large)} two octaves past the caches, "
            "and a hop that takes half as long again to wait for something else too.")
    more = [] if walk else ["The sweep ends before the median hop pays for such a walk."]
    tails = a.p95[BASE].medians
    if slow := tails.index[tails > a.regimes.cut_ns[1]].tolist():
        more.append(f"One hop in twenty waits for something else too from {format_size(slow[0])} on.")
    if a.entries:
        reach = format_size(a.entries[-1] * a.base_page_bytes)
        more.append(f"The last TLB level reaches {reach} of base pages by {a.entries_source}.")
    return Prose("\n\n".join(filter(None, (said, " ".join(more)))))


def heaps(a: Analysis) -> Prose:
    """In how many heaps the hops stand at the largest size, how far apart, and how many stay on large pages."""
    base, (large, other) = a.heaps[BASE], list(a.heaps.items())[-1]
    peaks = required(base.peaks_ns, "no hop on base pages left the caches", "no-step")
    size, count = format_size(int(a.walks(1, pages=BASE)[SIZE].max())), len(peaks)
    if count == 1:
        return Prose(f"At {size} the hops on base pages stand in one heap, at {peaks[0].value:.0f} ns: a hop is one trip to memory, and "
                     "whatever else it reads comes from a cache.")
    third = f", and to the third {choose(base.evenness, _EVEN).format(base.evenness.value)}" if count > 2 else ""
    said = (f"Hops over {size} of base pages do not spread around one time: they stand in {in_words(count)} heaps, at "
            f"{listed(f'{peak.value:.0f}' for peak in peaks)} ns. From the first to the second it is {base.step_ns.value:.0f} ns{third}. "
            f"The likeliest reading is that a hop makes {_COUNTED[min(count, 3)]} **trips** to memory, one after the other: one for the "
            "line, and one for each entry of a page table that has left the caches too. Interrupts, refreshes of the memory and conflicts "
            "in its banks take as long, but would not keep such steps.")
    if base.step_ns.high < peaks[0].low:
        said += " Why a further trip takes less time than the first, these data do not show."
    if other.peaks_ns and count > (stay := len(other.peaks_ns)):
        said += (f"\n\nOn {words(large)} the heaps are {in_words(stay)}, at {listed(f'{peak.value:.0f}' for peak in other.peaks_ns)} ns: "
                 f"larger pages take {in_words(count - stay)} trip{'s' * (count - stay > 1)} away, as no such disturbance would.")
    return Prose(said)


def whose(a: Analysis) -> Prose:
    """Which trip is whose: by the size from which on it is made, and by the page size that takes it away."""
    base, (large, other) = a.heaps[BASE], list(a.heaps.items())[-1]
    count, stay = len(base.peaks_ns), len(other.peaks_ns)
    if count < 2:
        raise Unavailable("no-step", "hops on base pages stand in one heap")
    begins = {number: _begins(a, number) for number in range(2, count + 1)}
    said = ["On base pages a tenth of all hops waits for "
            f"{listed(f'{in_words(n)} trips from {format_size(size)} on' for n, size in begins.items())}."]
    if stay > 1 and a.host.hypervisor != "none":
        pieces = ", which has an entry for each of the pieces that it made of them" if a.in_pieces else ""
        said.append(f"The second trip that stays on {words(large)} is not this machine's own table: those pages do without its last level, "
                    f"and what is left of it fits any cache. It is the host's{pieces}.")
        if count > stay:
            said.append("So the trip that large pages take away is for this machine's own entry, and the one that stays is the provider's "
                        "to take away, by larger pages of the host.")
    elif stay == 1 and count == 2:
        said.append("The trip that large pages take away is for the page table's entry: of base pages its last level is 512 times as "
                    "large.")
    return Prose(" ".join(said))


def explained(a: Analysis) -> Prose:
    """Whether the sizes of what a hop reads say how often it waits for whom."""
    found = whose_trips.explained(a)
    stated = a.cache_bytes(3)
    held = format_size(int(found.cache_bytes) >> 17 << 17) + (f" ({format_size(stated)} are stated)" if stated else "")
    said = ("Do the sizes of what a hop reads agree? Let each hop read one line of the vertices and one of each table, through one cache "
            f"that keeps the lines used last. With {held} that cache comes within {100 * found.worst:.0f} percentage points of the "
            "shares in the figure. ")
    return Prose(said + ("Nothing else was fitted, so the sizes agree." if found.worst <= MET else
                         "The direction is right and the fit is not good, so this does not confirm whose the trips are."))


def _begins(a: Analysis, number: int) -> int:
    """The smallest working set from which on a tenth of all hops on base pages waits for so many trips."""
    rows = select(a.trip_shares, pages=BASE, trips=number).sort_values(SIZE)
    few = rows.loc[rows["share"] < 0.1, SIZE].max()
    return int(rows.loc[~(rows[SIZE] <= few), SIZE].min())


def first_touch(a: Analysis) -> Prose:
    """What the order of first touch changes, and why; or how large a change would have shown."""
    curves = required(a.touched, "no chase was measured over pages touched in several orders")
    both = curves["address"] / curves["visit"] if {"address", "visit"} <= curves.keys() else ()
    gain, lines = required(both, "the two orders were not measured at one size").last, both.xs[-1]
    by_address, by_visit = (curves[mode].get(lines).value for mode in ("address", "visit"))
    said = (f"Over {format_size(lines * a.base_page_bytes)} a load takes {by_address:.0f} ns where the pages were first touched by "
            f"address, as a program's loop over a fresh array touches them, and {by_visit:.0f} where they were touched in the order in "
            f"which the chase goes on to visit them: {gain.value:.2f} times.")
    if gain.low > 1:
        why = ("Memory is handed out as it is touched, by the guest's kernel and by its host alike, so pages touched one after the other "
               "lie side by side there, and so do their entries in the host's table: eight to a line" if a.host.hypervisor != "none" else
               "Memory is handed out as it is touched, so pages touched one after the other lie side by side in it")
        return Prose(f"{said} The virtual addresses, the links and the loads are the same. {why}. So a benchmark that fills its array in "
                     "the order in which it reads it measures another machine than its program will have; and a program that can fill its "
                     "structures in the order of their use has a lever that no page size gives.")
    return Prose(f"{said} No difference was found; a gain of more than {max(gain.high - 1, 0):.0%} would have shown.")


_COUNTED = {2: "one or two", 3: "one, two or three"}
_EVEN = {"below": "{:.2f} times that, less", "open": "about as much again", "above": "{:.2f} times that, more"}


def misses_are(a: Analysis) -> str:
    """A phrase for the caption: counted, and predicted beside it, or predicted alone and why."""
    if a.counted:
        return "as this CPU counts them" + " and as 1 − C/M predicts" * bool(a.entries)
    why = explain(why_not_counted(a.walks(0, walkers=1), "walk", a.host)).split(". ")[0].rstrip(".")
    why = why if why[:2].isupper() else why[0].lower() + why[1:]
    return (f"as 1 − C/M predicts from the entries by {a.entries_source} ({why}, so they are not counted)" if a.entries else
            f"neither counted ({why}) nor to be predicted, since neither CPUID nor a survey names the levels of the TLB here")


def walkers_said(a: Analysis) -> Prose:
    """Where the gain of several walks ends, by page size, and how many page walks that means under way at once."""
    kinds = required(ordered(a.walkers["pages"]), "no graph was walked by several numbers of walkers")
    sides = {pages: a.parallel(pages) for pages in kinds}
    (first, one), *others = sides.items()
    sentence = (f"In {format_size(int(a.walkers['vertices'].max()) * VERTEX_BYTES)} a hop takes {one.one_ns.value:.0f} ns with one walker "
                f"and {one.best_ns.value:.1f} with {one.best_walkers} on {words(first)}, {one.gain:.1f} times as many hops"
                + "".join(f"; on {words(pages)} {side.gain:.1f} times as many" for pages, side in others[-1:]) + ".\n\n")
    try:
        base, large, busy = a.under_way
    except Unavailable as why:
        return Prose(f"{sentence}How many page walks were under way cannot be told. {why}")
    sentence += (f"One walker's hop takes {base.one_ns.value - large.one_ns.value:.0f} ns longer on base pages. If a page walk takes that "
                 f"long among many too, {busy:.1f} of them overlap when a hop is fastest.")
    if a.page_walkers is None:
        return Prose(f"{sentence} No source that we read states how many page walkers this core has.")
    return Prose(f"{sentence} {a.host.microarchitecture} is said to have {a.page_walkers:.0f} page walkers: " + {
        True: "the estimate agrees.", False: "the estimate is higher.",
        None: "the estimate neither needs as many nor rules them out."}[decided(page_walkers_as_stated(a)[0])])


def model_said(a: Analysis) -> Prose:
    """Return what two terms alone predict; how far the fitted model is off on what it saw and what it did not, and where it is wrong."""
    fitted = a.fitted.parameters.values()
    loose = sum(not fit.high <= LOOSE * fit.low for fit in fitted)
    sentences, held = [if_available(_two_terms, a) or "", (
        f"The figure's model has {len(fitted)} fitted numbers, since both terms depend on the caches"
        + (f"; {loose} of them the points leave open by more than a factor of {LOOSE}, so read it as a curve through the points." if loose
           else "."))], select(a.modelled, seen="held out")
    for name, part in (("of the chase", held[held["series"] != WALK]), ("of the walk of the graph", held[held["series"] == WALK])):
        if len(part):
            off = (part["predicted_ns"] / part["measured_ns"] - 1).abs()
            sentences.append(f"On the {len(part)} points {name} that the fit did not see, its median error is {off.median():.0%}, the "
                             f"largest {off.max():.0%}, at {format_size(int(part.loc[off.idxmax(), 'lines']) * VERTEX_BYTES)} of lines.")
    if not (held["series"] == WALK).any():
        sentences.append("No walk on base pages was timed per batch, so the model is tested on the chase alone.")
    return Prose("\n\n".join(filter(None, [*sentences, _explained(a)])))


def _two_terms(a: Analysis) -> str:
    """How well the formula itself predicts one order of a chase from another, with no fitted number."""
    points = two_terms(a)
    off = (points["predicted_ns"] / points["measured_ns"] - 1).abs()
    return (f"The two terms alone, with counted misses, no fitted number and a walk's price from a chase in a cycle, predict the chase in "
            f"random order at {len(points)} sizes with a median error of {off.median():.0%} and a largest of {off.max():.0%}.")


def _explained(a: Analysis) -> str:
    """What the model explains of the points that it was fitted to, and the range, the sign and the size of where it is most wrong."""
    residuals, runs = a.fitted.residuals, a.fitted.wrong()
    if not runs:
        return f"Of the {len(residuals)} points that it was fitted to the model misses none by more than {WRONG:.0%}."
    worst = runs[0].loc[runs[0]["relative"].abs().idxmax()]
    return (f"Of the {len(residuals)} points that it was fitted to the model misses {sum(map(len, runs))} by more than {WRONG:.0%}. It is "
            f"most wrong at {worst['lines']:,} lines of the {worst['layout']} layout in {_ORDERS[worst['order']]}, where it predicts "
            f"{'too much' if worst['relative'] > 0 else 'too little'}: {worst['predicted_ns']:.3g} ns for {worst['measured_ns']:.3g}.")


# --- again


def change(a: Analysis) -> Prose:
    size, curve = 64 << 20, required(a.p50.get(BASE, ()), "no walk on base pages was timed hop by hop")
    return smaller(a, size, f"half of all hops within {curve.at(size).value:.0f} ns", f"{curve.last.value:.0f}")
