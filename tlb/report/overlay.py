"""Figures of another machine beside the reference's: over its lines and points in grey, or replaced
by it, dimmed, where the machine lacks them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import cycle
from math import log
from os.path import commonprefix
from typing import Any, NamedTuple

from markupsafe import Markup

from tlb.report import charts
from tlb.report.render import MUTED_COLOUR, TEXT_COLOUR, Figure
from tlb.stats.curves import OCTAVE

_OPACITY = 0.45
_THEIRS = "reference-"  # before the name of a data set of the reference's
_NAME_WIDTH, _NAME_HEIGHT = 0.11, 0.08  # of a curve's name, as shares of a chart's
_AT_PLACES = ("rule", "text")  # marks at places along an axis, and their names
_MARKS = {"line", "point"}  # bars would cover each other
_BAND_OPACITY = 0.15
_OPACITIES = [0.75, 0.4, 0.25]  # of series that only their colour tells apart
_SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-right")  # of Vega
_GAPS, _STRETCH = "-gaps", "stretch"  # a data set of dotted lines, and a line's number
_SPEC = re.compile(r'class="tlb-spec">(.*?)</script>', re.DOTALL)
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
        theirs = self.reference.spec() if self.reference else {}
        own = super().spec()
        _name_what_is_drawn(own)
        theirs = _named_alike(theirs, own)
        _give_each_series_a_place(theirs)
        own = _with_dotted_gaps(own, theirs)
        has_bars = any(_mark(part)["type"] == "bar" for part in _parts(theirs))
        layers = list(_grey(theirs, has_bars, sorted(_texts(own) & _texts(theirs))))
        used = {param["name"] for spec in (own, theirs) for param in spec.get("params", ())}
        if not layers or used - {charts.PUBLISHED} or "resolve" in own.keys() | theirs.keys():
            return own
        _draw_in_ink(own)
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
        _drop_places_beyond_the_axis(made)
        _part_names(made)
        made["layer"][-1] = _with_halos(made["layer"][-1])
        return made

    def html(self) -> str:
        note = Markup('<p class="tlb-beside" role="note">{}</p>').format(self.label)
        below = ""
        if self.is_followed and self.reference:
            below = self.reference.named(f"{self.name}_beside").html()
        return super().html() + (str(note) if self.label else "") + below


def grey_marks(spec: dict[str, Any], data: str = "") -> set[str]:
    """Return what lies under a chart of the reference's: bands, curves, points; empty if nothing does.
    data: the name of the data set around a part."""
    data = spec.get("data", {}).get("name", data)
    found = set().union(*(grey_marks(layer, data) for layer in spec.get("layer", ())))
    mark = _mark(spec)
    if data.startswith(_THEIRS) and mark["type"] in _MARKS:
        found.add("curves" if mark["type"] == "line" else "points")
        found |= {"points"} if mark.get("point") else set()
    if data.startswith(_THEIRS) and mark["type"] == "area":
        found.add("bands")
    return found


def own_marks_at_places(own: dict[str, Any], published: str) -> set[str]:
    """Return which marks at places along an axis are of the own machine alone: dashes, a shade, a
    level line. published: the other machine's figure as HTML, which may have them at these places."""
    return {kind for kind, _ in {*_places(own)} - {*_places(_spec_of(published))}}


def lacking_marks_at_places(own: dict[str, Any], published: str) -> set[str]:
    """Return which kinds of such marks the other machine's figure has alone."""
    ours, theirs = ({kind for kind, _ in _places(one)} for one in (own, _spec_of(published)))
    return theirs - ours


def _places(spec: dict[str, Any]) -> Iterator[tuple[str, frozenset[Any]]]:
    """Yield what kind of marks at places along an axis a chart has, with their places."""
    for part, data in _parts_with_data(spec):
        mark, rows = _mark(part), spec.get("datasets", {}).get(data, ())
        channels = part.get("encoding", {})
        axes = {"x", "y"} & {*channels}
        if not rows or len(axes) != 1:
            continue
        places = frozenset(row.get(channels[axis].get("field")) for row in rows for axis in axes)
        if mark["type"] == "rule" and axes == {"y"}:
            yield "level line", places
        elif mark["type"] == "rule" and mark.get("strokeDash"):
            yield "vertical dashes", places
        elif mark["type"] == "rect" and axes == {"x"}:
            yield "shade", places


def _spec_of(html: str) -> dict[str, Any]:
    """Return the specification of a figure as `Figure.html` gives it; {} if there is none."""
    if not (found := _SPEC.search(html)):
        return {}
    spec = json.loads(found[1])
    for name, kept in spec["datasets"].items():
        rows = (zip(kept["columns"], row, strict=True) for row in kept["rows"])
        spec["datasets"][name] = [*map(dict, rows)]
    return spec


def has_breaks(spec: dict[str, Any]) -> bool:
    """Return whether a line of the chart is interrupted where there is no number, and no other line
    of the chart is dotted there."""
    found = False
    for part, data in _parts_with_data(spec):
        field = part.get("encoding", {}).get("y", {}).get("field")
        rows = spec.get("datasets", {}).get(data, ())
        if _mark(part)["type"] == "line":
            if "strokeDash" in _mark(part):
                return False
            found |= any(row.get(field, 0) is None for row in rows)
    return found


def has_dotted_gaps(spec: dict[str, Any]) -> bool:
    """Return whether a line of the chart is dotted where nothing was measured."""
    return any(name.endswith(_GAPS) for name in spec.get("datasets", ()))


def has_dotted_lines(spec: dict[str, Any]) -> bool:
    """Return whether a chart itself dots a line where a number is not known."""
    marks = (_mark(part) for part, _ in _parts_with_data(spec))
    return any(one["type"] == "line" and one.get("strokeDash") == charts.GAP_DASH for one in marks)


def _with_dotted_gaps(own: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Return a chart whose lines are dotted between neighbours if the other chart has points between
    them, and they are more than an octave apart on a logarithmic axis; without another chart, on a
    logarithmic axis alone."""
    is_log = any(how.get("scale", {}).get("type") == "log" for how in _encodings(own, "x"))
    is_filled = any(
        _mark(part)["type"] == "area" and not _is_interval(part) for part in _parts(own)
    )
    if is_filled or not (is_log or theirs):
        return own  # between the bins of a histogram no point is missing
    datasets = dict(own["datasets"])
    factor = OCTAVE if is_log else 1.0
    drawn = _dotted(own, "", datasets, theirs.get("datasets", {}), factor)
    return {**drawn, "datasets": datasets}


def _dotted(
    part: dict[str, Any], name: str, datasets: dict[str, Any], theirs: dict[str, Any], factor: float
) -> dict[str, Any]:
    """Return a part in which each line is divided into its solid and its dotted stretches, whose
    rows are added to `datasets`. name: of the data set around it. factor: by which neighbours'
    places have to differ for a gap."""
    name = part.get("data", {}).get("name", name)
    if "layer" in part:
        layers = [_dotted(one, name, datasets, theirs, factor) for one in part["layer"]]
        return part | {"layer": layers}
    channels = part.get("encoding", {})
    ends = [channels.get(channel, {}) for channel in ("x", "y")]
    if _mark(part)["type"] != "line" or any(how.get("type") != "quantitative" for how in ends):
        return part
    x, y = (how.get("field", "") for how in ends)
    fields = _series_fields(part)
    between = [row for rows in theirs.values() for row in rows if row.get(x) and row.get(y)]
    rows = datasets.get(name, [])
    solid, gaps = _stretches(rows, x, fields, between if theirs else None, factor)
    if not gaps:
        return part
    stretch = {"field": _STRETCH, "type": "nominal"}
    whole = part | {"encoding": _with_detail(channels, stretch)}
    kept = {key: how for key, how in channels.items() if key not in ("strokeDash", "tooltip")}
    thin = {**_mark(part), "point": False, "strokeDash": charts.GAP_DASH, "strokeWidth": 1.5}
    dotted = deepcopy(part | {"mark": thin, "encoding": _with_detail(kept, stretch)})
    sets = {f"{name}-{len(datasets)}": solid, f"{name}-{len(datasets)}{_GAPS}": gaps}
    datasets |= sets
    layers = [
        {**one, "data": {"name": data}} for one, data in zip((whole, dotted), sets, strict=True)
    ]
    return {"layer": layers}


def _series_fields(part: dict[str, Any]) -> list[str]:
    """Return the columns whose values tell the lines of a part apart, or choose its rows."""
    channels = [how for how in part["encoding"].values() if isinstance(how, dict)]
    names = [how["field"] for how in channels if how.get("type") == "nominal" and "field" in how]
    for step in part.get("transform", ()):
        chosen = step.get("filter", "")
        names += (
            [chosen["field"]] if "field" in chosen else re.findall(r"datum\.(\w+)", str(chosen))
        )
    return names


def _stretches(
    rows: list[dict[str, Any]],
    x: str,
    fields: list[str],
    between: list[dict[str, Any]] | None,
    factor: float,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return rows with the number of their solid stretch, and the ends of each dotted one. between:
    rows of which one lies in a gap; None if every octave without a row is one."""
    series: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        if row.get(x):
            series.setdefault(tuple(row.get(name) for name in fields), []).append(row)
    solid, gaps, stretch = [], list[dict[str, Any]](), 0
    for key, points in series.items():
        points.sort(key=lambda row: row[x])
        others = [row for row in between or () if tuple(row.get(name) for name in fields) == key]
        xs = [row[x] for row in others or between or ()]
        for before, row in zip([None, *points], points, strict=False):
            is_far = before is not None and row[x] > factor * before[x]
            if before and is_far and (between is None or any(before[x] < at < row[x] for at in xs)):
                gaps += [{**end, _STRETCH: len(gaps)} for end in (before, row)]
                stretch += 1
            solid.append({**row, _STRETCH: stretch})
        stretch += 1
    return solid, gaps


def _with_detail(channels: dict[str, Any], field: dict[str, str]) -> dict[str, Any]:
    """Return an encoding that also tells series apart by a field."""
    before = channels.get("detail", [])
    return {**channels, "detail": [*(before if isinstance(before, list) else [before]), field]}


def _parts(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a specification and all layers in it."""
    yield spec
    for layer in spec.get("layer", ()):
        yield from _parts(layer)


def _parts_with_data(spec: dict[str, Any], data: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    """Yield a specification and all layers in it, each with the name of its data set. data: of the
    part around it."""
    data = spec.get("data", {}).get("name", data)
    yield spec, data
    for part in (*spec.get("layer", ()), *([spec["spec"]] if "spec" in spec else ())):  # of panels
        yield from _parts_with_data(part, data)


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
            axis["title"] = _with_other_title(title, others[0])


def _with_other_title(own: str, other: str) -> str:
    """Return a title with what another says instead: "a graph of 2 GiB (grey: 1 GiB)", and where
    both go on alike after a bracket, inside of it."""
    begin = len(commonprefix([own, other]).rpartition(" ")[0])
    alike = commonprefix([own[begin:][::-1], other[begin:][::-1]])[::-1]
    end = alike[alike.find(")") :] if ")" in alike else ""
    theirs = other[begin : len(other) - len(end)].strip()
    if end:
        return f"{own.removesuffix(end)}; grey: {theirs}{end}"
    return f"{own} (grey: {theirs})"


def name_base_pages(spec: dict[str, Any], own: str, theirs: str) -> None:
    """Add to the titles of axes that end in a machine's page size the size of the other's."""
    for axis in (axis for channel in ("x", "y") for axis in _axes(spec, channel)):
        if str(axis.get("title")).endswith(f" {own}"):
            axis["title"] += f" (grey: {theirs})"


def _name_what_is_drawn(spec: dict[str, Any]) -> None:
    """Leave out of a chart's legends what none of its rows is: colours stay those of all."""
    drawn = _texts(spec)
    for how in (how for name in ("color", "shape", "strokeDash") for how in _encodings(spec, name)):
        names = (how.get("scale") or {}).get("domain")
        if isinstance(names, list) and how.get("legend", {}) is not None:
            how["legend"] = how.get("legend", {}) | {"values": [n for n in names if n in drawn]}


def has_rows_of(spec: dict[str, Any], field: str, names: Callable[[str], Any]) -> bool:
    """Return whether a chart has a row for each value of a column that is such a name."""
    if not any(how.get("field") == field for how in _encodings(spec, "y")):
        return False
    every = (row.get(field) for rows in spec.get("datasets", {}).values() for row in rows)
    return any(isinstance(value, str) and names(value) for value in every)


def _give_each_series_a_place(theirs: dict[str, Any]) -> None:
    """Let the scales of a chart that tell series apart name those that are drawn: the own machine's
    chart, which made them, may name others."""
    for part, data in _parts_with_data(theirs):
        rows = theirs.get("datasets", {}).get(data, ())
        for channel in ("color", "shape"):
            how = part.get("encoding", {}).get(channel, {})
            names, drawn = (
                how.get("scale", {}).get("domain"),
                {row.get(how.get("field")) for row in rows},
            )
            if isinstance(names, list) and (others := drawn - {*names, None}):
                how["scale"]["domain"] = [n for n in names if n in drawn] + sorted(others)


def _drop_places_beyond_the_axis(spec: dict[str, Any]) -> None:
    """Leave out marks at places along x that the axis does not reach, such as a reach of the TLB."""
    ends = [end for scale in _scales([spec], "x") for end in scale["domain"]]
    for part, data in _parts_with_data(spec) if ends else ():
        channels, rows = part.get("encoding", {}), spec["datasets"].get(data)
        field = channels.get("x", {}).get("field")
        if (
            rows
            and field
            and "field" not in channels.get("y", {})
            and _mark(part)["type"] in _AT_PLACES
        ):
            rows[:] = [row for row in rows if min(ends) <= row.get(field, min(ends)) <= max(ends)]


def _part_names(spec: dict[str, Any]) -> None:
    """Move each name of the other chart's curves to the nearest place that no other name covers."""
    texts = {data: part for part, data in _parts_with_data(spec) if _mark(part)["type"] == "text"}
    places_on = {channel: _axis_places(spec, channel) for channel in ("x", "y")}
    every = spec["datasets"].items()
    drawn = _texts(
        {"datasets": {name: rows for name, rows in every if not name.startswith(_THEIRS)}}
    )
    taken, moved = list[tuple[float, float]](), list[tuple[float, float, dict[str, Any]]]()
    for name, part in texts.items():
        for row in (row for row in spec["datasets"].get(name, ()) if charts.NAME_Y in row):
            at = places_on["x"](row[part["encoding"]["x"]["field"]])
            if not name.startswith(_THEIRS):
                taken.append((at, places_on["y"](row[charts.NAME_Y])))
            elif not drawn & {*row.values()}:  # else the own curve of this name has it
                moved.append((at, places_on["y"](row[charts.NAME_Y]), row))
    for at, height, row in sorted(moved, key=lambda one: one[1]):
        beside = [y for x, y in taken if abs(x - at) < _NAME_WIDTH]
        places = [height, *(y + side for y in beside for side in (-_NAME_HEIGHT, _NAME_HEIGHT))]
        free = [y for y in places if all(abs(y - one) > 0.99 * _NAME_HEIGHT for one in beside)]
        best = min(free, key=lambda y: abs(y - height), default=height)
        taken.append((at, best))
        row[charts.NAME_Y] = places_on["y"].value(best)


class _AxisPlaces(NamedTuple):
    """Where numbers are on an axis, from 0 at its beginning to 1 at its end."""

    begin: float
    end: float
    is_log: bool

    def __call__(self, value: float) -> float:
        if self.is_log:
            return log(value / self.begin) / log(self.end / self.begin)
        return (value - self.begin) / (self.end - self.begin)

    def value(self, place: float) -> float:
        """Return the number at a place."""
        if self.is_log:
            return self.begin * (self.end / self.begin) ** place
        return self.begin + place * (self.end - self.begin)


def _axis_places(spec: dict[str, Any], channel: str) -> _AxisPlaces:
    """Return where numbers are on a chart's axis: from end to end of its scale, or of its rows."""
    every = [*_encodings(spec, channel)]
    is_log = any((how.get("scale") or {}).get("type") == "log" for how in every)
    ends = [end for scale in _scales([spec], channel) for end in scale["domain"]]
    if not ends:
        fields = {how.get("field") for how in every}
        rows = [row for rows in spec["datasets"].values() for row in rows]
        found = (row.get(field) for row in rows for field in fields)
        ends = [one for one in found if isinstance(one, (int, float)) and (one > 0 or not is_log)]
    begin = min(ends, default=1.0)
    end = max(ends, default=2.0)
    return _AxisPlaces(begin, end if end > begin else 2 * abs(begin) + 1, is_log)


def _with_halos(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part whose words can be read over marks: with an outline of paper below each."""
    if "layer" in part:
        return part | {"layer": [_with_halos(one) for one in part["layer"]]}
    if _mark(part)["type"] != "text":
        return part
    outline = {"stroke": "white", "strokeWidth": 5, "strokeJoin": "round"}
    unnamed = {key: one for key, one in part.items() if key not in ("name", "params")}
    return {"layer": [unnamed | {"mark": _mark(part) | outline}, part]}


def _draw_in_ink(spec: dict[str, Any]) -> None:
    """Draw what a chart has in grey as text is drawn: grey is the other machine's."""
    for part in _parts(spec):
        if _mark(part).get("color") == MUTED_COLOUR:
            part["mark"]["color"] = TEXT_COLOUR
        for channel in ("color", "fill"):
            scale = part.get("encoding", {}).get(channel, {}).get("scale") or {}
            if isinstance(colours := scale.get("range"), list):
                scale["range"] = [TEXT_COLOUR if c == MUTED_COLOUR else c for c in colours]


def _unite_rows(spec: dict[str, Any]) -> None:
    """Give two charts of `charts.rows` over each other, of which the last is on top, the rows of
    both, each with its name."""
    ordered = [how for how in _encodings(spec, "y") if isinstance(how.get("sort"), list)]
    drawn, names = _texts(spec), dict.fromkeys(name for how in ordered for name in how["sort"])
    fields = dict.fromkeys(how["field"] for how in ordered)
    rows = [row for rows in spec["datasets"].values() for row in rows]
    names |= dict.fromkeys(row[field] for row in rows for field in fields if row.get(field))
    every = [name for name in names if name in drawn]
    for how in ordered:
        how["sort"] = every
    for part in _parts(spec["layer"][-1]):
        channels = part.get("encoding", {})
        field = channels.get("text", {}).get("field")
        if field and field == channels.get("y", {}).get("field") and "data" in part:
            named = spec["datasets"][part["data"]["name"]]
            if "height" in spec:
                spec["height"] *= len(every) / len(named)
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


def _grey(spec: dict[str, Any], has_bars: bool, named: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a chart's lines, points and intervals in grey, without axes and legends of their own,
    and the names of its curves but those `named`. has_bars: whether it draws bars, whose intervals
    are not drawn, as they are not."""
    if {"filter": charts.PUBLISHED} in spec.get("transform", ()):
        return  # the other chart draws it too
    kept = {key: spec[key] for key in ("transform",) if key in spec}
    if "name" in spec.get("data", {}):
        kept["data"] = {"name": _theirs(spec["data"]["name"])}
    if "encoding" in spec:
        kept["encoding"] = _without_colour(spec["encoding"])
    layers = [found for layer in spec.get("layer", ()) for found in _grey(layer, has_bars, named)]
    if layers:
        yield {**kept, "layer": layers}
    mark, series = _mark(spec), spec.get("encoding", {}).get("color", {})
    if mark["type"] == "text" and "field" in series:
        others = {"filter": {"not": {"field": series["field"], "oneOf": named}}}
        steps = [*kept.get("transform", []), others]
        plain = {"color": MUTED_COLOUR, "fontWeight": "normal"}  # the own ones are bold
        yield {**kept, "mark": {**mark, **plain}, "transform": steps}
    if mark["type"] in _MARKS or (not has_bars and _is_interval(spec)):
        opacity = _BAND_OPACITY if mark["type"] == "area" else _OPACITY
        grey = {"color": MUTED_COLOUR, "opacity": opacity}
        if points := mark.get("point"):
            grey["point"] = {**(points if isinstance(points, dict) else {}), **grey}
        if mark["type"] in _MARKS and "field" in series:
            kept["encoding"] = kept["encoding"] | {"opacity": _shades(series)}
        yield {**kept, "mark": {**mark, **grey, "tooltip": None}}


def _named_alike(theirs: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return another chart with the names of the own series, where names differ in brackets alone:
    2 MiB (pool) becomes 2 MiB (THP), so that both have one shape."""
    here, there = _texts(own), _texts(theirs)
    text = json.dumps(theirs)
    for name in sorted(here - there):
        stem = name.partition(" (")[0]
        alike = [other for other in there - here if other.partition(" (")[0] == stem]
        if len(alike) == 1:
            text = text.replace(json.dumps(alike[0]), json.dumps(name))
    return json.loads(text)


def _texts(spec: dict[str, Any]) -> set[str]:
    """Return the texts in a chart's rows."""
    every = (
        value
        for rows in spec.get("datasets", {}).values()
        for row in rows
        for value in row.values()
    )
    return {value for value in every if isinstance(value, str)}


def _without_colour(encoding: dict[str, Any]) -> dict[str, Any]:
    """Return an encoding whose colours only tell series apart, and without a legend: the marks in it
    are drawn as the own ones."""
    kept = {
        channel: _without_axis(how)
        for channel, how in encoding.items()
        if channel not in ("tooltip", "opacity", "color")
    }
    if isinstance(shape := kept.get("shape"), dict) and "field" in shape:
        kept["shape"] = _shapes(shape)
    if "field" in (colour := encoding.get("color", {})):
        series = {key: colour[key] for key in ("field", "type") if key in colour}
        kept = _with_detail(kept, series)
    return kept


def _shapes(shape: dict[str, Any]) -> dict[str, Any]:
    """Return a shape for each series of a shape encoding, as Vega gives them, by conditions: a scale
    would draw these marks in the legend of the own ones."""
    scale = shape.get("scale", {})
    names = scale.get("domain")
    if not isinstance(names, list):
        return shape
    each = zip(names, cycle(scale.get("range", _SHAPES)), strict=False)
    return {"condition": _by_name(shape["field"], each), "value": _SHAPES[0]}


def _by_name(field: str, each: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Return Vega-Lite conditions that give a value to each name in a field."""
    return [
        {"test": f"datum[{json.dumps(field)}] === {json.dumps(name)}", "value": value}
        for name, value in each
    ]


def _shades(colour: dict[str, Any]) -> dict[str, Any]:
    """Return an opacity for each series of a colour encoding, in the order of its legend, so that
    all are grey and differ. By conditions: a second scale of the field would take away its legend.
    """
    field, names = colour["field"], colour.get("scale", {}).get("domain")
    if not isinstance(names, list):
        scale = {"range": _OPACITIES}
        return {"field": field, "type": "nominal", "scale": scale, "legend": None}
    each = zip(names, cycle(_OPACITIES), strict=False)
    return {"condition": _by_name(field, each), "value": _OPACITIES[0]}


def _without_axis(how: Any) -> Any:
    """Return a channel without its axis, which the other chart has; that it has none stays."""
    if not isinstance(how, dict):
        return how
    return {key: part for key, part in how.items() if key != "axis" or part is None}


@dataclass(frozen=True)
class DimmedFigure(Figure):
    """The figure of another machine, dimmed. whose: the machine, as the note above it says.
    is_measured: whether the page's own machine has any rows."""

    whose: str = "the reference"
    is_measured: bool = True

    def html(self) -> str:
        why = "not measured here."
        if self.is_measured:
            why = "too little is known here for this figure."
        return borrowed(super().html(), f"This is {self.whose}: {why}")


def borrowed(html: str, words: str) -> str:
    """Return what a page shows of another machine, dimmed, below words that say so."""
    note = Markup('<p class="tlb-borrowed-note" role="note">{}</p>').format(words)
    return f'<div class="tlb-borrowed">{note}{html}</div>'
