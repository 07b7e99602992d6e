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
    columns = {"policy": ["measured", *(WORDS[policy.name] for policy in rows)]}
    for k, (visits, measured) in enumerate(a.misses.items()):
        of = f"half among {visits.hot:,} of" if visits.hot else "a cycle of"
        shares = [measured.value, *(policy.misses[k] for policy in rows)]
        columns[f"{of} {visits.pages:,}"] = [f"{share:.2f}" for share in shares]
    columns["worst error, in standard errors"] = ["", *(f"{policy.away:.1f}" for policy in rows)]
    columns["log likelihood"] = ["", *(f"{policy.support:.1f}" for policy in rows)]
    return data_table(pd.DataFrame(columns))


def places(a: Analysis) -> Html:
    """What a walk costs by the place of its lowest table, as the survey has it."""
    rows, unit = required(a.walks, "the survey has no cost of a walk"), a.survey.unit
    costs = [walk.cost for walk in rows if walk.cost]
    columns = {
        "page-table entry read from": [walk.table_in for walk in rows],
        "bytes of entries": [format_size(walk.table_bytes) for walk in rows],
        f"{unit} per walk": [f"{c.value:,.0f} ({c.low:,.0f} to {c.high:,.0f})" for c in costs],
    }
    return data_table(pd.DataFrame(columns))
