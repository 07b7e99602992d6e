"""The reference machine's curves in a figure about another machine, behind a switch that is off
until a reader sets it.

A chapter names the figures in its figures.py: BESIDE. What is drawn of the reference is what the
same function draws of its rows: lines and points, faint; what both show of others'
(charts.published) is drawn once. Where a page defines a quantity anew, there is no switch: the
reference's would be of another definition.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tlb.inference.sides import measured_alike
from tlb.reasons import Unavailable
from tlb.report import charts
from tlb.report.analysis import Analysis
from tlb.report.render import Figure

SWITCH = "reference"  # the parameter's name in a chart
LABEL = "the reference machine too"
_FAINT = {"expr": f"{SWITCH} ? 0.5 : 0"}
_DASH = [4, 3]
_MARKS = {"line", "point"}  # bands and bars would lie upon each other
_TOP = (
    "$schema",
    "width",
    "height",
    "autosize",
    "config",
    "datasets",
    "params",
)  # of the whole chart


def _scales(layers: list[dict[str, Any]], channel: str) -> Iterator[dict[str, Any]]:
    """Those of a channel that end at given numbers."""
    for layer in layers:
        scale = layer.get("encoding", {}).get(channel, {}).get("scale")
        if scale and all(isinstance(end, (int, float)) for end in scale.get("domain", [""])):
            yield scale
        yield from _scales(layer.get("layer", []), channel)


def _join(scales: list[dict[str, Any]]) -> None:
    """Scales that end where any of them ends."""
    ends = [end for scale in scales for end in scale["domain"]]
    for scale in scales:
        scale["domain"] = [min(ends), max(ends)]


@dataclass(frozen=True)
class Overlaid(Figure):
    """A figure that holds another's curves as well; its static drawing does not show them."""

    beside: Figure | None = None

    def spec(self) -> dict[str, Any]:
        own = super().spec()
        theirs = self.beside.spec() if self.beside else {}
        layers = [*_faint(theirs)]
        asked = {param["name"] for spec in (own, theirs) for param in spec.get("params", ())}
        if not layers or asked - {charts.PUBLISHED} or "resolve" in own.keys() | theirs.keys():
            return own
        top = {name: own[name] for name in _TOP if name in own}
        switch = {"name": SWITCH, "value": False, "bind": {"input": "checkbox", "name": LABEL}}
        both = [{name: part for name, part in own.items() if name not in _TOP}, *layers]
        for channel in ("x", "y"):
            _join([*_scales(both, channel)])
        return {
            **top,
            "params": [switch, *own.get("params", ())],
            "layer": both,
            "datasets": own["datasets"] | _drawn(theirs["datasets"], json.dumps(layers)),
        }

    def svg(self, spec: dict[str, Any] | None = None) -> str:
        return super().svg(super().spec())


def _drawn(
    datasets: dict[str, list[dict[str, Any]]], layers: str
) -> dict[str, list[dict[str, Any]]]:
    """The data sets that layers name, with the columns that they draw."""
    return {
        _theirs(name): [
            {column: value for column, value in row.items() if column in layers} for row in rows
        ]
        for name, rows in datasets.items()
        if f'"{_theirs(name)}"' in layers
    }


def _theirs(name: str) -> str:
    return f"reference-{name}"


def _faint(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines and points of a chart, each faint while the switch is set and not there while it is
    not. The axes are the other's."""
    if {"filter": charts.PUBLISHED} in spec.get("transform", ()):
        return
    kept = {name: spec[name] for name in ("transform",) if name in spec}
    if "name" in spec.get("data", {}):
        kept["data"] = {"name": _theirs(spec["data"]["name"])}
    if "encoding" in spec:
        kept["encoding"] = {
            channel: {name: part for name, part in how.items() if name != "axis"}
            if isinstance(how, dict)
            else how
            for channel, how in spec["encoding"].items()
            if channel not in ("tooltip", "opacity")
        }
    if layers := [found for layer in spec.get("layer", ()) for found in _faint(layer)]:
        yield {**kept, "layer": layers}
    mark = (
        {"type": spec["mark"]}
        if isinstance(spec.get("mark"), str)
        else spec.get("mark", {"type": ""})
    )
    if mark["type"] in _MARKS:
        dash = (
            {}
            if mark["type"] != "line" or "strokeDash" in kept.get("encoding", {})
            else {"strokeDash": _DASH}
        )
        yield {**kept, "mark": {**mark, **dash, "opacity": _FAINT, "tooltip": None}}


def overlaid(own: Figure, theirs: Figure) -> Figure:
    """A figure with another's curves behind a switch; as it is where that other has none to show."""
    made = Overlaid(own.chart, f"{own.alt} A switch adds {LABEL}.", own.data, own.name, theirs)
    return made if SWITCH in {param["name"] for param in made.spec().get("params", ())} else own


def with_reference(
    make: Callable[[Analysis], Figure], a: Analysis, own: Figure, is_own: bool = False
) -> Figure:
    """What a function has drawn, with what it draws of the reference machine; as it is on that
    machine's own page, where a cell has defined what is drawn anew, and where the reference has
    nothing, or was measured with another version of a kernel. is_own: of rows measured here, which
    are no published machine's."""
    if make.__name__ not in getattr(sys.modules.get(make.__module__), "BESIDE", ()):
        return own
    try:
        reference = a.about.reference()
        if reference.machine == a.about.machine and not is_own:
            return own
        if not make(type(a)(a.frame, a.about)).data.equals(own.data):
            return own
        rows = reference.kept(make.__module__.split(".")[-2])
        if not measured_alike(a.frame, rows):
            return own
        theirs = make(type(a)(rows, reference))
    except Unavailable:
        return own
    return overlaid(own, theirs)
