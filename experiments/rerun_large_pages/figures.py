"""The chart of the page: how many times as fast reads are on transparent huge pages."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from tlb.report import charts
from tlb.report.render import INK_COLOUR

PUBLISHED = "published"  # the series of the article's points
SIZES = {1_000: "1 kB", 10_000: "10 kB", 10**6: "1 MB", 10**7: "10 MB", 10**8: "100 MB"}
GAINS = [0.6, 0.8, 1, 1.25, 1.5, 2]  # ticks
ENDS = (0.5, 2.1)  # of the axis


def gains(shown: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw the gains by size, a panel for each loop, the published ones as hollow points.

    shown: columns loop, machine, size (of SIZES), median, low, high. colours: of machines.
    """
    names = [name for name in colours if name in set(shown["machine"])]
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    x = alt.X("size:N", sort=[*SIZES.values()], axis=alt.Axis(title=None, labelAngle=0))
    y = alt.Y("median:Q", axis=alt.Axis(title=None, values=GAINS), scale=charts.log_scale(10, ENDS))
    offset = alt.XOffset("machine:N", sort=names)
    base = alt.Chart().encode(
        x=x, xOffset=offset, color=charts.colour("machine", scale, title=None)
    )
    tooltip = charts.tips("machine:N", "size:N", unit="times as fast")
    ours = base.transform_filter(f"datum.machine != '{PUBLISHED}'").encode(y=y, tooltip=tooltip)
    theirs = base.transform_filter(f"datum.machine == '{PUBLISHED}'").encode(y=y, tooltip=tooltip)
    chart = alt.layer(
        alt.Chart().mark_rule(color=INK_COLOUR).encode(y=alt.datum(1)),
        base.mark_rule(clip=True).encode(y="low:Q", y2="high:Q"),
        ours.mark_point(filled=True, size=45, opacity=1, clip=True),
        theirs.mark_point(filled=False, size=60, opacity=1),
        data=shown,
    )
    header = alt.Header(labelAnchor="start", labelLimit=0)
    loops = alt.Facet("loop:N", title=None, header=header, sort=[*shown["loop"].unique()])
    return chart.properties(width=290, height=230).facet(loops)
