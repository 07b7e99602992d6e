"""The first page: what translation costs this machine, from each chapter's own rows."""

from __future__ import annotations

from functools import cached_property
from types import ModuleType
from typing import Any

import pandas as pd

from experiments import hugepages, stlb_cliff
from experiments.overview import CHAPTERS, chapter_analysis
from experiments.overview.profile import (
    TranslationProfile,
    profile_of_analyses,
    write_profile_if_possible,
)
from tlb.report import analysis, quantities, setting
from tlb.report.chapter import Chapter
from tlb.report.quantities import QuantityDeclaration
from tlb.stats import curves
from tlb.stats.curves import Curve
from tlb.stats.intervals import Interval
from tlb.system.prose import escape_markdown, list_in_words
from tlb.system.reasons import Unavailable, if_available, required

# What a machine may lack without the first page failing; a bad parameter is an error there too.
_LACKING = ("no-data", "not-linux", "other-arch")
BASE_PAGES_LABEL, HUGE_PAGES_LABEL, PACKED_LABEL = "4 KiB", "2 MiB (THP)", "packed (dashed)"


class Quantities(quantities.Quantities):
    """The numbers of the first page's table. Loads wait for each other, and reach a line in every
    base page."""

    near_ns = QuantityDeclaration(
        "a load that hits the L1 cache and the TLB's first level", "ns", 1
    )
    reach_bytes = QuantityDeclaration("memory that a core's TLB covers with base pages", "bytes")
    walk_2_gib_ns = QuantityDeclaration("translation, at least, of a random load in 2 GiB", "ns")
    gain_2_gib = QuantityDeclaration(
        "such loads on transparent huge pages: times as fast", "times", 2
    )
    fault_ns = QuantityDeclaration("touching and unmapping a fresh base page", "ns")


class Analysis(analysis.Analysis):
    """No rows of its own, but each chapter's Analysis, of the rows that it has or with machine
    "this" measures first; or the reason for none."""

    chapter = "index"

    def __init__(self, chapter: Chapter, chapters: tuple[ModuleType, ...] = CHAPTERS):
        """Raises the Unavailable that is no lack of this machine."""
        super().__init__(pd.DataFrame(), chapter)
        self.parameters = chapter.parameters
        self._each = {module: _analysis(module, chapter) for module in chapters}

    def on(self, machine: str) -> Analysis:
        """Return the first page's Analysis of another machine. Raises Unavailable("no-data")."""
        return Analysis(self.about.on(machine), tuple(self._each))

    @property
    def all_rows(self) -> pd.DataFrame:
        """The rows of all chapters. Raises Unavailable("no-data") where none has any."""
        frames = [rows for rows in map(self.rows_of, self._each) if len(rows)]
        return pd.concat(required(frames, "any chapter", "no-data"), ignore_index=True)

    def rows_of(self, module: ModuleType) -> pd.DataFrame:
        """Return the rows of a chapter, none where it was not measured."""
        a = self._each[module]
        return pd.DataFrame() if isinstance(a, Unavailable) else a.frame

    def of(self, module: ModuleType) -> Any:
        """Return the Analysis of a chapter. Raises Unavailable where there are no rows."""
        a = self._each[module]
        if isinstance(a, Unavailable):
            raise a
        return a

    @property
    def cliff(self) -> stlb_cliff.Analysis:
        """The chapter about the TLB cliff. Raises Unavailable where there are no rows of it."""
        return self.of(stlb_cliff)

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """ns per load by lines, of those measured: one line to each base page on two page sizes,
        and as many lines packed. Raises Unavailable where no chase was measured."""
        found = {BASE_PAGES_LABEL: self.cliff.spread}
        large = self._each[hugepages]
        if not isinstance(large, Unavailable):
            found[HUGE_PAGES_LABEL] = curves.spread(large.frame, pages="thp")
        found[PACKED_LABEL] = self.cliff.packed
        return {name: curve for name, curve in found.items() if len(curve)}

    @cached_property
    def profile(self) -> TranslationProfile:
        """What translation costs this machine, kept beside this computer's own rows. Of the survey,
        as much as there is: none is measured for this page."""
        made = profile_of_analyses(self.about.machine, self.of)
        if self.parameters["machine"] == "this":
            write_profile_if_possible(self.about.store, made)
        return made

    def measured(self, name: str) -> Interval:
        """Return a quantity of this machine's profile. Raises the Unavailable for which it has
        none."""
        found = self.profile[name]
        if found.value is None or found.interval is None:
            raise Unavailable(found.reason or "no-data", found.detail)
        return found.interval

    @property
    def setup(self) -> str:
        """Which machine this is, when its results were measured, and by which kernels, as
        Markdown."""
        days = if_available(lambda: self.provenance) or "Its chases were not measured."
        earlier = if_available(lambda: setting.earlier_kernels(self.all_rows)) or ""
        which = "Our reference machine" if self.about.is_reference else self.about.shown_name
        return f"{which[0].upper()}{which[1:]}: {escape_markdown(setting.machine(self))}. {days} {earlier}".strip()

    @property
    def provenance(self) -> str:
        """Whose results these are, when they were measured, and what was left out. Raises
        Unavailable."""
        self.of(stlb_cliff)  # without a chase, the page has no results
        days = sorted(self.all_rows["started_at"].str[:10].unique())
        when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
        if self.parameters["machine"] != "this":
            return f"Its published results were measured {when}{self._systems()}."
        short = (
            " The profile was `smoke`: its numbers are too few and too short to quote."
            if self.parameters["profile"] == "smoke"
            else ""
        )
        return f"Its results were measured {when}.{short}{self._left_out()}"

    def _systems(self) -> str:
        """Name the kernels under which the rows were measured, if they are of several."""
        states = sorted({*self.all_rows["state"].dropna()})
        found = if_available(lambda: {self.about.described(s).kernel_release for s in states})
        if not found or len(found) < 2:
            return ""
        releases = list_in_words([escape_markdown(release) for release in sorted(found)])
        return f", under Linux {releases} (the chapters say which)"

    def _left_out(self) -> str:
        """Count in one sentence what there was no time to measure; "" if nothing."""
        counts = self.about.left_out.values()
        missing, every = (sum(count[side] for count in counts) for side in (0, 1))
        if not missing:
            return ""
        return f" {missing:,} of {every:,} measurements are missing; `make book` goes on with them."


def _analysis(module: ModuleType, chapter: Chapter) -> analysis.Analysis | Unavailable:
    try:
        return chapter_analysis(module, chapter)
    except Unavailable as why:
        if why.code not in _LACKING:
            raise
        return why
