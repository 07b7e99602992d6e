"""The page about method: why a repeat is a process, what a control takes away, and how often the
rule of verdicts is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import pi, sqrt
from typing import Any

import pandas as pd

from experiments import stlb_cliff
from experiments.overview.error_rates import error_rates, lognormal_times, measured_ratio
from tlb.measure import campaign
from tlb.report import analysis
from tlb.report.chapter import Chapter
from tlb.report.render import Html, data_table
from tlb.report.verdicts import decided, inside


class Analysis(analysis.Analysis):
    """The rows of the chapter about the cliff, which has most processes of one kernel; and
    simulated verdicts, which need no rows."""

    chapter = "method"

    def __init__(self, chapter: Chapter, names: dict[str, Any] | None = None):
        """Of the chapter's machine nothing is measured here."""
        super().__init__(pd.DataFrame(), chapter, names)
        self._cliff = Chapter("stlb_cliff", {**chapter.parameters, "minutes": 0.0}, chapter.data)

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
        chases = self.cliff.frame[self.cliff.frame["kernel"] == "page_chase"]
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

    @staticmethod
    def simulated_verdicts(line: float, beyond: float, noises: Sequence[float]) -> pd.DataFrame:
        """Return a row a number of mappings and a noise: the share of verdicts on a ratio that lies
        on the end of the band, `line`, where each is wrong, and of decided ones on a ratio beyond
        it by a factor."""

        def percent(n: int, noise: float, true: float) -> float:
            measure = measured_ratio(lognormal_times(noise), true)
            found = error_rates(
                measure, lambda one: decided(inside(one, line)), None, n, trials=1000
            )
            return 100 * found.decided

        rows = [
            {
                "mappings": n,
                "noise of each": f"{noise:.0%}",
                "decided on the line, %": percent(n, noise, line),
                "decided a fifth beyond it, %": percent(n, noise, line * beyond),
            }
            for n in (campaign.LEAST, campaign.MOST)
            for noise in noises
        ]
        return pd.DataFrame(rows)


def _spread(times: pd.Series) -> float:
    """Interquartile range over median."""
    return float((times.quantile(0.75) - times.quantile(0.25)) / times.median())


def method_rates(a: Analysis) -> Html:
    """The rule's rates as a table."""
    return data_table(a.rates, decimals=1)
