"""The charts of the pages that re-run a published measurement."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from tlb.report import charts
from tlb.report.render import TEXT_COLOUR

# --- five levels: records by threads, and how long faults take

# Published series, each with its dash.
PUBLISHED_KERNELS = {"published, four levels": [6, 3], "published, five levels": [2, 3]}
RATE_TICKS = [n * 10**power for power in range(3, 6) for n in (1, 3)]  # ticks
FAULT_TIME_BUCKETS_NS = [2**n for n in range(7, 14)]  # ns


def records_by_threads(rates: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw records per second by threads, a panel for each kind of buffer.

    rates: columns machine, buffer, threads, rate, low, high. colours: of machines.
    """
    names = [name for name in colours if name in set(rates["machine"])]
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    axis = alt.Axis(title="threads", values=list(range(1, 8)))
    x = alt.X("threads:Q", scale=alt.Scale(domain=[0.8, 7.2], nice=False), axis=axis)
    axis = alt.Axis(title=None, format="~s", values=RATE_TICKS)
    y = alt.Y("rate:Q", scale=charts.log_scale(10, (3e3, 5e5)), axis=axis)
    base = alt.Chart().encode(x=x, color=charts.colour("machine", scale, title=None))
    ends = base.mark_rule().encode(y="low:Q", y2="high:Q")
    lines = base.mark_line(point=True).encode(y=y, tooltip=["machine:N", "threads:Q", "rate:Q"])
    chart = alt.layer(ends, lines, data=rates).properties(width=290, height=220)
    header = alt.Header(labelAnchor="start", labelLimit=0)
    buffers = alt.Facet("buffer:N", title=None, header=header, sort=[*rates["buffer"].unique()])
    return chart.facet(buffers, columns=2)


def fault_times(shares: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw the shares of faults by powers of two of their time, a panel for each machine with the
    published ones, as hollow points, in each.

    shares: columns series (of PUBLISHED, or a machine), from_ns, share. colours: of machines.
    """
    is_published = shares["series"].isin(PUBLISHED_KERNELS)
    names = [name for name in colours if name in set(shares["series"])]
    theirs = shares[is_published].merge(pd.DataFrame({"machine": names}), how="cross")
    ours = shares[~is_published].assign(machine=shares["series"])
    series = [*PUBLISHED_KERNELS, *names]
    scale = alt.Scale(domain=series, range=[colours.get(name, TEXT_COLOUR) for name in series])
    dashes = [PUBLISHED_KERNELS.get(name, [1, 0]) for name in series]
    base = alt.Chart(pd.concat([theirs, ours], ignore_index=True)).encode(
        x=alt.X(
            "from_ns:Q",
            # With room for labels at both ends: panels stand beside each other.
            scale=charts.log_scale(
                2, (FAULT_TIME_BUCKETS_NS[0] / 1.5, FAULT_TIME_BUCKETS_NS[-1] * 1.5)
            ),
            axis=charts.ns_axis("bucket begins at, ns", FAULT_TIME_BUCKETS_NS[::3]),
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
        alt.LayerChart(layer=[lines, filled, hollow]), names, "share of the faults", columns=3
    )


# --- large pages in Java: how many times as fast reads are on transparent huge pages

PUBLISHED_SERIES = "published"  # the series of the article's points
ARRAY_SIZE_LABELS = {1_000: "1 kB", 10_000: "10 kB", 10**6: "1 MB", 10**7: "10 MB", 10**8: "100 MB"}
SPEEDUP_TICKS = [0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4]  # ticks


def thp_read_speedups(shown: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw the gains in the largest array, a panel for each loop, the published one as a hollow point.

    shown: columns loop, machine, median, low, high. colours: of machines.
    """
    names = [name for name in colours if name in set(shown["machine"])]
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    y = alt.Y("machine:N", sort=names, axis=alt.Axis(title=None, minExtent=110))
    x = alt.X(
        "median:Q",
        axis=alt.Axis(title=None, values=SPEEDUP_TICKS, grid=True),
        scale=alt.Scale(zero=False),
    )
    colour = alt.Color("machine:N", scale=scale, legend=None)
    base = alt.Chart().encode(y=y, color=colour)
    tooltip = charts.tips("machine:N", unit="times as fast")
    points = base.encode(x=x, tooltip=tooltip)
    is_published = f"datum.machine == '{PUBLISHED_SERIES}'"
    chart = alt.layer(
        alt.Chart().mark_rule(color=TEXT_COLOUR).encode(x=alt.datum(1)),
        base.mark_rule().encode(x="low:Q", x2="high:Q"),
        points.transform_filter(f"!({is_published})").mark_point(filled=True, size=60, opacity=1),
        points.transform_filter(is_published).mark_point(filled=False, size=70, opacity=1),
        data=shown,
    )
    header = alt.Header(labelAnchor="start", labelLimit=0)
    loops = alt.Facet("loop:N", title=None, header=header, sort=[*shown["loop"].unique()])
    return chart.properties(width=230, height=150).facet(loops, columns=2)


# --- what translation costs: the article's figure, and the gain of huge pages at each of its sizes

ARTICLE_SERIES = "article"  # the series of published points
SAMPLE_LOOPS = ("ns per access, NumPy as published", "ns per access, the same loads in C")


def _machine_colours(data: pd.DataFrame) -> alt.Color:
    """Return a colour for each machine, as its name at its curve has it, and ink for the article."""
    names = [name for name in data["machine"].unique() if name != ARTICLE_SERIES]
    scale = charts.machine_colours([*names, ARTICLE_SERIES])
    return alt.Color("machine:N", scale=scale, legend=None)


def _by_machine(data: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return lines with intervals for machines, hollow points for the article, and a name at each."""
    base = alt.Chart(data).encode(x=x, y=y, color=_machine_colours(data))
    measured = base.transform_filter(f"datum.machine != '{ARTICLE_SERIES}'")
    published = base.transform_filter(f"datum.machine == '{ARTICLE_SERIES}'")
    names = base.transform_filter("isValid(datum.name_y)")
    return [
        # Of all: the article has no intervals, and Vega-Lite warns of five filters in two panels.
        base.mark_rule(strokeWidth=2, opacity=0.5).encode(y="low:Q", y2="high:Q"),
        measured.mark_line(point=alt.OverlayMarkDef(size=24)),
        published.mark_line(strokeDash=[3, 3], strokeWidth=1),
        published.mark_point(filled=False, size=70).encode(tooltip=["machine:N", "median:Q"]),
        # From the end of a line to its name, as lines that end close together push names apart.
        names.mark_rule(x2Offset=9, opacity=0.6).encode(x2=x.shorthand, y2="name_y:Q"),
        names.mark_text(align="left", dx=11).encode(y="name_y:Q", text="machine:N"),
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
    named = pd.concat(_named(part, 1.36) for _, part in parts)
    ticks = [2**20, 2**25, 2**30]
    x = alt.X(
        "working_set_bytes:Q",
        axis=charts.bytes_axis("Working set", ticks),
        scale=charts.log_scale(domain=(2**18, 2.0**41)),
    )
    times = charts.within(charts.TIMES, loops["median"].min(), loops["median"].max())
    y = alt.Y("median:Q", axis=charts.ns_axis("", times), scale=charts.log_scale(10))
    chart = alt.layer(*_by_machine(named, x, y)).properties(width=280, height=260)
    left = alt.Header(labelAnchor="start", labelLimit=0)
    facet = alt.Facet("loop:N", title=None, sort=list(SAMPLE_LOOPS), header=left)
    return chart.facet(facet, columns=2)


def huge_page_speedups(found: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
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
