"""One chase in two guests, one whose host splinters huge pages and one whose host leaves them whole:
the figure of the first page and of the chapter."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from experiments.hugepages.analysis import Analysis
from tlb.report import charts
from tlb.report.chapter import published_chapter
from tlb.stats.intervals import summarise
from tlb.system.units import format_size

SPLINTERED, WHOLE = "zen-4-b312e3a0", "emerald-rapids-64b9489c"
HOSTS = {
    SPLINTERED: "ns per load, Zen 4: host splinters huge pages",
    WHOLE: "ns per load, Emerald Rapids: left whole",
}
BASE, HUGE, PACKED = "4 KiB pages", "2 MiB pages", "packed control"
COLOURS = {
    BASE: charts.PAGE_COLOURS["4k"],
    HUGE: charts.PAGE_COLOURS["2m"],
    PACKED: charts.PART_COLOURS["data"],
}
WORDS = (
    "Two charts of the time per load, each with a curve of 4 KiB pages, of 2 MiB pages and of packed "
    "lines. On Zen 4 the curve of 2 MiB pages leaves that of 4 KiB pages past 12 MiB and stays far "
    "above the packed lines. On Emerald Rapids it lies on them: translation is gone."
)
# What the difference to the next cheaper curve is: host, curve, words.
_NOTES = ((SPLINTERED, HUGE, "translation left"), (WHOLE, BASE, "translation removed"))
_NOTED_BYTES = 64 << 20


def loads() -> pd.DataFrame:
    """Return the published chase of both machines. below: the next cheaper curve at this size,
    where the difference is translation. stretch: of sizes without a gap in it. note: words for
    the difference."""
    found = pd.concat([_loads_on(machine, host) for machine, host in HOSTS.items()])
    for machine, curve, words in _NOTES:
        is_there = (found["curve"] == curve) & (found["working_set_bytes"] == _NOTED_BYTES)
        is_there &= found["host"] == HOSTS[machine]
        ns = (found["median"] - found["below"])[is_there].sum()
        size = format_size(_NOTED_BYTES)
        found.loc[is_there, "note"] = f"{words}:\n{ns:.0f} ns in {size}"
    return found


def _loads_on(machine: str, host: str) -> pd.DataFrame:
    chapter = published_chapter("hugepages", machine)
    rows = chapter.kept("hugepages")
    gaps = [0, *Analysis(rows, chapter).price["2m"].gaps]
    rows = rows.query("kernel == 'page_chase' and pages in ('4k', '2m')")
    found = summarise(rows, ["layout", "pages", "lines"])
    found = found.query("layout == 'spread' or pages == '4k'")
    names = found["pages"].map({"4k": BASE, "2m": HUGE})
    found["curve"] = names.where(found["layout"] == "spread", PACKED)
    for curve, other in ((BASE, HUGE), (HUGE, PACKED)):
        floor, is_curve = found[found["curve"] == other], found["curve"] == curve
        logs = (np.log(each) for each in (found["lines"], floor["lines"], floor["median"]))
        found.loc[is_curve, "below"] = np.exp(np.interp(*logs))[is_curve]
    is_huge = found["curve"] == HUGE
    found.loc[is_huge & found["lines"].isin(gaps), "below"] = np.nan
    stretch = np.searchsorted(gaps, found["lines"].where(is_huge, 0))
    size = found["lines"] * 4096  # on both, a line on each 4 KiB
    columns = ["host", "curve", "stretch", "working_set_bytes", "median", "low", "high", "below"]
    return found.assign(host=host, stretch=stretch, working_set_bytes=size)[[*columns, "n"]]


def two_hosts(loads: pd.DataFrame) -> alt.FacetChart:
    """Draw both machines beside each other. Shaded: translation, in the colour of the pages that
    pay it; only where it has a price."""
    scale = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    colour = charts.colour(
        "curve", scale, symbolType="stroke", symbolSize=300, symbolOpacity=1, offset=14
    )
    axis = charts.bytes_axis("Cache lines touched × 4 KiB", [2**n for n in range(18, 33, 4)])
    x = alt.X("working_set_bytes:Q", axis=axis, scale=charts.log_scale())
    y = charts.median_y(loads, "")
    base = alt.Chart(loads).encode(x=x, color=colour)
    price = base.transform_filter("isValid(datum.below)")
    shaded = price.mark_area(opacity=0.2).encode(y=y, y2="below:Q", detail="stretch:N")
    ends = base.mark_rule(opacity=0.6).encode(y="low:Q", y2="high:Q")
    lines = base.mark_line().encode(y=y)
    notes = alt.Chart(loads).transform_filter("isValid(datum.note)")
    spans = notes.mark_rule(strokeWidth=2).encode(x=x, y=y, y2="below:Q")
    words = notes.mark_text(lineBreak="\n").encode(x=x, y=alt.value(165), text="note:N")
    chart = alt.layer(shaded, ends, lines, spans, words).properties(width=295, height=200)
    left = alt.Header(labelAnchor="start", labelLimit=0)
    return chart.facet(
        alt.Facet("host:N", title=None, sort=[*HOSTS.values()], header=left), columns=2
    )
