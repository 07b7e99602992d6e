"""The charts of the chapter about the cliff, one function each."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from experiments.stlb_cliff.analysis import Analysis
from tlb.report import charts
from tlb.report.render import PALETTE, Figure
from tlb.system.prose import climb, listed
from tlb.system.reasons import required
from tlb.system.units import format_ns, format_size

_POINT = ["lines", *charts.INTERVAL]


def _by_bytes(
    a: Analysis, series: Mapping[str, pd.DataFrame], column: str, fields: list[str]
) -> pd.DataFrame:
    """Concatenate tables, each named in `column`, and add the memory that their pages span."""
    named = [
        table.reindex(columns=fields).assign(**{column: name}) for name, table in series.items()
    ]
    data = pd.concat(named, ignore_index=True)
    return data.assign(working_set_bytes=data["lines"] * a.base_page_bytes)


def cliff(a: Analysis) -> Figure:
    fields = [*charts.INTERVAL, "coverage", "n", "spread", "unstable", "outliers"]
    required(a.price, "no chase over lines spread and packed was measured")
    layouts = {"spread": a.spread, "packed": a.packed}
    data = charts.stacked(layouts, "", "layout", a.base_page_bytes)
    processes = {name: curve.processes for name, curve in layouts.items()}
    dots = _by_bytes(a, processes, "layout", ["lines", "median"])
    chart = charts.chase_chart(
        data, charts.LAYOUTS, "layout", a.entries, a.base_page_bytes, processes=dots
    )
    least, most = (format_size(n * a.base_page_bytes) for n in (a.spread.xs[0], a.spread.xs[-1]))
    low, high = a.spread.medians.iloc[[0, -1]].map(format_ns)
    near, far = a.packed.medians.iloc[[0, -1]].map(format_ns)
    shown = ["layout", "lines", "working_set_bytes", *fields]
    return Figure(
        chart,
        f"Line chart on logarithmic axes. One line per page takes {low} an access at {least}, "
        f"rising in steps to {high} at {most}. The same lines packed: {near}, rising to {far}.",
        pd.concat([data, dots.assign(n=1)], ignore_index=True)[shown],
    )


def misses(a: Analysis) -> Figure:
    """Draw counted walks per load around the last level's entries, of this machine or of another
    that counted them, with what models of that TLB predict."""
    machine = a.counting
    _, entries = machine.two_levels()
    near = machine.near(entries, machine.counted("walk")).table[[*_POINT, "coverage", "n"]]
    models = machine.models
    predicted = [table.assign(series=kind) for kind, table in models.items()]
    data = pd.concat([near.assign(series="counted"), *predicted], ignore_index=True)
    ticks = [round(entries * 2 ** (k / 4)) for k in range(-3, 5)]
    least, most = machine.window
    x = alt.X(
        "lines:Q",
        axis=alt.Axis(title="Pages touched", values=ticks, format=","),
        scale=charts.log_scale(domain=(entries * least, entries * most)),
    )
    scale = alt.Scale(domain=[0, 1.12], nice=False)  # the label of the capacity is above the data
    y = alt.Y(
        "median:Q", axis=charts.ns_axis("share of loads that walk", charts.SHARES), scale=scale
    )
    colour, dash = _lines(["counted", *models], columns=2)
    lines = alt.Chart(data).mark_line(clip=True).encode(x=x, y=y, color=colour, strokeDash=dash)
    counted = (
        alt.Chart(data).transform_filter("datum.series == 'counted'").encode(x=x, color=colour)
    )
    pages = alt.Tooltip("lines:Q", format=",")
    points = counted.mark_point(clip=True)
    points = points.encode(y=y, tooltip=charts.tips(pages, unit="walks per load", bounds=False))
    bars = counted.mark_rule(clip=True).encode(y="low:Q", y2="high:Q")
    rule = charts.marks([(entries, f"{entries:,} entries by {machine.entries_source}")], "lines")
    first, last = near.iloc[[0, -1]].itertuples()
    return Figure(
        (lines + bars + points + rule).properties(height=220),
        f"Around {entries:,} pages the share of loads that walk, as counted on "
        f"{machine.about.machine}, goes from {first.median:.2f} at {first.lines:,} pages to "
        f"{last.median:.2f} at {last.lines:,}{climb(dict(zip(near['lines'], near['median'], strict=True)))}, beside "
        f"{listed(models)}.",
        data,
    )


def _lines(names: list[str], columns: int) -> tuple[alt.Color, alt.StrokeDash]:
    """Return a colour and a dash for each series, with one legend for both."""
    legend, scale = charts.line_legend(columns=columns), charts.colours(names)
    colour = alt.Color("series:N", sort=names, legend=legend, scale=scale)
    return colour, charts.dash("series", names, columns=columns)


def latency_throughput(a: Analysis) -> Figure:
    n = required(a.in_flight.xs, "no size was measured in both loops")[-1]
    theirs = "published gather"
    series = {
        "dependent chase": a.spread.table,
        "independent gather": a.gather.table,
        theirs: a.published.rename(columns={"pages": "lines", "ns_per_access": "median"}),
    }
    data = _by_bytes(a, series, "series", [*_POINT, "n"])
    scheme = alt.Scale(domain=list(series), range=[PALETTE[0], PALETTE[1], PALETTE[3]])
    x = charts.working_set(a.base_page_bytes)
    chart = charts.series_chart(data, x, "ns per load", scheme)
    return Figure(
        charts.published(chart, f"datum.series != '{theirs}'"),
        f"Line chart on logarithmic axes. At {n:,} pages a dependent load takes "
        f"{a.spread.get(n).value:.0f} ns beside the {a.gather.get(n).value:.1f} ns of an "
        "independent one, which the core overlaps.",
        data,
    )
