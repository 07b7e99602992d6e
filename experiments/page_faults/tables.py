"""The tables of the chapter about page faults."""

from __future__ import annotations

import pandas as pd

from experiments.page_faults.analysis import WAYS, Analysis
from tlb.inference.student import sample
from tlb.reasons import if_available, required
from tlb.report.render import Html, data_table


def ways(a: Analysis) -> Html:
    """Return a row a way of touching pages: what a page takes, how many faults, what one takes."""
    rows = []
    for way in required(list(a.touches), "no page was touched"):
        pages, fault = a.pages_per_fault.get(way), a.per_fault.get(way)
        per_fault = "populated" if way.populate else f"{pages:,.3g}" if pages else ""
        row = {
            "pages of": WAYS[way],
            "ns a page": f"{a.page_ns(way):,.0f}",
            "pages a fault": per_fault,
            "ns a fault": f"{fault.value:,.0f}" if fault and not way.populate else "",
        }
        rows.append(row)
    return data_table(pd.DataFrame(rows))


def statistics(a: Analysis) -> Html:
    """Return the published test and the same one of this machine's pages: means with their
    intervals, difference, t, p and effect."""
    samples = [a.published[4], a.published[5]]
    tests = [("five levels less four, published", samples, a.published_test)]
    if own := if_available(lambda: a.own_test):
        samples = [sample(a.charged[name]) for name in ("outside_ns", "inside_ns")]
        tests.append(("in a memory cgroup less outside, here", samples, own))
    rows = [
        {
            "what": name,
            "mean, ns a page": f"{first.interval():.3f}",
            "mean of the other": f"{second.interval():.3f}",
            "difference": f"{test.difference.value:+.3f} ({test.relative:+.2%})",
            "t (degrees)": f"{test.t:.2f} ({test.freedom})",
            "p": f"{test.p:.1e}",
            "in standard deviations": f"{test.effect:.1f}",
        }
        for name, (first, second), test in tests
    ]
    return data_table(pd.DataFrame(rows))
