"""The chart of the page: how many times as fast reads are on transparent huge pages."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from tlb.report import charts
from tlb.report.render import INK_COLOUR

PUBLISHED = "published"  # the series of the article's points
SIZES = {1_000: "1 kB", 10_000: "10 kB", 10**6: "1 MB", 10**7: "10 MB", 10**8: "100 MB"}
GAINS = [0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4]  # ticks


def gains(shown: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw the gains in the largest array, a panel for each loop, the published one as a hollow point.

    shown: columns loop, machine, median, low, high. colours: of machines.
    """
    names = [name for name in colours if name in set(shown["machine"])]
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    y = alt.Y("machine:N", sort=names, axis=alt.Axis(title=None, minExtent=110))
    x = alt.X(
        "median:Q", axis=alt.Axis(title=None, values=GAINS, grid=True), scale=alt.Scale(zero=False)
    )
    colour = alt.Color("machine:N", scale=scale, legend=None)
    base = alt.Chart().encode(y=y, color=colour)
    tooltip = charts.tips("machine:N", unit="times as fast")
    points = base.encode(x=x, tooltip=tooltip)
    is_published = f"datum.machine == '{PUBLISHED}'"
    chart = alt.layer(
        alt.Chart().mark_rule(color=INK_COLOUR).encode(x=alt.datum(1)),
        base.mark_rule().encode(x="low:Q", x2="high:Q"),
        points.transform_filter(f"!({is_published})").mark_point(filled=True, size=60, opacity=1),
        points.transform_filter(is_published).mark_point(filled=False, size=70, opacity=1),
        data=shown,
    )
    header = alt.Header(labelAnchor="start", labelLimit=0)
    loops = alt.Facet("loop:N", title=None, header=header, sort=[*shown["loop"].unique()])
    return chart.properties(width=230, height=150).facet(loops)
