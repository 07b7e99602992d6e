"""The charts of the chapter about code, one function a figure."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from experiments.code.analysis import Analysis
from experiments.code.grid import KINDS, LARGE_TEXT
from tlb.page_sizes import BASE, words
from tlb.prose import count, listed
from tlb.reasons import required
from tlb.report import charts
from tlb.report.render import MUTED, Figure

BESIDE = ("jumps",)  # with the reference machine's curves behind a switch

_FIELDS = ["lines", "median", "low", "high", "coverage", "n", "unstable"]
NAMES = {
    "direct": "direct",
    "learned": "indirect, the same cycle each time",
    "random": "indirect, random",
}
_TIMES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_PAGES = alt.X(
    "lines:Q", axis=charts.lines_axis("Pages of code, a jump on each"), scale=charts.log_scale()
)


def _ends(a: Analysis) -> alt.LayerChart | None:
    ends = zip(a.stated, ("L1 iTLB", "L2 iTLB"), strict=False)
    return charts.marks([(n, f"{name}: {n:,}") for n, name in ends], "lines") if a.stated else None


def jumps(a: Analysis) -> Figure:
    """Draw ns a jump to lines of code, spread and packed (dashed), a line a kind of jump."""
    required(a.spread, "no jumps were measured")
    tables = [
        curves[kind].table.reindex(columns=_FIELDS).assign(kind=NAMES[kind], where=where)
        for kind in KINDS
        for where, curves in (("spread", a.spread), ("packed", a.packed))
        if kind in curves
    ]
    data = pd.concat(tables, ignore_index=True)
    kinds = [NAMES[kind] for kind in KINDS if kind in a.spread]
    low, high = data["low"].min() * 0.5, data["high"].max() * 1.1
    axis = charts.ns_axis("ns a jump", [tick for tick in _TIMES if low <= tick <= high])
    legend = alt.Legend(title=None, columns=1)
    lines, ns = (
        alt.Tooltip("lines:Q", format=","),
        alt.Tooltip("median:Q", format=".3~r", title="ns"),
    )
    dash = alt.StrokeDash(
        "where:N", sort=["spread", "packed"], legend=charts.line_legend(columns=1)
    )
    chart = alt.Chart(data).mark_line(point=alt.OverlayMarkDef(size=18))
    chart = chart.encode(
        x=_PAGES,
        y=alt.Y("median:Q", axis=axis, scale=charts.time_scale(data)),
        color=alt.Color("kind:N", sort=kinds, scale=charts.colours(kinds), legend=legend),
        strokeDash=dash,
        tooltip=["kind:N", "where:N", lines, ns],
    )
    last = data[data["lines"] == data["lines"].max()]
    slowest = last.loc[last["median"].idxmax()]
    ends = []
    for kind, rows in last.groupby("kind", sort=False):
        ns_by_layout = (f"{row.median:.1f} ns {row.where}" for row in rows.itertuples())
        ends.append(f"{kind}, {listed(ns_by_layout)}")
    return Figure(
        charts.layered(chart, _ends(a)),
        f"Time per jump against pages of code. At {count(last['lines'].iloc[0])} pages the slowest "
        f"is {slowest['kind']}, {slowest['where']}. All: {'; '.join(ends)}.",
        data[["kind", "where", *_FIELDS]],
    )


def translation(a: Analysis) -> Figure:
    """ns an aliased jump, with the two levels that fit it."""
    data = (
        required(a.alias.table, "no aliased jumps were measured")
        .reindex(columns=_FIELDS)
        .assign(series="measured")
    )
    scale = alt.Scale(domain=[0.0, float(data["high"].max()) * 1.1], nice=False)
    chart = charts.series_chart(
        data, _PAGES, "ns a jump", scale, charts.PRICES, charts.colours(["measured"]), "series"
    )
    times = (
        "A random jump to many pages of addresses on eight of memory takes "
        f"{data['median'].min():.1f} to {data['median'].max():.1f} ns."
    )
    if not a.tlb:
        return Figure(
            charts.layered(chart, _ends(a)), f"{times} It does not show two levels.", data[_FIELDS]
        )
    xs = np.geomspace(data["lines"].min(), data["lines"].max(), 60)
    fitted = pd.DataFrame({"lines": xs, "median": a.tlb.predict(xs)})
    line = (
        alt.Chart(fitted)
        .mark_line(strokeDash=[4, 3], color=MUTED)
        .encode(x=_PAGES, y=alt.Y("median:Q", scale=scale))
    )
    return Figure(
        charts.layered(chart, line, _ends(a)),
        f"{times} Two levels of {a.tlb.first.value:.0f} and "
        f"{count(a.tlb.last.value)} entries fit it better than any other two.",
        data[_FIELDS],
    )


def texts(a: Analysis) -> Figure:
    """ns a jump in texts of several sizes, on base pages and on large ones."""
    rows = required(a.texts, "no large text was measured").assign(
        group=lambda table: table["mib"].map("{} MiB".format)
    )
    bars, data = _bars(
        rows, {words(BASE): "base", words(LARGE_TEXT): "large"}, "Code, all of it jumped to"
    )
    return Figure(
        bars, f"Time per random jump by the size of the code: it takes {_ends_told(data)}.", data
    )


def hot(a: Analysis) -> Figure:
    """ns a jump in the largest text by the share of it that is hot: in every page, on two page
    sizes, and packed."""
    rows = required(a.hot, "no text was measured of which a part is hot")
    rows = rows.assign(group=rows["share"].map("{:.0%} hot".format))
    named = {
        f"in every page, {words(BASE)}": "spread",
        f"in every page, {words(LARGE_TEXT)}": "large",
        f"side by side, {words(BASE)}": "packed",
    }
    bars, data = _bars(rows, named, f"Of {rows['mib'].iloc[0]} MiB of code")
    return Figure(
        bars,
        f"Time per random jump by the share of the code that is hot: it takes {_ends_told(data)}.",
        data,
    )


def _bars(
    rows: pd.DataFrame, named: dict[str, str], title: str
) -> tuple[alt.LayerChart, pd.DataFrame]:
    """A bar with its interval for each group (words, a column of that name) and series (its name: a
    column of intervals); and their data."""
    data = pd.DataFrame(
        [
            {
                "group": row["group"],
                "series": name,
                **dict(zip(("median", "low", "high"), row[column][:3], strict=True)),
            }
            for _, row in rows.iterrows()
            for name, column in named.items()
        ]
    ).dropna()
    x = alt.X(
        "group:N", sort=list(dict.fromkeys(data["group"])), axis=alt.Axis(title=title, labelAngle=0)
    )
    base = alt.Chart(data).encode(x=x, xOffset=alt.XOffset("series:N", sort=list(named)))
    bars = base.mark_bar(size=16).encode(
        y=alt.Y("median:Q", axis=charts.ns_axis("ns a jump")),
        color=alt.Color(
            "series:N",
            sort=list(named),
            scale=charts.colours(list(named)),
            legend=alt.Legend(title=None, columns=1),
        ),
        tooltip=["group:N", "series:N", alt.Tooltip("median:Q", format=".3~r", title="ns")],
    )
    return bars + base.mark_rule(strokeWidth=2).encode(
        y="low:Q", y2="high:Q", color=alt.value(MUTED)
    ), data


def _ends_told(data: pd.DataFrame) -> str:
    """What the first and the last group take."""
    ends = [data[data["group"] == data["group"].iloc[place]] for place in (0, -1)]
    return "; ".join(
        f"with {end['group'].iloc[0]}, "
        f"{listed(f'{row.median:.0f} ns {row.series}' for row in end.itertuples())}"
        for end in ends
    )
