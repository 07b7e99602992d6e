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
    """ns a jump to lines of code, spread and packed, a line a kind of jump; packed ones are dashed."""
    required(a.spread, "no jumps were measured")
    named = [
        (NAMES[kind], where, curves[kind])
        for kind in KINDS
        for where, curves in (("spread", a.spread), ("packed", a.packed))
        if kind in curves
    ]
    tables = [
        curve.table.reindex(columns=_FIELDS).assign(kind=name, where=where)
        for name, where, curve in named
    ]
    data = pd.concat(tables, ignore_index=True)
    scheme, scale = (
        charts.colours([NAMES[kind] for kind in KINDS if kind in a.spread]),
        charts.time_scale(data),
    )
    values = [
        tick for tick in _TIMES if data["low"].min() * 0.5 <= tick <= data["high"].max() * 1.1
    ]
    chart = (
        alt.Chart(data)
        .mark_line(point=alt.OverlayMarkDef(size=18))
        .encode(
            x=_PAGES,
            y=alt.Y("median:Q", axis=charts.ns_axis("ns a jump", values), scale=scale),
            color=alt.Color(
                "kind:N", sort=scheme.domain, scale=scheme, legend=alt.Legend(title=None, columns=1)
            ),
            strokeDash=alt.StrokeDash(
                "where:N", sort=["spread", "packed"], legend=charts.line_legend(columns=1)
            ),
            tooltip=[
                "kind:N",
                "where:N",
                alt.Tooltip("lines:Q", format=","),
                alt.Tooltip("median:Q", format=".3~r", title="ns"),
            ],
        )
    )
    last = data[data["lines"] == data["lines"].max()]
    by_kind = [(kind, last[last["kind"] == kind]) for kind in dict.fromkeys(last["kind"])]
    told = "; ".join(
        f"{kind}, {listed(f'{row.median:.1f} ns {row.where}' for row in rows.itertuples())}"
        for kind, rows in by_kind
    )
    most, slowest = (
        count(last["lines"].iloc[0]),
        "{kind}, {where}".format(**last.loc[last["median"].idxmax(), ["kind", "where"]]),
    )
    text = f"Time per jump against pages of code. At {most} pages the slowest is {slowest}. All: {told}."
    return Figure(charts.layered(chart, _ends(a)), text, data[["kind", "where", *_FIELDS]])


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
    said = f"A random jump to many pages of addresses on eight of memory takes {data['median'].min():.1f} to {data['median'].max():.1f} ns."
    if not a.tlb:
        return Figure(
            charts.layered(chart, _ends(a)), f"{said} It does not show two levels.", data[_FIELDS]
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
        f"{said} Two levels of {a.tlb.first.value:.0f} and "
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
        f"with {end['group'].iloc[0]}, {listed(f'{row.median:.0f} ns {row.series}' for row in end.itertuples())}"
        for end in ends
    )
