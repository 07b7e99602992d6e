"""Charts, tables and notes as safe HTML, the same for the same input.

A chart becomes a static SVG (read without JavaScript, printed, searched), its Vega-Lite spec as
JSON, which book/assets/figures.js turns into an interactive chart, and its data as CSV. Altair's
own HTML is not used: it does not escape `</script>` in data.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import altair as alt
import pandas as pd
import vl_convert
from markdown_it import MarkdownIt
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import PythonLexer
from pygments.token import Name, Operator, Punctuation, Text, Whitespace

from tlb.report.quantities import (
    FEW_MAPPINGS_FOOTNOTE,
    FEW_MAPPINGS_MARK,
    FEWEST_MAPPINGS_WITH_INTERVAL,
)
from tlb.stats.intervals import LEAST_COVERAGE

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

# --- colours, fonts and axes of all charts

# book/assets/figures.css repaints each of these in dark mode; a test holds the two together.
TEXT_COLOUR = "#1f2933"  # what is read: labels, titles, annotations
MUTED_COLOUR = "#46525e"  # what is glanced at: ticks, reference lines
GRID_LINE_COLOUR = "#dde3ea"  # what is looked through: grid lines
# Okabe and Ito's colours, which red-green blind readers tell apart, with green, purple and yellow
# darkened for white paper. Give a series a dash or a shape too.
PALETTE = ("#0072b2", "#d55e00", "#007f5c", "#cc6699", "#5c5000", MUTED_COLOUR)

WIDTH_PX = 680  # axes and labels included: one text column of the page
HEIGHT_PX = 320  # of the plot alone
# vl-convert carries Liberation Sans, so text is measured alike on every machine; the others have
# its metrics.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
FONT_PX = 13
TEXT = {"font-family": FONT, "font-size": f"{FONT_PX}px"}  # of all text of a chart

_LABELS = {
    "labelColor": TEXT_COLOUR,
    "labelFont": FONT,
    "labelFontSize": FONT_PX,
    "labelLimit": 320,
    "titleColor": TEXT_COLOUR,
    "titleFont": FONT,
    "titleFontSize": FONT_PX,
    "titleFontWeight": "normal",
}
CHART_THEME: dict[str, Any] = {
    # as of its marks: the container of a chart is one image with one text alternative
    "aria": False,
    "background": None,
    "font": FONT,
    "axis": {
        **_LABELS,
        "domainColor": MUTED_COLOUR,
        "gridColor": GRID_LINE_COLOUR,
        "tickColor": MUTED_COLOUR,
        "tickSize": 4,
        "labelPadding": 6,
        "titlePadding": 10,
    },
    # A crowded axis drops every other label: the ticks left are still equally spaced.
    "axisX": {"grid": False, "labelFlush": False, "labelOverlap": "parity", "labelSeparation": 8},
    # The title of y lies along the top, where it is read without turning the head; a legend goes
    # above it.
    "axisY": {
        "domain": False,
        "ticks": False,
        "titleAlign": "left",
        "titleAnchor": "end",
        "titleAngle": 0,
        "titleBaseline": "bottom",
        "titleX": 0,
        "titleY": -12,
    },
    "header": _LABELS,
    "legend": {
        **_LABELS,
        "columnPadding": 18,
        "offset": 34,
        "orient": "top",
        "symbolSize": 90,
        "symbolStrokeWidth": 2,
        "title": None,
    },
    "mark": {"aria": False},
    "line": {"strokeCap": "butt", "strokeJoin": "round", "strokeWidth": 2},
    "point": {"filled": True, "opacity": 1, "size": 42},
    "rule": {"color": MUTED_COLOUR},
    "text": {"color": TEXT_COLOUR, "font": FONT, "fontSize": FONT_PX},
    "title": {
        "anchor": "start",
        "color": TEXT_COLOUR,
        "font": FONT,
        "fontSize": 15,
        "offset": 14,
        "subtitleColor": MUTED_COLOUR,
        "subtitleFont": FONT,
        "subtitleFontSize": FONT_PX,
    },
    "range": {"category": list(PALETTE), "ordinal": list(PALETTE)},
    "view": {"continuousHeight": HEIGHT_PX, "continuousWidth": WIDTH_PX, "stroke": None},
}


@alt.theme.register("tlb", enable=False)
def _theme() -> alt.theme.ThemeConfig:
    # Altair has a type for each key; here groups of keys are shared, and the page reads them as JSON.
    return {"config": cast(alt.theme.ConfigKwds, CHART_THEME)}


# --- the drawing of a chart, made small

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


# --- charts, tables and notes

_FOR_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def escape_json(value: Any) -> str:
    """Return compact JSON, safe inside a <script> element, with sorted keys.

    Raises ValueError on NaN or infinity, which JSON does not have.
    """
    text = json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return text.translate(_FOR_SCRIPT)


# ns, or a share of one: less is a rounding error, which differs between CPUs.
NOTHING = 1e-12
_SPEC_DIGITS, _CSV_DIGITS = 4, 6  # a chart of 680 px shows three; no measurement has more than six


def _compact(value: Any, digits: int) -> Any:
    """Round floats to significant digits, whole ones exactly; NaN becomes None."""
    if isinstance(value, dict):
        return {key: _compact(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [_compact(item, digits) for item in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    if abs(value) < NOTHING:
        return 0
    rounded = value if value.is_integer() else float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


_COUNTED = re.compile(
    r"\b((?:param|view)_(?=\d+\b|[0-9a-f]{16}\b)|data-(?=[0-9a-f]{32}\b))[0-9a-f]+\b"
)


def _recount(spec: dict[str, Any]) -> dict[str, Any]:
    """Number parameters, views and data sets from 0; keep each data set once, and drawn columns.

    Altair counts through the life of the process, or names by digits that differ between CPUs.
    """
    names: dict[str, str] = {}  # the first name of equal data
    known = {
        name: names.setdefault(escape_json(rows), name)
        for name, rows in spec.pop("datasets", {}).items()
    }
    text = _COUNTED.sub(lambda match: known.get(match[0], match[0]), escape_json(spec))
    order = list(dict.fromkeys(match[0] for match in _COUNTED.finditer(text)))
    text = _COUNTED.sub(lambda match: f"{match[1]}{order.index(match[0])}", text)
    datasets = {}
    for rows, name in names.items():
        datasets[f"data-{order.index(name)}"] = [
            {key: value for key, value in row.items() if not key.isidentifier() or key in text}
            for row in json.loads(rows)
        ]
    return {**json.loads(text), "datasets": datasets}


def columns_and_rows(rows: list[dict[str, Any]]) -> dict[str, list]:
    """Return a data set as figures.js unpacks it: column names, and a list for each row."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return {"columns": columns, "rows": [[row.get(key) for key in columns] for row in rows]}


# --- a logarithmic axis says so in its title


def _log_title(title: str) -> str:
    """Return the title of a logarithmic axis; an arrow at its end stays there."""
    words = title.removesuffix(" →")
    return f"{words}, log scale{title[len(words) :]}"


def _name_log_axes(spec: dict[str, Any]) -> dict[str, Any]:
    """Let the title of each logarithmic axis of a specification say that it is one, and return the
    specification. Parts of a chart that share an axis share its title, so it changes in all of
    them, or Vega would write both."""
    axes = [*_titled_axes(spec)]
    titles = (axis["title"] for axis, is_log in axes if is_log)
    logs = {title for title in titles if "log" not in title.lower()}
    for axis in (axis for axis, _ in axes if axis["title"] in logs):
        axis["title"] = _log_title(axis["title"])
    return spec


def _titled_axes(part: Any) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield each axis that has a title, and whether its channel has a logarithmic scale."""
    if isinstance(part, list):
        for one in part:
            yield from _titled_axes(one)
    if not isinstance(part, dict):
        return
    axis, scale = part.get("axis"), part.get("scale")
    if isinstance(axis, dict) and isinstance(axis.get("title"), str) and axis["title"]:
        yield axis, isinstance(scale, dict) and scale.get("type") == "log"
    for one in (one for key, one in part.items() if key != "datasets"):
        yield from _titled_axes(one)


# --- points of fewer mappings than an interval takes are hollow

# The columns that tell it, the first that rows have: mappings, or the coverage of the interval.
_LEAST = {"n": FEWEST_MAPPINGS_WITH_INTERVAL, "coverage": LEAST_COVERAGE}
_OF_FEW = "isValid(datum.{0}) && datum.{0} < {1}"
_UNIT_KEYS = ("name", "mark", "encoding", "transform")  # of a part that draws one mark


def _with_hollow_points(
    spec: dict[str, Any], datasets: Mapping[str, list[dict[str, Any]]], data: str = ""
) -> dict[str, Any]:
    """Return a specification in which each mark that draws points of few mappings is divided: into
    its line and its points, and these into filled and hollow ones. data: the data set around it."""
    data = spec.get("data", {}).get("name", data)
    if "layer" in spec:
        return spec | {"layer": [_with_hollow_points(one, datasets, data) for one in spec["layer"]]}
    if "spec" in spec:  # of a facet
        return spec | {"spec": _with_hollow_points(spec["spec"], datasets, data)}
    if not (is_of_few := _filter_of_few(datasets.get(data, ()))):
        return spec
    are_all_few = len(_rows_of_few(datasets[data])) == len(datasets[data])
    mark = spec.get("mark", {"type": ""})
    mark = {"type": mark} if isinstance(mark, str) else mark
    unit = {key: spec[key] for key in _UNIT_KEYS if key in spec}
    around = {key: part for key, part in spec.items() if key not in _UNIT_KEYS}
    if mark["type"] == "point" and mark.get("filled", True):
        return around | {"layer": _filled_and_hollow(unit, mark, is_of_few, are_all_few)}
    if mark["type"] == "line" and mark.get("point"):
        overlay = mark["point"] if isinstance(mark["point"], dict) else {}
        line = unit | {"mark": {**mark, "point": False}}
        channels = {key: how for key, how in unit["encoding"].items() if key != "strokeDash"}
        points = {"encoding": channels, "transform": unit.get("transform", [])}
        mark = {"type": "point", **overlay}
        dots = _filled_and_hollow(points, mark, is_of_few, are_all_few)
        return around | {"layer": [line, *dots]}
    return spec


def _filter_of_few(rows: Sequence[Mapping[Any, Any]]) -> str:
    """Return the Vega expression of the rows of too few mappings; "" if there are none."""
    column = next((name for name in _LEAST if rows and name in rows[0]), "")
    values = [row.get(column) for row in rows] if column else []
    if not any(value is not None and value < _LEAST[column] for value in values):
        return ""
    return _OF_FEW.format(column, _LEAST[column])


def has_few_mappings(data: pd.DataFrame) -> bool | None:
    """Return whether rows of a figure's data are of too few mappings; None if they do not say."""
    return bool(_filter_of_few(data.to_dict("records"))) if {*_LEAST} & {*data} else None


def has_hollow_points(spec: dict[str, Any]) -> bool:
    """Return whether a chart draws points of too few mappings, which are hollow."""
    filters = (f'"filter": "{_OF_FEW.format(*known)}"' for known in _LEAST.items())
    return any(one in json.dumps(spec) for one in filters)


def _filled_and_hollow(
    unit: dict[str, Any], mark: dict[str, Any], is_of_few: str, are_all_few: bool
) -> list[dict[str, Any]]:
    """Return what draws points, filled and hollow; hollow alone if all are, so that a legend's are."""
    before = unit.get("transform", [])
    unnamed = {key: part for key, part in unit.items() if key != "name"}
    filled = {"mark": mark, "transform": [*before, {"filter": f"!({is_of_few})"}]}
    hollow = {"mark": mark | {"filled": False}, "transform": [*before, {"filter": is_of_few}]}
    return [unit | hollow] if are_all_few else [unit | filled, unnamed | hollow]


# --- numbers of too few mappings are marked, as in tables


# Words that are a number, or end in a time or a rate; sizes are not measured, and what others
# published is of no mappings of ours.
_ENDS_IN_NUMBER = "^(?!published)([0-9][0-9,.]*|[\\s\\S]*[0-9] (ns|µs|ms|GB\\/s))$"
WRAPPED_NAME = "wrapped"  # a column of names in lines, which may look like numbers
_NAMED_BY = ("x", "y", "color", "shape", "strokeDash")  # a text of the same field is a name


def _rows_of_few(rows: Sequence[Mapping[Any, Any]]) -> list[Mapping[Any, Any]]:
    """Return the rows of too few mappings; all, if they do not say."""
    column = next((name for name in _LEAST if rows and name in rows[0]), "")
    return [
        row
        for row in rows
        if not column or (row[column] is not None and row[column] < _LEAST[column])
    ]


def _has_numbers(channels: Mapping[str, Any], rows: Sequence[Mapping[Any, Any]]) -> bool:
    """Return whether a text mark writes numbers: of a column of numbers, of words that end in one,
    or of words that the chart itself makes."""
    text = channels.get("text", {})
    field = text.get("field")
    names = [how.get("field") for name, how in channels.items() if name in _NAMED_BY]
    names.append(WRAPPED_NAME)
    words = [str(row[field]) for row in rows if field in row]
    is_number = text.get("type") == "quantitative" or not words
    is_any = is_number or any(re.search(_ENDS_IN_NUMBER, one) for one in words)
    return bool(field and rows) and field not in names and is_any


def _with_marked_numbers(
    spec: dict[str, Any], datasets: Mapping[str, list[dict[str, Any]]], data: str = ""
) -> dict[str, Any]:
    """Return a specification in which each number that a text mark writes, alone or at the end of
    words, has the mark of too few mappings: of those rows that are of so few, or of all if they do
    not say. data: the data set around it."""
    data = spec.get("data", {}).get("name", data)
    if "layer" in spec:
        layers = [_with_marked_numbers(one, datasets, data) for one in spec["layer"]]
        return spec | {"layer": layers}
    channels, rows = spec.get("encoding", {}), datasets.get(data, ())
    if not _has_numbers(channels, _rows_of_few(rows)):
        return spec
    text, few = channels["text"], _filter_of_few(rows) or "true"
    written = f"datum[{json.dumps(text['field'])}]"
    if text.get("type") == "quantitative":
        written = f"format({written}, {json.dumps(text.get('format', ''))})"
    else:
        few += f" && test(/{_ENDS_IN_NUMBER}/, {written})"
    marked = f"{written} + ({few} ? {json.dumps(FEW_MAPPINGS_MARK)} : '')"
    steps = [*spec.get("transform", []), {"calculate": marked, "as": "marked_number"}]
    marked_text = {"field": "marked_number", "type": "nominal"}
    return spec | {"transform": steps, "encoding": spec["encoding"] | {"text": marked_text}}


_MARKED = re.compile(rf"\S{re.escape(FEW_MAPPINGS_MARK)}(?!\s*[\w.])")  # no product


def has_marked_numbers(spec: Any) -> bool:
    """Return whether a chart writes a number with the mark of too few mappings."""
    if isinstance(spec, dict):
        is_made = json.dumps(FEW_MAPPINGS_MARK) in str(spec.get("calculate", ""))
        others = (part for key, part in spec.items() if key not in ("calculate", "expr", "filter"))
        return is_made or any(map(has_marked_numbers, others))
    if isinstance(spec, list):
        return any(map(has_marked_numbers, spec))
    return isinstance(spec, str) and bool(_MARKED.search(spec))


_IN_URL = "-_.~,/:;()+*!"  # need no escape in the data of a link, nor in an attribute
_COMPOSED = {"concat", "hconcat", "vconcat", "facet", "repeat"}


@dataclass(frozen=True)
class Figure:
    """A chart with its text alternative and its data, as Jupyter and the site show it.

    alt: a sentence or two on what the chart shows, the finding included. data: what the reader
    downloads. name: part of ids and file names; `page.figure` sets that of the drawing function.
    is_of_few: whether it has numbers of too few mappings.
    """

    chart: alt.TopLevelMixin
    alt: str
    data: pd.DataFrame
    name: str = "figure"
    is_of_few: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9_-]+", self.name):
            raise ValueError(f"figure name {self.name!r} holds more than a-z, 0-9, '_' and '-'")
        if not self.alt.strip():
            raise ValueError(f"figure {self.name!r} has no text alternative; say what it shows")
        if self.data.empty:
            raise ValueError(f"figure {self.name!r} has no data; show the reason instead")

    def named(self, name: str) -> Figure:
        return replace(self, name=name)

    def spec(self) -> dict[str, Any]:
        """Return the Vega-Lite specification with the theme and the data in it."""
        with alt.theme.enable("tlb"):
            made = self.chart.to_dict()
            datasets = made.get("datasets", {})
            made = _with_hollow_points(made, datasets)
            if self.is_of_few:
                made = _with_marked_numbers(made, datasets)
            spec = _recount(_name_log_axes(_compact(made, _SPEC_DIGITS)))
        if not _COMPOSED & spec.keys():
            spec = {"width": WIDTH_PX, "autosize": {"type": "fit-x", "contains": "padding"}, **spec}
        return spec

    def svg(self, spec: dict[str, Any] | None = None) -> str:
        """Return the static chart. spec: that of `spec`, if it is known."""
        drawn = vl_convert.vegalite_to_svg(spec or self.spec(), allowed_base_urls=[])
        return tidy(drawn, self.name, TEXT)

    def csv(self) -> str:
        """Return the data as CSV (RFC 4180), floats at 6 significant digits, NaN as nothing."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.data.columns)
        for row in self.data.itertuples(index=False):
            writer.writerow("" if pd.isna(cell) else _compact(cell, _CSV_DIGITS) for cell in row)
        return text.getvalue()

    def html(self) -> str:
        """Return the figure as book/assets/figures.js and figures.css expect it."""
        svg = self.svg(spec := self.spec())
        del spec["config"]  # the theme, which the page has once
        spec["datasets"] = {name: columns_and_rows(rows) for name, rows in spec["datasets"].items()}
        width = ET.fromstring(svg).get("width")
        data = quote(self.csv(), safe=_IN_URL)
        return (
            f'<div class="tlb-figure" id="tlb-figure-{self.name}" style="--tlb-width: {width}px">'
            f'<div class="tlb-chart" role="img" aria-label="{html.escape(self.alt)}">{svg}</div>'
            f'<script type="application/json" class="tlb-spec">{escape_json(spec)}</script>'
            f'<p class="tlb-figure-data"><a download="{self.name}.csv" '
            f'href="data:text/csv;charset=utf-8,{data}">Data (CSV)</a></p></div>'
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.alt}


@dataclass(frozen=True)
class Html:
    """HTML that its maker has escaped, with the same as plain text."""

    markup: str
    text: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.markup, "text/plain": self.text}

    def __add__(self, below: Html) -> Html:
        return Html(self.markup + below.markup, f"{self.text}\n{below.text}")


_INLINE = MarkdownIt("zero").enable("backticks")
_PLAIN = {Name, Operator, Punctuation, Whitespace}
_PART_MARK = re.compile(r"(?:/\*|//|#) \[(?:timed: ([^\]]+)|(timed|recipe|pool))\]")


class CompactCodeFormatter(HtmlFormatter):
    """Highlights code without an element for what has the colour of text, which is most of it."""

    def format_unencoded(self, tokens: Iterable[tuple[Any, str]], file: SupportsWrite[str]) -> None:
        plain = ((Text if kind in _PLAIN else kind, text) for kind, text in tokens)
        super().format_unencoded(plain, file)


def inline_html(text: str) -> Markup:
    """Return plain text as HTML, with `code` between backticks."""
    return Markup(_INLINE.renderInline(text))


def timed_source_part(text: str, name: str) -> tuple[int, list[str]]:
    """(first line, lines) between [timed: NAME], [timed], [recipe] or [pool] and [end]; the name is
    what stands last. LookupError without it."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if (mark := _PART_MARK.search(line)) and name in (mark[1] or mark[2]).split(", "):
            ends = [i for i in range(start, len(lines)) if "[end]" in lines[i]]
            return start + 2, lines[start + 1 : ends[0] if ends else len(lines)]
    raise LookupError(name)


def highlighted_code(source: str, lexer: type[Lexer] = PythonLexer) -> Markup:
    """Return source code as the page's own code blocks show it."""
    code = highlight(source, lexer(), CompactCodeFormatter(nowrap=True))
    return Markup('<div class="highlight"><pre>{}</pre></div>').format(Markup(code))


def format_each_as_html(template: str, items: Iterable[Any]) -> Markup:
    """Return the template of HTML formatted with each item, one after the other."""
    return Markup("").join(
        Markup(template).format(*(item if isinstance(item, tuple) else (item,))) for item in items
    )


FEW_MAPPINGS_NOTE = Html(
    f'<p class="tlb-few"><small>{FEW_MAPPINGS_FOOTNOTE}</small></p>', FEW_MAPPINGS_FOOTNOTE
)
ABSENT_HTML = Html('<p class="tlb-absent">–</p>', "–")  # in the place of what a machine lacks


def data_table(frame: pd.DataFrame, decimals: int = 1) -> Html:
    """Return a frame's rows as a table, numbers to the right, a missing value as a dash; ABSENT_HTML for
    a frame without rows."""
    if frame.empty:
        return ABSENT_HTML

    def text(value: Any) -> str:
        if pd.isna(value):
            return "–"
        return f"{value:z,.{decimals}f}" if isinstance(value, float) else str(value)

    names = [str(name) for name in frame.columns]
    rows = [[text(value) for value in row] for row in frame.itertuples(index=False)]
    number = Markup(' class="tlb-number"')
    marks = [number if pd.api.types.is_numeric_dtype(kind) else "" for kind in frame.dtypes]

    def line(cell: str, values: list[str]) -> Markup:
        return Markup("<tr>{}</tr>").format(
            format_each_as_html(cell, zip(marks, values, strict=True))
        )

    table = Markup(
        '<div class="tlb-table tlb-data"><table><thead>{}</thead><tbody>{}</tbody></table></div>'
    ).format(
        line('<th scope="col"{}>{}</th>', names),
        Markup("").join(line("<td{}>{}</td>", row) for row in rows),
    )
    return Html(str(table), "\n".join("\t".join(row) for row in [names, *rows]))
