"""The first page: the results in brief, each chapter's from its own rows, or why there are none; and the first chapter's cliff."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from types import ModuleType
from typing import Any

import pandas as pd

from experiments.article import analysis
from experiments.article.chapter import Chapter
from experiments.article.render import Figure
from experiments.article.setting import earlier_kernels, machine, point_columns
from experiments.chapters import graph_walk, hugepages, stlb_cliff, tlb_blocking, your_machine, your_program
from experiments.front import CHAPTERS
from experiments.front.profile import PARTS, Profile, keep, profile
from experiments.front.profile_figure import drawn
from experiments.inference.sides import runs_apart
from experiments.lab import survey
from experiments.words.pages import BASE, words
from experiments.words.prose import Prose, count, listed
from experiments.words.reasons import REASONS, Unavailable, if_available
from experiments.words.units import format_size

__all__ = ["machine", "scope", "opening", "far_size", "bullets", "unprofiled", "results", "reading", "stable", "hours"]

# What a machine may lack without the first page failing; a bad parameter is an error there too.
_LACKING = ("no-data", "not-linux", "arch-unsupported")


class Analysis(analysis.Analysis):
    """No rows of its own, but each chapter's Analysis, of the rows that it has or with machine "this" measures first; or why it has
    none. chapters: in reading order."""

    def __init__(self, chapter: Chapter, chapters: tuple[ModuleType, ...] = CHAPTERS):
        """Raises the Unavailable that is no lack of this machine."""
        super().__init__(pd.DataFrame(), chapter)
        self.parameters = chapter.parameters
        self._each = {module: _analysis(module, chapter) for module in chapters}

    @property
    def chapters(self) -> tuple[ModuleType, ...]:
        return tuple(self._each)

    @property
    def measured(self) -> list[analysis.Analysis]:
        """Of the chapters that have rows."""
        return [each for each in self._each.values() if not isinstance(each, Unavailable)]

    def of(self, module: ModuleType) -> Any:
        """The Analysis of a chapter. Raises Unavailable where there are no rows."""
        a = self._each[module]
        if isinstance(a, Unavailable):
            raise a
        return a

    @cached_property
    def profile(self) -> Profile:
        """What translation costs this machine, kept beside this computer's own rows. Of the survey, as much as there is: none is measured
        for this page."""
        surveyed = your_machine.Analysis(lambda: self.about.kept(survey.NAME), self.about)
        made = profile(self.about.machine, lambda module: surveyed if module is your_machine else self.of(module))
        if self.parameters["machine"] == "this":
            keep(self.about.store, made)
        return made


def _analysis(module: ModuleType, chapter: Chapter) -> analysis.Analysis | Unavailable:
    if module in (your_machine, your_program):  # of them is said here what the machine states, or a document: nothing is measured
        return module.Analysis(pd.DataFrame(), chapter)
    try:
        return module.Analysis(chapter.measure(module.grid.points(chapter.scope), module.__name__.rpartition(".")[2]), chapter)
    except Unavailable as why:
        if why.code not in _LACKING:
            raise
        return why


# --- sentences, glued by name


def scope(a: Analysis) -> Prose:
    """Whose results these are, and when they were measured."""
    days = sorted(a.of(stlb_cliff).frame["started_at"].str[:10].unique())
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    if (name := a.parameters["machine"]) != "this":
        whose = "the reference machine" if name == "reference" else f"the machine `{name}`"
        return Prose(f"These are the committed results of {whose}, measured {when}. Run `make book` for your own.")
    short = " The profile was `smoke`: its numbers are too few and too short to quote." if a.parameters["profile"] == "smoke" else ""
    left_out = "".join(f"\n\n{note.text}" for note in a.notes if note.code == "no-time")
    return Prose(f"These are results of the computer that built this page, measured {when}.{short}{left_out}")


def _unplaced(a: stlb_cliff.Analysis) -> str:
    """The price at the largest size, where its steps cannot be placed; nothing where they can."""
    try:
        a.steps  # noqa: B018
    except Unavailable as why:
        return f"{stlb_cliff.prose.lead(a)} The steps cannot be placed on this machine's data: {why}"
    return ""


def _loops(a: stlb_cliff.Analysis) -> str:
    return (f"The loop behind the best-known figures keeps several misses in flight. {stlb_cliff.prose.overlap(a)} Both numbers are right; "
            "they answer different questions.")


def opening(a: Analysis) -> Prose:
    """What following one pointer takes, near and far, and how much of it is finding out where the byte is. Raises Unavailable."""
    cliff = a.of(stlb_cliff)
    far, packed = cliff.spread.get(cliff.largest).value, cliff.packed.get(cliff.largest).value
    earlier = earlier_kernels(pd.concat([each.frame for each in a.measured], ignore_index=True))
    near = f"to one of the last {cliff.entries[0]:,} pages used" if cliff.entries else "to a page used just now"
    return Prose(f"Follow one pointer. On this machine that takes {cliff.packed.intervals[0].value:.1f} ns if it leads {near}, and "
                 f"{far:.0f} ns if it leads to one of {_millions(cliff.largest)}. The distance to the data is only a part of that: as many "
                 f"lines packed together take {packed:.0f} ns. The rest goes on finding out where the data are."
                 + (f"\n\n{earlier}" if earlier else ""))


def far_size(a: Analysis) -> str:
    """Return the memory over which the first figure's loads go, for its caption."""
    figure = if_available(index_far_load, a)
    return (format_size(int(figure.data["lines"].iloc[0]) * a.host.base_page_bytes) if figure else
            "the largest memory that all page sizes were measured over")


def _millions(pages: int) -> str:
    return "a million" if pages == 1 << 20 else f"{pages:,}"


def bullets(a: Analysis) -> Prose:
    """Where the price begins, what a far load is made of, and what helps without asking anybody; of each what this machine's rows say."""
    return Prose("\n".join(f"- {said}" for said in filter(None, (if_available(part, a) for part in (_begins, _far, _helps)))))


def _begins(a: Analysis) -> str:
    cliff = a.of(stlb_cliff)
    (first, second), steps = cliff.two_levels(), cliff.steps
    return (f"**Past {first:,} pages** a load pays {stlb_cliff.prose.price_of(cliff, steps.hit_ns)} more, {{doc}}`past {second:,} "
            f"<stlb_cliff>` it pays {stlb_cliff.prose.price_of(cliff, cliff.walked)}, and the walk gets dearer as its table leaves the "
            "caches.")


def _far(a: Analysis) -> str:
    heaps = a.of(graph_walk).heaps
    (base, *_), (large, other) = heaps.values(), list(heaps.items())[-1]
    count, stay = len(base.peaks_ns), len(other.peaks_ns)
    if count < 2:
        return ""
    trips = "two" if count == 2 else "two or three"
    said = f"**A far load seems to make one, {trips} trips to memory**, {{doc}}`by its times <graph_walk>`: one for the data."
    if 0 < stay < count:
        said += f" {words(large)[:1].upper() + words(large)[1:]} save one." + (
            " The last would be for your provider's table, and so your provider's choice." if stay > 1 and a.host.hypervisor != "none"
            else "")
    return said


def _helps(a: Analysis) -> str:
    """The gains of the chapter about blocking on base pages, each by itself."""
    blocking = a.of(tlb_blocking)
    base, cut = (if_available(blocking.remedy, name, BASE) for name in (tlb_blocking.analysis.NONE, tlb_blocking.analysis.BLOCKED))
    ahead, join = if_available(blocking.best_ahead, BASE), if_available(blocking.best_join, BASE)
    gains = [f"blocks, which help the caches too, make a far hop {base['p50'] / cut['p50']:.1f} times as fast"
             if base is not None and cut is not None else "",
             f"prefetching makes a hop {ahead['gain']:.0f} times as fast" if ahead is not None else "",
             f"partitioning first makes a join {join['gain']:.1f} times as fast" if join is not None else ""]
    told = listed(filter(None, gains))
    return f"**Without larger pages**, {told}, {{doc}}`each by itself <tlb_blocking>`." if told else ""


def unprofiled(a: Analysis) -> Prose:
    """What the profile has no value of, and why; nothing where it has all."""
    lacking: dict[str, list[str]] = {}
    for (code, _), quantities in a.profile.lacking.items():
        lacking.setdefault(REASONS[code].sentence.rstrip("."), []).extend(PARTS[quantity.part] for quantity in quantities)
    told = [f"of *{listed(dict.fromkeys(parts))}*, since {why[0].lower()}{why[1:]}" for why, parts in lacking.items()]
    return Prose(f"Some are lacking here: {'; '.join(told)}." if told else "None is lacking here.")


# What the results in brief say of a chapter under which heading, where that is not its `brief` under its question.
LEADS: Mapping[ModuleType, dict[str, Callable[[Any], str]]] = {
    your_machine: {"How far the TLB reaches": your_machine.prose.brief},
    stlb_cliff: {"What a first-level miss costs": stlb_cliff.prose.hit, "What a walk costs": stlb_cliff.prose.walk,
                 "How sharp the cliff is": stlb_cliff.prose.sharpness, "What translation costs": _unplaced,
                 "What published loops measure": _loops},
}


def results(a: Analysis) -> Prose:
    """A list of each chapter's findings; nothing of one without rows, or without what its sentence compares."""
    items = []
    for module in a.chapters:
        for heading, sentence in LEADS.get(module, {_question(module): getattr(module.prose, "brief", lambda _: "")}).items():
            with suppress(Unavailable):
                items += ["- **{}.** {}".format(heading, said.replace("\n\n", "\n\n  ")) for said in [sentence(a.of(module))] if said]
    return Prose("\n".join(items))


def _question(module: ModuleType) -> str:
    """What a chapter is about, by the first line of its package: what follows its title."""
    title, _, question = (module.__doc__ or module.__name__).splitlines()[0].strip(".").partition(": ")
    return question[:1].upper() + question[1:] or title


def reading(a: Analysis) -> Prose:
    """The chapters in reading order, each with what it is about."""
    questions = {module.__name__.rpartition(".")[2]: _question(module) for module in a.chapters}
    return Prose("\n".join(f"- {{doc}}`{name}`: {question[0].lower()}{question[1:]}."
                           for name, question in questions.items()))


def stable(a: Analysis) -> Prose:
    return stlb_cliff.prose.stable(a.of(stlb_cliff))


def hours(a: Analysis) -> Prose:
    """What no interval of one run covers: how far the medians of a point's runs lie apart, where points have several."""
    frames = [each.frame for each in a.measured if len(each.frame)]
    if not frames:
        raise Unavailable("no-data", "any chapter")
    rows = pd.concat(frames, ignore_index=True)
    apart = runs_apart(rows, point_columns(rows), "ns_per_access")
    if apart.empty:
        return Prose("Each point was measured within one run. What another hour would change, such as who else is on the host, no interval "
                     "covers; `tlb compare` of two runs shows it.")
    middle, one_in_twenty = apart.median(), apart.quantile(0.95)
    return Prose(f"{count(len(apart))} points were measured in several runs, an hour or more apart. Their medians differ between them by "
                 f"a factor of {middle:.2f} in the middle, and by {one_in_twenty:.2f} or more for one point in twenty: the hour is a "
                 "condition of a measurement, too, and no interval of one run covers it.")


# --- the figures


def index_profile(a: Analysis) -> Figure:
    """The translation profile, whose document stands beside the rows."""
    return drawn(a.profile)


def index_cliff(a: Analysis) -> Figure:
    """The cliff of its chapter, under a name of this page's own."""
    return stlb_cliff.figures.cliff(a.of(stlb_cliff))


def index_far_load(a: Analysis) -> Figure:
    """What one far load waits for, by page size."""
    return hugepages.figures.far_load(a.of(hugepages))
