"""The shapes of the chapters' charts: a line with its interval, bars and rows with intervals, lines
by colour and dash, dashed rules at capacities. Their axes and colours are those of `axes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import altair as alt
import pandas as pd

from tlb.report.axes import (
    PRICES,
    TIMES,
    colour,
    dash,
    lines_axis,
    log_scale,
    median_y,
    price_scale,
    shape,
    time_scale,
    tips,
    working_set,
)
from tlb.report.render import INK, MUTED, PALETTE
from tlb.stats.curves import Curve
from tlb.system.reasons import required
from tlb.system.units import format_size

_Drawn = TypeVar("_Drawn", alt.Chart, alt.LayerChart)
PUBLISHED = "published"  # the name in a chart of the switch of what others published
# Columns of `summarise` in the data that a figure offers.
INTERVAL = ["median", "low", "high"]
FIELDS = [*INTERVAL, "coverage", "n", "unstable"]
ROW_PX = 38  # a row of a chart that has a name above each: a line of text, and a mark under it


def stacked(
    curves: Mapping[str, Curve], lacking: str, series: str = "series", page_bytes: int = 0
) -> pd.DataFrame:
    """Return the tables of curves under each other, their names in the column `series` and their x
    in `lines`; page_bytes: of a line, for `working_set_bytes`. Raises
    Unavailable("too-few-points") if all are empty."""
    tables = [
        curve.table.rename(columns={curve.x: "lines"}).assign(**{series: name})
        for name, curve in curves.items()
        if len(curve)
    ]
    data = pd.concat(required(tables, lacking), ignore_index=True)
    return data.assign(working_set_bytes=data["lines"] * page_bytes) if page_bytes else data


def in_us(data: pd.DataFrame) -> pd.DataFrame:
    """Return medians and their intervals in microseconds, for what takes thousands of ns."""
    return data.assign(**{name: data[name] / 1e3 for name in ("median", "low", "high")})


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


def series_chart(
    frame: pd.DataFrame,
    x: alt.X,
    y_title: str,
    colours: alt.Scale,
    series: str = "series",
    *,
    scale: alt.Scale | None = None,
    ticks: Sequence[float] = TIMES,
    joined: Sequence[str] | None = None,
    banded: Sequence[str] | None = None,
    columns: int | None = None,
) -> alt.LayerChart:
    """Median, interval and points of `summarise`d rows, a colour and a shape each series; lines
    through those `joined`, by default all. banded: those whose intervals form a band, by default
    all; the others have a bar at each point. scale: by default `time_scale`. columns: of a legend
    that is too long for one row of a narrow page.
    """
    y = median_y(frame, y_title, ticks, scale)
    legend = {"columns": columns} if columns else {}
    base = alt.Chart(frame).encode(x=x, y=y, color=colour(series, colours, **legend))
    lines = base
    if joined is not None:
        lines = base.transform_filter(alt.FieldOneOfPredicate(field=series, oneOf=list(joined)))
    count = alt.Tooltip("lines:Q", format=",", title="pages")
    points = base.mark_point().encode(
        shape=shape(series, colours.domain, **legend),
        tooltip=[*tips(f"{series}:N", count), alt.Tooltip("n:Q", title="processes")],
    )
    bands = _bands(frame, x, y["scale"], colours, series, banded)
    return alt.LayerChart(layer=[*bands, lines.mark_line(), points])


def _bands(
    frame: pd.DataFrame,
    x: alt.X,
    scale: alt.Scale,
    colours: alt.Scale,
    series: str,
    banded: Sequence[str] | None,
) -> list[alt.Chart]:
    """Return the intervals of each series that has any. They carry no colour encoding of their own:
    they would have a legend of their own too. Filtered in the chart and not in the frame: the page
    then carries the data once."""
    base = alt.Chart(frame)
    return [
        (
            base.mark_area(opacity=0.2, color=colour)
            if banded is None or name in banded
            else base.mark_rule(strokeWidth=2, color=colour)
        )
        .encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q")
        .transform_filter(alt.FieldEqualPredicate(field=series, equal=name))
        for name, colour in zip(colours.domain, colours.range, strict=True)
        if frame.loc[frame[series] == name, "low"].notna().any()
    ]


def dashed(
    data: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    color: alt.Color,
    by: tuple[str, Iterable[str]],
    *tooltip: alt.Tooltip,
    unit: str = "ns",
    size: int = 24,
) -> alt.LayerChart:
    """Lines with points and their intervals, a colour a series and a dash for each name of a second
    column, `by`."""
    column, kinds = by
    dashes = dash(column, kinds)
    shown = tips(color["shorthand"], f"{column}:N", *tooltip, unit=unit, bounds=False)
    lines = alt.Chart(data).mark_line(point=alt.OverlayMarkDef(size=size))
    lines = lines.encode(x=x, y=y, color=color, strokeDash=dashes, tooltip=shown)
    series = color["shorthand"].partition(":")[0]
    bands = _bands(data, x, y["scale"], color["scale"], series, ())
    return alt.LayerChart(layer=[*bands, lines])


def bars(
    data: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    color: alt.Color,
    *tooltip: alt.Tooltip,
    unit: str = "ns",
    size: int = 20,
) -> alt.LayerChart:
    """Bars of medians in groups along x, a colour for each of a group, with their intervals."""
    offset = alt.XOffset(color["shorthand"], sort=color["sort"])
    base = alt.Chart(data).encode(x=x, xOffset=offset)
    shown = [*tips(x["shorthand"], color["shorthand"], unit=unit, bounds=False), *tooltip]
    # pale, so that the interval shows inside its bar too
    drawn = base.mark_bar(size=size, opacity=0.55).encode(y=y, color=color, tooltip=shown)
    intervals = base.mark_rule(strokeWidth=2, color=INK).encode(y="low:Q", y2="high:Q")
    return alt.LayerChart(layer=[drawn, intervals.transform_filter("isValid(datum.low)")])


def group_x(groups: Iterable[str], field: str, title: str | None) -> alt.X:
    """Return the x of `bars`: groups in this order, what is in brackets on a line of its own."""
    names = list(dict.fromkeys(groups))
    lines = r"split(replace(datum.label, ' (', '\n('), '\n')"
    axis = alt.Axis(title=title, labelAngle=0, labelExpr=lines, labelOverlap=False)
    return alt.X(f"{field}:N", sort=names, axis=axis)


def medians_in_rows(
    data: pd.DataFrame,
    field: str,
    names: Sequence[str],
    x: Mapping[str, Any],
    *tooltip: str | alt.Tooltip,
    unit: str = "ns",
    width: float = 1,
    size: float = 42,
    **channels: Any,
) -> alt.LayerChart:
    """A point for each median, with its interval, in a row of its name (`rows`). x: axis and scale;
    width: of an interval; size: of a point; channels: `color`, `yOffset` in the row, and `shape` of
    the points."""
    low, median = (alt.X(f"{name}:Q", **x) for name in ("low", "median"))
    shapes = {"shape": channels.pop("shape")} if "shape" in channels else {}
    base = alt.Chart(data).encode(y=row(field, names), **channels)
    intervals = base.mark_rule(strokeWidth=width).encode(x=low, x2="high:Q")
    points = base.mark_point(size=size, color=PALETTE[0])
    points = points.encode(x=median, tooltip=tips(*tooltip, unit=unit), **shapes)
    return rows(field, names, intervals, points)


def marks(
    places: Sequence[tuple[float, str]], x: str, *, last_left: bool = False
) -> alt.LayerChart:
    """Dashed rules with a label at the top: where a capacity ends. Each label a line lower than the
    one before, so that they do not touch where the page is narrow. last_left: the last label stands
    left of its rule, for a chart whose curves rise to the top on the right."""
    frame = pd.DataFrame(places, columns=[x, "label"])
    rules = alt.Chart(frame).mark_rule(strokeDash=[4, 4], color=MUTED).encode(x=f"{x}:Q")
    sides: list[tuple[Literal["left", "right"], int]] = [("left", 5)] * len(frame)
    if last_left:
        sides[-1] = ("right", -5)
    labels = [
        alt.Chart(frame.iloc[[k]])
        .mark_text(align=sides[k][0], dx=sides[k][1], dy=2 + 16 * k, baseline="top", color=MUTED)
        .encode(x=f"{x}:Q", text="label:N", y=alt.value(0))
        for k in range(len(frame))
    ]
    return alt.LayerChart(layer=[rules, *labels])


def rows(field: str, names: Sequence[str], *layers: alt.Chart) -> alt.LayerChart:
    """Layers whose y is `row(field, names)`, with each name above its row. Beside it, a name of
    thirty letters would leave a telephone no width to draw in."""
    named = (
        alt.Chart(pd.DataFrame({field: list(names)}))
        .mark_text(align="left", dy=-ROW_PX // 2 + 4)
        .encode(x=alt.value(0), y=row(field, names), text=f"{field}:N")
    )
    return alt.LayerChart(layer=[*layers, named]).properties(height=ROW_PX * len(names))


def row(field: str, names: Sequence[str]) -> alt.Y:
    """The y of `rows`."""
    return alt.Y(f"{field}:N", sort=list(names), axis=None)


def capacities(
    entries: Sequence[int],
    x: str = "working_set_bytes",
    base_page_bytes: int = 1,
    *,
    last_left: bool = False,
) -> alt.LayerChart | None:
    """`marks` at the capacities of the first and the last level, on an axis of pages or of bytes;
    None where nothing states them."""
    if not entries:
        return None
    ends = {"L1 dTLB": entries[0], "STLB": entries[-1]}
    if len(entries) == 1:
        ends = {"TLB": entries[0]}
    places = [(n * base_page_bytes, f"{name}: {n:,} pages") for name, n in ends.items()]
    return marks(places, x, last_left=last_left)


def layered(*layers: alt.LayerChart | alt.Chart | None) -> alt.LayerChart:
    """The layers that there are."""
    return alt.LayerChart(layer=[layer for layer in layers if layer is not None])


def chase_chart(
    frame: pd.DataFrame,
    colours: alt.Scale,
    series: str,
    entries: Sequence[int],
    base_page_bytes: int,
    *,
    is_price: bool = False,
    by_lines: bool = False,
    last_left: bool = False,
    processes: pd.DataFrame | None = None,
) -> alt.LayerChart:
    """A `series_chart` of chases against the working set, or `by_lines`, with the TLB's capacities:
    ns per access, or the price of it. last_left: as `marks` has it. processes: single ones, as dots (`Curve.processes`), in the
    columns of the frame."""
    x, field, page_bytes = working_set(base_page_bytes), "working_set_bytes", base_page_bytes
    if by_lines:
        axis = lines_axis(f"Lines touched, one to each {format_size(base_page_bytes)}")
        x, field, page_bytes = alt.X("lines:Q", axis=axis, scale=log_scale()), "lines", 1
    ends = capacities(entries, field, page_bytes, last_left=last_left)
    title, scale = "ns per load", time_scale(frame)
    if is_price:
        title, scale = f"{title} for translation", price_scale(frame)
    ticks = PRICES if is_price else TIMES
    dots = None
    if processes is not None and not processes.empty:
        y = alt.Y("median:Q", scale=scale)
        dots = alt.Chart(processes).mark_circle(size=14)
        dots = dots.encode(x=x, y=y, color=colour(series, colours))
    chart = series_chart(frame, x, title, colours, series, scale=scale, ticks=ticks)
    return layered(chart, dots, ends)
