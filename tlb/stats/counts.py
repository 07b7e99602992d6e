"""What rows say of their counters: the curve of one, and why one has no value.

A counter is a pair of columns, as `Store.load` makes them: `<quantity>_per_access` and
`<quantity>_reason`.
"""

from __future__ import annotations

import pandas as pd

from tlb.machine.host import Host
from tlb.stats.curves import Curve


def counted(rows: pd.DataFrame, quantity: str) -> Curve:
    """A counter per access, by lines; empty where no row has a value.

    A quantity is counted in some of the repeats (its group's turn): the others do not count in n.
    """
    return Curve.of(rows, value=f"{quantity}_per_access")


def why_not_counted(rows: pd.DataFrame, quantity: str, host: Host) -> str:
    """The reason code for a counter without any value: what most rows say, else what the machine
    says."""
    reasons = rows.get(f"{quantity}_reason", pd.Series(dtype="str"))
    reasons = reasons[~reasons.isin(["", "other-repeat", "no-data"])]
    return str(reasons.mode().iloc[0]) if len(reasons) else host.pmu.reason or "no-data"
