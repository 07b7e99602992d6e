"""The page about method: why a repeat is a process, what a control takes away, and how often the rule of verdicts is wrong."""

from __future__ import annotations

from functools import cached_property
from math import inf, pi, sqrt

import pandas as pd

from experiments.article import analysis
from experiments.article.chapter import Chapter
from experiments.article.render import Html, data_table
from experiments.article.setting import machine
from experiments.article.verdicts import WRONG_BY_CHANCE, decided, inside
from experiments.chapters import stlb_cliff
from experiments.inference.power import made_up, rates, ratio
from experiments.lab import campaign, grid
from experiments.words.prose import Prose, in_words
from experiments.words.reasons import required
from experiments.words.units import format_size

__all__ = ["machine", "mapping_said", "control_said", "order_said", "rule_said"]

LINE, BEYOND = 1.05, 1.2  # a claim's band begins at a ratio of LINE; what lies beyond by this factor is to be decided
NOISE = (0.02, 0.05, 0.10)  # of one process, relative
USUAL = 0.05


class Analysis(analysis.Analysis):
    """The rows of the chapter about the cliff, which has most processes of one kernel; and simulated verdicts, which need no rows."""

    def __init__(self, chapter: Chapter):
        """Of the chapter's machine nothing is measured here."""
        super().__init__(pd.DataFrame(), chapter)
        self._cliff = Chapter("stlb_cliff", {**chapter.parameters, "minutes": 0.0}, chapter.data)

    @cached_property
    def cliff(self) -> stlb_cliff.Analysis:
        """Raises Unavailable("no-data")."""
        return stlb_cliff.Analysis(self._cliff.kept("stlb_cliff"), self._cliff)

    @cached_property
    def spreads(self) -> pd.DataFrame:
        """A row a point of the chase with five processes or more: between, the interquartile range over the median of its processes' times;
        and alone, what that would be if nothing but the noise of the batches inside a process made them differ. A process's time is the
        median of its batches; a median of n normal values has sqrt(pi / 2n) times their standard error."""
        chases = self.cliff.frame[self.cliff.frame["kernel"] == "page_chase"]
        each = chases.assign(alone=[_spread(pd.Series(times)) * sqrt(pi / 2 / len(times)) for times in chases["batch_ns_per_access"]])
        points = each.groupby(["layout", "order", "lines", "mode"])
        found = pd.DataFrame({"n": points.size(), "between": points["ns_per_access"].agg(_spread), "alone": points["alone"].median()})
        return found[found["n"] >= campaign.LEAST]

    @cached_property
    def rates(self) -> pd.DataFrame:
        """A row a number of processes and a noise: the share of verdicts on a ratio that lies on the band's end, where each is wrong, and
        of decided ones a fifth beyond it."""
        rows = [(n, f"{noise:.0%}", *(100 * self._rate(n, noise, true) for true in (LINE, LINE * BEYOND)))
                for n in (campaign.LEAST, campaign.MOST) for noise in NOISE]
        return pd.DataFrame(rows, columns=["processes", "noise of each", "decided on the line, %", "decided a fifth beyond it, %"])

    @staticmethod
    def _rate(n: int, noise: float, true: float) -> float:
        return rates(ratio(made_up(noise), true), lambda interval: decided(inside(interval, LINE, inf)), None, n, trials=1000).decided


def _spread(times: pd.Series) -> float:
    """Interquartile range over median."""
    return float((times.quantile(0.75) - times.quantile(0.25)) / times.median())


def mapping_said(a: Analysis) -> Prose:
    """Whether processes differ by more than their own noise explains."""
    spreads = required(a.spreads, "no point has five processes")
    between, alone = (100 * spreads[name] for name in ("between", "alone"))
    last = 0.95
    then = ("No longer loop inside one process would show that." if between.quantile(last) > 2 * alone.quantile(last) else
            "On this machine the batches' own noise explains most of it.")
    return Prose(f"In the chapter about the cliff the middle half of a point's processes spans {between.median():.1f} % of their median; "
                 f"if the noise inside a process were all, it would span {alone.median():.1f} %. That is the typical point. At one in "
                 f"twenty it spans {between.quantile(last):.0f} % or more, where the noise inside explains "
                 f"{alone.quantile(last):.0f} %. {then}")


def control_said(a: Analysis) -> Prose:
    """What would have been called the price of translation without a control."""
    cliff = a.cliff
    size = max(cliff.price.xs)
    far, near, packed = cliff.spread.get(size).value, cliff.spread.intervals[0].value, cliff.packed.get(size).value
    return Prose(f"At {format_size(size * a.base_page_bytes)} a load of the spread chase takes {far:.0f} ns, and one of the smallest chase "
                 f"{near:.1f}. Their difference is no price of translation: as many lines packed together take {packed:.0f} ns, so "
                 f"{far - packed:.0f} are left to explain.")


def order_said(a: Analysis) -> Prose:
    """The campaign's numbers."""
    quick = grid.profile("quick")
    return Prose(f"Each round is one mapping of all points, and there are {in_words(quick.repeats)}. Where there is no time for all of "
                 "them, the points that a claim compares come first. Of these, the ones whose intervals are widest then get "
                 f"{campaign.MOST} mappings, where half an interval's width is more than {100 * campaign.NARROW:.0f} % of its median, for "
                 f"at most {100 * campaign.EXTRA_SHARE:.0f} % of the time. The choice sees how wide an interval is, and not where it lies. "
                 "But it leaves out points whose mappings agree by luck. Where mappings differ by 1.5 %, three in ten of the intervals of "
                 "points left at five miss the median, in place of one in sixteen; of all intervals together, one in sixteen does.")


def rule_said(a: Analysis) -> Prose:
    """The rule's error and its power at the usual noise."""
    wrong, power = (100 * a._rate(campaign.LEAST, USUAL, true) for true in (LINE, LINE * BEYOND))
    return Prose(f"Simulated, with {in_words(campaign.LEAST)} mappings a point that differ by {100 * USUAL:.0f} %: a ratio that lies "
                 f"exactly on the end of the band, where either verdict is wrong, is decided in {wrong:.1f} % of cases, and one a fifth "
                 f"beyond it in {power:.1f} %. The promise is at most {100 * WRONG_BY_CHANCE:.0f} % wrong, and a test holds it.")


def method_rates(a: Analysis) -> Html:
    """The rule's rates as a table."""
    return data_table(a.rates, decimals=1)
