"""The scorecard: each claim of the sources with what it predicts, what this machine shows, its verdict, and those on other machines."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cached_property

import pandas as pd

from experiments.article import analysis
from experiments.article.chapter import Chapter
from experiments.article.parameters import BOOK
from experiments.article.setting import machine
from experiments.article.verdicts import CLASSES, beside, chance_words, claims_of, statements
from experiments.front import CHAPTERS
from experiments.front.judged import Judged, Verdicts, judged, name_of
from experiments.words.prose import Prose, count, listed, many
from experiments.words.reasons import Unavailable, required

__all__ = ["machine", "lead", "chance", "apart_said", "machines_said", "beyond_said"]

UNMEASURED = "not measured"
OTHERWISE = "measured differently"  # by another version of the kernels than the verdict beside it
DECIDED = ("holds", "fails")
APART = "apart"  # a claim that holds on one machine and fails on another
MARKS = {**CLASSES, UNMEASURED: "unmeasured", OTHERWISE: "unmeasured"}


class Analysis(analysis.Analysis):
    """The verdicts on all claims, by machine. rows: one a claim, as the page shows them, in the order of the chapters.

    With machine "reference", each chapter's are those that its own page shows: of the next machine that has it, where the reference has
    none.
    """

    def __init__(self, chapter: Chapter):
        super().__init__(pd.DataFrame(), chapter)
        self.titles = {name: _title(name) for name in map(name_of, CHAPTERS)}
        self._chapter = replace(chapter, parameters=chapter.parameters | {"minutes": 0.0})  # judging measures nothing

    @cached_property
    def published(self) -> dict[str, Verdicts]:
        """By machine, of those in data/."""
        return {name: judged(self._about(name)) for name in self._chapter.data.machines()}

    def _about(self, machine: str) -> Chapter:
        return replace(self._chapter, parameters=self._chapter.parameters | {"machine": machine}, notes=[])

    @cached_property
    def own(self) -> Verdicts | None:
        """Of the computer that builds the page, where it is about it."""
        return judged(self._chapter) if self._chapter.is_this else None

    def machine_of(self, chapter: str) -> str:
        """Whose verdicts on a chapter's claims are shown."""
        asked = self._chapter.parameters["machine"]
        return self._chapter.machine if self._chapter.is_this else self._chapter.data.resolve(asked, experiment=chapter)

    def verdict(self, chapter: str, id: str) -> Judged | str:
        """As shown, or why there is none."""
        of = self.own or self.published[self.machine_of(chapter)]
        return of.chapters[chapter].get(id, UNMEASURED) if chapter in of.chapters else of.lacking.get(chapter, UNMEASURED)

    @cached_property
    def others(self) -> dict[str, str]:
        """The machines beside the one that the page is about: what their columns are called."""
        names = {name: _label(self._about(name)) for name in self.published if self.own or name != self._chapter.machine}
        often = Counter(names.values())
        return {name: label if often[label] == 1 else name for name, label in names.items()}

    def _word(self, machine: str, chapter: str, id: str) -> str:
        """Another machine's verdict; OTHERWISE where it is not to be set beside the one that is shown."""
        known = self.published[machine].chapters.get(chapter, {}).get(id)
        if known is None:
            return UNMEASURED
        return known.verdict if self.published[machine].measured_like(self.compared_with(chapter), chapter) else OTHERWISE

    def compared_with(self, chapter: str) -> Verdicts:
        """The verdicts on a chapter that others are set beside: those that are shown or, where there are none, the newest."""
        shown = self.own or self.published[self.machine_of(chapter)]
        those = [of for of in self.published.values() if chapter in of.chapters]
        return shown if chapter in shown.chapters or not those else max(those, key=lambda of: of.newest_measures(chapter))

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Return a row a claim: chapter, id, verdict, reason, evidence, compared (markup: intervals, bands, why they leave it open),
        is_decided, by_interval, apart, deciding (how many machines decide it), and a column a machine of `others`, named by its id."""
        rows = []
        for module in CHAPTERS:
            chapter = name_of(module)
            for claim in claims_of(module.claims):
                here = self.verdict(chapter, claim.id)
                words = {name: self._word(name, chapter, claim.id) for name in self.others}
                told = (here.verdict, here.reason, here.evidence, beside(here.bounds, here.why), here.is_decided, bool(
                    here.effects)) if isinstance(here, Judged) else (UNMEASURED, "", here, "", False, False)
                each = [told[0], *(word for name, word in words.items() if self.own or name != self.machine_of(chapter))]
                deciding = sum(word in DECIDED for word in each)
                rows.append((chapter, claim.id, *told, {*DECIDED} <= {*each}, deciding, *words.values()))
        columns = ["chapter", "id", "verdict", "reason", "evidence", "compared", "is_decided", "by_interval", APART, "deciding",
                   *self.others]
        return pd.DataFrame(rows, columns=columns)


def _title(chapter: str) -> str:
    """The heading of a chapter's page."""
    first = json.loads((BOOK / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"][0]["source"]
    return "".join(first).splitlines()[0].removeprefix("# ")


def _label(chapter: Chapter) -> str:
    """A machine by its processor's architecture; by its id where that is not known."""
    try:
        name = chapter.host.microarchitecture
    except (Unavailable, ValueError):
        return chapter.machine
    return chapter.machine if name == "unknown" else name


# --- sentences, glued by name


def lead(a: Analysis) -> Prose:
    """Return how many claims hold, fail, and are left open here, and why."""
    words = Counter(required(a.rows, "no claim is registered")["verdict"])
    told = [f"{count(words[word])} {what}" for word, what in (
        ("holds", "hold"), ("fails", "fail"), ("cannot tell", "are undecided"), ("not testable here", "cannot be tested on it"),
        (UNMEASURED, "belong to chapters that were not measured on it")) if words[word]]
    return Prose(f"This book judges {count(len(a.rows))} published claims. On this machine {listed(told)}.")


def chance(a: Analysis) -> Prose:
    """Return how many claims were tested with an interval, and how many of those verdicts may be wrong by chance."""
    tested, decided = (int(a.rows[name].sum()) for name in ("by_interval", "is_decided"))
    if not decided:
        return Prose("No claim is decided by an interval here, so none can be wrong by chance.")
    return Prose(f"{count(tested)} claims were tested with an interval, which decides {count(decided)} of them. "
                 f"{chance_words(tested)} The other verdicts rest on counts, on words and on arithmetic.")


def apart_said(a: Analysis) -> Prose:
    """On how many claims two machines disagree, and in which chapters."""
    apart = a.rows[a.rows[APART].astype(bool)]
    several = int((a.rows["deciding"] > 1).sum())
    if not several:
        return Prose("No claim is decided on two machines, so nothing can be said of how far they travel.")
    if apart.empty:
        return Prose(f"Of {count(several)} claims that are decided on two machines or more, none holds on one and fails on another.")
    most = apart["chapter"].value_counts()
    where = listed(f"{{doc}}`{name}`" for name in a.titles if most.get(name, 0) == most.max())
    return Prose(f"Of {count(several)} claims that are decided on two machines or more, {many(len(apart))} hold on one and fail on "
                 f"another, most of them in {where}.")


def machines_said(a: Analysis) -> Prose:
    """Which machines the columns are, and whose verdicts stand in for what the reference lacks."""
    columns = listed(f"*{label}* is `{name}`" if label != name else f"`{name}`" for name, label in a.others.items())
    told = [f"The last columns are other machines in `data/`: {columns}." if columns else ""]
    stands_in: dict[str, list[str]] = {}
    for chapter in a.titles:
        if not a.own and (name := a.machine_of(chapter)) != a.about.machine:
            stands_in.setdefault(name, []).append(f"{{doc}}`{chapter}`")
    told += [f"The verdicts on {listed(chapters)} are those of `{name}`, which stands in where the reference machine was not measured."
             for name, chapters in stands_in.items()]
    otherwise = [name for name in a.others if (a.rows[name] == OTHERWISE).any()]
    if otherwise:
        told.append(f"Verdicts of {listed(f'`{name}`' for name in otherwise)} are left out as *{OTHERWISE}* where earlier or later "
                    "versions of the kernels measured them.")
    return Prose(" ".join(filter(None, told)) or "No other machine is in `data/`.")


def beyond_said(a: Analysis) -> Prose:
    """How many sentences besides no measurement decides."""
    kinds = Counter(row.status for row in statements().values())
    return Prose(f"The sources hold {count(len(statements()))} testable sentences, of which {count(kinds['judged'])} are judged above. The "
                 f"others are here to unfold: {count(kinds['not testable'])} that no measurement of this book decides, with what would; "
                 f"{count(kinds['arithmetic'])} that follow from numbers alone; and {count(kinds['said again'])} that say again what "
                 "another says.")
