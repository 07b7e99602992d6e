"""The charts of the chapter about programs, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.your_program.analysis import Analysis
from tlb.prose import extremes
from tlb.report import axes, charts
from tlb.report.render import MUTED, Figure

_OTHERS, _OURS = "written by others", "written for this book"
_RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100)
_TENTHS = [n / 10 for n in range(1, 40)]
_NARROW = 2.5  # an axis whose ends are a smaller factor apart has room for ticks at tenths
# An interval is cut this many times beyond the farthest median, or it would press all others
# together.
BEYOND = 1.5
_EDGE = 1.03  # a factor: room for half a mark


def _named(a: Analysis) -> pd.DataFrame:
    """Return a row a program in which only the pages changed, here and on the reference."""
    machines = {"this machine": a.of_pages()}
    if a.theirs is not None and len(a.theirs):
        machines["the reference"] = a.on_huge_pages(a.theirs)
    named = [rows.assign(machine=name) for name, rows in machines.items()]
    rows = pd.concat(named, ignore_index=True)
    return rows.assign(whose=rows["ours"].map({True: _OURS, False: _OTHERS}))


def _ends(data: pd.DataFrame, field: str) -> tuple[float, float]:
    """Return the ends of a ratio's axis: it holds 1, all medians, and intervals up to BEYOND."""
    medians, low, high = data[field], data.get("low", data[field]), data.get("high", data[field])
    least, most = min(1.0, medians.min()), max(1.0, medians.max())
    left, right = max(low.min(), least / BEYOND), min(high.max(), most * BEYOND)
    return min(least, left) / _EDGE, max(most, right) * _EDGE


def _intervals(data: pd.DataFrame, y: alt.Y, ends: tuple[float, float]) -> list[alt.Chart]:
    """Return rules; those that go on beyond the axis end in an arrow."""
    rule = alt.Chart(data).mark_rule(strokeWidth=2, color=MUTED, clip=True)
    layers = [rule.encode(y=y, x="low:Q", x2="high:Q")]
    left, right = data["low"] < ends[0], data["high"] > ends[1]
    for arrow, rows, end in (("left", left, ends[0]), ("right", right, ends[1])):
        if rows.any():
            cut = alt.Chart(data.loc[rows, ["title"]].drop_duplicates().assign(end=end))
            mark = cut.mark_point(shape=f"triangle-{arrow}", size=70, color=MUTED)
            layers.append(mark.encode(y=y, x="end:Q"))
    return layers


def _dots(a: Analysis, data: pd.DataFrame, title: str, field: str) -> alt.LayerChart:
    """Draw a row a program, from the largest gain to the least: a point by its author and the
    machine, and a dash at 1, no difference."""
    gains = a.of_pages().set_index("title")["gain"]
    order = sorted(gains.index, key=lambda name: -gains[name].value)
    scheme, ends, y = (
        axes.colours([_OTHERS, _OURS]),
        _ends(data, field),
        charts.row("title", order),
    )
    every = _RATIOS if ends[1] > _NARROW * ends[0] else _TENTHS
    ticks = [tick for tick in every if ends[0] <= tick <= ends[1]]
    x = alt.X(f"{field}:Q", axis=axes.ns_axis(title, ticks), scale=axes.log_scale(domain=ends))
    legend = alt.Legend(title=None, columns=1)
    channels = {"color": alt.Color("whose:N", sort=scheme.domain, scale=scheme, legend=legend)}
    machines = list(dict.fromkeys(data["machine"]))
    if len(machines) > 1:
        legend = alt.Legend(title=None)
        channels["shape"] = alt.Shape("machine:N", sort=machines, legend=legend)
    tooltip = ["title:N", "machine:N", alt.Tooltip(f"{field}:Q", format=".3~r")]
    points = alt.Chart(data).mark_point(size=60, filled=True, opacity=1)
    points = points.encode(x=x, y=y, tooltip=tooltip, **channels)
    tick = alt.Chart(data).mark_tick(size=charts.ROW_PX // 3, thickness=1, color=MUTED, opacity=1)
    same, intervals = tick.encode(x=alt.datum(1.0), y=y), []
    if "low" in data:
        intervals = _intervals(data, y, ends)
    return charts.rows("title", order, same, *intervals, points)


def _here(data: pd.DataFrame, field: str, *words: str) -> str:
    here = data[data["machine"] == "this machine"]
    return extremes(dict(zip(here["title"], here[field], strict=True)), *words)


def gains(a: Analysis) -> Figure:
    """Draw time on base pages over time on large ones, with its interval, a row a program."""
    rows = _named(a)
    data = rows[["title", "language", "whose", "machine", "does", "verdict", "pairs"]].assign(
        gain=[gain.value for gain in rows["gain"]],
        low=[gain.low for gain in rows["gain"]],
        high=[gain.high for gain in rows["gain"]],
    )
    ranking = _here(data, "gain", "times as long", "takes longest on base pages", "least")
    return Figure(
        _dots(a, data, "times as fast", "gain"),
        f"Time on base pages over time on huge pages, by program. {ranking}",
        data,
    )


def costs(a: Analysis) -> Figure:
    """Draw memory with large pages over without, a row a program, in the order of the gains."""
    columns = ["title", "language", "whose", "machine", "does", "memory", "faults", "large"]
    data = _named(a)[columns].dropna(subset=["memory"])
    ranking = _here(data, "memory", "times as much", "takes most on huge pages", "least")
    return Figure(
        _dots(a, data, "times the memory", "memory"),
        f"Resident memory with huge pages over that without, by program. {ranking}",
        data,
    )
