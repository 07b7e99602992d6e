"""Axes, scales, colours and other channels that the charts of all chapters share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

import altair as alt
import pandas as pd

from tlb.report.render import PALETTE
from tlb.system.page_sizes import SWEPT, ordered
from tlb.system.units import format_size

_BINARY = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
# About as many ticks as a chart of one text column has room to label.
_TICKS = 10
# Ticks of a price that starts at zero, of a time per access on a logarithmic axis, and of a share.
PRICES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
TIMES = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
SHARES = (0, 0.2, 0.4, 0.6, 0.8, 1)
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
    """Return a logarithmic scale with room for medians and their upper bounds."""
    top = frame[["median", "high"]].max().max() * 1.3
    return alt.Scale(type="log", nice=False, domain=[frame["median"].min() * 0.85, top])


def price_scale(frame: pd.DataFrame) -> alt.Scale:
    """Linear up to 1 ns, so that plateaus at zero and at a few cycles show beside walks of hundreds
    of ns."""
    ends = [min(0.0, frame["low"].min()), frame["high"].max() * 1.1]
    return alt.Scale(type="symlog", constant=1, nice=False, domain=ends)


def zero_scale(frame: pd.DataFrame) -> alt.Scale:
    """Return a linear scale from zero with room for the upper bounds."""
    return alt.Scale(domain=[0.0, float(frame["high"].max()) * 1.1], nice=False)


def median_y(
    frame: pd.DataFrame, title: str, ticks: Iterable[float] = TIMES, scale: alt.Scale | None = None
) -> alt.Y:
    """Return the y of medians, with the ticks among their intervals, by default on `time_scale`."""
    is_log = scale is None or scale.type == "log"
    least = frame["low"].min() * 0.5 if is_log else 0.0  # other scales begin at zero, or below
    values = within(ticks, least, frame["high"].max() * 1.1)
    return alt.Y("median:Q", axis=ns_axis(title, values), scale=scale or time_scale(frame))


def working_set(base_page_bytes: int) -> alt.X:
    axis = bytes_axis(f"Cache lines touched × {format_size(base_page_bytes)}")
    return alt.X("working_set_bytes:Q", axis=axis, scale=log_scale())


# Colours by what a series is, the same in every chapter.
LAYOUTS = alt.Scale(domain=["spread", "packed"], range=[PALETTE[0], PALETTE[1]])
# A page size has the same colour in every figure.
PAGE_COLOURS = dict(zip(SWEPT, PALETTE, strict=False))


def page_colours(kinds: Iterable[str], labels: Mapping[str, str] | None = None) -> alt.Scale:
    """A scale of the page sizes that occur, from small to large, or of their labels."""
    shown = ordered(kinds)
    names = [labels[pages] for pages in shown] if labels else shown
    return alt.Scale(domain=names, range=[PAGE_COLOURS[pages] for pages in shown])


def label_expression(labels: Mapping[str, str]) -> str:
    """A legend's labelExpr: the label of each value."""
    return f"({json.dumps(dict(labels))})[datum.label]"


def colours(names: Sequence[str]) -> alt.Scale:
    """A scale of series, in the palette's order."""
    return alt.Scale(domain=list(names), range=list(PALETTE[: len(names)]))


def colour(field: str, scale: alt.Scale | Sequence[str], **legend: Any) -> alt.Color:
    """Return the colours of a field by their scale, or by its names; legend: as alt.Legend has
    it."""
    scale = scale if isinstance(scale, alt.Scale) else colours(scale)
    shown: dict[str, Any] = {"legend": alt.Legend(**legend)} if legend else {}
    return alt.Color(f"{field}:N", sort=scale.domain, scale=scale, **shown)


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
