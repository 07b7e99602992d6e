"""The colours, fonts and axes of all charts, as an Altair theme."""

from __future__ import annotations

from typing import Any, cast

import altair as alt

# book/assets/figures.css repaints each of these in dark mode; a test holds the two together.
INK = "#1f2933"  # what is read: labels, titles, annotations
MUTED = "#46525e"  # what is glanced at: ticks, reference lines
RULE = "#dde3ea"  # what is looked through: grid lines
# Okabe and Ito's colours, which red-green blind readers tell apart, with green, purple and yellow
# darkened for white paper. Give a series a dash or a shape too.
PALETTE = ("#0072b2", "#d55e00", "#007f5c", "#cc6699", "#5c5000", MUTED)

WIDTH_PX = 680  # axes and labels included: one text column of the page
HEIGHT_PX = 320  # of the plot alone
# vl-convert carries Liberation Sans, so text is measured alike on every machine; the others have
# its metrics.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
FONT_PX = 13
TEXT = {"font-family": FONT, "font-size": f"{FONT_PX}px"}  # of all text of a chart

_LABELS = {
    "labelColor": INK,
    "labelFont": FONT,
    "labelFontSize": FONT_PX,
    "labelLimit": 320,
    "titleColor": INK,
    "titleFont": FONT,
    "titleFontSize": FONT_PX,
    "titleFontWeight": "normal",
}
THEME: dict[str, Any] = {
    # as of its marks: the container of a chart is one image with one text alternative
    "aria": False,
    "background": None,
    "font": FONT,
    "axis": {
        **_LABELS,
        "domainColor": MUTED,
        "gridColor": RULE,
        "tickColor": MUTED,
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
    "rule": {"color": MUTED},
    "text": {"color": INK, "font": FONT, "fontSize": FONT_PX},
    "title": {
        "anchor": "start",
        "color": INK,
        "font": FONT,
        "fontSize": 15,
        "offset": 14,
        "subtitleColor": MUTED,
        "subtitleFont": FONT,
        "subtitleFontSize": FONT_PX,
    },
    "range": {"category": list(PALETTE), "ordinal": list(PALETTE)},
    "view": {"continuousHeight": HEIGHT_PX, "continuousWidth": WIDTH_PX, "stroke": None},
}


@alt.theme.register("tlb", enable=False)
def _theme() -> alt.theme.ThemeConfig:
    # Altair has a type for each key; here groups of keys are shared, and the page reads them as JSON.
    return {"config": cast(alt.theme.ConfigKwds, THEME)}
