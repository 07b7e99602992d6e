"""The table of the chapter about strides."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from experiments.strides.analysis import Analysis
from experiments.strides.grid import LINE_BYTES
from tlb.report.render import Html, data_table
from tlb.stats.curves import Curve
from tlb.system.reasons import required
from tlb.system.units import format_size


def published(a: Analysis) -> Html:
    """The published strides: what a pass reads, the published times beside this machine's, and
    counted walks."""
    required(a.base, "no stride was measured on base pages")
    strides, counted = a.published["stride_bytes"].astype(int), a.counting
    lines = a.array_bytes // strides.clip(lower=LINE_BYTES)
    columns = {
        "stride": strides.map(format_size),
        "lines read": (lines * LINE_BYTES).map(format_size),
        "published, ns": a.published["ns_per_access"],
        "here, ns": _texts(a.base, strides),
        f"with {LINE_BYTES} B more, ns": _texts(a.base_staggered, strides),
        f"walks per load ({counted.host.microarchitecture})": _texts(
            counted.counted("walk"), strides, 3
        ),
    }
    return data_table(pd.DataFrame(columns))


def _texts(curve: Curve, xs: Iterable[int], decimals: int = 1) -> list[str]:
    """Return the median at each x, empty where nothing was measured."""
    return [f"{curve.get(x).value:.{decimals}f}" if x in curve.xs else "" for x in xs]
