"""The first page: what translation costs this machine, from each chapter's own rows."""

from __future__ import annotations

from functools import cached_property
from math import log
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd

from experiments import hugepages, page_walks, stlb_cliff, your_machine
from experiments.overview import CHAPTERS
from experiments.overview.machine_verdicts import chapter_analysis
from experiments.overview.profile import Profile, profile_of_analyses, read, write_if_possible
from tlb.measure import survey
from tlb.report import analysis
from tlb.report.chapter import Chapter
from tlb.stats import curves
from tlb.stats.curves import Curve
from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable, if_available, required
from tlb.system.units import format_size

# What a machine may lack without the first page failing; a bad parameter is an error there too.
_LACKING = ("no-data", "not-linux", "arch-unsupported")
_STATED_PAGE_BYTES = 4096  # entries are stated by CPUID, so on x86-64 alone
BASE_PAGES, LARGE_PAGES, PACKED = "4 KiB", "2 MiB (THP)", "packed (dashed)"


class Hops(NamedTuple):
    """The median hop of a random graph walk in ns, on 4 KiB pages and on THP."""

    size_bytes: int
    base: Interval
    large: Interval


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

    def on(self, machine: str) -> Analysis:
        """Return the first page's Analysis of another machine. Raises Unavailable("no-data")."""
        return Analysis(self.about.on(machine), tuple(self._each))

    @property
    def measured(self) -> list[analysis.Analysis]:
        """The Analyses of the chapters that have rows."""
        return [each for each in self._each.values() if not isinstance(each, Unavailable)]

    @property
    def all_rows(self) -> pd.DataFrame:
        """The rows of all chapters. Raises Unavailable("no-data") where none has any."""
        frames = [each.frame for each in self.measured if len(each.frame)]
        return pd.concat(required(frames, "any chapter", "no-data"), ignore_index=True)

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
        found = {BASE_PAGES: self.cliff.spread}
        large = self._each[hugepages]
        if not isinstance(large, Unavailable):
            found[LARGE_PAGES] = curves.spread(large.frame, pages="thp")
        found[PACKED] = self.cliff.packed
        return {name: curve for name, curve in found.items() if len(curve)}

    def large_page_gain(self) -> tuple[int, Interval]:
        """Return the most lines chased on both 4 KiB pages and THP, and the speedup by THP there.
        Raises Unavailable."""
        pages = self.of(hugepages)
        lines, _ = pages.largest("4k", "thp")
        return lines, (pages.spread["4k"] / pages.spread["thp"]).at(lines)

    def graph_hops(self) -> Hops:
        """Return the median hops in the largest graph walked on both 4 KiB pages and THP. Raises
        Unavailable."""
        medians = self.of(page_walks).curves("p50")
        both = set(medians["4k"].xs) & set(medians["thp"].xs) if {"4k", "thp"} <= {*medians} else ()
        size = max(required(both, "no graph was walked on 4 KiB pages and on THP"))
        return Hops(int(size), medians["4k"].get(size), medians["thp"].get(size))

    @cached_property
    def profile(self) -> Profile:
        """What translation costs this machine, kept beside this computer's own rows. Of the survey,
        as much as there is: none is measured for this page."""
        surveyed = your_machine.Analysis(lambda: self.about.kept(survey.NAME), self.about)
        made = profile_of_analyses(
            self.about.machine,
            lambda module: surveyed if module is your_machine else self.of(module),
        )
        if self.parameters["machine"] == "this":
            write_if_possible(self.about.store, made)
        return made

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """This machine's profile and, on a page about this computer, those of the published
        machines that have one, by what a table calls them."""
        if not self.about.is_this:
            shown = "our reference machine" if self.about.is_reference else self.about.machine
            return {shown: self.profile}
        data = self.about.data
        known = {name: if_available(read, data, name) for name in data.machines()}
        return {"this computer": self.profile} | {name: one for name, one in known.items() if one}

    def value(self, name: str) -> float:
        """Return a quantity of this machine's profile. Raises the Unavailable for which it has
        none."""
        found = self.profile[name]
        if found.value is None:
            raise Unavailable(found.reason or "no-data", found.detail)
        return found.value

    @staticmethod
    def number(of: Profile, name: str, decimals: int) -> str:
        """Return a quantity of a profile with its interval and unit, for a table's cell; entries
        as the memory that they cover on pages of 4 KiB."""
        found = of[name]
        if found.value is None or found.interval is None:
            return "not measured"
        if found.unit == "entries":
            return format_size(int(found.value) * _STATED_PAGE_BYTES)
        unit = "x" if found.unit == "ratio" else f" {found.unit}"
        low, high = (f"{end:.{decimals}f}" for end in found.interval.value_and_bounds[1:])
        shown = found.value if low == high else found.interval
        return f"{shown:,.{decimals}f}{unit}"

    def nearest(self) -> str:
        """Return the published machine whose profile is most like this computer's. Raises
        Unavailable("too-few-points") where none has a quantity in common with it."""
        own, *others = self.profiles
        apart = {}
        for name in others:
            values = [
                (q.value, self.profiles[own][q.name].value) for q in self.profiles[name].quantities
            ]
            logs = [abs(log(x / y)) for x, y in values if x and y]
            if logs:
                apart[name] = sum(logs) / len(logs)
        return min(required(apart, "no published machine has a profile"), key=apart.__getitem__)

    @property
    def provenance(self) -> str:
        """Whose results these are, when they were measured, and what was left out. Raises
        Unavailable."""
        days = sorted(self.of(stlb_cliff).frame["started_at"].str[:10].unique())
        when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
        if (name := self.parameters["machine"]) != "this":
            whose = "the reference machine" if name == "reference" else f"the machine `{name}`"
            return f"These are the published results of {whose}, measured {when}."
        short = (
            " The profile was `smoke`: its numbers are too few and too short to quote."
            if self.parameters["profile"] == "smoke"
            else ""
        )
        return (
            f"These are results of the computer that built this page, measured {when}."
            f"{short}{self._left_out()}"
        )

    def _left_out(self) -> str:
        """Count in one sentence what there was no time to measure; "" if nothing."""
        counts = self.about.left_out.values()
        missing, every = (sum(count[side] for count in counts) for side in (0, 1))
        if not missing:
            return ""
        return f" {missing:,} of {every:,} measurements are missing; `make book` goes on with them."


def _analysis(module: ModuleType, chapter: Chapter) -> analysis.Analysis | Unavailable:
    if module is your_machine:  # what it states: nothing is measured for this page
        return module.Analysis(pd.DataFrame(), chapter)
    try:
        return chapter_analysis(module, chapter)
    except Unavailable as why:
        if why.code not in _LACKING:
            raise
        return why
