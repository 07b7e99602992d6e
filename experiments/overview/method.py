"""The page about method and reproducibility: how far mappings differ, how often the rule of verdicts
is wrong, which rows, kernels and libraries are behind the chapters, and what a second run showed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import inf, pi, sqrt
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from experiments import stlb_cliff
from tlb.measure import campaign, survey
from tlb.measure.row_tables import PROCESS_COLUMNS, processes_per_point
from tlb.report import analysis, notebooks, quantities
from tlb.report.answers import ANSWERS_DOCUMENT, StoredAnswer, all_effects_inside
from tlb.report.chapter import Chapter, chapter_of_published_machine
from tlb.report.claims import Band
from tlb.report.comparison import CANNOT_TELL_VERDICT, DIFFERS_VERDICT, NO_DIFFERENCE_VERDICT
from tlb.report.quantities import QuantityDeclaration, ValueOrFunction
from tlb.report.setting import hypervisor_name
from tlb.report.verdicts import does_answer_hold
from tlb.stats.effects import Effect, effect_inside_band
from tlb.stats.intervals import Interval, median_interval
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty
from tlb.system.units import escape_markdown

# What numbers pass through; the rest of requirements.lock builds the page around them.
LIBRARIES = (
    "numpy",
    "pandas",
    "scipy",
    "numba",
    "altair",
    "papermill",
    "nbval",
    "jupyter-book",
    "sphinxcontrib-bibtex",
)
QUARTER = 0.25  # to either side of a figure: its band, by data/literature/README.md
# No two processes have all of these.


class MethodPageQuantities(quantities.Quantities):
    """Spreads are of the mappings of a point of the chase; the second run is of the same machine
    type on another day."""

    typical_spread = QuantityDeclaration("middle half of a point's mappings, typically", "share", 1)
    wide_spread = QuantityDeclaration("the same at one point in twenty, at least", "share")
    noise_spread = QuantityDeclaration("what noise within a mapping explains of it", "share")
    far_bytes = QuantityDeclaration("largest working set with a price", "bytes")
    far_ns = QuantityDeclaration("a spread load there", "ns")
    far_packed_ns = QuantityDeclaration("a packed load there", "ns")
    near_ns = QuantityDeclaration("a load in the smallest chase", "ns", 1)
    decided_on_the_line = QuantityDeclaration(
        "verdicts on a ratio at the edge of its band", "share", 1
    )
    decided_beyond = QuantityDeclaration("verdicts on a ratio a fifth beyond it", "share", 1)
    quarter_bands = QuantityDeclaration("claims judged by a figure with a quarter around it", "")
    changed_by_narrower = QuantityDeclaration("their verdicts that 15% would change", "")
    changed_by_wider = QuantityDeclaration("their verdicts that 50% would change", "")
    measurements = QuantityDeclaration("measurements behind the chapters", "")
    minutes = QuantityDeclaration("time that they took, in minutes", "")
    kept_rows = QuantityDeclaration("measurements in the machine's file", "")
    replaced_rows = QuantityDeclaration("of these, by earlier versions of a program", "")
    second_times = QuantityDeclaration("times that were measured in a second run", "")
    second_half = QuantityDeclaration(
        "difference of a median between the runs, typically", "share", 1
    )
    second_wide = QuantityDeclaration("the same for one in twenty, at least", "share")
    second_differ = QuantityDeclaration("times that differ by more than chance explains", "")
    second_same = QuantityDeclaration("times that do not", "")
    second_unclear = QuantityDeclaration("times whose intervals are too wide to tell", "")
    cliff_differ = QuantityDeclaration("times of the TLB cliff that differ", "")
    cliff_least_pages = QuantityDeclaration("their smallest working set", "pages")
    cliff_most_pages = QuantityDeclaration("their largest working set", "pages")
    cliff_least_ratio = QuantityDeclaration(
        "their smallest ratio, second run over first", "times", 2
    )
    cliff_most_ratio = QuantityDeclaration("their largest ratio", "times", 2)
    claims_again = QuantityDeclaration("claims that an interval decides in both runs", "")
    claims_same = QuantityDeclaration("of these, with the same verdict", "")


# Why this total is none of those at the heads of pages.
_OTHER_COUNTS = (
    " The first line of a page counts, of the measurements that `make book` asks for there, those "
    "that it has; a disturbed one counts as missing."
)


class Analysis(analysis.Analysis):
    """The rows of each chapter as they are kept, since nothing is measured here; those of the cliff
    have most mappings of one kernel. Simulated verdicts need no rows."""

    chapter = "method"

    def __init__(self, chapter: Chapter):
        super().__init__(pd.DataFrame(), chapter)
        given = {**chapter.parameters, "minutes": 0.0}
        every = [name for name in notebooks.measured_chapters() if name != "your_program"]
        self._chapters = {
            name: Chapter(name, given, chapter.data) for name in [*every, survey.NAME]
        }
        self._cliff = self._chapters["stlb_cliff"]

    @cached_property
    def cliff(self) -> stlb_cliff.Analysis:
        """Raises Unavailable("no-data")."""
        return stlb_cliff.Analysis(self._cliff.kept("stlb_cliff"), self._cliff)

    def spreads(self) -> pd.DataFrame:
        """Return a row a point of the chase with five mappings or more: between, the interquartile
        range over the median of its mappings' times; and alone, what that would be if nothing but
        the noise of the batches inside a mapping made them differ.

        A mapping's time is the median of its batches; a median of n normal values has sqrt(pi / 2n)
        times their standard error.
        """
        cliff = none_if_unavailable(lambda: self.cliff.frame)
        if cliff is None:
            return pd.DataFrame({"n": [], "between": [], "alone": []})
        chases = cliff[cliff["kernel"] == "page_chase"]
        each = chases.assign(
            alone=[
                _spread(pd.Series(times)) * sqrt(pi / 2 / len(times))
                for times in chases["batch_ns_per_access"]
            ]
        )
        points = each.groupby(["layout", "order", "lines", "mode"])
        found = pd.DataFrame(
            {
                "n": points.size(),
                "between": points["ns_per_access"].agg(_spread),
                "alone": points["alone"].median(),
            }
        )
        return found[found["n"] >= campaign.LEAST]

    def control_example(self) -> dict[str, ValueOrFunction]:
        """Return the largest working set that has a price, with its loads, by name of MethodPageQuantities."""

        def sizes() -> Sequence[int]:
            return require_nonempty(self.cliff.price.xs, "no size has a price")

        return {
            "far_bytes": lambda: max(sizes()) * self.base_page_bytes,
            "far_ns": lambda: self.cliff.spread.get(max(sizes())),
            "far_packed_ns": lambda: self.cliff.packed.get(max(sizes())),
            "near_ns": lambda: self.cliff.spread.get(min(sizes())),
        }

    def band_widths(self) -> dict[str, ValueOrFunction]:
        """Return how many verdicts another width of band than a quarter would change, by name of
        MethodPageQuantities."""

        def changed(width: float) -> int:
            each = self._verdicts_with_bands(QUARTER, width)
            return int((each[QUARTER] != each[width]).sum())

        return {
            "quarter_bands": lambda: len(self._verdicts_with_bands(QUARTER)),
            "changed_by_narrower": lambda: changed(0.15),
            "changed_by_wider": lambda: changed(0.5),
        }

    def _verdicts_with_bands(self, *widths: float) -> pd.DataFrame:
        """Return a row a claim about a figure with a quarter to either side: its verdict with bands
        of these widths. Raises Unavailable("no-data") without answers."""
        chapters = self.about.store.read_document(self.about.machine, ANSWERS_DOCUMENT)
        rows = []
        for kept in (one for answers in chapters.values() for one in answers.values()):
            answer = StoredAnswer.model_validate(kept)
            effects = [one.effect for one in answer.effects]
            if answer.reason or not any(map(_has_quarter_band, effects)):
                continue
            words = {True: "holds", False: "fails", None: "cannot tell"}
            bands = {width: [_with_band(one, width) for one in effects] for width in widths}
            rows.append({width: words[all_effects_inside(every)] for width, every in bands.items()})
        return pd.DataFrame(rows, columns=[*widths])

    @staticmethod
    def simulated_verdicts(line: float, beyond: float, noises: Sequence[float]) -> pd.DataFrame:
        """Return a row a number of mappings and a noise: the share of verdicts on a ratio that lies
        on the end of the band, `line`, where each is wrong, and of decided ones on a ratio beyond
        it by a factor."""

        def percent(n: int, noise: float, true: float) -> float:
            measure = measured_ratio(lognormal_times(noise), true)
            found = simulate_verdict_errors(
                measure,
                lambda one: does_answer_hold(effect_inside_band(one, line)),
                None,
                n,
                trials=1000,
            )
            return 100 * found.decided

        rows = [
            {
                "mappings": n,
                "noise of each": f"{noise:.0%}",
                "decided at the edge, %": percent(n, noise, line),
                "decided a fifth beyond, %": percent(n, noise, line * beyond),
            }
            for n in (campaign.LEAST, campaign.MOST)
            for noise in noises
        ]
        return pd.DataFrame(rows)

    @cached_property
    def kept(self) -> dict[str, tuple[Chapter, pd.DataFrame]]:
        """Return the chapters that have rows, with the rows that the chapter's page shows."""
        found = {}
        for name, chapter in self._chapters.items():
            points = (
                []
                if name == survey.NAME
                else notebooks.load_book_module(name).grid.points(chapter.scope)
            )
            if (rows := none_if_unavailable(chapter.measure, points)) is not None:
                found[name] = (chapter, rows)
        return found

    @cached_property
    def _behind_the_pages(self) -> list[tuple[Chapter, pd.DataFrame]]:
        """Return the chapters with their rows of the reference, which the text is about, and of the
        page's machine if that is this computer."""
        own = [*self.kept.values()]
        if not self.about.is_this:
            return own
        published = Analysis(chapter_of_published_machine("method", "reference"))
        return [*published.kept.values(), *own]

    @property
    def rows(self) -> pd.DataFrame:
        """Return the rows behind all chapters, each once. Raises Unavailable("no-data")."""
        frames = [rows[PROCESS_COLUMNS].assign(machine=c.machine) for c, rows in self.kept.values()]
        return pd.concat(require_nonempty(frames, "any chapter", "no-data")).drop_duplicates()

    @cached_property
    def _second_run(self) -> pd.DataFrame:
        """Return data/second_run/<machine>.parquet, which data/README.md explains. Raises
        Unavailable("no-data")."""
        path = self.about.store.root / "second_run" / f"{self.about.machine}.parquet"
        if not path.is_file():
            raise Unavailable("no-data", f"{self.about.machine} has no second run")
        return pd.read_parquet(path)

    @property
    def second_run(self) -> pd.DataFrame:
        """Return a row a time that was measured in a second run too: its chapter, its `ratio`
        (second over first), the verdict of `tlb compare` and the `date`. Raises
        Unavailable("no-data")."""
        return self._second_run[self._second_run["claim"].isna()]

    def judged_again(self) -> pd.DataFrame:
        """Return the claims that an interval decides in both runs: chapter, claim, and the two
        verdicts. Raises Unavailable("no-data")."""
        claims = self._second_run[self._second_run["claim"].notna()]
        return claims.rename(columns={"first_verdict": "first", "second_verdict": "second"})

    def by_chapter(self) -> pd.DataFrame:
        """Return a row a chapter and machine, the reference's first: how many points and
        measurements, the minutes that these took, a digest of the rows. No column names the machine
        if there is one."""
        found = []
        for chapter, rows in self._behind_the_pages:
            name = chapter.name
            row = {
                "chapter": name,
                "machine": chapter.shown_name,
                "points": len(processes_per_point(rows)),
                "measurements": len(rows),
                "minutes": rows["wall_ns"].sum() / 6e10,
                "measured from": rows["started_at"].min()[:10],
                "digest of the rows": _digest(rows),
            }
            found.append(row)
        frame = pd.DataFrame(found)
        is_of_one = len({row["machine"] for row in found}) == 1
        return frame.drop(columns="machine") if is_of_one else frame

    def by_kernel(self) -> pd.DataFrame:
        """Return a row a kernel, engine and version of what it measures: the digest of its source,
        and which chapters have rows of it."""
        by = ["kernel", "engine", "measures", "digest"]
        frames = [pd.DataFrame(columns=[*by, "chapters"])]
        for name, (_, rows) in self.kept.items():
            own = rows.rename(columns={"source": "digest"})[by].drop_duplicates().sort_values(by)
            frames.append(own.assign(chapters=_title(name)))
        found = pd.concat(frames[1:] or frames, ignore_index=True)
        return found.groupby(by, as_index=False).agg({"chapters": ", ".join})

    def by_machine(self) -> pd.DataFrame:
        """Return a row a state of a machine that has rows here: its CPU, its Linux, who translates for it, its
        compiler, the state, and the chapters that show rows of it."""
        described, chapters = {}, dict[tuple[str, str], list[str]]()
        for chapter, rows in self._behind_the_pages:
            for state in rows["state"].unique():
                of = chapter.shown_name, state
                described[of] = chapter.described(state)
                chapters.setdefault(of, []).append(_title(chapter.name))
        found = []
        for (name, state), host in described.items():
            row = {"machine": name, "processor": f"{host.cpu_model} ({host.microarchitecture})"}
            known = {"none": "bare metal", "unknown": "bare metal or a guest"}
            guest = known.get(host.hypervisor, f"guest, {hypervisor_name(host)}")
            row |= {"system": f"{host.os} {host.kernel_release}", "virtualization": guest}
            compiler = (host.c_compiler or "none").rpartition(" ")[2]
            shown = ", ".join(chapters[name, state])
            found.append(row | {"compiler": compiler, "state": state, "chapters": shown})
        return pd.DataFrame(found)

    def totals(self) -> dict[str, float]:
        """Return how much was measured, by name of MethodPageQuantities."""
        rows, kept = self.rows, len(self.about.store.load(self.about.machine))
        return {
            "measurements": len(rows),
            "minutes": rows["wall_ns"].sum() / 6e10,
            "kept_rows": kept,
            "replaced_rows": kept - len(rows),
        }

    def own_total(self) -> str:
        """Say how much was measured on another machine than the text is about, and which rows are
        in no chapter, as Markdown; "" on the reference's page."""
        if self.about.is_reference:
            return ""
        found = self.totals()
        whose, shown = self.about.shown_name, int(found["measurements"])
        surveyed = len(self.kept[survey.NAME][1]) if survey.NAME in self.kept else 0
        of_geometry = f" and {surveyed:,} of `tlb geometry`" if surveyed else ""
        text = (
            f"**{whose[0].upper()}{whose[1:]}:** {shown - surveyed:,} measurements{of_geometry}, "
            f"{found['minutes']:.1f} minutes."
        )
        if hidden := len(self.about.store.load(self.about.machine)) - shown:
            text += (
                f" {hidden:,} more are kept and not shown: disturbed ones of points with fewer than "
                "five mappings, and those of another program or state than now."
            )
        return text + _OTHER_COUNTS

    def second_run_quantities(self) -> dict[str, ValueOrFunction]:
        """Return how far the second run lies from the first, by name of MethodPageQuantities."""
        prefixes = ("second_", "cliff_", "claims_")
        names = [name for name in MethodPageQuantities.declared if name.startswith(prefixes)]
        return {name: partial(self._number_of_second_run, name) for name in names}

    def _number_of_second_run(self, name: str) -> float:
        """Raises Unavailable("no-data") without a second run."""
        return self._of_second_run()[name]

    def _of_second_run(self) -> dict[str, float]:
        """Raises Unavailable("no-data") without a second run."""
        second = self.second_run
        off, words = relative_excess(second["ratio"]), second["verdict"].value_counts()
        is_far = (second["verdict"] == DIFFERS_VERDICT) & (second["chapter"] == "stlb_cliff")
        far, claims = second[is_far], self.judged_again()
        return {
            "second_times": len(second),
            "second_half": off.median(),
            "second_wide": off.quantile(0.95),
            "second_differ": int(words.get(DIFFERS_VERDICT, 0)),
            "second_same": int(words.get(NO_DIFFERENCE_VERDICT, 0)),
            "second_unclear": int(words.get(CANNOT_TELL_VERDICT, 0)),
            "cliff_differ": len(far),
            "cliff_least_pages": far["lines"].min(),
            "cliff_most_pages": far["lines"].max(),
            "cliff_least_ratio": far["ratio"].min(),
            "cliff_most_ratio": far["ratio"].max(),
            "claims_again": len(claims),
            "claims_same": int((claims["first"] == claims["second"]).sum()),
        }

    def second_run_by_chapter(self) -> pd.DataFrame:
        """Return a row a chapter: how far the times of the reference's second run lie from the
        first, and how many of them do by more than chance."""
        rows: list[dict[str, object]] = []
        about = chapter_of_published_machine(self.about.name, "reference")
        second = Analysis(about).second_run
        for chapter, found in second.groupby("chapter", sort=False):
            off, words = relative_excess(found["ratio"]), found["verdict"].value_counts()
            row: dict[str, object] = {"chapter": str(chapter)}
            row |= {
                "times": len(found),
                "half within": f"{off.median():.1%}",
                "19 in 20 within": f"{off.quantile(0.95):.0%}",
            }
            verdicts = (DIFFERS_VERDICT, NO_DIFFERENCE_VERDICT, CANNOT_TELL_VERDICT)
            rows.append(row | {word: int(words.get(word, 0)) for word in verdicts})
        return pd.DataFrame(rows)


def _has_quarter_band(effect: Effect) -> bool:
    """Return whether the band is a figure's, a quarter to either side, to the digits printed."""
    if not 0 < effect.least < effect.most < inf:
        return False
    ratio = effect.most / effect.least
    return abs(ratio * (1 - QUARTER) / (1 + QUARTER) - 1) < 0.01


def _with_band(effect: Effect, width: float) -> Effect:
    """Return an effect whose band of a quarter has another width; others as they are."""
    if not _has_quarter_band(effect):
        return effect
    figure = effect.least / (1 - QUARTER)
    return replace(effect, least=figure * (1 - width), most=figure * (1 + width))


def _title(chapter: str) -> str:
    """Return how the book's menu calls a chapter."""
    return "tlb geometry" if chapter == survey.NAME else notebooks.page_titles()[chapter]


def linked_table(frame: pd.DataFrame) -> str:
    """Return a frame with a row a chapter as a Markdown table, the chapter's title a link to its
    page; "" without rows."""
    if frame.empty:
        return ""
    numbers = [pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]
    lines = [[*frame.columns], ["--:" if number else "---" for number in numbers]]
    for row in frame.itertuples(index=False):
        name = str(row.chapter)
        title = escape_markdown(_title(name))
        link = title if name == survey.NAME else f"[{title}]({name}.ipynb)"
        cells = [
            f"{cell:,.1f}" if isinstance(cell, float) else format(cell, "," if number else "")
            for cell, number in zip(row[1:], numbers[1:], strict=True)
        ]
        lines.append([link, *map(escape_markdown, cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _spread(times: pd.Series) -> float:
    """Interquartile range over median."""
    return float((times.quantile(0.75) - times.quantile(0.25)) / times.median())


def _digest(frame: pd.DataFrame) -> str:
    """12 hex digits that any other rows, in any order, would change: of each row's checksum, time
    and beginning."""
    lines = sorted(
        f"{row.kernel} {row.checksum} {row.ns_per_access!r} {row.started_at}"
        for row in frame.itertuples()
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def locked_versions() -> dict[str, str]:
    """Return the versions of LIBRARIES in requirements.lock by name."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    every = dict(re.findall(r"(?m)^([a-z0-9-]+)==([^\s;]+)", lock))
    return {name: every[name] for name in LIBRARIES}


def relative_excess(ratios: pd.Series) -> pd.Series:
    """Return by which part the larger of two medians exceeds the smaller."""
    return np.exp(np.log(ratios).abs()) - 1


# --- how often the rule of verdicts is wrong, and how often it decides, on synthetic processes

# times of a number of processes of a point whose median is 1
Measured = TypeVar("Measured")
Processes = Callable[[np.random.Generator, int], np.ndarray]


class VerdictErrorRates(NamedTuple):
    """Shares of all trials. wrong: decided against the truth; decided: either way."""

    wrong: float
    decided: float


def lognormal_times(noise: float) -> Processes:
    """Lognormal times with this relative spread: what slows a process down multiplies."""
    return lambda random, n: np.exp(noise * random.standard_normal(n))


def measured_ratio(
    processes: Processes, true: float
) -> Callable[[np.random.Generator, int], Interval]:
    """Return a measurement of the ratio of two points, n processes each, which truly is `true`."""
    return lambda random, n: (
        median_interval(true * processes(random, n)) / median_interval(processes(random, n))
    )


def simulate_verdict_errors(
    measure: Callable[[np.random.Generator, int], Measured],
    decide: Callable[[Measured], bool | None],
    truth: bool | None,
    n: int,
    trials: int = 2000,
    seed: int = 1,
) -> VerdictErrorRates:
    """The rule's rates over so many trials. truth: what would be right; None where either would be
    wrong, on the line itself."""
    random = np.random.default_rng(seed)
    answers = [decide(measure(random, n)) for _ in range(trials)]
    decided = [answer for answer in answers if answer is not None]
    return VerdictErrorRates(
        sum(answer is not truth for answer in decided) / trials, len(decided) / trials
    )


VERDICT_ERRORS_TITLE = (
    "The rule of verdicts on made-up ratios (to reach: wrong 5 %; a fifth beyond the band at 5 % "
    "noise, five processes: decided 90 %)"
)
VERDICT_ERRORS_COLUMNS = ("processes", "noise", "true ratio", "band", "wrong", "decided")
TESTED_BAND: Band = (1.05, inf)
RATIO_AT_BAND_EDGE, RATIO_BEYOND_BAND = 1.05, 1.05 * 1.2


def verdict_error_rows() -> Iterator[tuple[str, ...]]:
    """A row for 3, 5 and 9 processes, 2 to 10 % noise, and a ratio on the line, where each decision
    is wrong, or a fifth beyond it."""
    for n in (3, 5, 9):
        for noise in (0.02, 0.05, 0.10):
            for true, truth in ((RATIO_AT_BAND_EDGE, None), (RATIO_BEYOND_BAND, True)):
                measure = measured_ratio(lognormal_times(noise), true)
                found = simulate_verdict_errors(
                    measure,
                    lambda one: does_answer_hold(effect_inside_band(one, *TESTED_BAND)),
                    truth,
                    n,
                )
                asked = str(n), f"{noise:.0%}", f"{true:.2f}", f"from {TESTED_BAND[0]:.2f} on"
                yield *asked, f"{found.wrong:.1%}", f"{found.decided:.1%}"
