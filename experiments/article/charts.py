"""The charts of the chapters: one function a figure, from a tidy frame to a `Figure`. Also their axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd
from myst_nb import glue

from experiments.article.render import MUTED, PALETTE, Figure, Html, data_table, lacking_note, verdict_table
from experiments.words.reasons import Unavailable, explain
from experiments.words.units import format_ns, format_size

__all__ = [
    "Figure", "Html", "bytes_axis", "data_table", "lacking_note", "line_legend", "lines_axis",
    "log_scale", "ns_axis", "verdict_table",
]

_BINARY = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
# About as many ticks as a chart of one text column has room to label.
_TICKS = 10


def _binary_labels(unit: str) -> str:
    """A Vega expression for a tick in the largest binary multiple of `unit` not above it: "64 KiB"."""
    cases = "".join(
        f"datum.value >= {size} ? format(datum.value / {size}, '~g') + ' {prefix}{unit}' : "
        for size, prefix in _BINARY
    )
    return f"{cases}format(datum.value, '~g') + '{' ' + unit if unit else ''}'"


def _axis(title: str, labels: str, values: Sequence[float] | None) -> alt.Axis:
    ticks = {"tickCount": _TICKS} if values is None else {"values": list(values)}
    return alt.Axis(title=title, labelExpr=labels, **ticks)


def bytes_axis(title: str = "Working set", values: Sequence[float] | None = None) -> alt.Axis:
    """An axis of bytes, labelled "64 KiB" … "4 GiB"; `values` are the ticks, in bytes."""
    return _axis(title, _binary_labels("B"), values)


def lines_axis(title: str = "Lines touched", values: Sequence[float] | None = None) -> alt.Axis:
    """An axis of counts (lines, pages), labelled "16", "4 Ki" … "1 Mi"; `values` are the ticks."""
    return _axis(title, _binary_labels(""), values)


def ns_axis(title: str = "ns per access", values: Sequence[float] | None = None) -> alt.Axis:
    """An axis of nanoseconds, linear or logarithmic, labelled "0.5", "20", "1,500"; `values`: the ticks."""
    return _axis(title, "format(datum.value, ',~g')", values)


def log_scale(base: int = 2, domain: tuple[float, float] | None = None) -> alt.Scale:
    """A logarithmic scale that ends where the data ends, or at `domain`, in the unit of the data."""
    return alt.Scale(type="log", base=base, nice=False, **({"domain": list(domain)} if domain else {}))


def line_legend(title: str | None = None) -> alt.Legend:
    """A legend for lines: a stretch of each, with its dash. For colour and dash of the same field alike."""
    return alt.Legend(title=title, symbolType="stroke", symbolSize=420, symbolOpacity=1)


# --- one function a figure ---



def show(figure: Figure) -> None:
    """Show a figure where it is made and glue it under its name, for the text to place with a caption and a number."""
    glue(figure.name, figure)


def show_zoom(priced: pd.DataFrame, entries: int, models: dict[str, pd.Series] | None = None, *, name: str) -> None:
    """Show `zoom`, or in its place why there is none."""
    try:
        show(zoom(priced, entries, models, name=name))
    except Unavailable as why:
        show_lacking(name, why.code, why.detail)


def show_counters(series: Mapping[str, pd.DataFrame], entries: Sequence[int], *, name: str, title: str, cycles: bool = False) -> None:
    """Show `counters`, or in its place why there is none."""
    try:
        show(counters(series, entries, name=name, title=title, cycles=cycles))
    except Unavailable as why:
        show_lacking(name, why.code, why.detail)


def show_lacking(name: str, code: str, detail: str = "") -> None:
    """In the place of a figure that this machine has no data for: its reason."""
    glue(name, lacking_note(explain(code, detail)))


# Colours by what a series is, the same in every chapter.
LAYOUTS = alt.Scale(domain=["spread", "packed"], range=[PALETTE[0], PALETTE[1]])
ORDERS = alt.Scale(domain=["cycle", "random", "sequential"], range=[PALETTE[0], PALETTE[1], PALETTE[2]])
PAGE = 4096  # lines of a spread layout lie this far apart, bytes


# Ticks of a price that starts at zero, and of a time per access on a logarithmic axis.
PRICES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
TIMES = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


def _interval_tooltip(series: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{series}:N"), alt.Tooltip("lines:Q", format=",", title="pages"),
            alt.Tooltip("median:Q", format=".3~r", title="ns"), alt.Tooltip("low:Q", format=".3~r"),
            alt.Tooltip("high:Q", format=".3~r"), alt.Tooltip("n:Q", title="processes")]


def price_scale(frame: pd.DataFrame) -> alt.Scale:
    """Linear up to 1 ns, so that treads at zero and at a few cycles show beside walks of hundreds of ns."""
    return alt.Scale(type="symlog", constant=1, nice=False, domain=[min(0.0, frame["low"].min()), frame["high"].max() * 1.1])


def series_chart(frame: pd.DataFrame, x: alt.X, y_title: str, y_scale: alt.Scale, ticks: Sequence[float], colours: alt.Scale,
            series: str, joined: Sequence[str] | None = None, columns: int | None = None) -> alt.LayerChart:
    """Median, interval and points of `summarise`d rows, a colour and a shape each series; lines through those `joined`. columns: of
    a legend that is too long for one row of a narrow page.

    The bands carry no colour encoding of their own: they would have a legend of their own too.
    """
    top, bottom = frame["high"].max() * 1.1, frame["low"].min()
    values = [tick for tick in ticks if bottom * 0.5 <= tick <= top]
    legend = {"legend": alt.Legend(columns=columns)} if columns else {}
    base = alt.Chart(frame).encode(x=x, y=alt.Y("median:Q", axis=ns_axis(y_title, values), scale=y_scale), color=alt.Color(
        f"{series}:N", scale=colours, sort=colours.domain, **legend))
    bands = [alt.Chart(frame[frame[series] == name]).mark_area(opacity=0.2, color=colour).encode(
        x=x, y=alt.Y("low:Q", scale=y_scale), y2="high:Q") for name, colour in zip(colours.domain, colours.range, strict=True)
        if (frame[series] == name).any() and frame.loc[frame[series] == name, "low"].notna().any()]
    drawn = base if joined is None else base.transform_filter(alt.FieldOneOfPredicate(field=series, oneOf=list(joined)))
    points = base.mark_point().encode(shape=alt.Shape(f"{series}:N", sort=colours.domain, scale=alt.Scale(domain=colours.domain), **legend),
                                      tooltip=_interval_tooltip(series))
    return alt.layer(*bands, drawn.mark_line(), points)


def marks(places: Sequence[tuple[float, str]], x: str) -> alt.LayerChart:
    """Dashed rules with a label at the top: where a capacity ends. Each label a line lower than the one before, so that they
    do not touch where the page is narrow."""
    frame = pd.DataFrame(places, columns=[x, "label"])
    rules = alt.Chart(frame).mark_rule(strokeDash=[4, 4], color=MUTED).encode(x=f"{x}:Q")
    labels = [alt.Chart(frame.iloc[[k]]).mark_text(align="left", dx=5, dy=2 + 16 * k, baseline="top", color=MUTED).encode(
        x=f"{x}:Q", text="label:N", y=alt.value(0)) for k in range(len(frame))]
    return alt.layer(rules, *labels)


def reaches(entries: Sequence[int]) -> list[tuple[int, str]]:
    """The first and the last level's capacity, labelled."""
    ends = {"L1 dTLB": entries[0], "STLB": entries[-1]} if len(entries) > 1 else {"TLB": entries[0]} if entries else {}
    return [(n, f"{name}: {n:,} pages") for name, n in ends.items()]


def working_set() -> alt.X:
    return alt.X("working_set_bytes:Q", axis=bytes_axis("Pages touched × 4 KiB"), scale=log_scale())


def time_scale(frame: pd.DataFrame) -> alt.Scale:
    return alt.Scale(type="log", nice=False, domain=[frame["median"].min() * 0.85, frame[["median", "high"]].max().max() * 1.3])


def cliff(spread: pd.DataFrame, packed: pd.DataFrame, entries: Sequence[int]) -> Figure:
    """ns per access against working set, spread and packed; frames of `claims.curve`."""
    data = pd.concat([spread.assign(layout="spread"), packed.assign(layout="packed")], ignore_index=True)
    data["working_set_bytes"] = data["lines"] * PAGE
    data = data[["layout", "lines", "working_set_bytes", "median", "low", "high", "coverage", "n", "spread", "unstable", "outliers"]]
    chart = series_chart(data, working_set(), "ns per access", time_scale(data), TIMES, LAYOUTS, "layout")
    if entries:
        chart += marks([(n * PAGE, label) for n, label in reaches(entries)], "working_set_bytes")
    ends = spread.iloc[[0, -1]]
    alternative = (
        f"Line chart on logarithmic axes. One line per page: {format_ns(ends['median'].iloc[0])} an access at "
        f"{format_size(int(ends['lines'].iloc[0]) * PAGE)}, rising in steps to {format_ns(ends['median'].iloc[1])} at "
        f"{format_size(int(ends['lines'].iloc[1]) * PAGE)}. The same lines packed: {format_ns(packed['median'].iloc[0])}, "
        f"rising to {format_ns(packed['median'].iloc[-1])}.")
    return Figure(chart, "cliff", alternative, data)


def price(priced: pd.DataFrame, entries: Sequence[int]) -> Figure:
    """The price of translation, spread minus packed, of one order; a frame of `claims.price`."""
    data = priced[["lines", "median", "low", "high", "coverage", "n_spread", "n_packed", "unstable"]].assign(
        working_set_bytes=priced["lines"] * PAGE, series="spread - packed", n=priced["n_spread"])
    colours = alt.Scale(domain=["spread - packed"], range=[PALETTE[0]])
    chart = series_chart(data, working_set(), "ns per access for translation", price_scale(data), PRICES, colours, "series")
    if entries:
        chart += marks([(n * PAGE, label) for n, label in reaches(entries)], "working_set_bytes")
    alternative = (f"The difference between the two lines of the figure before, in nanoseconds per access: {data['median'].iloc[0]:.1f} "
                   f"at {int(data['lines'].iloc[0])} pages, {data['median'].iloc[-1]:.0f} at {int(data['lines'].iloc[-1]):,} pages.")
    return Figure(chart, "price", alternative, data.drop(columns=["series", "n"]))


def zoom(priced: pd.DataFrame, entries: int, models: dict[str, pd.Series] | None = None, *, name: str) -> Figure:
    """The price of translation within an octave of one knee, with what models of that TLB predict.

    models: name -> price in ns, indexed by lines. Raises Unavailable("too-few-points") where nothing was measured there.
    """
    near = priced[priced["lines"].between(entries * 2**-0.8, entries * 2**1.03) & priced["median"].notna()]
    if near.empty:
        raise Unavailable("too-few-points", f"nothing was measured within an octave of {entries:,} pages")
    data = near[["lines", "median", "low", "high", "coverage", "n_spread", "n_packed", "unstable"]].assign(series="measured")
    curves = [pd.DataFrame({"lines": s.index, "median": s.to_numpy(), "series": label}) for label, s in (models or {}).items()]
    every = pd.concat([data, *curves], ignore_index=True)
    order = ["measured", *(models or {})]
    axis = alt.Axis(title="Pages touched", values=[round(entries * 2**k) for k in (-0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1)],
                    format=",")
    x = alt.X("lines:Q", axis=axis, scale=log_scale(domain=(entries * 2**-0.8, entries * 2**1.03)))
    y = alt.Y("median:Q", axis=ns_axis("ns per access for translation"))
    legend = alt.Legend(title=None, symbolType="stroke", symbolSize=420, columns=2)
    colour = alt.Color("series:N", sort=order, legend=legend, scale=alt.Scale(domain=order, range=list(PALETTE[: len(order)])))
    dash = alt.StrokeDash("series:N", sort=order, legend=legend, scale=alt.Scale(
        domain=order, range=[[1, 0], [6, 3], [2, 3], [8, 3, 2, 3]][: len(order)]))
    lines = alt.Chart(every).mark_line(clip=True).encode(x=x, y=y, color=colour, strokeDash=dash)
    points = alt.Chart(data).mark_point(clip=True).encode(
        x=x, y=y, color=colour, tooltip=[alt.Tooltip("lines:Q", format=","), alt.Tooltip("median:Q", format=".3~r", title="ns")])
    bars = alt.Chart(data).mark_rule(clip=True).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour)
    first, last = data.iloc[0], data.iloc[-1]
    alternative = (f"The price of translation around {entries:,} pages: {first['median']:.1f} ns at {int(first['lines']):,} pages, "
                   f"{last['median']:.1f} ns at {int(last['lines']):,}" + (f", beside {', '.join(models)}." if models else "."))
    return Figure(lines + bars + points + marks([(entries, f"{entries:,} entries by CPUID")], "lines"), name, alternative, every)


def orders(priced: dict[str, pd.DataFrame], model: pd.Series | None) -> Figure:
    """The price of translation of each order of visits, and 1 - C/M fitted to the random one (ns by lines)."""
    data = pd.concat([p[["lines", "median", "low", "high"]].assign(order=order, n=p["n_spread"]) for order, p in priced.items()],
                     ignore_index=True)
    x = alt.X("lines:Q", axis=lines_axis("Pages touched"), scale=log_scale())
    joined = ["cycle", "sequential"] if model is not None else None
    scale = price_scale(data)
    chart = series_chart(data, x, "ns per access for translation", scale, PRICES, ORDERS, "order", joined)
    if model is not None:
        fitted = pd.DataFrame({"lines": model.index, "median": model.to_numpy(), "order": "random"})
        chart += alt.Chart(fitted).mark_line(color=PALETTE[1]).encode(x=x, y=alt.Y("median:Q", scale=scale))
        data = pd.concat([data, fitted.assign(order="random, 1 - C/M fitted")], ignore_index=True)
    last = {order: p.iloc[-1] for order, p in priced.items()}
    alternative = "The price of translation by order of visits. " + " ".join(
        f"{order.capitalize()}: {row['median']:.0f} ns at {int(row['lines']):,} pages." for order, row in last.items())
    return Figure(chart, "orders", alternative, data)


def latency_and_throughput(chase: pd.DataFrame, gather: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """Dependent chase, independent gather, and the published run (columns working_set_bytes, ns_per_access)."""
    names = ["dependent chase", "independent gather", "published gather"]
    ours = [f.assign(series=label) for f, label in ((chase, names[0]), (gather, names[1]))]
    theirs = published.rename(columns={"ns_per_access": "median"}).assign(series=names[2], lines=published["working_set_bytes"] // PAGE)
    data = pd.concat([*ours, theirs], ignore_index=True)[["series", "lines", "median", "low", "high", "n"]]
    data["working_set_bytes"] = data["lines"] * PAGE
    colours = alt.Scale(domain=names, range=[PALETTE[0], PALETTE[1], PALETTE[3]])
    chart = series_chart(data, working_set(), "ns per access", time_scale(data), TIMES, colours, "series")
    both = chase.merge(gather, on="lines", suffixes=("_chase", "_gather")).iloc[-1]
    alternative = (f"Line chart on logarithmic axes. At {int(both['lines']):,} pages a dependent load takes {both['median_chase']:.0f} ns, "
                   f"an independent one {both['median_gather']:.1f} ns, because the core overlaps them.")
    return Figure(chart, "latency_throughput", alternative, data)


# Ticks of a count per access, and of cycles per access, on axes that begin at zero.
_COUNTS = (0, 0.2, 0.4, 0.6, 0.8, 1)
_CYCLES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


def counters(series: Mapping[str, pd.DataFrame], entries: Sequence[int], *, name: str, title: str, cycles: bool = False) -> Figure:
    """Counts per access against the working set: label -> frame with lines and median, and where measured low, high and n.

    A label says whether its numbers are counted, simulated, predicted, inferred or published; what a model predicts is a line
    without points. Raises Unavailable without any series: no-clock where cycles are wanted, else no-data.
    """
    if not series:
        raise Unavailable("no-clock" if cycles else "no-data")
    data = pd.concat([one.reindex(columns=["lines", "median", "low", "high", "n"]).assign(series=label) for label, one in series.items()],
                     ignore_index=True)
    data["working_set_bytes"] = data["lines"] * PAGE
    labels = list(series)
    top = float(data[["median", "high"]].max().max())  # above it stand the labels of the capacities
    if cycles:
        scale = alt.Scale(type="symlog", constant=1, nice=False, domain=[min(0.0, data[["median", "low"]].min().min()), top * 2])
        ticks = [tick for tick in _CYCLES if tick <= top]
    else:
        scale, ticks = alt.Scale(domain=[0, max(1.15, top * 1.15)], nice=False), [*_COUNTS]
    legend = alt.Legend(title=None, symbolType="stroke", symbolSize=420, symbolOpacity=1, columns=1)
    colour = alt.Color("series:N", sort=labels, legend=legend, scale=alt.Scale(domain=labels, range=list(PALETTE[: len(labels)])))
    dash = alt.StrokeDash("series:N", sort=labels, legend=legend, scale=alt.Scale(
        domain=labels, range=[[1, 0], [6, 3], [2, 3], [8, 3, 2, 3]][: len(labels)]))
    base = alt.Chart(data).encode(x=working_set(), color=colour,
                                  y=alt.Y("median:Q", axis=ns_axis(title, ticks), scale=scale))
    lines = base.mark_line().encode(strokeDash=dash)
    points = base.transform_filter("!test(/predicted/, datum.series)").mark_point().encode(
        tooltip=[alt.Tooltip("series:N"), alt.Tooltip("lines:Q", format=",", title="pages"), alt.Tooltip("median:Q", format=".3~r"),
                 alt.Tooltip("n:Q", title="processes")])
    chart = lines + points
    if entries:
        chart += marks([(n * PAGE, label) for n, label in reaches(entries)], "working_set_bytes")
    last = {label: one.dropna(subset=["median"]).iloc[-1] for label, one in series.items()}
    alternative = f"{title[0].upper()}{title[1:]} against the working set. " + " ".join(
        f"{label[0].upper()}{label[1:]}: {row['median']:.3g} at {int(row['lines']):,} pages." for label, row in last.items())
    return Figure(chart, name, alternative, data[["series", "lines", "working_set_bytes", "median", "low", "high", "n"]])
