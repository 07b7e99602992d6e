"""The tables of the chapter about walks."""

from __future__ import annotations

import pandas as pd

from experiments.walk_anatomy.analysis import Analysis
from experiments.walk_anatomy.models import POLICY_NAMES
from tlb.report.render import Html, data_table
from tlb.system.reasons import required


def policies(a: Analysis) -> Html:
    """What each policy would miss of each sequence in the last level, beside what was measured."""
    rows = required(a.policies, "no drawn visits were measured, or the TLB's entries are not known")
    columns = {"policy": ["measured", *(POLICY_NAMES[policy.name] for policy in rows)]}
    for k, (visits, measured) in enumerate(a.misses.items()):
        of = f"half among {visits.hot:,} of" if visits.hot else "a cycle of"
        shares = [measured.value, *(policy.misses[k] for policy in rows)]
        columns[f"{of} {visits.pages:,}"] = [f"{share:.2f}" for share in shares]
    columns["worst error, in standard errors"] = ["", *(f"{policy.away:.1f}" for policy in rows)]
    columns["log likelihood"] = ["", *(f"{policy.support:.1f}" for policy in rows)]
    return data_table(pd.DataFrame(columns))
