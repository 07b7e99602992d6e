"""The tables of the chapter about page faults."""

from __future__ import annotations

import pandas as pd

from experiments.page_faults.analysis import WAYS, Analysis
from tlb.inference.student import Test, sample
from tlb.reasons import if_available, required
from tlb.report.render import Html, data_table


def ways(a: Analysis) -> Html:
    """A row a way of touching pages: what a page takes, how many faults, and what one takes."""
    rows = [
        (name, a.page_ns(way), a.pages_per_fault.get(way), a.per_fault.get(way), way.populate)
        for way, name in WAYS.items()
        if way in a.touches
    ]
    required(rows, "no page was touched")
    return data_table(
        pd.DataFrame(
            {
                "pages of": [name for name, *_ in rows],
                "ns a page": [f"{ns:,.0f}" for _, ns, *_ in rows],
                "pages a fault": [
                    "populated" if ready else f"{pages:,.3g}" if pages else ""
                    for *_, pages, _, ready in rows
                ],
                "ns a fault": [
                    f"{fault.value:,.0f}" if fault and not ready else ""
                    for *_, fault, ready in rows
                ],
            }
        )
    )


def statistics(a: Analysis) -> Html:
    """The published test and the same one of this machine's: means with their intervals,
    difference, t, p and effect."""
    tests = {
        "five levels less four, published": (
            a.published[4].interval(),
            a.published[5].interval(),
            a.published_test,
        )
    }
    if own := if_available(lambda: a.own_test):
        tests["in a memory cgroup less outside, here"] = (*_means(a), own)
    rows = [
        (name, f"{first:.3f}", f"{second:.3f}", *_cells(test))
        for name, (first, second, test) in tests.items()
    ]
    return data_table(
        pd.DataFrame(
            rows,
            columns=[
                "what",
                "mean, ns a page",
                "mean of the other",
                "difference",
                "t (degrees)",
                "p",
                "in standard deviations",
            ],
        )
    )


def _means(a: Analysis) -> list:
    return [sample(a.charged[name]).interval() for name in ("outside_ns", "inside_ns")]


def _cells(test: Test) -> tuple[str, ...]:
    return (
        f"{test.difference.value:+.3f} ({test.relative:+.2%})",
        f"{test.t:.2f} ({test.freedom})",
        f"{test.p:.1e}",
        f"{test.effect:.1f}",
    )
