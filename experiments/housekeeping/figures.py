"""The charts of the chapter about the kernel's housekeeping, one function a figure."""

from __future__ import annotations

import altair as alt

from experiments.housekeeping.analysis import PHASES, Analysis
from tlb.report import charts
from tlb.report.render import Figure
from tlb.stats.curves import at_largest_shared
from tlb.system.prose import listed
from tlb.system.reasons import required
from tlb.system.units import format_size

COLLAPSED = {"none": "nothing", "other": "other memory", "address": "the memory it visits"}
_LONG = tuple(digit * 10**power for power in range(6) for digit in (1, 3))


def collapses(a: Analysis) -> Figure:
    data = a.collapses.assign(series=a.collapses["mode"].map(COLLAPSED)).dropna(subset=["series"])
    a.require_others(data, "no chase over collapsed pages was measured")
    names = [name for mode, name in COLLAPSED.items() if (data["mode"] == mode).any()]
    dashes = {"p50": "median slice", "p999": "slowest slices"}
    data["of"] = data["quantile"].map(dashes)
    # side by side, because intervals at one place would cover each other
    data["place"] = (
        data["phase"].map([*PHASES].index) + (data["series"].map(names.index) - 1) * 0.06
    )
    axis = alt.Axis(title=None, values=[*range(len(PHASES))], labelExpr=f"{[*PHASES]}[datum.value]")
    x = alt.X("place:Q", axis=axis, scale=alt.Scale(domain=[-0.2, 2.2], nice=False))
    y = charts.median_y(data, "ns per hop", _LONG)
    colour = charts.colour("series", names, title="collapsed", columns=1)
    worst = data.iloc[data["median"].argmax()]
    return Figure(
        charts.dashed(data, x, y, colour, ("of", dashes.values()), alt.Tooltip("phase:N")),
        "Time per hop before, during and after pages are collapsed. The longest is "
        f"{worst['median']:,.0f} ns ({worst['of']}, {worst['phase']}), where what is collapsed "
        f"is {worst['series']}.",
        data[["series", "phase", "of", *charts.INTERVAL]],
    )


def forks(a: Analysis) -> Figure:
    required(a.fork_ns, "no forks were measured")
    names = a.page_labels
    curves = {names[pages]: curve for pages, curve in a.fork_ns.items()}
    data = charts.in_us(charts.stacked(curves, "", page_bytes=a.base_page_bytes))
    scheme = charts.page_colours(a.fork_ns, names)
    axis = charts.bytes_axis("Resident", sorted(set(data["working_set_bytes"])))
    x = alt.X("working_set_bytes:Q", axis=axis, scale=charts.log_scale())
    lines, ns = at_largest_shared(curves)
    each = listed(f"{median / 1e3:,.0f} µs on {name}" for name, median in ns.items())
    return Figure(
        charts.series_chart(data, x, "µs per fork", scheme, ticks=_LONG, columns=1),
        f"Time per fork by what is resident. With {format_size(int(lines * a.base_page_bytes))} it "
        f"takes {each}, rising from the smallest.",
        data[["series", "working_set_bytes", *charts.FIELDS]],
    )
