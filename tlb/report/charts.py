"""Axes, scales and colours that the charts of all chapters share, and the charts' shapes: a line with
its interval, bars and rows with intervals, lines by colour and dash, rules at capacities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from textwrap import fill
from typing import Any, Literal, TypeVar

import altair as alt
import pandas as pd

from tlb.report.render import FONT_PX, MUTED_COLOUR, PALETTE, TEXT_COLOUR, WRAPPED_NAME
from tlb.stats.curves import Curve
from tlb.stats.intervals import INTERVAL_COLUMNS
from tlb.system.page_sizes import ordered_page_sizes
from tlb.system.reasons import require_nonempty
from tlb.system.units import format_size

# --- axes, scales and colours

_BINARY = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
# About as many ticks as a chart of one text column has room to label.
_TICKS = 10
# Ticks of a time per access on a logarithmic axis, and of a share.
TIMES = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
SHARES = (0, 0.2, 0.4, 0.6, 0.8, 1)
GAP_DASH = [1, 4]  # of a line where nothing is known
DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3], [4, 2])


def _binary_labels(unit: str) -> str:
    """Return a Vega expression for a tick in the largest binary multiple of a unit: "64 KiB"."""
    cases = "".join(
        f"datum.value >= {size} ? format(datum.value / {size}, '~g') + ' {prefix}{unit}' : "
        for size, prefix in _BINARY
    )
    return f"{cases}format(datum.value, '~g') + '{' ' + unit if unit else ''}'"


def _axis(title: str, labels: str, values: Sequence[float] | None) -> alt.Axis:
    ticks: dict[str, Any] = {"tickCount": _TICKS} if values is None else {"values": list(values)}
    return alt.Axis(title=title, labelExpr=labels, **ticks)


def bytes_axis(title: str = "Working set", values: Sequence[float] | None = None) -> alt.Axis:
    """An axis of bytes, labelled "64 KiB" … "4 GiB"; `values` are the ticks, in bytes."""
    return _axis(title, _binary_labels("B"), values)


def lines_axis(title: str = "Lines touched", values: Sequence[float] | None = None) -> alt.Axis:
    """An axis of counts (lines, pages), labelled "16", "4 Ki" … "1 Mi"; `values` are the ticks."""
    return _axis(title, _binary_labels(""), values)


def ns_axis(title: str = "ns per load", values: Sequence[float] | None = None) -> alt.Axis:
    """An axis of nanoseconds, linear or logarithmic, labelled "0.5", "20", "1,500"; `values`: the
    ticks."""
    return _axis(title, "format(datum.value, ',~g')", values)


def within(ticks: Iterable[float], low: float, high: float) -> list[float]:
    """Return the ticks from low to high."""
    return [tick for tick in ticks if low <= tick <= high]


def log_scale(base: int = 2, domain: tuple[float, float] | None = None) -> alt.Scale:
    """Return a logarithmic scale that ends with the data, or at `domain`, in its unit."""
    ends: dict[str, Any] = {"domain": list(domain)} if domain else {}
    return alt.Scale(type="log", base=base, nice=False, **ends)


def time_scale(frame: pd.DataFrame) -> alt.Scale:
    """Return a logarithmic scale with room for medians and their upper bounds, and above them for
    the labels of capacities."""
    top = frame[["median", "high"]].max().max() * 3
    return alt.Scale(type="log", nice=False, domain=[frame["median"].min() * 0.6, top])


def zero_scale(frame: pd.DataFrame) -> alt.Scale:
    """Return a linear scale from zero with room for the upper bounds."""
    return alt.Scale(domain=[0.0, float(frame[["median", "high"]].max().max()) * 1.1], nice=False)


def median_y(
    frame: pd.DataFrame, title: str, ticks: Iterable[float] = TIMES, scale: alt.Scale | None = None
) -> alt.Y:
    """Return the y of medians, with the ticks among their intervals, by default on `time_scale`."""
    is_log = scale is None or scale.type == "log"
    ends = frame[[*INTERVAL_COLUMNS]]  # of too few mappings there is the median alone
    least = ends.min().min() * 0.5 if is_log else 0.0  # other scales begin at zero, or below
    values = within(ticks, least, ends.max().max() * 1.1)
    return alt.Y("median:Q", axis=ns_axis(title, values), scale=scale or time_scale(frame))


# Names of curves beside their ends: the room for them on the right of a plot, in px; the letters of a
# line, which fit it; how many times one stands above another on a logarithmic y, or more, and by
# what share of a linear one.
NAMES_PX, NAME_LETTERS, NAMES_APART, NAMES_APART_SHARE = 72, 9, 1.5, 0.15
NAME_Y = "name_y"  # the column of their places


def with_room_for_names(scale: alt.Scale) -> alt.Scale:
    """Return a scale of x that ends before the plot does, for `curve_names` beside the curves."""
    scale["range"] = [0, {"expr": f"width - {NAMES_PX}"}]
    return scale


def working_set(base_page_bytes: int) -> alt.X:
    """Return the x of working sets, with room on the right for the names of curves."""
    axis = bytes_axis(f"Working set, one line per {format_size(base_page_bytes)}")
    return alt.X("working_set_bytes:Q", axis=axis, scale=with_room_for_names(log_scale()))


# Colours by what a series is, the same in every figure of the book. 2 MiB pages have one colour,
# transparent or of a pool.
PAGE_COLOURS = {
    "4k": PALETTE[0],
    "64k": PALETTE[3],
    "thp": PALETTE[2],
    "2m": PALETTE[2],
    "1g": PALETTE[4],
}
# Of the published machines, by short name, in every figure that compares them.
MACHINE_COLOURS = {
    "Zen 4": "#6a1b9a",
    "Zen 3": "#946000",
    "Zen 5": "#b0124f",
    "Emerald Rapids": "#2a8fa0",
}
# Of all other series (with and without, one thread and several): indigo, a green of olives and a
# lighter indigo, so that a colour has one meaning in every figure. A pair may be a filled and a
# hollow mark of the first.
OTHER_COLOURS = ("#1f2a7a", "#7d9400", "#4355b8")
# Of a load's time. Packed lines show the data alone; a line a page, translation too.
PART_COLOURS = {"translation": PALETTE[0], "data": PALETTE[1]}


def named_colours(colours: Mapping[str, str]) -> alt.Scale:
    """Return a scale of series by name, each with its colour."""
    return alt.Scale(domain=list(colours), range=list(colours.values()))


def machine_colours(names: Sequence[str]) -> alt.Scale:
    """Return a scale of machines by short name; of others, and of what is published, in ink."""
    return alt.Scale(
        domain=list(names), range=[MACHINE_COLOURS.get(name, TEXT_COLOUR) for name in names]
    )


def page_colours(kinds: Iterable[str], labels: Mapping[str, str] | None = None) -> alt.Scale:
    """A scale of the page sizes that occur, from small to large, or of their labels."""
    shown = ordered_page_sizes(kinds)
    names = [labels[pages] for pages in shown] if labels else shown
    return alt.Scale(domain=names, range=[PAGE_COLOURS[pages] for pages in shown])


def colours(names: Sequence[str]) -> alt.Scale:
    """A scale of series that are neither page sizes, parts of a load nor machines."""
    return alt.Scale(domain=list(names), range=list(OTHER_COLOURS[: len(names)]))


def colour(field: str, scale: alt.Scale | Sequence[str], **legend: Any) -> alt.Color:
    """Return the colours of a field by their scale, or by its names; legend: as alt.Legend has
    it."""
    scale = scale if isinstance(scale, alt.Scale) else colours(scale)
    shown: dict[str, Any] = {"legend": alt.Legend(**legend)} if legend else {}
    return alt.Color(f"{field}:N", sort=scale.domain, scale=scale, **shown)


def unnamed_colour(field: str, scale: alt.Scale) -> alt.Color:
    """Return `colour` without a legend, for curves whose names stand at them."""
    return colour(field, scale).legend(None)


def shape(field: str, names: Iterable[str], **legend: Any) -> alt.Shape:
    """Return a shape for each name, to go with `colour`."""
    names = list(names)
    shown: dict[str, Any] = {"legend": alt.Legend(**legend)} if legend else {}
    return alt.Shape(f"{field}:N", sort=names, scale=alt.Scale(domain=names), **shown)


def line_legend(**more: Any) -> alt.Legend:
    """A legend for lines: a stretch of each, with its dash. For colour and dash of the same field
    alike. more: as alt.Legend has it."""
    return alt.Legend(title=None, symbolType="stroke", symbolSize=420, symbolOpacity=1, **more)


def dash(
    field: str, names: Iterable[str], dashes: Sequence[list[int]] = DASHES, columns: int = 1
) -> alt.StrokeDash:
    """Return a dash for each name."""
    names = list(names)
    scale = alt.Scale(domain=names, range=list(dashes[: len(names)]))
    return alt.StrokeDash(
        f"{field}:N", sort=names, scale=scale, legend=line_legend(columns=columns)
    )


def tips(*fields: str | alt.Tooltip, unit: str = "ns", bounds: bool = True) -> list[alt.Tooltip]:
    """Return what is shown of a point: these fields, its median in a unit, and its bounds."""
    numbers = ["low", "high"] if bounds else []
    return [
        *(field if isinstance(field, alt.Tooltip) else alt.Tooltip(field) for field in fields),
        alt.Tooltip("median:Q", format=".3~r", title=unit),
        *(alt.Tooltip(f"{name}:Q", format=".3~r") for name in numbers),
    ]


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


# --- charts

_Drawn = TypeVar("_Drawn", alt.Chart, alt.LayerChart)
PUBLISHED = "published"  # the name in a chart of the switch of what others published
# Columns of `summarise` in the data that a figure offers.
FIELDS = [*INTERVAL_COLUMNS, "coverage", "n", "unstable"]
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
    data = pd.concat(require_nonempty(tables, lacking), ignore_index=True)
    return data.assign(working_set_bytes=data["lines"] * page_bytes) if page_bytes else data


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
) -> alt.LayerChart:
    """Median, interval and points of `summarise`d rows, a colour and a shape each series, whose name
    stands at the end of its curve; lines through those `joined`, by default all. banded: those whose
    intervals form a band, by default all; the others have a bar at each point. scale: by default
    `time_scale`.
    """
    y = median_y(frame, y_title, ticks, scale)
    base = alt.Chart(frame).encode(x=x, y=y, color=unnamed_colour(series, colours))
    lines = base
    if joined is not None:
        lines = base.transform_filter(alt.FieldOneOfPredicate(field=series, oneOf=list(joined)))
    count = alt.Tooltip("lines:Q", format=",", title="pages")
    points = base.mark_point().encode(
        shape=shape(series, colours.domain).legend(None),
        tooltip=[*tips(f"{series}:N", count), alt.Tooltip("n:Q", title="processes")],
    )
    bands = _bands(frame, x, y["scale"], colours, series, banded)
    names = curve_names(frame, x, y, series, colours)
    return alt.LayerChart(layer=[*bands, lines.mark_line(), points, names])


def curve_names(
    frame: pd.DataFrame, x: alt.X, y: alt.Y, series: str, colours: alt.Scale
) -> alt.LayerChart:
    """Write the name of each series at the last point of its curve, in its colour: right of it where
    x has room for names, else above the highest curve and below the others."""
    x_field, y_field = (channel["shorthand"].partition(":")[0] for channel in (x, y))
    # A name of two lines takes a fourth more room
    room = 1.25 if frame[series].map(len).max() > NAME_LETTERS else 1.0
    y_scale = y["scale"].to_dict() if isinstance(y["scale"], alt.Scale) else {}
    top = y_scale.get("domain", [0.0])[-1] if y_scale.get("type", "linear") == "linear" else 0.0
    apart = (1.0, room * NAMES_APART_SHARE * top) if top else (room * NAMES_APART, 0.0)
    ends = ends_of_curves(frame, series, x_field, y_field, *apart)
    colour = unnamed_colour(series, colours)
    if isinstance(x["scale"], alt.Scale) and "range" in x["scale"].to_dict():
        wrapped = ends[series].map(lambda name: fill(name, NAME_LETTERS))
        # Vega centres the first line alone, so a second one would lie over the name below.
        middle = {"expr": f"-{FONT_PX / 2} * (split(datum.{WRAPPED_NAME}, '\\n').length - 1)"}
        beside = alt.Chart(ends.assign(**{WRAPPED_NAME: wrapped})).mark_text(
            align="left", baseline="middle", dx=8, dy=middle, lineBreak="\n", fontWeight="bold"
        )
        beside = beside.encode(x=x, y=f"{NAME_Y}:Q", text=f"{WRAPPED_NAME}:N", color=colour)
        return alt.LayerChart(layer=[beside])
    sides = ((ends.iloc[:-1], 24), (ends.iloc[-1:], -12))
    names = [
        alt.Chart(side)
        .mark_text(align="right", dy=dy, fontWeight="bold")
        .encode(x=x, y=y, text=f"{series}:N", color=colour)
        for side, dy in sides
        if len(side)
    ]
    return alt.LayerChart(layer=names)


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
    """Dashed rules with a label at the top: where a capacity ends. Each label begins below the one
    before, so that they do not touch where the page is narrow. last_left: the last label stands
    left of its rule, for a chart whose curves rise to the top on the right."""
    frame = pd.DataFrame(places, columns=[x, "label"])
    rules = alt.Chart(frame).mark_rule(strokeDash=[4, 4], color=MUTED_COLOUR).encode(x=f"{x}:Q")
    sides: list[tuple[Literal["left", "right"], int]] = [("left", 5)] * len(frame)
    if last_left:
        sides[-1] = ("right", -5)
    breaks: list[dict[str, Any]] = [
        {"lineBreak": "\n"} if "\n" in label else {} for label in frame["label"]
    ]
    lines_above = (frame["label"].str.count("\n") + 1).cumsum().shift(fill_value=0)
    labels = [
        alt.Chart(frame.iloc[[k]])
        .mark_text(
            align=sides[k][0],
            dx=sides[k][1],
            dy=2 + 16 * int(lines_above[k]),
            baseline="top",
            color=MUTED_COLOUR,
            **breaks[k],
        )
        .encode(x=f"{x}:Q", text="label:N", y=alt.value(0))
        for k in range(len(frame))
    ]
    return alt.LayerChart(layer=[rules, *labels])


def shaded_sizes(
    sizes: Sequence[float], base_page_bytes: int, comparable: Iterable[float] = ()
) -> alt.LayerChart | None:
    """Shade the working sets at which only the packed lines fit a cache, so that the distance between
    the curves is not translation alone; None without such sizes. sizes: in lines; comparable: those
    that are not shaded, nor the stretch around them. Grey is the reference machine's, on the page of
    another."""
    if not sizes:
        return None
    pieces: list[list[float]] = [[]]
    for size in sorted([*sizes, *comparable]):
        if size in sizes:
            pieces[-1].append(size)
        elif pieces[-1]:
            pieces.append([])
    ends = [(each[0] * base_page_bytes, each[-1] * base_page_bytes) for each in pieces if each]
    widest = max(ends, key=lambda end: end[1] / end[0])
    places = [
        {"least": least / 2**0.25, "most": most * 2**0.25, "middle": (least * most) ** 0.5}
        | {"label": "not\ncomparable" if (least, most) == widest else ""}
        for least, most in ends
    ]
    base = alt.Chart(pd.DataFrame(places))
    shade = base.mark_rect(color=MUTED_COLOUR, opacity=0.12).encode(x="least:Q", x2="most:Q")
    label = base.mark_text(baseline="line-bottom", dy=-18, lineBreak="\n", color=MUTED_COLOUR)
    return shade + label.encode(x="middle:Q", y=alt.value("height"), text="label:N")


def ends_of_curves(
    data: pd.DataFrame, series: str, x: str, y: str, times: float, more: float = 0.0
) -> pd.DataFrame:
    """Return the last point of each series, with `name_y`: where its name stands on y, so that none
    covers another. times, more: how far names are apart, or more, on a logarithmic y and on a linear
    one."""
    ends = data.loc[data.groupby(series)[x].idxmax()].sort_values(y)
    places: list[float] = []
    for value in ends[y]:
        places.append(max(value, places[-1] * times + more) if places else value)
    return ends.assign(**{NAME_Y: places})


def rows(field: str, names: Iterable[str], *layers: alt.Chart) -> alt.LayerChart:
    """Layers whose y is `row(field, names)`, with the name of each row that has data above it. Beside
    it, a name of thirty letters would leave a telephone no width to draw in."""
    frames = [layer.data for layer in layers if isinstance(layer.data, pd.DataFrame)]
    known = {name for frame in frames for name in frame.get(field, ())}
    names = [name for name in names if name in known]
    named = (
        alt.Chart(pd.DataFrame({field: list(names)}))
        .mark_text(align="left", dy=-ROW_PX // 2 + 4)
        .encode(x=alt.value(0), y=row(field, names), text=f"{field}:N")
    )
    return alt.LayerChart(layer=[*layers, named]).properties(height=ROW_PX * len(names))


def row(field: str, names: Sequence[str]) -> alt.Y:
    """The y of `rows`."""
    return alt.Y(f"{field}:N", sort=list(names), axis=None)


def panels(
    layers: alt.LayerChart, names: Sequence[str], unit: str, columns: Literal[2, 3] = 2
) -> alt.FacetChart:
    """A panel for each name in the column `machine`, under the unit of y, for whose title a panel has
    no room. The layers share their data."""
    header = alt.Header(title=None, labelAnchor="start")
    panel = layers.properties(width={2: 265, 3: 165}[columns], height=150)
    machine = alt.Facet("machine:N", sort=list(names), header=header)
    return panel.facet(machine, columns=columns).properties(
        title=alt.Title(unit, fontSize=FONT_PX, fontWeight="normal")
    )


def capacities(
    entries: Sequence[int],
    x: str = "working_set_bytes",
    base_page_bytes: int = 1,
    *,
    last_left: bool = False,
) -> alt.LayerChart | None:
    """`marks` at the capacities of the first and the last level, or of all where these were found by
    a chase (as `Analysis.entries` says), on an axis of pages or of bytes;
    None where nothing states them. On that of `working_set` a label has two lines, for the names of
    curves take a part of its width."""
    if not entries:
        return None
    last = "STLB" if getattr(entries, "is_stated", True) else "all levels"
    ends = {"L1 dTLB": entries[0], last: entries[-1]}
    if len(entries) == 1:
        ends = {"TLB": entries[0]}
    between = "\n" if x == "working_set_bytes" else " "
    places = [(n * base_page_bytes, f"{name}:{between}{n:,} pages") for name, n in ends.items()]
    return marks(places, x, last_left=last_left)


def layered(*layers: alt.LayerChart | alt.Chart | None) -> alt.LayerChart:
    """The layers that there are."""
    return alt.LayerChart(layer=[layer for layer in layers if layer is not None])
