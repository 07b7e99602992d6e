"""The tables of the chapter about walks."""

from __future__ import annotations

import pandas as pd

from experiments.walk_anatomy.analysis import Analysis
from experiments.walk_anatomy.grid import TABLES
from tlb.inference.intervals import Interval
from tlb.inference.replacement import WORDS, Policy, Visits
from tlb.reasons import required
from tlb.report.render import Html, data_table
from tlb.units import format_size


def found(a: Analysis) -> Html:
    """What each sweep shows: a cache's entries and what missing it costs, or that none shows."""
    rows = [
        (level, f"{curve.xs[0]:,.0f} to {curve.xs[-1]:,.0f}", cache.entries, cache.ns)
        if (cache := next((cache for cache in a.caches if cache.level == level), None))
        else (level, f"{curve.xs[0]:,.0f} to {curve.xs[-1]:,.0f}", None, None)
        for level, curve in a.prices.items()
    ]
    required(rows, "no tables were swept")
    return data_table(
        pd.DataFrame(
            {
                "level of the tables": [level for level, *_ in rows],
                "tables": [tables for _, tables, *_ in rows],
                "entries kept": [
                    f"{entries:,.0f}" if entries else "no step" for _, _, entries, _ in rows
                ],
                "missing one costs, ns": [f"{ns:.1f}" if ns else "" for *_, ns in rows],
            }
        )
    )


def predicted(a: Analysis) -> Html:
    """Numbers of tables that no sweep has: measured, and as the sweeps predict."""
    rows = required(a.predictions, "nothing was held out, or no cache was found")
    return data_table(
        pd.DataFrame(
            {
                **{
                    f"tables of level {level}": rows[name].map("{:,.0f}".format)
                    for level, name in enumerate(TABLES, 1)
                },
                "ns a miss": rows["median"].map("{:.1f}".format),
                "predicted": rows["predicted"].map("{:.1f}".format),
                "ratio": rows["ratio"].map("{:.2f}".format),
            }
        )
    )


def policies(a: Analysis) -> Html:
    """What each policy would miss of each sequence in the last level, beside what was measured."""
    return _policies(a.policies, a.misses)


def first_policies(a: Analysis) -> Html:
    """The same of the first level."""
    return _policies(a.first_policies, a.first_misses)


def _policies(policies: list[Policy], misses: dict[Visits, Interval]) -> Html:
    rows = required(policies, "no drawn visits were measured, or the TLB's entries are not known")
    names = [
        f"a cycle of {visits.pages:,}"
        if not visits.hot
        else f"half among {visits.hot:,} of {visits.pages:,}"
        for visits in misses
    ]
    measured = [f"{share.value:.2f}" for share in misses.values()]
    shares = [[f"{share:.2f}" for share in policy.misses] for policy in rows]
    return data_table(
        pd.DataFrame(
            {
                "policy": ["measured", *(WORDS[policy.name] for policy in rows)],
                **{
                    name: [measured[k], *(row[k] for row in shares)] for k, name in enumerate(names)
                },
                "worst error, in standard errors": ["", *(f"{policy.away:.1f}" for policy in rows)],
                "log likelihood": ["", *(f"{policy.support:.1f}" for policy in rows)],
            }
        )
    )


def places(a: Analysis) -> Html:
    """What a walk costs by the place of its lowest table, as the survey has it."""
    rows, unit = required(a.walks, "the survey has no walk's price"), a.survey.unit
    return data_table(
        pd.DataFrame(
            {
                "lowest tables in": [walk.table_in for walk in rows],
                "size of the lines read": [format_size(walk.table_bytes) for walk in rows],
                f"a walk, {unit}": [
                    f"{walk.cost.value:,.0f} ({walk.cost.low:,.0f} to {walk.cost.high:,.0f})"
                    for walk in rows
                    if walk.cost
                ],
            }
        )
    )
