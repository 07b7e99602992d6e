"""What whole programs gain by another page size or another order of their data, and what that
takes; derived from their one document."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd

from experiments.your_program.cases import CASES
from experiments.your_program.programs import (
    NAME,
    Profile,
    Programs,
    Told,
    interval,
    is_whole,
    make,
)
from tlb.inference.intervals import Interval
from tlb.reasons import Unavailable, if_available, required
from tlb.report import analysis
from tlb.report.analysis import About

COLUMNS = (
    "case",
    "title",
    "language",
    "ours",
    "does",
    "changes_pages",
    "verdict",
    "version",
    "pairs",
    "gain",
    "resident_bytes",
    "memory",
    "large",
    "faults",
    "alike",
)
ONE = Interval(1.0, 1.0, 1.0)


class Analysis(analysis.Analysis):
    """The document of the programs, for this chapter has no rows. It is none of `documents`: `make
    book` has no time for it.

    The page defines: on_huge_pages, paged and much_more.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        about: About,
        names: dict[str, Any] | None = None,
        minutes: float = 0.0,
    ):
        """frame: without rows. names: as in the class above. minutes: to measure in, where machine
        is "this" and has no document of its present state; 0 measures nothing."""
        super().__init__(frame, about, names)
        self.minutes = minutes

    @cached_property
    def programs(self) -> Programs:
        """The document, measured anew where programs were added since, or more minutes are given.
        Raises Unavailable("no-data")."""
        return self.document(
            NAME,
            lambda profile: self._made(),
            Programs,
            lambda known: is_whole(known, self.minutes),
        )

    def _made(self) -> dict[str, Any]:
        if not self.minutes:
            raise Unavailable("no-data", "`tlb run your_program` measures the programs")
        return make(self.minutes)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row a program with its lever, in the order of measuring: case, title, language, ours,
        does, changes_pages, verdict, version, pairs, gain (Interval: without large pages over with
        them, or as it is over with another order of its data), memory (resident with large pages
        over without), large (share of what is resident), resident_bytes (as it is), faults (with
        over without), alike. Empty where there is no document, which `programs` says."""
        document = if_available(lambda: self.programs)
        return pd.DataFrame(
            [_row(told) for told in (document.told if document else ()) if told.case in CASES],
            columns=list(COLUMNS),
        )

    @cached_property
    def theirs(self) -> pd.DataFrame | None:
        """The same of the reference, beside this computer's own; None where this is the reference,
        or it has none."""
        reference = if_available(self.about.reference)
        if reference is None or reference.machine == self.about.machine:
            return None
        return Analysis(self.frame, reference).trials

    @cached_property
    def lacking(self) -> dict[str, str]:
        """Reason codes by the cases that were not measured; no-data for those that nobody tried, as
        of an older document. Raises Unavailable("no-data") without a document."""
        reasons = dict.fromkeys(CASES, "no-data") | self.programs.lacking
        return {
            name: reasons[name]
            for name in CASES
            if name not in {told.case for told in self.programs.told}
        }

    def gain(self, case: str) -> Interval:
        """Raises Unavailable: why the program was not measured, no-data where nobody tried."""
        rows = self.trials[self.trials["case"] == case]
        if not len(rows):
            why = self.lacking.get(
                case, "no-data"
            )  # more time for the book would give this chapter none
            raise Unavailable("no-data" if why == "no-time" else why, CASES[case].title)
        return rows["gain"].iloc[0]

    def slowdown(self, case: str) -> Interval:
        """Return the inverse of `gain`, which is clearer where huge pages are expected to hurt.
        Raises as `gain` does."""
        return ONE / self.gain(case)

    @cached_property
    def profile(self) -> Profile:
        """What a sampling clock found of a chase. Raises Unavailable with the reason why there is
        none."""
        if self.programs.profile is None:
            raise Unavailable(self.programs.lacking.get("profile", "no-data"))
        return self.programs.profile

    def measured(self) -> pd.DataFrame:
        """`trials`, of which there are some. Raises Unavailable: no-data without a document,
        too-few-points."""
        self.programs  # noqa: B018  # says why there is none
        return required(self.trials, "no program was measured")

    def of_pages(self, ours: bool | None = None) -> pd.DataFrame:
        """Return the trials in `paged`; of our programs or of others' alone, each once, where that
        is asked for. Raises Unavailable: no-data without a document, too-few-points where there are
        none."""
        self.measured()
        rows = self.paged
        if ours is not None:
            rows = rows[
                (rows["ours"] == ours)
                & ~rows["case"].isin([name for name, case in CASES.items() if case.again])
            ]
        return required(rows, "no such program was measured")

    def unreached(self) -> pd.DataFrame:
        """Return the trials that were to change the pages and are not in `paged`. Raises
        Unavailable("no-data")."""
        rows = self.measured()
        return rows[rows["changes_pages"].astype(bool) & ~rows["case"].isin(self.paged["case"])]


def _row(told: Told) -> dict[str, Any]:
    case, ratio = CASES[told.case], interval(told)
    base, large = (told.with_lever, told.without) if case.takes else (told.without, told.with_lever)
    return {
        "case": told.case,
        "title": case.title,
        "language": case.tool.title,
        "ours": case.ours,
        "does": case.does,
        "changes_pages": case.changes_pages,
        "verdict": told.verdict,
        "version": told.version,
        "pairs": told.pairs,
        "gain": ratio if case.takes else ONE / ratio,
        "resident_bytes": base.resident_bytes,
        "memory": large.resident_bytes / base.resident_bytes
        if base.resident_bytes
        else float("nan"),
        "large": large.huge_bytes / large.resident_bytes if large.resident_bytes else float("nan"),
        "faults": large.minor_faults / base.minor_faults if base.minor_faults else float("nan"),
        "alike": told.alike,
    }
