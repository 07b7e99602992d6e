"""What whole programs gain by another page size or another layout of their data, and its cost."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from experiments.your_program.cases import LOOK_UPS_ALONE, PROGRAM_CASES
from experiments.your_program.programs import (
    PROGRAMS_DOCUMENT,
    ProgramResult,
    ProgramsDocument,
    SampledProfile,
    is_document_complete,
    make_programs_document,
)
from tlb.programs.trial import TrialVerdict
from tlb.report import analysis, quantities
from tlb.report.chapter import Chapter, chapter_of_published_machine
from tlb.report.quantities import QuantityDeclaration
from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty


class Quantities(quantities.Quantities):
    """Gains are how many times as fast a program is, the median over pairs of runs: on huge pages
    if nothing else is named. Others' programs count if a tenth of their memory was on huge
    pages, each once."""

    others = QuantityDeclaration("programs of others tried on huge pages", "", pages="thp")
    helped_others = QuantityDeclaration("programs that huge pages make faster", "", pages="thp")
    hurt_others = QuantityDeclaration("programs that huge pages make slower", "", pages="thp")
    undecided_others = QuantityDeclaration("programs for which the pairs cannot tell", "")
    least_pairs = QuantityDeclaration("fewest pairs of runs of a program", "")
    most_pairs = QuantityDeclaration("most pairs of runs of a program", "")
    jvm_gain = QuantityDeclaration(
        "gain of a JVM that touches 1 GiB and exits, widened for all programs", "times", 1
    )
    jvm_2_gib_gain = QuantityDeclaration("gain of a JVM that touches 2 GiB and exits", "times", 1)
    jvm_4_gib_gain = QuantityDeclaration("gain of a JVM that touches 4 GiB and exits", "times", 1)
    jvm_8_gib_gain = QuantityDeclaration("gain of a JVM that touches 8 GiB and exits", "times", 1)
    jvm_faults_left = QuantityDeclaration(
        "page faults of a JVM that touches 1 GiB, on huge pages over base pages",
        "share",
        1,
        pages="thp",
    )
    larger_others = QuantityDeclaration("programs with over 5% more memory at their peak", "")
    most_growth = QuantityDeclaration("largest growth of a program's memory", "times", 2)
    most_growth_1_gb = QuantityDeclaration("largest growth of a run of 1 GB and more", "times", 2)
    profile_share = QuantityDeclaration("samples of a chase at a single instruction", "share")
    join_gain = QuantityDeclaration("gain of a hash join, a row", "times", 2)
    fares_gain = QuantityDeclaration("gain of a cache of 1 GiB, a look-up", "times", 2)
    hot_fares_gain = QuantityDeclaration(
        "gain of that, nine in ten look-ups to few keys", "times", 2
    )
    rules_gain = QuantityDeclaration("gain of a Go program with a slice of 1 GiB", "times", 2)
    pool_rules_gain = QuantityDeclaration(
        "gain of the same program on pages of the pool", "times", 2
    )
    map_gain = QuantityDeclaration("gain of Go's map of 1 GiB, a look-up", "times", 2)
    parts_gain = QuantityDeclaration(
        "gain of the join by partitioning, on huge pages", "times", 1, pages="thp"
    )
    sharded_gain = QuantityDeclaration("gain of 64 threads by a part for each, a read", "times", 1)


COLUMNS = ["case", "title", "ours", "again", "does", "changes_pages", "verdict", "version", "pairs"]
COLUMNS += ["gain", "median", "low", "high", "resident_bytes", "memory", "large", "faults", "alike"]
NO_SPEEDUP_INTERVAL = Interval(1.0, 1.0, 1.0)
COVERAGE = 0.95  # of the interval of a share
OPPOSITE_VERDICTS: dict[TrialVerdict, TrialVerdict] = {"helps": "hurts", "hurts": "helps"}
REACHED = 0.1  # of a program's memory on large pages, from which a lever that changes pages counts


class Analysis(analysis.Analysis):
    """Evaluate the document of the programs; this chapter has no rows. Raises Unavailable for what
    it lacks."""

    def __init__(
        self,
        frame: pd.DataFrame,
        about: Chapter,
        minutes: float = 0.0,
        wanted: Collection[str] = PROGRAM_CASES,
    ):
        """minutes: to measure in, where machine is "this" and has no document of its present state;
        0 measures nothing. wanted: the programs to measure."""
        super().__init__(frame, about)
        self.minutes, self.wanted = minutes, wanted

    @staticmethod
    def published(machine: str) -> Analysis:
        """Return the chapter's Analysis of a published machine."""
        return Analysis(pd.DataFrame(), chapter_of_published_machine("your_program", machine))

    @cached_property
    def programs(self) -> ProgramsDocument:
        """The document, measured again if programs were added since, or for more minutes. Raises
        Unavailable("no-data")."""

        def measure(profile: object) -> dict[str, Any]:
            if not self.minutes:
                raise Unavailable("no-data", "`tlb run your_program` measures the programs")
            return make_programs_document(self.minutes, self.wanted)

        def whole(known: dict[str, Any]) -> bool:
            return is_document_complete(known, self.minutes, self.wanted)

        return self.document(PROGRAMS_DOCUMENT, measure, ProgramsDocument, whole)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row a program, in the order of measuring, with COLUMNS; empty without a document.

        gain: time without large pages (or before the change of layout) over time with, and its
        median, low and high; verdict: what large pages do, if the program is tried alone; memory
        and faults: with large pages over without; large: their share of resident memory then;
        again: whether an earlier one is of the same program."""
        document = none_if_unavailable(lambda: self.programs)
        rows = [
            _row(each) for each in (document.told if document else ()) if each.case in PROGRAM_CASES
        ]
        yes_or_no = dict.fromkeys(("ours", "again", "changes_pages", "alike"), bool)
        return pd.DataFrame(rows, columns=COLUMNS).astype(yes_or_no)

    @property
    def measured_besides(self) -> str:
        """The pairs of runs."""
        if self.trials.empty:
            return ""
        runs = f"{self.trials['pairs'].sum():,} pairs of runs of {len(self.trials)} programs"
        return f"{runs}, in `{PROGRAMS_DOCUMENT}.json`."

    @cached_property
    def paged(self) -> pd.DataFrame:
        """The trials in which the pages changed and nothing else, and large pages were reached; with
        faster and slower: whether the whole interval is on one side of 1."""
        trials = self.trials
        rows = trials[trials["changes_pages"] & (trials["large"] >= REACHED)]
        return rows.assign(faster=rows["low"] > 1, slower=rows["high"] < 1)

    @property
    def look_ups_alone(self) -> pd.DataFrame:
        """The trials that time look-ups in memory that is full; gain, low and high are widened,
        because one interval of many misses by chance."""
        rows = self.trials[self.trials["case"].isin(LOOK_UPS_ALONE)]
        gains = [gain.widened(len(rows)) for gain in rows["gain"]]
        ends = {"low": [gain.low for gain in gains], "high": [gain.high for gain in gains]}
        return rows.assign(gain=gains, **ends)

    @cached_property
    def lacking(self) -> dict[str, str]:
        """Reason codes by the cases that were not measured; no-data for those newer than the
        document. Raises Unavailable("no-data")."""
        reasons = dict.fromkeys(PROGRAM_CASES, "no-data") | self.programs.lacking
        measured = {each.case for each in self.programs.told}
        return {name: reasons[name] for name in PROGRAM_CASES if name not in measured}

    def gain(self, case: str) -> Interval:
        """Return how many times as fast a program is. Raises Unavailable with the reason."""
        rows = self.trials[self.trials["case"] == case]
        if not len(rows):
            why = self.lacking.get(case, "no-data")
            # More time for the book would not give this chapter more.
            raise Unavailable("no-data" if why == "no-time" else why, PROGRAM_CASES[case].title)
        return rows["gain"].iloc[0]

    @cached_property
    def profile(self) -> SampledProfile:
        """Samples of a chase by a clock."""
        if self.programs.profile is None:
            raise Unavailable(self.programs.lacking.get("profile", "no-data"))
        return self.programs.profile

    @property
    def elsewhere(self) -> Interval:
        """The share of these samples that are not at the commonest instruction, with its exact
        binomial interval. Raises as `profile` does."""
        ticks, away = self.profile.ticks, self.profile.ticks - self.profile.most
        ends = binomtest(away, ticks).proportion_ci(COVERAGE, "exact")
        return Interval(away / ticks, float(ends.low), float(ends.high), COVERAGE)

    def measured(self) -> pd.DataFrame:
        self.programs  # noqa: B018  # raises why there is none
        return require_nonempty(self.trials, "no program was measured", "no-data")

    @property
    def tables_of_others(self) -> dict[str, int]:
        """Bytes of page tables at their peak, without large pages, of the programs of others, each
        once, by case. Raises Unavailable("no-data")."""
        once = [one for one in self.programs.told if not PROGRAM_CASES[one.case].ours]
        return {
            one.case: (one.with_lever if PROGRAM_CASES[one.case].takes else one.without).table_bytes
            for one in once
            if not PROGRAM_CASES[one.case].again
        }

    def of_pages(self, ours: bool | None = None) -> pd.DataFrame:
        """Return the trials in `paged`, or only our own or others' programs, each once. Raises as
        `measured` does."""
        self.measured()
        rows = self.paged
        if ours is not None:
            rows = rows[(rows["ours"] == ours) & ~rows["again"]]
        return require_nonempty(rows, "no such program was measured")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _row(result: ProgramResult) -> dict[str, Any]:
    case, base, large = PROGRAM_CASES[result.case], result.without, result.with_lever
    gain = result.interval if case.takes else NO_SPEEDUP_INTERVAL / result.interval
    verdict = result.verdict
    if case.takes:
        base, large = large, base
        verdict = OPPOSITE_VERDICTS.get(verdict, verdict)
    return result.model_dump(include={"case", "version", "pairs", "alike"}) | {
        "verdict": verdict,
        "title": case.title,
        "ours": case.ours,
        "again": case.again,
        "does": case.does,
        "changes_pages": case.changes_pages,
        "gain": gain,
        "median": gain.value,
        "low": gain.low,
        "high": gain.high,
        "resident_bytes": base.resident_bytes,
        "memory": _ratio(large.resident_bytes, base.resident_bytes),
        "large": _ratio(large.huge_bytes, large.resident_bytes),
        "faults": _ratio(large.minor_faults, base.minor_faults),
    }
