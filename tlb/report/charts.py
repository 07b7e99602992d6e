"""What the charts of all chapters are made of: axes, scales, colours, a line with its interval,
dashed rules at capacities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TypeVar

import altair as alt
import pandas as pd

from tlb.page_sizes import SWEPT, ordered
from tlb.report.render import MUTED, PALETTE
from tlb.units import format_size

_BINARY = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
# About as many ticks as a chart of one text column has room to label.
_TICKS = 10


def _binary_labels(unit: str) -> str:
    """Return a Vega expression for a tick in the largest binary multiple of a unit: "64 KiB"."""
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
    """An axis of nanoseconds, linear or logarithmic, labelled "0.5", "20", "1,500"; `values`: the
    ticks."""
    return _axis(title, "format(datum.value, ',~g')", values)


def log_scale(base: int = 2, domain: tuple[float, float] | None = None) -> alt.Scale:
    """Return a logarithmic scale that ends with the data, or at `domain`, in its unit."""
    return alt.Scale(
        type="log", base=base, nice=False, **({"domain": list(domain)} if domain else {})
    )


def line_legend(**more: object) -> alt.Legend:
    """A legend for lines: a stretch of each, with its dash. For colour and dash of the same field
    alike. more: as alt.Legend has it."""
    return alt.Legend(title=None, symbolType="stroke", symbolSize=420, symbolOpacity=1, **more)


# Colours by what a series is, the same in every chapter.
LAYOUTS = alt.Scale(domain=["spread", "packed"], range=[PALETTE[0], PALETTE[1]])
ORDERS = alt.Scale(
    domain=["cycle", "random", "sequential"], range=[PALETTE[0], PALETTE[1], PALETTE[2]]
)
# A page size has the same colour in every figure.
PAGE_COLOURS = dict(zip(SWEPT, PALETTE, strict=False))


def page_colours(kinds: Iterable[str]) -> alt.Scale:
    """A scale of the page sizes that occur, from small to large."""
    shown = ordered(kinds)
    return alt.Scale(domain=shown, range=[PAGE_COLOURS[pages] for pages in shown])


def colours(names: Sequence[str]) -> alt.Scale:
    """A scale of series, in the palette's order."""
    return alt.Scale(domain=list(names), range=list(PALETTE[: len(names)]))


_Drawn = TypeVar("_Drawn", alt.Chart, alt.LayerChart)
PUBLISHED = "published"  # the name in a chart of the switch of what others published


def published(chart: _Drawn, others: str | None = None) -> _Drawn:
    """What others published, behind a switch that a reader may unset to see this machine's alone.
    It is set from the start, as in the static drawing, for captions and texts speak of both.
    others: a Vega expression of the rows that are not published, where the chart has such too."""
    switch = alt.param(
        name=PUBLISHED, value=True, bind=alt.binding_checkbox(name="the published figures too")
    )
    return chart.transform_filter(
        PUBLISHED if others is None else f"{PUBLISHED} || {others}"
    ).add_params(switch)


# Ticks of a price that starts at zero, and of a time per access on a logarithmic axis.
PRICES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
TIMES = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


def intervals_on_log(data: pd.DataFrame, *also: float) -> tuple[pd.DataFrame, tuple[float, float]]:
    """Values above zero with the columns `begin` and `end`, which are low and high or, where these
    are open or a logarithmic axis has no place for them, its ends; and the ends, a tenth beyond all
    that it has to hold. also: what it has to hold besides."""
    data = data.astype(dict.fromkeys(("value", "low", "high"), float))
    ends = pd.concat([data["value"], data["low"], data["high"], pd.Series(also, dtype=float)])
    ends = ends[(ends > 0) & (ends < inf)]
    low, high = float(ends.min()) * 0.9, float(ends.max()) * 1.1
    return data.assign(
        begin=data["low"].where(data["low"] > 0, low),
        end=data["high"].where(data["high"] < inf, high),
    ), (low, high)


def _interval_tooltip(series: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip(f"{series}:N"),
        alt.Tooltip("lines:Q", format=",", title="pages"),
        alt.Tooltip("median:Q", format=".3~r", title="ns"),
        alt.Tooltip("low:Q", format=".3~r"),
        alt.Tooltip("high:Q", format=".3~r"),
        alt.Tooltip("n:Q", title="processes"),
    ]


def price_scale(frame: pd.DataFrame) -> alt.Scale:
    """Linear up to 1 ns, so that treads at zero and at a few cycles show beside walks of hundreds
    of ns."""
    return alt.Scale(
        type="symlog",
        constant=1,
        nice=False,
        domain=[min(0.0, frame["low"].min()), frame["high"].max() * 1.1],
    )


def series_chart(
    frame: pd.DataFrame,
    x: alt.X,
    y_title: str,
    y_scale: alt.Scale,
    ticks: Sequence[float],
    colours: alt.Scale,
    series: str,
    joined: Sequence[str] | None = None,
    columns: int | None = None,
) -> alt.LayerChart:
    """Median, interval and points of `summarise`d rows, a colour and a shape each series; lines
    through those `joined`. columns: of a legend that is too long for one row of a narrow page.

    The bands carry no colour encoding of their own: they would have a legend of their own too.
    """
    top, bottom = frame["high"].max() * 1.1, frame["low"].min()
    values = [tick for tick in ticks if bottom * 0.5 <= tick <= top]
    legend = {"legend": alt.Legend(columns=columns)} if columns else {}
    base = alt.Chart(frame).encode(
        x=x,
        y=alt.Y("median:Q", axis=ns_axis(y_title, values), scale=y_scale),
        color=alt.Color(f"{series}:N", scale=colours, sort=colours.domain, **legend),
    )
    # Filtered in the chart and not in the frame: the page then carries the data once.
    bands = [
        alt.Chart(frame)
        .mark_area(opacity=0.2, color=colour)
        .encode(x=x, y=alt.Y("low:Q", scale=y_scale), y2="high:Q")
        .transform_filter(alt.FieldEqualPredicate(field=series, equal=name))
        for name, colour in zip(colours.domain, colours.range, strict=True)
        if frame.loc[frame[series] == name, "low"].notna().any()
    ]
    drawn = (
        base
        if joined is None
        else base.transform_filter(alt.FieldOneOfPredicate(field=series, oneOf=list(joined)))
    )
    points = base.mark_point().encode(
        shape=alt.Shape(
            f"{series}:N", sort=colours.domain, scale=alt.Scale(domain=colours.domain), **legend
        ),
        tooltip=_interval_tooltip(series),
    )
    return alt.layer(*bands, drawn.mark_line(), points)


def marks(places: Sequence[tuple[float, str]], x: str) -> alt.LayerChart:
    """Dashed rules with a label at the top: where a capacity ends. Each label a line lower than the
    one before, so that they do not touch where the page is narrow."""
    frame = pd.DataFrame(places, columns=[x, "label"])
    rules = alt.Chart(frame).mark_rule(strokeDash=[4, 4], color=MUTED).encode(x=f"{x}:Q")
    labels = [
        alt.Chart(frame.iloc[[k]])
        .mark_text(align="left", dx=5, dy=2 + 16 * k, baseline="top", color=MUTED)
        .encode(x=f"{x}:Q", text="label:N", y=alt.value(0))
        for k in range(len(frame))
    ]
    return alt.layer(rules, *labels)


ROW_PX = 32  # a row of a chart that has a name above each: a line of text, and a mark under it


def rows(field: str, names: Sequence[str], *layers: alt.Chart) -> alt.LayerChart:
    """Layers whose y is `row(field, names)`, with each name above its row. Beside it, a name of
    thirty letters would leave a telephone no width to draw in."""
    named = (
        alt.Chart(pd.DataFrame({field: list(names)}))
        .mark_text(align="left", dy=-ROW_PX // 2 + 4)
        .encode(x=alt.value(0), y=row(field, names), text=f"{field}:N")
    )
    return alt.layer(*layers, named).properties(height=ROW_PX * len(names))


def row(field: str, names: Sequence[str]) -> alt.Y:
    """The y of `rows`."""
    return alt.Y(f"{field}:N", sort=list(names), axis=None)


def reaches(entries: Sequence[int]) -> list[tuple[int, str]]:
    """The first and the last level's capacity, labelled."""
    ends = {"L1 dTLB": entries[0], "STLB": entries[-1]} if len(entries) > 1 else {}
    if len(entries) == 1:
        ends = {"TLB": entries[0]}
    return [(n, f"{name}: {n:,} pages") for name, n in ends.items()]


def working_set(base_page_bytes: int) -> alt.X:
    return alt.X(
        "working_set_bytes:Q",
        axis=bytes_axis(f"Pages touched × {format_size(base_page_bytes)}"),
        scale=log_scale(),
    )


def capacities(
    entries: Sequence[int], x: str = "working_set_bytes", base_page_bytes: int = 1
) -> alt.LayerChart | None:
    """`marks` at the capacities of the first and the last level, on an axis of pages or of bytes;
    None where nothing states them."""
    if not entries:
        return None
    return marks([(n * base_page_bytes, label) for n, label in reaches(entries)], x)


def layered(*layers: alt.LayerChart | alt.Chart | None) -> alt.LayerChart:
    """The layers that there are."""
    return alt.layer(*(layer for layer in layers if layer is not None))


def time_scale(frame: pd.DataFrame) -> alt.Scale:
    return alt.Scale(
        type="log",
        nice=False,
        domain=[frame["median"].min() * 0.85, frame[["median", "high"]].max().max() * 1.3],
    )


def chase_chart(
    frame: pd.DataFrame,
    colours: alt.Scale,
    series: str,
    entries: Sequence[int],
    base_page_bytes: int,
    *,
    is_price: bool = False,
    by_lines: bool = False,
    columns: int | None = None,
    processes: pd.DataFrame | None = None,
) -> alt.LayerChart:
    """A `series_chart` of chases against the working set, or `by_lines`, with the TLB's capacities:
    ns per access, or the price of it. processes: single ones, as dots (`Curve.processes`), in the
    columns of the frame."""
    x = (
        working_set(base_page_bytes)
        if not by_lines
        else alt.X(
            "lines:Q",
            axis=lines_axis(f"Lines touched, one to each {format_size(base_page_bytes)}"),
            scale=log_scale(),
        )
    )
    price = "ns per access for translation", price_scale(frame), PRICES
    y = price if is_price else ("ns per access", time_scale(frame), TIMES)
    ends = (
        capacities(entries, "lines")
        if by_lines
        else capacities(entries, base_page_bytes=base_page_bytes)
    )
    dots = None
    if processes is not None and not processes.empty:
        colour = alt.Color(f"{series}:N", scale=colours, sort=colours.domain)
        place = {"x": x, "y": alt.Y("median:Q", scale=y[1])}
        dots = alt.Chart(processes).mark_circle(size=14).encode(**place, color=colour)
    return layered(series_chart(frame, x, *y, colours, series, columns=columns), dots, ends)
