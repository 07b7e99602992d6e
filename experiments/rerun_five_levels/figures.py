"""The charts of the page: records by threads, and how long faults take."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from tlb.report import charts
from tlb.report.render import INK_COLOUR

# Published series, each with its dash.
PUBLISHED = {"published, four levels": [6, 3], "published, five levels": [2, 3]}
RATES = [n * 10**power for power in range(3, 6) for n in (1, 3)]  # ticks
BUCKETS = [2**n for n in range(7, 14)]  # ns


def threads(rates: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw records per second by threads, a panel for each kind of buffer.

    rates: columns machine, buffer, threads, rate, low, high. colours: of machines.
    """
    names = [name for name in colours if name in set(rates["machine"])]
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    axis = alt.Axis(title="threads", values=list(range(1, 8)))
    x = alt.X("threads:Q", scale=alt.Scale(domain=[0.8, 7.2], nice=False), axis=axis)
    axis = alt.Axis(title=None, format="~s", values=RATES)
    y = alt.Y("rate:Q", scale=charts.log_scale(10, (3e3, 5e5)), axis=axis)
    base = alt.Chart().encode(x=x, color=charts.colour("machine", scale, title=None))
    ends = base.mark_rule().encode(y="low:Q", y2="high:Q")
    lines = base.mark_line(point=True).encode(y=y, tooltip=["machine:N", "threads:Q", "rate:Q"])
    chart = alt.layer(ends, lines, data=rates).properties(width=290, height=220)
    header = alt.Header(labelAnchor="start", labelLimit=0)
    buffers = alt.Facet("buffer:N", title=None, header=header, sort=[*rates["buffer"].unique()])
    return chart.facet(buffers)


def fault_times(shares: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw the shares of faults by powers of two of their time, a panel for each machine with the
    published ones, as hollow points, in each.

    shares: columns series (of PUBLISHED, or a machine), from_ns, share. colours: of machines.
    """
    is_published = shares["series"].isin(PUBLISHED)
    names = [name for name in colours if name in set(shares["series"])]
    theirs = shares[is_published].merge(pd.DataFrame({"machine": names}), how="cross")
    ours = shares[~is_published].assign(machine=shares["series"])
    series = [*PUBLISHED, *names]
    scale = alt.Scale(domain=series, range=[colours.get(name, INK_COLOUR) for name in series])
    dashes = [PUBLISHED.get(name, [1, 0]) for name in series]
    base = alt.Chart(pd.concat([theirs, ours], ignore_index=True)).encode(
        x=alt.X(
            "from_ns:Q",
            scale=charts.log_scale(2, (BUCKETS[0], BUCKETS[-1])),
            axis=charts.ns_axis("ns, from … to twice that", BUCKETS[::2]),
        ),
        y=alt.Y("share:Q", axis=alt.Axis(title=None, format="%")),
        color=alt.Color("series:N", sort=series, scale=scale, legend=charts.line_legend(columns=3)),
        tooltip=["series:N", "from_ns:Q", alt.Tooltip("share:Q", format=".1%")],
    )
    lines = base.mark_line().encode(strokeDash=charts.dash("series", series, dashes, columns=3))
    published = "indexof(datum.series, 'published') == 0"
    hollow = base.transform_filter(published).mark_point(filled=False, opacity=1, size=40)
    filled = base.transform_filter(f"!({published})").mark_point(filled=True, opacity=1, size=40)
    return charts.panels(
        alt.LayerChart(layer=[lines, filled, hollow]), names, "share of the faults"
    )
