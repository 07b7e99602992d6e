"""The first page: what translation costs this machine, from each chapter's own rows, and the
machine's translation profile."""

from __future__ import annotations

from functools import cached_property
from types import ModuleType
from typing import Any

import pandas as pd

from experiments import stlb_cliff, your_machine, your_program
from experiments.overview import CHAPTERS
from experiments.overview.profile import Profile, keep, profile
from experiments.overview.profile_figure import drawn
from tlb.inference.two_machines import runs_apart
from tlb.lab import survey
from tlb.reasons import Unavailable
from tlb.report import analysis
from tlb.report.chapter import Chapter
from tlb.report.render import Figure
from tlb.report.setting import point_columns

# What a machine may lack without the first page failing; a bad parameter is an error there too.
_LACKING = ("no-data", "not-linux", "arch-unsupported")


class Analysis(analysis.Analysis):
    """No rows of its own, but each chapter's Analysis, of the rows that it has or with machine
    "this" measures first; or the reason for none."""

    chapter = "index"

    def __init__(
        self,
        chapter: Chapter,
        chapters: tuple[ModuleType, ...] = CHAPTERS,
        names: dict[str, Any] | None = None,
    ):
        """Raises the Unavailable that is no lack of this machine."""
        super().__init__(pd.DataFrame(), chapter, names)
        self.parameters = chapter.parameters
        self._each = {module: _analysis(module, chapter) for module in chapters}

    @property
    def measured(self) -> list[analysis.Analysis]:
        """Of the chapters that have rows."""
        return [each for each in self._each.values() if not isinstance(each, Unavailable)]

    @property
    def all_rows(self) -> pd.DataFrame:
        """The rows of all chapters. Raises Unavailable("no-data") where none has any."""
        frames = [each.frame for each in self.measured if len(each.frame)]
        if not frames:
            raise Unavailable("no-data", "any chapter")
        return pd.concat(frames, ignore_index=True)

    def of(self, module: ModuleType) -> Any:
        """The Analysis of a chapter. Raises Unavailable where there are no rows."""
        a = self._each[module]
        if isinstance(a, Unavailable):
            raise a
        return a

    @property
    def cliff(self) -> stlb_cliff.Analysis:
        """The chapter about the TLB cliff. Raises Unavailable where there are no rows of it."""
        return self.of(stlb_cliff)

    @cached_property
    def profile(self) -> Profile:
        """What translation costs this machine, kept beside this computer's own rows. Of the survey,
        as much as there is: none is measured for this page."""
        surveyed = your_machine.Analysis(lambda: self.about.kept(survey.NAME), self.about)
        made = profile(
            self.about.machine,
            lambda module: surveyed if module is your_machine else self.of(module),
        )
        if self.parameters["machine"] == "this":
            keep(self.about.store, made)
        return made

    def number(self, name: str, decimals: int) -> str:
        """Return a quantity of the profile with its interval and unit, for a table's cell."""
        found = self.profile[name]
        if found.interval is None:
            return "not measured on this machine"
        return f"{found.interval:.{decimals}f} {'times' if found.unit == 'ratio' else found.unit}"

    @property
    def provenance(self) -> str:
        """Whose results these are, when they were measured, and what was left out. Raises
        Unavailable."""
        days = sorted(self.of(stlb_cliff).frame["started_at"].str[:10].unique())
        when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
        if (name := self.parameters["machine"]) != "this":
            whose = "the reference machine" if name == "reference" else f"the machine `{name}`"
            return (
                f"These are the committed results of {whose}, measured {when}. "
                "Run `make book` for your own."
            )
        short = (
            " The profile was `smoke`: its numbers are too few and too short to quote."
            if self.parameters["profile"] == "smoke"
            else ""
        )
        left_out = "".join(f"\n\n{note.text}" for note in self.notes if note.code == "no-time")
        return (
            f"These are results of the computer that built this page, measured {when}."
            f"{short}{left_out}"
        )

    @property
    def between_runs(self) -> pd.Series:
        """By which factor the medians of a point's runs differ, of points that have several. Raises
        Unavailable("no-data")."""
        rows = self.all_rows
        return runs_apart(rows, point_columns(rows), "ns_per_access")


def _analysis(module: ModuleType, chapter: Chapter) -> analysis.Analysis | Unavailable:
    if module in (
        your_machine,
        your_program,
    ):  # what the machine states, and a document: nothing is measured for this page
        return module.Analysis(pd.DataFrame(), chapter)
    try:
        return module.Analysis(
            chapter.measure(module.grid.points(chapter.scope), module.__name__.rpartition(".")[2]),
            chapter,
        )
    except Unavailable as why:
        if why.code not in _LACKING:
            raise
        return why


def index_profile(a: Analysis) -> Figure:
    """The translation profile, whose document stands beside the rows."""
    return drawn(a.profile)


def index_cliff(a: Analysis) -> Figure:
    """The cliff of its chapter, under a name of this page's own."""
    return stlb_cliff.figures.cliff(a.of(stlb_cliff))
