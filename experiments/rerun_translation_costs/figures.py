"""The charts of the page: the article's figure, and what huge pages gain at each of its sizes."""

from __future__ import annotations

import altair as alt
import pandas as pd

from tlb.report import charts
from tlb.report.render import INK_COLOUR, PALETTE

ARTICLE = "article"  # the series of published points
LOOPS = ("ns per access, NumPy as published", "ns per access, the same loads in C")


def _colours(data: pd.DataFrame) -> alt.Color:
    """Return a colour for each machine, as its name at its curve has it, and ink for the article."""
    names = [name for name in data["machine"].unique() if name != ARTICLE]
    scale = alt.Scale(domain=[*names, ARTICLE], range=[*PALETTE[: len(names)], INK_COLOUR])
    return alt.Color("machine:N", scale=scale, legend=None)


def _by_machine(data: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return lines with intervals for machines, hollow points for the article, and a name at each."""
    base = alt.Chart(data).encode(x=x, y=y, color=_colours(data))
    measured = base.transform_filter(f"datum.machine != '{ARTICLE}'")
    published = base.transform_filter(f"datum.machine == '{ARTICLE}'")
    names = base.transform_filter("isValid(datum.name_y)")
    return [
        measured.mark_rule(strokeWidth=2, opacity=0.5).encode(y="low:Q", y2="high:Q"),
        measured.mark_line(point=alt.OverlayMarkDef(size=24)),
        published.mark_line(strokeDash=[3, 3], strokeWidth=1),
        published.mark_point(filled=False, size=70).encode(tooltip=["machine:N", "median:Q"]),
        names.mark_text(align="left", dx=7).encode(y="name_y:Q", text="machine:N"),
    ]


def _named(data: pd.DataFrame, times: float) -> pd.DataFrame:
    """Add where a series' name stands, at its last point; names are at least `times` apart."""
    ends = charts.ends_of_curves(data, "machine", "working_set_bytes", "median", times)
    return data.join(ends["name_y"])


def sample_run(loops: pd.DataFrame) -> alt.FacetChart:
    """Draw the time per access by working set, the program and the bare loads beside each other.

    loops: columns loop (of LOOPS), machine, working_set_bytes, median, low, high.
    """
    parts = loops.reset_index(drop=True).groupby("loop")
    named = pd.concat(_named(part, 1.33) for _, part in parts)
    ticks = [2**n for n in range(18, 33, 4)]
    x = alt.X(
        "working_set_bytes:Q",
        axis=charts.bytes_axis("Working set", ticks),
        scale=charts.log_scale(domain=(2**18, 2.0**41)),
    )
    times = charts.within(charts.TIMES, loops["median"].min(), loops["median"].max())
    y = alt.Y("median:Q", axis=charts.ns_axis("", times), scale=charts.log_scale(10))
    chart = alt.layer(*_by_machine(named, x, y)).properties(width=280, height=260)
    left = alt.Header(labelAnchor="start", labelLimit=0)
    facet = alt.Facet("loop:N", title=None, sort=list(LOOPS), header=left)
    return chart.facet(facet, columns=2)


def gains(found: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw how many times as fast the published loop is on 2 MiB pages, by working set.

    found: columns machine, working_set_bytes, median, low, high.
    """
    named = _named(found.reset_index(drop=True), 1.16)
    ticks = sorted(found["working_set_bytes"].unique().tolist())
    x = alt.X(
        "working_set_bytes:Q",
        axis=charts.bytes_axis("Working set", ticks),
        scale=charts.log_scale(domain=(2**21, 2.0**38)),
    )
    axis = charts.ns_axis("times as fast on 2 MiB pages", [0.5, 1, 2, 5, 9])
    y = alt.Y("median:Q", axis=axis, scale=charts.log_scale(10))
    one = (
        alt.Chart(pd.DataFrame({"median": [1.0]})).mark_rule(color=charts.MUTED_COLOUR).encode(y=y)
    )
    return alt.layer(one, *_by_machine(named, x, y)).properties(height=280)
