"""The charts of the chapter about TLB shootdowns, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.shootdowns.analysis import Analysis
from experiments.shootdowns.grid import ONE_PAGE
from experiments.shootdowns.tables import CALL_WORDS
from tlb.report import charts
from tlb.report.render import Figure
from tlb.system.prose import in_words, listed
from tlb.system.reasons import required

_LONG = tuple(digit * 10**power for power in range(4) for digit in (1, 3))


def calls(a: Analysis) -> Figure:
    required(a.calls_alone, "no calls were measured")
    sides = {"on one CPU": a.calls_alone, f"on {in_words(a.most_others + 1)} CPUs": a.calls_beside}
    tables = [
        curve.table.assign(series=CALL_WORDS[call], where=where)
        for where, curves in sides.items()
        for call, curve in curves.items()
    ]
    data = charts.in_us(pd.concat(tables, ignore_index=True))
    axis = charts.lines_axis("Pages removed by the call", sorted(set(data["lines"])))
    x = alt.X("lines:Q", axis=axis, scale=charts.log_scale())
    y = charts.median_y(data, "µs per call", _LONG)
    colour = charts.colour("series", [CALL_WORDS[call] for call in a.calls_alone], columns=1)
    pages = alt.Tooltip("lines:Q", title="pages")
    least = data[data["lines"] == data["lines"].min()]
    times = listed(f"{row.series} {row.where} {row.median:.1f} µs" for row in least.itertuples())
    return Figure(
        charts.dashed(data, x, y, colour, ("where", sides), pages, unit="µs"),
        "Time per call by how many pages it removes, on one CPU and on more. Of one page it takes: "
        f"{times}.",
        data[["series", "where", "lines", *charts.FIELDS]].rename(columns={"lines": "pages"}),
    )


def shares(a: Analysis) -> Figure:
    a.require_others(a.added, "no calls beside other threads were measured")
    rows = []
    for call, threads in a.added.items():
        processes = a.beside_processes(call) - a.calls_alone[call].get(ONE_PAGE)
        rows.append((CALL_WORDS[call], "other processes", *processes.value_and_bounds))
        own = threads.get(ONE_PAGE).value_and_bounds
        rows.append((CALL_WORDS[call], "threads of the program", *own))
    known = pd.DataFrame(rows, columns=["call", "beside", *charts.INTERVAL]).dropna()
    data = charts.in_us(required(known, "no call has enough processes on one CPU and on more"))
    x = charts.group_x(data["call"], "call", None)
    y = alt.Y("median:Q", axis=charts.ns_axis("µs added to a call on one page"))
    order = list(dict.fromkeys(data["beside"]))
    colour = charts.colour("beside", order, title="on the other CPUs", columns=1)
    worst = data.iloc[data["median"].argmax()]
    return Figure(
        charts.bars(data, x, y, colour, unit="µs", size=22),
        f"Time that other CPUs add to a call on one page, by what runs on them. {worst['call']} "
        f"takes {worst['median']:.1f} µs longer beside {worst['beside']}, the most of all.",
        data,
    )
