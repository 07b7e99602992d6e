"""Figures of another machine beside the reference's: over its lines and points in grey, or replaced
by it, dimmed, where the machine lacks them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any

from markupsafe import Markup

from tlb.report import charts
from tlb.report.render import MUTED_COLOUR, Figure

_OPACITY = 0.45
_THEIRS = "reference-"  # before the name of a data set of the reference's
_MARKS = {"line", "point"}  # bars would cover each other
_BAND_OPACITY = 0.15
# The keys of a specification that belong to the whole chart.
_TOP = ("$schema", "width", "height", "autosize", "config", "datasets", "params")


@dataclass(frozen=True)
class OverlaidFigure(Figure):
    """A figure over another's lines, points and their intervals in grey, if it has any. label: whose points are
    where. is_followed: whether the other figure stands below this one. made: its specification, if
    it is known."""

    reference: Figure | None = None
    label: str = ""
    is_followed: bool = False
    made: dict[str, Any] | None = None

    def spec(self) -> dict[str, Any]:
        if self.made is not None:
            return dict(self.made)
        own = super().spec()
        theirs = self.reference.spec() if self.reference else {}
        has_bars = any(_mark(part)["type"] == "bar" for part in _parts(theirs))
        layers = list(_grey(theirs, has_bars))
        used = {param["name"] for spec in (own, theirs) for param in spec.get("params", ())}
        if not layers or used - {charts.PUBLISHED} or "resolve" in own.keys() | theirs.keys():
            return own
        both = [*layers, {key: part for key, part in own.items() if key not in _TOP}]
        for channel in ("x", "y"):
            _add_ticks([*_ticks(own, channel)], [*_ticks(theirs, channel)])
            _name_both([*_axes(own, channel)], [*_axes(theirs, channel)])
            # all scales end where any of them ends
            scales = [*_scales(both, channel)]
            ends = [end for scale in scales for end in scale["domain"]]
            for scale in scales:
                scale["domain"] = [min(ends), max(ends)]
        datasets = own["datasets"] | _drawn(theirs["datasets"], json.dumps(layers))
        made = {
            **{key: own[key] for key in _TOP if key in own},
            "layer": both,
            "datasets": datasets,
        }
        _unite_rows(made)
        return made

    def html(self) -> str:
        note = Markup('<p class="tlb-beside" role="note">{}</p>').format(self.label)
        below = ""
        if self.is_followed and self.reference:
            below = self.reference.named(f"{self.name}_beside").html()
        return super().html() + (str(note) if self.label else "") + below


def has_reference_underlay(spec: dict[str, Any]) -> bool:
    """Return whether the reference's chart has anything that lies under this one."""
    return any(name.startswith(_THEIRS) for name in spec.get("datasets", ()))


def _parts(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a specification and all layers in it."""
    yield spec
    for layer in spec.get("layer", ()):
        yield from _parts(layer)


def _encodings(spec: dict[str, Any], channel: str) -> Iterator[dict[str, Any]]:
    """Yield how a channel is encoded, layer by layer."""
    every = (part.get("encoding", {}).get(channel) for part in _parts(spec))
    yield from filter(None, every)


def _axes(spec: dict[str, Any], channel: str) -> Iterator[dict[str, Any]]:
    """Yield a channel's axes."""
    yield from (axis for how in _encodings(spec, channel) if (axis := how.get("axis")))


def _ticks(spec: dict[str, Any], channel: str) -> Iterator[list[float]]:
    """Yield the ticks of a channel's axes, where they are given as numbers."""
    for axis in _axes(spec, channel):
        if isinstance(axis.get("values"), list):
            yield axis["values"]


def _add_ticks(own: list[list[float]], theirs: list[list[float]]) -> None:
    """Add another chart's ticks to those of each axis."""
    for ticks in own:
        ticks[:] = sorted({*ticks, *(tick for more in theirs for tick in more)})


def _name_both(own: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Add to the title of an axis what the other chart's says instead, such as another size."""
    others = [axis["title"] for axis in theirs if axis.get("title")]
    for axis in own:
        title = axis.get("title")
        if title and others and title not in others:
            same = commonprefix([title, others[0]]).rpartition(" ")[0]
            axis["title"] = f"{title} (grey: {others[0][len(same) :].strip()})"


def _unite_rows(spec: dict[str, Any]) -> None:
    """Give two charts of `charts.rows` over each other, of which the last is on top, the rows of
    both, each with its name."""
    ordered = [how for how in _encodings(spec, "y") if isinstance(how.get("sort"), list)]
    every = [*dict.fromkeys(name for how in ordered for name in how["sort"])]
    if all(how["sort"] == every for how in ordered):
        return
    if "height" in spec:
        spec["height"] *= len(every) / len(ordered[-1]["sort"])
    for how in ordered:
        how["sort"] = every
    for part in _parts(spec["layer"][-1]):
        channels = part.get("encoding", {})
        field = channels.get("text", {}).get("field")
        if field and field == channels.get("y", {}).get("field") and "data" in part:
            spec["datasets"][part["data"]["name"]] = [{field: name} for name in every]


def _scales(layers: list[dict[str, Any]], channel: str) -> Iterator[dict[str, Any]]:
    """Yield the scales of a channel that end at given numbers."""
    for how in (how for layer in layers for how in _encodings(layer, channel)):
        scale = how.get("scale")
        if scale and all(isinstance(end, (int, float)) for end in scale.get("domain", [""])):
            yield scale


def _drawn(datasets: dict[str, list[dict[str, Any]]], layers: str) -> dict[str, list[dict]]:
    """Return the data sets that layers name, with the columns that they draw."""
    return {
        name: [{key: value for key, value in row.items() if key in layers} for row in rows]
        for name, rows in ((_theirs(name), rows) for name, rows in datasets.items())
        if f'"{name}"' in layers
    }


def _theirs(name: str) -> str:
    return f"{_THEIRS}{name}"


def _mark(spec: dict[str, Any]) -> dict[str, Any]:
    mark = spec.get("mark", {"type": ""})
    return {"type": mark} if isinstance(mark, str) else mark


def _is_interval(spec: dict[str, Any]) -> bool:
    """Return whether a layer draws intervals: from a low end to a high one."""
    channels = spec.get("encoding", {})
    ends = {channels.get(channel, {}).get("field") for channel in ("x", "y", "x2", "y2")}
    is_known = {"low", "high"} <= ends or {"begin", "end"} <= ends
    return _mark(spec)["type"] in ("area", "rule") and is_known


def _grey(spec: dict[str, Any], has_bars: bool) -> Iterator[dict[str, Any]]:
    """Yield a chart's lines, points and intervals in grey, without axes and legends of their own.
    has_bars: whether it draws bars, whose intervals are not drawn, as they are not."""
    if {"filter": charts.PUBLISHED} in spec.get("transform", ()):
        return  # the other chart draws it too
    kept = {key: spec[key] for key in ("transform",) if key in spec}
    if "name" in spec.get("data", {}):
        kept["data"] = {"name": _theirs(spec["data"]["name"])}
    if "encoding" in spec:
        kept["encoding"] = _without_colour(spec["encoding"])
    if layers := [found for layer in spec.get("layer", ()) for found in _grey(layer, has_bars)]:
        yield {**kept, "layer": layers}
    mark = _mark(spec)
    if mark["type"] in _MARKS or (not has_bars and _is_interval(spec)):
        opacity = _BAND_OPACITY if mark["type"] == "area" else _OPACITY
        grey = {"color": MUTED_COLOUR, "opacity": opacity}
        if points := mark.get("point"):
            grey["point"] = {**(points if isinstance(points, dict) else {}), **grey}
        yield {**kept, "mark": {**mark, **grey, "tooltip": None}}


def _without_colour(encoding: dict[str, Any]) -> dict[str, Any]:
    """Return an encoding whose colours only tell series apart."""
    kept = {
        channel: _without_axis(how)
        for channel, how in encoding.items()
        if channel not in ("tooltip", "opacity", "color")
    }
    if "field" in (colour := encoding.get("color", {})):
        series = {key: colour[key] for key in ("field", "type") if key in colour}
        before = kept.get("detail", [])
        kept["detail"] = [*(before if isinstance(before, list) else [before]), series]
    return kept


def _without_axis(how: Any) -> Any:
    """Return a channel without its axis, which the other chart has; that it has none stays."""
    if not isinstance(how, dict):
        return how
    return {key: part for key, part in how.items() if key != "axis" or part is None}


@dataclass(frozen=True)
class DimmedFigure(Figure):
    """The figure of another machine, dimmed. whose: the machine, as the note above it says."""

    whose: str = "the reference"

    def html(self) -> str:
        words = f"Not measured, or not enough of it; this is {self.whose}."
        note = Markup('<p class="tlb-borrowed-note" role="note">{}</p>').format(words)
        return f'<div class="tlb-borrowed">{note}{super().html()}</div>'
