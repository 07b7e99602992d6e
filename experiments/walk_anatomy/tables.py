"""The tables of the chapter about walks."""

from __future__ import annotations

import pandas as pd

from experiments.walk_anatomy.analysis import Analysis
from tlb.inference.replacement import WORDS
from tlb.reasons import required
from tlb.report.render import Html, data_table
from tlb.units import format_size


def policies(a: Analysis) -> Html:
    """What each policy would miss of each sequence in the last level, beside what was measured."""
    rows = required(a.policies, "no drawn visits were measured, or the TLB's entries are not known")
    names = [
        f"a cycle of {visits.pages:,}"
        if not visits.hot
        else f"half among {visits.hot:,} of {visits.pages:,}"
        for visits in a.misses
    ]
    measured = [f"{share.value:.2f}" for share in a.misses.values()]
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
    rows, unit = required(a.walks, "the survey has no cost of a walk"), a.survey.unit
    return data_table(
        pd.DataFrame(
            {
                "page-table entry read from": [walk.table_in for walk in rows],
                "bytes of entries": [format_size(walk.table_bytes) for walk in rows],
                f"{unit} per walk": [
                    f"{walk.cost.value:,.0f} ({walk.cost.low:,.0f} to {walk.cost.high:,.0f})"
                    for walk in rows
                    if walk.cost
                ],
            }
        )
    )
