"""The charts of the chapter about programs, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.article import charts
from experiments.article.render import MUTED, Figure
from experiments.chapters.your_program.analysis import Analysis, reached
from experiments.words.prose import extremes

_STEP_PX = 24  # a program: two marks, and room for its name
_OTHERS, _OURS = "somebody else's", "this book's"
_NAME_PX = 320


def _named(a: Analysis) -> pd.DataFrame:
    """A row a program in which the pages alone changed, of this machine and, where that is another, of the reference."""
    sets = [("this machine", a.of_pages())]
    if a.theirs is not None and len(a.theirs):
        sets.append(("the reference", reached(a.theirs)))
    rows = pd.concat([rows.assign(machine=name) for name, rows in sets], ignore_index=True)
    return rows.assign(whose=rows["ours"].map({True: _OURS, False: _OTHERS}))


def _dots(data: pd.DataFrame, order: list[str], title: str, field: str) -> alt.LayerChart:
    """A row a program, with a point by whose it is and on which machine, and a rule at 1: no difference."""
    scheme = charts.colours([_OTHERS, _OURS])
    y = alt.Y("title:N", sort=order, axis=alt.Axis(title=None, labelLimit=_NAME_PX))
    ends = [column for column in (field, "low", "high") if column in data]
    low, high = min(1.0, data[ends].min().min()), max(1.0, data[ends].max().max())
    x = alt.X(f"{field}:Q", axis=alt.Axis(title=title, tickCount=6), scale=alt.Scale(domain=[low * 0.95, high * 1.05], nice=False))
    machines = list(dict.fromkeys(data["machine"]))
    base = alt.Chart(data)
    layers = [alt.Chart(pd.DataFrame({field: [1.0]})).mark_rule(strokeDash=[4, 4], color=MUTED).encode(x=x)]
    if "low" in data:
        layers.append(base.mark_rule(strokeWidth=2, color=MUTED).encode(y=y, x=alt.X("low:Q"), x2="high:Q"))
    shape = {"shape": alt.Shape("machine:N", sort=machines, legend=alt.Legend(title=None))} if len(machines) > 1 else {}
    layers.append(base.mark_point(size=60, filled=True, opacity=1).encode(
        x=x, y=y, color=alt.Color("whose:N", sort=scheme.domain, scale=scheme, legend=alt.Legend(title=None, columns=1)),
        tooltip=["title:N", "machine:N", alt.Tooltip(f"{field}:Q", format=".3~r")], **shape))
    return alt.layer(*layers).properties(height=_STEP_PX * len(order))


def _order(a: Analysis) -> list[str]:
    """The programs from the largest gain to the least."""
    rows = a.of_pages()
    return list(rows["title"].iloc[sorted(range(len(rows)), key=lambda n: -rows["gain"].iloc[n].value)])


def gains(a: Analysis) -> Figure:
    """Time on base pages over time on large ones, with its interval, a row a program."""
    rows = _named(a)
    data = rows[["title", "language", "whose", "machine", "does", "verdict", "pairs"]].assign(
        **{name: [getattr(gain, field) for gain in rows["gain"]] for name, field in (("gain", "value"), ("low", "low"), ("high", "high"))})
    mine = data[data["machine"] == "this machine"]
    told = extremes(dict(zip(mine["title"], mine["gain"], strict=True)), "times as long", "takes longest on base pages", "least")
    return Figure(_dots(data, _order(a), "times as fast", "gain"),
                  f"Time on base pages over time on large ones, by program. {told}", data)


def costs(a: Analysis) -> Figure:
    """Memory with large pages over without, a row a program, in the order of the gains."""
    rows = _named(a)
    data = rows[["title", "language", "whose", "machine", "does", "memory", "faults", "large"]].dropna(subset=["memory"])
    mine = data[data["machine"] == "this machine"]
    told = extremes(dict(zip(mine["title"], mine["memory"], strict=True)), "times as much", "takes most on large pages", "least")
    return Figure(_dots(data, _order(a), "times the memory", "memory"),
                  f"Resident memory with large pages over that without, by program. {told}", data)
