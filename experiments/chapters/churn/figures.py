"""The charts of the chapter about churn, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.article import charts
from experiments.article.render import MUTED, Figure
from experiments.chapters.churn.analysis import NEW, PHASES, Analysis
from experiments.chapters.churn.grid import FEW
from experiments.chapters.churn.tables import CALL_WORDS
from experiments.inference.curves import Curve
from experiments.words.pages import words
from experiments.words.prose import extremes, in_words, listed
from experiments.words.reasons import required

_FIELDS = ["median", "low", "high", "coverage", "n", "unstable"]
KINDS = {"alone": "no switch", "thread": "a switch of threads", "process": "a switch of processes", NEW: "a new process"}
JOINED = {"none": "nothing", "other": "other memory", "address": "its own, as it lies", "random": "its own, in random order"}
_LONG = tuple(digit * 10**power for power in range(6) for digit in (1, 3))
_PRICES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_CALL_TICKS = tuple(digit * 10**power for power in range(2, 8) for digit in (1, 3))


def _named(curves: dict[str, Curve], names: dict[str, str], x: str) -> pd.DataFrame:
    return pd.concat([curve.table.assign(series=names[key], lines=curve.table[curve.x])[["series", "lines", *_FIELDS]]
                      for key, curve in curves.items()], ignore_index=True).rename(columns={"lines": x})


def calls(a: Analysis) -> Figure:
    """ns a call by the pages that it takes, alone and beside threads on other CPUs."""
    required(a.calls_alone, "no calls were measured")
    sides = [("on one CPU", a.calls_alone), (f"on {in_words(a.most_others + 1)} CPUs", a.calls_beside)]
    data = pd.concat([_named(curves, CALL_WORDS, "lines").assign(where=where) for where, curves in sides if curves], ignore_index=True)
    scheme = charts.colours([CALL_WORDS[call] for call in a.calls_alone])
    values = [tick for tick in _CALL_TICKS if data["low"].min() * 0.5 <= tick <= data["high"].max() * 1.1]
    chart = alt.Chart(data).mark_line(point=alt.OverlayMarkDef(size=24)).encode(
        x=alt.X("lines:Q", axis=charts.lines_axis("Pages that a call takes", sorted(set(data["lines"]))), scale=charts.log_scale()),
        y=alt.Y("median:Q", axis=charts.ns_axis("ns a call", values), scale=charts.time_scale(data)),
        color=alt.Color("series:N", sort=scheme.domain, scale=scheme, legend=alt.Legend(title=None, columns=1)),
        strokeDash=alt.StrokeDash("where:N", sort=[where for where, _ in sides], legend=charts.line_legend(columns=1)),
        tooltip=["series:N", "where:N", alt.Tooltip("lines:Q", title="pages"), alt.Tooltip("median:Q", format=".3~r", title="ns")])
    least = data[data["lines"] == data["lines"].min()]
    told = listed(f"{row.series} {row.where} {row.median:,.0f} ns" for row in least.itertuples())
    return Figure(chart, f"Time per call by how many pages it takes, on one CPU and on more. Of one page it takes: {told}.",
                  data[["series", "where", "lines", *_FIELDS]].rename(columns={"lines": "pages"}))


def shares(a: Analysis) -> Figure:
    """What a call on one page takes, as bars: alone, beside as many processes, beside as many threads of its own."""
    required(a.shootdowns, "no calls beside other threads were measured", "one-cpu" if len(a.host.usable_cpus) < 2 else "too-few-points")
    rows = [(CALL_WORDS[call], name, interval.value, interval.low, interval.high) for call in a.shootdowns for name, interval in (
        ("nobody", a.calls_alone[call].get(FEW)), ("processes that share nothing", a.apart(call)),
        ("threads of the program", a.calls_beside[call].get(FEW)))]
    data = pd.DataFrame(rows, columns=["call", "beside", "median", "low", "high"]).dropna()
    order = list(dict.fromkeys(data["beside"]))
    base = alt.Chart(data).encode(x=alt.X("call:N", sort=list(CALL_WORDS.values()), axis=alt.Axis(title=None, labelAngle=0)),
                                  xOffset=alt.XOffset("beside:N", sort=order))
    bars = base.mark_bar(size=22).encode(
        y=alt.Y("median:Q", axis=charts.ns_axis("ns a call on one page")),
        color=alt.Color("beside:N", sort=order, scale=charts.colours(order), legend=alt.Legend(title="beside", columns=1)),
        tooltip=["call:N", "beside:N", alt.Tooltip("median:Q", format=".3~r", title="ns")])
    chart = bars + base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q", color=alt.value(MUTED))
    worst = data.loc[data["median"].idxmax()]
    return Figure(chart, f"Time per call on one page by who runs on the other CPUs. The longest is {worst['call']} beside "
                         f"{worst['beside']}, which takes {worst['median']:,.0f} ns.", data)


def joining(a: Analysis) -> Figure:
    """ns a hop before, during and after pages are joined: the median of slices and their 99.9th percentile, a line a way."""
    data = required(a.joining, "no chase over pages that are joined was measured",
                    "one-cpu" if len(a.host.usable_cpus) < 2 else "too-few-points").assign(series=a.joining["mode"].map(JOINED))
    names = [name for mode, name in JOINED.items() if (data["mode"] == mode).any()]
    scheme, dashes = charts.colours(names), {"p50": "median", "p999": "99.9th percentile"}
    data["of"] = data["quantile"].map(dashes)
    values = [tick for tick in _LONG if data["low"].min() * 0.5 <= tick <= data["high"].max() * 1.1]
    chart = alt.Chart(data).mark_line(point=alt.OverlayMarkDef(size=24)).encode(
        x=alt.X("phase:N", sort=list(PHASES), axis=alt.Axis(title=None, labelAngle=0)),
        y=alt.Y("median:Q", axis=charts.ns_axis("ns a hop", values), scale=charts.time_scale(data)),
        color=alt.Color("series:N", sort=names, scale=scheme, legend=alt.Legend(title="joined", columns=1)),
        strokeDash=alt.StrokeDash("of:N", sort=list(dashes.values()), legend=charts.line_legend(columns=1)),
        tooltip=["series:N", "phase:N", "of:N", alt.Tooltip("median:Q", format=".3~r", title="ns")])
    worst = data.loc[data["median"].idxmax()]
    return Figure(chart, f"Time per hop before, during and after pages are joined. The longest is {worst['median']:,.0f} ns, the "
                         f"{worst['of']} {worst['phase']}, where what is joined is {worst['series']}.",
                  data[["series", "phase", "of", "median", "low", "high"]])


def switches(a: Analysis) -> Figure:
    """ns a hop for translation, after each kind of switch, over the pages chased."""
    required(a.after, "no rounds were measured")
    data = _named(a.after, KINDS, "lines")
    x = alt.X("lines:Q", axis=charts.lines_axis("Pages chased after each switch", sorted(set(data["lines"]))), scale=charts.log_scale())
    names = [KINDS[kind] for kind in a.after]
    chart = charts.series_chart(data, x, "ns a hop for translation", charts.price_scale(data), _PRICES, charts.colours(names), "series",
                                columns=1)
    values = {KINDS[kind]: price.last.value for kind, price in a.after.items()}
    return Figure(chart, f"What translation costs a hop after each kind of switch, over the most pages: {extremes(values)}",
                  data.rename(columns={"lines": "pages"}))


def passes(a: Analysis) -> Figure:
    """ns a hop by the number of a new process's round, on pages apart and side by side."""
    data = required(a.passes, "no new processes were measured").assign(lines=lambda table: table["number"], n=float("nan"))
    data["series"] = data["layout"].map({"spread": "a page to each line", "packed": "as many lines side by side"})
    names = list(dict.fromkeys(data["series"]))
    x = alt.X("lines:Q", axis=alt.Axis(title="Round of a new process", values=sorted(set(data["number"]))), scale=charts.log_scale())
    chart = charts.series_chart(data, x, "ns a hop", charts.time_scale(data), charts.TIMES, charts.colours(names), "series", columns=1)
    of = data[data["layout"] == "spread"]
    first, last = (of.iloc[k]["median"] for k in (0, -1)) if len(of) else (data.iloc[0]["median"], data.iloc[-1]["median"])
    return Figure(chart, f"Time per hop by the round of a new process: it falls from {first:.1f} ns in the first to {last:.1f} in the "
                         "last.",
                  data[["number", "series", "median", "low", "high"]])


def forks(a: Analysis) -> Figure:
    """ns a fork by what is resident, a line a page size."""
    required(a.fork_ns, "no forks were measured")
    data = _named(a.fork_ns, {pages: pages for pages in a.fork_ns}, "lines")
    data["working_set_bytes"] = data["lines"] * a.base_page_bytes
    scheme = charts.page_colours(a.fork_ns)
    x = alt.X("working_set_bytes:Q", axis=charts.bytes_axis("Resident", sorted(set(data["working_set_bytes"]))), scale=charts.log_scale())
    chart = charts.series_chart(data, x, "ns a fork", charts.time_scale(data), _CALL_TICKS, scheme, "series")
    told = listed(f"{curve.last.value / 1e3:,.0f} µs on {words(pages)}" for pages, curve in a.fork_ns.items())
    return Figure(chart, f"Time per fork by what is resident. At the largest size it takes {told}, rising from the smallest.",
                  data[["series", "working_set_bytes", *_FIELDS]])


def load(a: Analysis) -> Figure:
    """ns a hop for translation beside streams of several sizes: at the median, and at the 99th percentile of slices."""
    a.under_load()
    names = {"p50": "median of slices", "p99": "99th percentile"}
    data = _named({name: curve for name, curve in a.loaded.items() if name in names}, names, "mib").assign(
        lines=lambda table: table["mib"].clip(lower=0.5))
    ticks = sorted(set(data["lines"]))
    x = alt.X("lines:Q", axis=alt.Axis(title="MiB that a thread beside streams", values=ticks,
                                       labelExpr="datum.value < 1 ? 'none' : format(datum.value, '~g')"), scale=charts.log_scale())
    scale = charts.price_scale(data)
    chart = charts.series_chart(data, x, "ns a hop for translation", scale, _PRICES, charts.colours(list(names.values())), "series")
    price = a.loaded["mean"]
    return Figure(chart, "What translation costs a hop beside a thread that streams memory: it goes from "
                         f"{price.intervals[0].value:.0f} ns beside one that only runs to {price.last.value:.0f} beside "
                         f"{price.xs[-1]:.0f} MiB.",
                  data[["series", "mib", *_FIELDS]])
