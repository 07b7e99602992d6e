"""The first page: the results in brief, each chapter's from its own rows, or why there are none; and the first chapter's cliff."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import pandas as pd

from experiments.article import analysis
from experiments.article.chapter import Chapter
from experiments.article.machine_words import machine
from experiments.article.render import Figure
from experiments.chapters import stlb_cliff, your_machine
from experiments.front import CHAPTERS
from experiments.words.prose import Prose
from experiments.words.reasons import Unavailable

__all__ = ["machine", "scope", "results", "stable"]

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

    def of(self, module: ModuleType) -> Any:
        """The Analysis of a chapter. Raises Unavailable where there are no rows."""
        a = self._each[module]
        if isinstance(a, Unavailable):
            raise a
        return a


def _analysis(module: ModuleType, chapter: Chapter) -> analysis.Analysis | Unavailable:
    if module is your_machine:  # what is said of it here is what the machine states: no survey is asked for
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
    return ("The loop behind the best-known figures keeps several misses in flight. "
            f"{stlb_cliff.prose.overlap(a)} Both numbers are right; they answer different questions.")


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
                items += [f"- **{heading}.** {said}" for said in [sentence(a.of(module))] if said]
    return Prose("\n".join(items))


def _question(module: ModuleType) -> str:
    """What a chapter is about, by the first line of its package: what follows its title."""
    title, _, question = (module.__doc__ or module.__name__).splitlines()[0].strip(".").partition(": ")
    return question[:1].upper() + question[1:] or title


def stable(a: Analysis) -> Prose:
    return stlb_cliff.prose.stable(a.of(stlb_cliff))


# --- the figure


def index_cliff(a: Analysis) -> Figure:
    """The cliff of its chapter, under a name of this page's own."""
    return stlb_cliff.figures.cliff(a.of(stlb_cliff))
