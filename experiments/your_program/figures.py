"""The charts of the chapter about programs, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.your_program.analysis import Analysis
from tlb.prose import extremes
from tlb.report import charts
from tlb.report.render import MUTED, Figure

_OTHERS, _OURS = "written by others", "written for this book"
_RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100)
_TENTHS = [n / 10 for n in range(1, 40)]
_NARROW = 2.5  # times from end to end, and there is room for tenths
# times the furthest median, and an interval is cut: one that is wider would press all others
# together
BEYOND = 1.5
_EDGE = 1.03  # times: room for half a mark


def _named(a: Analysis) -> pd.DataFrame:
    """A row a program in which the pages alone changed, of this machine and, where that is another,
    of the reference."""
    sets = [("this machine", a.of_pages())]
    if a.theirs is not None and len(a.theirs):
        sets.append(("the reference", a.on_huge_pages(a.theirs)))
    rows = pd.concat([rows.assign(machine=name) for name, rows in sets], ignore_index=True)
    return rows.assign(whose=rows["ours"].map({True: _OURS, False: _OTHERS}))


def _ends(data: pd.DataFrame, field: str) -> tuple[float, float]:
    """Where the axis of a ratio ends: it holds 1 and all medians, and of the intervals what is no
    further than BEYOND times."""
    medians, low, high = data[field], data.get("low", data[field]), data.get("high", data[field])
    least, most = min(1.0, medians.min()), max(1.0, medians.max())
    return min(least, max(low.min(), least / BEYOND)) / _EDGE, max(
        most, min(high.max(), most * BEYOND)
    ) * _EDGE


def _intervals(data: pd.DataFrame, y: alt.Y, ends: tuple[float, float]) -> list[alt.Chart]:
    """Rules; those that go on beyond the axis end in an arrow."""
    drawn = [
        alt.Chart(data)
        .mark_rule(strokeWidth=2, color=MUTED, clip=True)
        .encode(y=y, x="low:Q", x2="high:Q")
    ]
    beyond = (
        ("triangle-left", data["low"] < ends[0], ends[0]),
        ("triangle-right", data["high"] > ends[1], ends[1]),
    )
    return drawn + [
        alt.Chart(data.loc[rows, ["title"]].drop_duplicates().assign(end=end))
        .mark_point(shape=shape, size=70, color=MUTED)
        .encode(y=y, x="end:Q")
        for shape, rows, end in beyond
        if rows.any()
    ]


def _dots(data: pd.DataFrame, order: list[str], title: str, field: str) -> alt.LayerChart:
    """A row a program, with a point by whose it is and on which machine, and a dash at 1: no
    difference. Twice as much is as far from it as half is."""
    scheme, ends, y = (
        charts.colours([_OTHERS, _OURS]),
        _ends(data, field),
        charts.row("title", order),
    )
    ticks = [
        tick
        for tick in (_RATIOS if ends[1] > _NARROW * ends[0] else _TENTHS)
        if ends[0] <= tick <= ends[1]
    ]
    x = alt.X(f"{field}:Q", axis=charts.ns_axis(title, ticks), scale=charts.log_scale(domain=ends))
    machines = list(dict.fromkeys(data["machine"]))
    shape = (
        {"shape": alt.Shape("machine:N", sort=machines, legend=alt.Legend(title=None))}
        if len(machines) > 1
        else {}
    )
    points = (
        alt.Chart(data)
        .mark_point(size=60, filled=True, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "whose:N",
                sort=scheme.domain,
                scale=scheme,
                legend=alt.Legend(title=None, columns=1),
            ),
            tooltip=["title:N", "machine:N", alt.Tooltip(f"{field}:Q", format=".3~r")],
            **shape,
        )
    )
    same = (
        alt.Chart(data)
        .mark_tick(size=charts.ROW_PX // 3, thickness=1, color=MUTED, opacity=1)
        .encode(x=alt.datum(1.0), y=y)
    )
    return charts.rows(
        "title", order, same, *(_intervals(data, y, ends) if "low" in data else ()), points
    )


def _order(a: Analysis) -> list[str]:
    """The programs from the largest gain to the least."""
    rows = a.of_pages()
    return list(
        rows["title"].iloc[sorted(range(len(rows)), key=lambda n: -rows["gain"].iloc[n].value)]
    )


def gains(a: Analysis) -> Figure:
    """Time on base pages over time on large ones, with its interval, a row a program."""
    rows = _named(a)
    data = rows[["title", "language", "whose", "machine", "does", "verdict", "pairs"]].assign(
        **{
            name: [getattr(gain, field) for gain in rows["gain"]]
            for name, field in (("gain", "value"), ("low", "low"), ("high", "high"))
        }
    )
    mine = data[data["machine"] == "this machine"]
    told = extremes(
        dict(zip(mine["title"], mine["gain"], strict=True)),
        "times as long",
        "takes longest on base pages",
        "least",
    )
    return Figure(
        _dots(data, _order(a), "times as fast", "gain"),
        f"Time on base pages over time on huge pages, by program. {told}",
        data,
    )


def costs(a: Analysis) -> Figure:
    """Memory with large pages over without, a row a program, in the order of the gains."""
    rows = _named(a)
    data = rows[
        ["title", "language", "whose", "machine", "does", "memory", "faults", "large"]
    ].dropna(subset=["memory"])
    mine = data[data["machine"] == "this machine"]
    told = extremes(
        dict(zip(mine["title"], mine["memory"], strict=True)),
        "times as much",
        "takes most on huge pages",
        "least",
    )
    return Figure(
        _dots(data, _order(a), "times the memory", "memory"),
        f"Resident memory with huge pages over that without, by program. {told}",
        data,
    )
