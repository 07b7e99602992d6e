"""How often the rule of verdicts is wrong, and how often it decides, where the truth is known: a
table of `make bench`."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from experiments.overview.error_rates import error_rates, lognormal_times, measured_ratio
from tlb.report.claims import Band
from tlb.report.verdicts import decided
from tlb.stats.effects import inside

TITLE = (
    "The rule of verdicts on made-up ratios (to reach: wrong 5 %; a fifth beyond the band at 5 % "
    "noise, five processes: decided 90 %)"
)
COLUMNS = ("processes", "noise", "true ratio", "band", "wrong", "decided")
BAND: Band = (1.05, inf)
ON_THE_LINE, BEYOND = 1.05, 1.05 * 1.2


def rule() -> Iterator[tuple[str, ...]]:
    """A row for 3, 5 and 9 processes, 2 to 10 % noise, and a ratio on the line, where each decision
    is wrong, or a fifth beyond it."""
    for n in (3, 5, 9):
        for noise in (0.02, 0.05, 0.10):
            for true, truth in ((ON_THE_LINE, None), (BEYOND, True)):
                measure = measured_ratio(lognormal_times(noise), true)
                found = error_rates(measure, lambda one: decided(inside(one, *BAND)), truth, n)
                asked = str(n), f"{noise:.0%}", f"{true:.2f}", f"from {BAND[0]:.2f} on"
                yield *asked, f"{found.wrong:.1%}", f"{found.decided:.1%}"
