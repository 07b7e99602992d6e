"""The chart of the model beside what was measured, and the table of its parameters."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.graph_walk.analysis import Analysis
from experiments.graph_walk.figures import ns_axis
from experiments.graph_walk.model import CHASES, WALK
from tlb.inference.cost import LOOSE
from tlb.report import axes
from tlb.report.render import Figure, Html, data_table


def model(a: Analysis) -> Figure:
    """Draw points measured in random order, those that the fit saw and those that it did not,
    beside the model's lines."""
    data = a.modelled
    drawn = pd.concat([data["measured_ns"], data["predicted_ns"]])
    scale = axes.time_scale(pd.DataFrame({"median": drawn, "high": float("nan")}))
    names = [name for name in (*CHASES.values(), WALK) if (data["series"] == name).any()]
    base = alt.Chart(data).encode(
        x=alt.X("lines:Q", axis=axes.lines_axis("Lines visited"), scale=axes.log_scale()),
        color=axes.colour("series", names),
    )
    axis = ns_axis("ns per load", drawn)
    lines = base.mark_line().encode(y=alt.Y("predicted_ns:Q", scale=scale, axis=axis))
    seen = ["fitted", "held out"]
    shapes = alt.Scale(domain=seen, range=["circle", "triangle-up"])
    ns = [alt.Tooltip(f"{name}_ns:Q", format=".3~r") for name in ("measured", "predicted")]
    dots = base.mark_point().encode(
        y=alt.Y("measured_ns:Q", scale=scale),
        shape=alt.Shape("seen:N", sort=seen, scale=shapes),
        tooltip=["series:N", "seen:N", alt.Tooltip("lines:Q", format=","), *ns],
    )
    last = data.sort_values("lines").groupby("series", sort=False).tail(1)
    ends = "; ".join(
        f"{row.series}, {row.measured_ns:.0f} ns measured and {row.predicted_ns:.0f} predicted"
        for row in last.itertuples()
    )
    return Figure(
        lines + dots,
        f"Measured points beside the lines that the model predicts. At the right: {ends}.",
        data,
    )


def parameters(a: Analysis) -> Html:
    """Return each parameter of the model with its interval; without a value if the points do not
    determine it."""
    rows = []
    for name, fit in a.fitted.parameters.items():
        value, interval = f"{fit.value:,.3g}", f"{fit.low:,.3g} to {fit.high:,.3g}"
        if name in a.fitted.undetermined:
            value, interval = "–", f"not determined: bounds more than {LOOSE:.0f} times apart"
        if name in a.fitted.at_bound:
            interval += " (at its bound)"
        rows.append((name.replace("_", " "), value, interval))
    return data_table(pd.DataFrame(rows, columns=["parameter", "value", "95 % interval"]))
