"""What whole programs gain by another page size or another layout of their data, and its cost."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.your_program.cases import CASES
from experiments.your_program.programs import (
    DOCUMENT_NAME,
    Profile,
    Programs,
    Result,
    is_document_complete,
    make,
)
from tlb.report import analysis
from tlb.report.chapter import Chapter
from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable, if_available, required

COLUMNS = ["case", "title", "language", "ours", "does", "changes_pages", "verdict", "version"]
COLUMNS += ["pairs", "gain", "resident_bytes", "memory", "large", "faults", "alike"]
NO_GAIN = Interval(1.0, 1.0, 1.0)


class Analysis(analysis.Analysis):
    """Evaluate the document of the programs; this chapter has no rows. Raises Unavailable for what
    it lacks.

    The page defines: on_huge_pages, paged and much_more.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        about: Chapter,
        names: dict[str, Any] | None = None,
        minutes: float = 0.0,
        wanted: Collection[str] = CASES,
    ):
        """minutes: to measure in, where machine is "this" and has no document of its present state;
        0 measures nothing. wanted: the programs to measure."""
        super().__init__(frame, about, names)
        self.minutes, self.wanted = minutes, wanted

    @cached_property
    def programs(self) -> Programs:
        """The document, measured again if programs were added since, or for more minutes. Raises
        Unavailable("no-data")."""

        def measure(profile: object) -> dict[str, Any]:
            if not self.minutes:
                raise Unavailable("no-data", "`tlb run your_program` measures the programs")
            return make(self.minutes, self.wanted)

        def whole(known: dict[str, Any]) -> bool:
            return is_document_complete(known, self.minutes, self.wanted)

        return self.document(DOCUMENT_NAME, measure, Programs, whole)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row a program, in the order of measuring, with COLUMNS; empty without a document.

        gain: time without large pages (or before the change of layout) over time with; memory and
        faults: with large pages over without; large: their share of resident memory then."""
        document = if_available(lambda: self.programs)
        rows = [_row(each) for each in (document.told if document else ()) if each.case in CASES]
        return pd.DataFrame(rows, columns=COLUMNS)

    def on(self, machine: str) -> Analysis:
        """Return another machine's Analysis, which has no rows either."""
        return Analysis(self.frame, self.about.on(machine))

    @cached_property
    def theirs(self) -> pd.DataFrame | None:
        """`trials` of the reference machine; None if this is it, or if there is none."""
        reference = if_available(self.on, "reference")
        if reference is None or reference.about.machine == self.about.machine:
            return None
        return reference.trials

    @cached_property
    def lacking(self) -> dict[str, str]:
        """Reason codes by the cases that were not measured; no-data for those newer than the
        document. Raises Unavailable("no-data")."""
        reasons = dict.fromkeys(CASES, "no-data") | self.programs.lacking
        measured = {each.case for each in self.programs.told}
        return {name: reasons[name] for name in CASES if name not in measured}

    def gain(self, case: str) -> Interval:
        """Return how many times as fast a program is. Raises Unavailable with the reason."""
        rows = self.trials[self.trials["case"] == case]
        if not len(rows):
            why = self.lacking.get(case, "no-data")
            # More time for the book would not give this chapter more.
            raise Unavailable("no-data" if why == "no-time" else why, CASES[case].title)
        return rows["gain"].iloc[0]

    def slowdown(self, case: str) -> Interval:
        return NO_GAIN / self.gain(case)

    @cached_property
    def profile(self) -> Profile:
        """Samples of a chase by a clock."""
        if self.programs.profile is None:
            raise Unavailable(self.programs.lacking.get("profile", "no-data"))
        return self.programs.profile

    def measured(self) -> pd.DataFrame:
        self.programs  # noqa: B018  # raises why there is none
        return required(self.trials, "no program was measured")

    def of_pages(self, ours: bool | None = None) -> pd.DataFrame:
        """Return the trials in `paged`, or only our own or others' programs, each once. Raises as
        `measured` does."""
        self.measured()
        rows = self.paged
        if ours is not None:
            rows = without_repeats(rows[rows["ours"] == ours])
        return required(rows, "no such program was measured")

    def unreached(self) -> pd.DataFrame:
        """Return the trials that were to change the pages and are not in `paged`."""
        rows = self.measured()
        return rows[rows["changes_pages"].astype(bool) & ~rows["case"].isin(self.paged["case"])]


def without_repeats(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials without those that run an earlier one's program again."""
    return trials[~trials["case"].isin([name for name, case in CASES.items() if case.again])]


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _row(result: Result) -> dict[str, Any]:
    case, base, large = CASES[result.case], result.without, result.with_lever
    if case.takes:
        base, large = large, base
    return result.model_dump(include={"case", "verdict", "version", "pairs", "alike"}) | {
        "title": case.title,
        "language": case.tool.title,
        "ours": case.ours,
        "does": case.does,
        "changes_pages": case.changes_pages,
        "gain": result.interval if case.takes else NO_GAIN / result.interval,
        "resident_bytes": base.resident_bytes,
        "memory": _ratio(large.resident_bytes, base.resident_bytes),
        "large": _ratio(large.huge_bytes, large.resident_bytes),
        "faults": _ratio(large.minor_faults, base.minor_faults),
    }
