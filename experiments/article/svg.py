"""A drawing of Vega's as it goes into a page: small, the same from run to run, and with nothing in it that loads or runs."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

_SVG = "{http://www.w3.org/2000/svg}"
# What Vega draws with. Without links, images, styles, scripts, foreign objects: those load or run something.
_DRAWN = {"svg", "g", "path", "rect", "line", "text", "tspan", "defs", "clipPath", "linearGradient", "stop"}
_COORDINATES = {"d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height"}
_UNUSED = {"role", "class", "pointer-events"}  # of the interactive chart; aria-* as well
_INITIAL = {("opacity", "1"), ("font-weight", "normal")}
_INHERITED = ("fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
              "stroke-miterlimit", "text-anchor")
_NOTHING_DRAWN = {"", "M0,0h0v0h0Z"}


def _said_once(element: ET.Element) -> None:
    """Leaves out paths without length, and moves what all children of an element have alike to the element itself."""
    for child in list(element):
        _said_once(child)
        if child.get("d") in _NOTHING_DRAWN:
            element.remove(child)
    for key in _INHERITED if len(element) else ():
        first, *rest = (child.get(key) for child in element)
        if first is not None and set(rest) <= {first}:
            element.set(key, first)
            for child in element:
                del child.attrib[key]


def tidy(svg: str, name: str, usual: Mapping[str, str]) -> str:
    """The SVG with ids of its own, coordinates of one decimal, its font said once, and nothing in it that could load or run.

    name: the ids begin with it. usual: attributes that all text has, and that the top then says for it.
    Vega counts clip paths through the life of the process: two figures of a page would share ids, and a
    figure would differ from run to run. ValueError on an element that a chart does not need.
    """
    root = ET.fromstring(svg)
    ids: dict[str, str] = {}
    for element in root.iter():
        tag = element.tag.removeprefix(_SVG)
        if tag not in _DRAWN:
            raise ValueError(f"figure {name!r} draws a <{tag}>; use marks without links and images")
        if "id" in element.attrib:
            ids[element.attrib["id"]] = f"{name}-{len(ids)}"
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key in _UNUSED or key.startswith("aria-") or (key, value) in _INITIAL or usual.get(key) == value:
                del element.attrib[key]
            elif key in _COORDINATES:
                element.set(key, re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):z.1f}".removesuffix(".0"), value))
            elif key == "id":
                element.set(key, ids[value])
            elif value.startswith("url(#"):
                element.set(key, f"url(#{ids[value[5:-1]]})")
    _said_once(root)
    root.attrib |= usual
    ET.register_namespace("", _SVG[1:-1])
    return ET.tostring(root, encoding="unicode")
