"""A drawing of Vega's as it goes into a page: small, the same from run to run, and with nothing in
it that loads or runs."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

_SVG = "{http://www.w3.org/2000/svg}"
# What Vega draws with. Without links, images, styles, scripts, foreign objects: those load or run
# something.
_DRAWN = {"svg", "g", "path", "rect", "line", "text", "tspan", "defs", "clipPath"}
_DRAWN |= {"linearGradient", "stop"}
_COORDINATES = {"d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height"}
_UNUSED = {"role", "class", "pointer-events"}  # of the interactive chart; aria-* as well
_INITIAL = {("opacity", "1"), ("font-weight", "normal")}
_INHERITED = (
    "fill",
    "fill-opacity",
    "stroke",
    "stroke-width",
    "stroke-dasharray",
    "stroke-linecap",
    "stroke-linejoin",
    "stroke-miterlimit",
    "text-anchor",
)
_NOTHING_DRAWN = {"", "M0,0h0v0h0Z"}


# A point as Vega draws it at its place: a circle or a square around it, of so many px from its
# middle.
_POINT = re.compile(
    r"M(?P<r>[\d.]+),0A(?:(?P=r),){2}0,1,1,-(?P=r),0A(?:(?P=r),){2}0,1,1,(?P=r),0"
    r"|M-[\d.]+,-[\d.]+h(?P<side>[\d.]+)v(?P=side)h-(?P=side)Z"
)
_PLACE = re.compile(r"translate\(([^()]+)\)")


def _stroke(element: ET.Element) -> tuple[str, dict[str, str]] | None:
    """A point or a straight line as a path and its other attributes, a point as a line without
    length, whose ends look like it; None for what is neither, or is seen through, and so looks
    otherwise where it lies on its like."""
    place, more = _PLACE.fullmatch(element.get("transform", "")), dict(element.attrib)
    if not place or more.keys() & {"opacity", "fill-opacity", "stroke-opacity"}:
        return None
    if element.tag == f"{_SVG}line" and not more.keys() & {"x1", "y1"}:
        right, down = more.pop("x2", "0"), more.pop("y2", "0")
        del more["transform"]
        return f"M{place[1]}l{right},{down}", more
    point = _POINT.fullmatch(element.get("d", ""))
    # a width without a stroke is nothing
    if not point or more.keys() - {"stroke-width"} != {"d", "transform", "fill"}:
        return None
    width, end = float(point["side"] or 2 * float(point["r"])), "round" if point["r"] else "square"
    dot = {"stroke": more["fill"], "stroke-width": f"{width:g}", "stroke-linecap": end}
    return f"M{place[1]}h0", dot


def _joined(element: ET.Element) -> None:
    """Makes one path of points and of lines that follow each other and look alike: a tenth of their
    bytes, and the same drawing."""
    last, looks = element, None
    for child in list(element):
        path, looked = _stroke(child) or ("", None)
        if looked is None:
            looks = None
        elif looked == looks:
            last.set("d", last.get("d", "") + path)
            element.remove(child)
        else:
            child.tag = f"{_SVG}path"
            child.attrib.clear()
            child.attrib |= {"d": path, **looked}
            last, looks = child, looked


def _said_once(element: ET.Element) -> None:
    """Leaves out paths without length, and moves what all children of an element have alike to the
    element itself."""
    for child in list(element):
        _said_once(child)
        if child.get("d") in _NOTHING_DRAWN:
            element.remove(child)
    _joined(element)
    for key in _INHERITED if len(element) else ():
        first, *rest = (child.get(key) for child in element)
        if first is not None and set(rest) <= {first}:
            element.set(key, first)
            for child in element:
                del child.attrib[key]


def _one_decimal(number: re.Match[str]) -> str:
    return f"{float(number[0]):z.1f}".removesuffix(".0")


def tidy(svg: str, name: str, usual: Mapping[str, str]) -> str:
    """The SVG with ids of its own, coordinates of one decimal, its font said once, and nothing in
    it that could load or run.

    name: the ids begin with it. usual: attributes that all text has, and that the top then says for
    it. Vega counts clip paths through the life of the process: two figures of a page would share
    ids, and a figure would differ from run to run. ValueError on an element that a chart does not
    need.
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
            if (
                key in _UNUSED
                or key.startswith("aria-")
                or (key, value) in _INITIAL
                or usual.get(key) == value
            ):
                del element.attrib[key]
            elif key in _COORDINATES:
                element.set(key, re.sub(r"-?\d+\.\d+", _one_decimal, value))
            elif key == "id":
                element.set(key, ids[value])
            elif value.startswith("url(#"):
                element.set(key, f"url(#{ids[value[5:-1]]})")
    _said_once(root)
    root.attrib |= usual
    ET.register_namespace("", _SVG[1:-1])
    return ET.tostring(root, encoding="unicode")
