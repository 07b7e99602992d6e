"""The charts of the chapter about code, one function a figure."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from experiments.article import charts
from experiments.article.render import MUTED, Figure
from experiments.chapters.code.analysis import Analysis
from experiments.chapters.code.grid import KINDS, LARGE_TEXT
from experiments.words.pages import BASE, words
from experiments.words.prose import count, listed
from experiments.words.reasons import required

_FIELDS = ["lines", "median", "low", "high", "coverage", "n", "unstable"]
NAMES = {"direct": "direct", "learned": "from a list, the same each time", "drawn": "from a list, drawn"}
_TIMES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_PAGES = alt.X("lines:Q", axis=charts.lines_axis("Pages of code, a jump on each"), scale=charts.log_scale())


def _ends(a: Analysis) -> alt.LayerChart | None:
    ends = zip(a.stated, ("L1 iTLB", "L2 iTLB"), strict=False)
    return charts.marks([(n, f"{name}: {n:,}") for n, name in ends], "lines") if a.stated else None


def jumps(a: Analysis) -> Figure:
    """ns a jump to lines a page apart, and side by side, a line a kind of jump; those side by side are thin."""
    required(a.spread, "no jumps were measured")
    named = [(NAMES[kind], where, curves[kind]) for kind in KINDS for where, curves in (("apart", a.spread), ("side by side", a.packed))
             if kind in curves]
    tables = [curve.table.reindex(columns=_FIELDS).assign(kind=name, where=where) for name, where, curve in named]
    data = pd.concat(tables, ignore_index=True)
    scheme, scale = charts.colours([NAMES[kind] for kind in KINDS if kind in a.spread]), charts.time_scale(data)
    values = [tick for tick in _TIMES if data["low"].min() * 0.5 <= tick <= data["high"].max() * 1.1]
    chart = alt.Chart(data).mark_line(point=alt.OverlayMarkDef(size=18)).encode(
        x=_PAGES, y=alt.Y("median:Q", axis=charts.ns_axis("ns a jump", values), scale=scale),
        color=alt.Color("kind:N", sort=scheme.domain, scale=scheme, legend=alt.Legend(title=None, columns=1)),
        strokeDash=alt.StrokeDash("where:N", sort=["apart", "side by side"], legend=charts.line_legend(columns=1)),
        tooltip=["kind:N", "where:N", alt.Tooltip("lines:Q", format=","), alt.Tooltip("median:Q", format=".3~r", title="ns")])
    last = data[data["lines"] == data["lines"].max()]
    told = listed(f"{row.kind} and {row.where} {row.median:.1f} ns" for row in last.itertuples())
    most = count(last["lines"].iloc[0])
    return Figure(charts.layered(chart, _ends(a)), f"Time per jump against pages of code. At {most} pages it takes: {told}.",
                  data[["kind", "where", *_FIELDS]])


def translation(a: Analysis) -> Figure:
    """ns an aliased jump, with the two levels that fit it."""
    data = required(a.alias.table, "no aliased jumps were measured").reindex(columns=_FIELDS).assign(series="measured")
    scale = alt.Scale(domain=[0.0, float(data["high"].max()) * 1.1], nice=False)
    chart = charts.series_chart(data, _PAGES, "ns a jump", scale, charts.PRICES, charts.colours(["measured"]), "series")
    said = f"A drawn jump to many pages of addresses on eight of memory takes {data['median'].min():.1f} to {data['median'].max():.1f} ns."
    if not a.tlb:
        return Figure(charts.layered(chart, _ends(a)), f"{said} It does not show two levels.", data[_FIELDS])
    xs = np.geomspace(data["lines"].min(), data["lines"].max(), 60)
    fitted = pd.DataFrame({"lines": xs, "median": a.tlb.predict(xs)})
    line = alt.Chart(fitted).mark_line(strokeDash=[4, 3], color=MUTED).encode(x=_PAGES, y=alt.Y("median:Q", scale=scale))
    return Figure(charts.layered(chart, line, _ends(a)), f"{said} Two levels of {a.tlb.first.value:.0f} and "
                  f"{count(a.tlb.last.value)} entries fit it better than any other two.", data[_FIELDS])


def texts(a: Analysis) -> Figure:
    """ns a jump in texts of several sizes, on base pages and on large ones."""
    rows = required(a.texts, "no large text was measured")
    named = {words(BASE): "base", words(LARGE_TEXT): "large"}
    data = pd.DataFrame([{"mib": f"{row['mib']} MiB", "pages": name, "median": row[column].value, "low": row[column].low,
                          "high": row[column].high} for _, row in rows.iterrows() for name, column in named.items()]).dropna()
    x = alt.X("mib:N", sort=list(dict.fromkeys(data["mib"])), axis=alt.Axis(title="Code, all of it jumped to", labelAngle=0))
    base = alt.Chart(data).encode(x=x, xOffset=alt.XOffset("pages:N", sort=list(named)))
    bars = base.mark_bar(size=16).encode(
        y=alt.Y("median:Q", axis=charts.ns_axis("ns a jump")),
        color=alt.Color("pages:N", sort=list(named), scale=charts.colours(list(named)), legend=alt.Legend(title=None)),
        tooltip=["mib:N", "pages:N", alt.Tooltip("median:Q", format=".3~r", title="ns")])
    bars += base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q", color=alt.value(MUTED))
    ends = [data[data["mib"] == data["mib"].iloc[place]] for place in (0, -1)]
    told = [f"{listed(f'{row.median:.0f} ns on {row.pages}' for row in end.itertuples())} in {end['mib'].iloc[0]}" for end in ends]
    return Figure(bars, f"Time per drawn jump by the size of the code: it takes {told[0]}; {told[1]}.", data)
