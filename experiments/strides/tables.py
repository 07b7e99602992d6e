"""The table of the chapter about strides."""

from __future__ import annotations

import pandas as pd

from experiments.strides.analysis import Analysis
from tlb.reasons import required
from tlb.report.render import Html, data_table
from tlb.units import format_size


def published(a: Analysis) -> Html:
    """The published table beside this machine's."""
    required(a.base, "no stride was measured on base pages")
    rows = a.side_by_side
    return data_table(
        pd.DataFrame(
            {
                "stride": [format_size(int(stride)) for stride in rows["stride_bytes"]],
                "accesses per page": [
                    f"{a.base_page_bytes / stride:g}" for stride in rows["stride_bytes"]
                ],
                "published, ns": rows["theirs"].map("{:.2f}".format),
                "ratio to 8 B": rows["their_ratio"].map("{:.1f}".format),
                "here, ns": rows["ns"].map(lambda ns: "" if pd.isna(ns) else f"{ns:.2f}"),
                "here, ratio to 8 B": rows["ratio"].map(
                    lambda ratio: "" if pd.isna(ratio) else f"{ratio:.1f}"
                ),
            }
        )
    )
