"""The reference machine's curves in a figure about another machine, behind a switch that is off
until a reader sets it; and its figure in the place of one that a machine lacks.

A chapter names the figures in its figures.py: BESIDE. The same function draws the reference's rows;
their lines and points are added, faint. A page that defines a quantity anew has no switch: the
reference's curves would be of another definition.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from tlb.measure.last_campaign import have_same_versions
from tlb.report import charts
from tlb.report.analysis import Analysis
from tlb.report.render import Figure, inline
from tlb.system.reasons import Unavailable

SWITCH = "reference"  # the parameter's name in a chart
LABEL = "the reference machine too"
_FAINT = {"expr": f"{SWITCH} ? 0.5 : 0"}
_MARKS = {"line", "point"}  # bands and bars would cover each other
# The keys of a specification that belong to the whole chart.
_TOP = ("$schema", "width", "height", "autosize", "config", "datasets", "params")


@dataclass(frozen=True)
class Overlaid(Figure):
    """A figure with another's curves behind a switch; its static drawing is without them."""

    reference: Figure | None = None

    def spec(self) -> dict[str, Any]:
        own = super().spec()
        theirs = self.reference.spec() if self.reference else {}
        layers = list(_faint(theirs))
        used = {param["name"] for spec in (own, theirs) for param in spec.get("params", ())}
        if not layers or used - {charts.PUBLISHED} or "resolve" in own.keys() | theirs.keys():
            return own
        switch = {"name": SWITCH, "value": False, "bind": {"input": "checkbox", "name": LABEL}}
        both = [{key: part for key, part in own.items() if key not in _TOP}, *layers]
        for channel in ("x", "y"):  # all scales end where any of them ends
            scales = [*_scales(both, channel)]
            ends = [end for scale in scales for end in scale["domain"]]
            for scale in scales:
                scale["domain"] = [min(ends), max(ends)]
        return {
            **{key: own[key] for key in _TOP if key in own},
            "params": [switch, *own.get("params", ())],
            "layer": both,
            "datasets": own["datasets"] | _drawn(theirs["datasets"], json.dumps(layers)),
        }

    def svg(self, spec: dict[str, Any] | None = None) -> str:
        return super().svg(super().spec())


def _scales(layers: list[dict[str, Any]], channel: str) -> Iterator[dict[str, Any]]:
    """Yield the scales of a channel that end at given numbers."""
    for layer in layers:
        scale = layer.get("encoding", {}).get(channel, {}).get("scale")
        if scale and all(isinstance(end, (int, float)) for end in scale.get("domain", [""])):
            yield scale
        yield from _scales(layer.get("layer", []), channel)


def _drawn(datasets: dict[str, list[dict[str, Any]]], layers: str) -> dict[str, list[dict]]:
    """Return the data sets that layers name, with the columns that they draw."""
    return {
        name: [{key: value for key, value in row.items() if key in layers} for row in rows]
        for name, rows in ((_theirs(name), rows) for name, rows in datasets.items())
        if f'"{name}"' in layers
    }


def _theirs(name: str) -> str:
    return f"reference-{name}"


def _faint(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a chart's lines and points, faint if the switch is set and else invisible, without
    axes of their own."""
    if {"filter": charts.PUBLISHED} in spec.get("transform", ()):
        return  # the other chart draws it too
    kept = {key: spec[key] for key in ("transform",) if key in spec}
    if "name" in spec.get("data", {}):
        kept["data"] = {"name": _theirs(spec["data"]["name"])}
    if "encoding" in spec:
        kept["encoding"] = {
            channel: _without_axis(how)
            for channel, how in spec["encoding"].items()
            if channel not in ("tooltip", "opacity")
        }
    if layers := [found for layer in spec.get("layer", ()) for found in _faint(layer)]:
        yield {**kept, "layer": layers}
    mark = spec.get("mark", {"type": ""})
    mark = {"type": mark} if isinstance(mark, str) else mark
    if mark["type"] not in _MARKS:
        return
    if mark["type"] == "line" and "strokeDash" not in kept.get("encoding", {}):
        mark = {**mark, "strokeDash": [4, 3]}
    yield {**kept, "mark": {**mark, "opacity": _FAINT, "tooltip": None}}


def _without_axis(how: Any) -> Any:
    return {key: how[key] for key in how if key != "axis"} if isinstance(how, dict) else how


def with_reference(
    make: Callable[[Analysis], Figure], a: Analysis, own: Figure, is_own: bool = False
) -> Figure:
    """Return `own`, which `make` has drawn of `a`, with what it draws of the reference machine.

    Without it on that machine's own page, unless is_own: the rows were measured here; if a cell has
    defined anew what is drawn; or if the reference has no rows of the same version of a kernel.
    """
    if make.__name__ not in getattr(sys.modules.get(make.__module__), "BESIDE", ()):
        return own
    try:
        reference = a.about.on("reference")
        if reference.machine == a.about.machine and not is_own:
            return own
        if not make(type(a)(a.frame, a.about)).data.equals(own.data):
            return own
        rows = reference.kept(make.__module__.split(".")[-2])
        if not have_same_versions(a.frame, rows):
            return own
        theirs = make(type(a)(rows, reference))
    except Unavailable:
        return own
    alt = f"{own.alt} A switch adds {LABEL}."
    made = Overlaid(own.chart, alt, own.data, own.name, theirs)
    return made if any(param["name"] == SWITCH for param in made.spec().get("params", ())) else own


@dataclass(frozen=True)
class Borrowed(Figure):
    """The reference machine's figure, dimmed, with a label. reason: why there is no other, if it is
    to be said."""

    machine: str = ""
    reason: str = ""

    def html(self) -> str:
        label = f"Not measured on this machine; the figure shows `{self.machine}`. {self.reason}"
        note = Markup('<p class="tlb-borrowed-note" role="note">{}</p>').format(inline(label))
        return f'<div class="tlb-borrowed">{note}{super().html()}</div>'


def borrowed(make: Callable[[Analysis], Figure], a: Analysis, reason: str = "") -> Borrowed:
    """Return what `make` draws of the reference machine. Raises Unavailable if that lacks it too,
    and for a page that is about several machines."""
    theirs = a.on("reference")
    machine = theirs.about.machine
    if machine == a.about.machine and not a.about.is_this:
        raise Unavailable("no-data", machine)
    made = make(theirs)
    alt = f"The machine {machine}: {made.alt}"
    return Borrowed(made.chart, alt, made.data, made.name, machine, reason)
