"""The charts of the chapter about the graph, one function a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from experiments.article.charts import TIMES, Figure, bytes_axis, line_legend, lines_axis, log_scale, ns_axis
from experiments.article.render import INK, MUTED, PALETTE
from experiments.chapters.hugepages.analysis import PAGES
from experiments.chapters.hugepages.figures import COLOURS
from experiments.inference import hops as walks
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

_COUNTS = (0, 0.2, 0.4, 0.6, 0.8, 1)
_WALKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
RIDGE_PX = 30  # from one ridge's foot to the next
OVERLAP = 1.7  # how many of those a ridge is high
RIDGE_POINTS = 220  # a chart is 600 px wide
SHOWN = 0.99  # of the slowest ridge; the rest of its tail would take as much room as the modes


def _scale(kinds: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(kinds), range=[COLOURS[one] for one in kinds])


def _ordered(frame: pd.DataFrame) -> list[str]:
    return [pages for pages in PAGES if (frame["pages"] == pages).any()]


def _sizes() -> alt.X:
    return alt.X("working_set_bytes:Q", axis=bytes_axis("Working set"), scale=log_scale())


def _ticks(data: pd.DataFrame) -> list[float]:
    return [tick for tick in TIMES if data["median"].min() * 0.5 <= tick <= data["median"].max() * 1.3]


def _dashes(names: Sequence[str], field: str = "series") -> alt.StrokeDash:
    return alt.StrokeDash(f"{field}:N", sort=list(names), legend=line_legend(), scale=alt.Scale(
        domain=list(names), range=[[1, 0], [5, 4], [2, 3], [8, 3, 2, 3]][: len(names)]))


_SERIES = {0.5: "median", 0.95: "95th percentile"}


def quantiles(found: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """Median and 95th percentile of a hop against the working set, by page size; a frame of `walks.quantiles`.

    published: columns pages, working_set_bytes, p50_ns_per_hop, p95_ns_per_hop.
    """
    ours = found[found["q"].isin(_SERIES) & (found["median"] > 0)].assign(where="here")
    if ours.empty:
        raise Unavailable("too-few-points", "every hop is too short for this clock")
    theirs = published.melt(["pages", "working_set_bytes"], ["p50_ns_per_hop", "p95_ns_per_hop"], "q", "median")
    theirs = theirs.assign(q=theirs["q"].map({"p50_ns_per_hop": 0.5, "p95_ns_per_hop": 0.95}), where="published")
    theirs = theirs[theirs["pages"].isin(ours["pages"])]
    data = pd.concat([ours, theirs], ignore_index=True)
    data["series"] = data["q"].map(_SERIES)
    data = data[["where", "pages", "series", "working_set_bytes", "median", "low", "high", "coverage", "n", "unstable"]]
    kinds = _ordered(data)
    low = data["median"].min() * 0.85
    scale = alt.Scale(type="log", nice=False, domain=[low, data["median"].max() * 1.3])
    encoding = {"x": _sizes(), "y": alt.Y("median:Q", scale=scale, axis=ns_axis("ns per hop", _ticks(data))),
                "color": alt.Color("pages:N", sort=kinds, scale=_scale(kinds))}
    here, there = (alt.Chart(data[data["where"] == one]).encode(**encoding) for one in ("here", "published"))
    tips = [alt.Tooltip("pages:N"), alt.Tooltip("series:N"), alt.Tooltip("working_set_bytes:Q", format=","),
            alt.Tooltip("median:Q", format=".3~r", title="ns"), alt.Tooltip("low:Q", format=".3~r"),
            alt.Tooltip("high:Q", format=".3~r"), alt.Tooltip("n:Q", title="processes")]
    dash = _dashes(list(_SERIES.values()))
    chart = here.mark_line().encode(strokeDash=dash) + here.mark_point().encode(tooltip=tips)
    if len(theirs):
        chart += there.mark_line(opacity=0.35, strokeWidth=1).encode(strokeDash=dash)
        chart += there.mark_point(opacity=0.5, shape="diamond").encode(tooltip=tips[:4])
    last = ours[ours["working_set_bytes"] == ours.groupby("pages")["working_set_bytes"].transform("max")]
    told = "; ".join(f"{one} at {format_size(int(part['working_set_bytes'].iloc[0]))}, "
                     + " and ".join(f"{ns:.0f} ns" for ns in part.sort_values("q")["median"])
                     for one, part in ((one, last[last["pages"] == one]) for one in _ordered(ours)))
    return Figure(chart, "quantiles", f"Median and 95th percentile of a hop against the working set on logarithmic axes. They end at: "
                  f"{told}.", data)


def ridges(frame: pd.DataFrame, pages: str = "4k") -> Figure:
    """The distribution of a hop's time on one page size, a ridge each working set, smallest on top; densities of
    `walks.smoothed`, all processes together. Raises Unavailable("too-few-points")."""
    rows = walks.clocked(frame)
    rows = rows[rows["pages"] == pages]
    if rows.empty:
        raise Unavailable("too-few-points", f"no walk on {pages} was timed hop by hop")
    spreads = {int(size): walks.merged(part) for size, part in rows.groupby("working_set_bytes")}
    most = max(float(walks.quantile(one, SHOWN)) for one in spreads.values())
    least = -max(float((one["high_ns"] - one["low_ns"]).min()) for one in spreads.values())
    edges = np.linspace(least, max(most, -least), RIDGE_POINTS + 1)
    parts = []
    for place, (size, spread) in enumerate(sorted(spreads.items(), reverse=True)):
        density = np.diff(walks.below(spread, edges)) / np.diff(edges)
        parts.append(pd.DataFrame({"working_set_bytes": size, "place": place, "ns": (edges[:-1] + edges[1:]) / 2,
                                   "share_per_ns": density, "top": place + OVERLAP * density / max(density.max(), 1e-12)}))
    data = pd.concat(parts, ignore_index=True)
    names = "[" + ", ".join(f"'{format_size(size)}'" for size in sorted(spreads, reverse=True)) + "]"
    axis = alt.Axis(title="Working set", values=list(range(len(spreads))), labelExpr=f"{names}[datum.value]", grid=False)
    scale = alt.Scale(domain=[0, len(spreads) - 1 + OVERLAP], nice=False)
    x = alt.X("ns:Q", axis=ns_axis("ns per hop, the clock's own cost taken off"), scale=alt.Scale(nice=False, domain=[least, edges[-1]]))
    layers = [alt.Chart(part).mark_area(color=PALETTE[0], opacity=0.75, line={"color": INK, "strokeWidth": 0.8}).encode(
        x=x, y=alt.Y("top:Q", axis=axis, scale=scale), y2="place:Q") for part in reversed(parts)]  # the lower ones stand in front
    peaks = {size: float(part["ns"].iloc[int(part["share_per_ns"].to_numpy().argmax())])
             for size, part in zip(sorted(spreads, reverse=True), parts, strict=True)}
    ends = sorted(peaks)
    told = (f"The highest mode lies at {max(peaks[ends[0]], 0):.0f} ns at {format_size(ends[0])} and at {max(peaks[ends[-1]], 0):.0f} ns "
            f"at {format_size(ends[-1])}.")
    chart = alt.layer(*layers).properties(height=int(RIDGE_PX * (len(spreads) + OVERLAP)))
    return Figure(chart, "ridges", f"A ridge for each working set, the distribution of a hop's time on {pages} pages. {told}",
                  data[["working_set_bytes", "ns", "share_per_ns"]])


def misses(series: Mapping[str, pd.DataFrame]) -> Figure:
    """Walks per hop against the working set by page size: label -> pages, working_set_bytes, median, and where counted low, high, n.

    Labels say what the numbers are: counted, simulated, predicted or published. Raises Unavailable("no-data") without any.
    """
    there = {label: one for label, one in series.items() if len(one)}
    if not there:
        raise Unavailable("no-data", "walks were neither counted nor can be predicted")
    columns = ["pages", "working_set_bytes", "median", "low", "high", "n"]
    data = pd.concat([one.reindex(columns=columns).assign(series=label) for label, one in there.items()], ignore_index=True)
    kinds, labels = _ordered(data), list(there)
    base = alt.Chart(data).encode(
        x=_sizes(), color=alt.Color("pages:N", sort=kinds, scale=_scale(kinds)),
        y=alt.Y("median:Q", axis=ns_axis("walks per hop", _COUNTS), scale=alt.Scale(
            domain=[0, max(1.0, data["median"].max())], nice=False)))
    points = base.transform_filter("!test(/predicted/, datum.series)").mark_point().encode(
        tooltip=[alt.Tooltip("series:N"), alt.Tooltip("pages:N"), alt.Tooltip("working_set_bytes:Q", format=","),
                 alt.Tooltip("median:Q", format=".3~r"), alt.Tooltip("n:Q", title="processes")])
    chart = base.mark_line().encode(strokeDash=_dashes(labels)) + points
    told = " ".join(f"{label[0].upper()}{label[1:]}: " + ", ".join(
        f"{pages} {part.sort_values('working_set_bytes')['median'].iloc[-1]:.2g}" for pages, part in one.groupby("pages")) + "."
        for label, one in there.items())
    return Figure(chart, "walk_misses", f"Walks per hop against the working set, at the largest of each. {told}",
                  data[["series", *columns]])


def walkers(found: pd.DataFrame) -> Figure:
    """ns per hop against how many walks take turns, by page size; a frame of `walks.by_walkers`. Thin and dashed: as many walks in
    the time of one; grey: the loop alone."""
    kinds = _ordered(found)
    floor = found.groupby("walkers", as_index=False)["floor_ns"].median().rename(columns={"floor_ns": "median"})
    tops = pd.concat([found["median"], floor["median"]])
    scale = alt.Scale(type="log", nice=False, domain=[tops.min() * 0.7, found[["median", "high"]].max().max() * 1.3])
    ticks = [tick for tick in TIMES if tops.min() * 0.5 <= tick <= found["median"].max() * 1.3]
    x = alt.X("walkers:Q", axis=alt.Axis(title="Walks that take turns in one thread", values=list(_WALKERS), format="d"),
              scale=log_scale())
    y = alt.Y("median:Q", scale=scale, axis=ns_axis("ns per hop", ticks))
    colour = alt.Color("pages:N", sort=kinds, scale=_scale(kinds))
    base = alt.Chart(found).encode(x=x, color=colour)
    same = found.assign(median=found["median"] * found["gain"] / found["walkers"]).dropna(subset=["median"])
    layers = []
    if len(same):
        layers.append(alt.Chart(same).mark_line(strokeDash=[2, 3], strokeWidth=1, clip=True).encode(x=x, y=y, color=colour))
    if floor["median"].notna().any():
        layers.append(alt.Chart(floor.dropna()).mark_line(color=MUTED, strokeWidth=1).encode(x=x, y=y))
    bars = base.mark_rule().encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    points = base.mark_point().encode(y=y, shape=alt.Shape("pages:N", sort=kinds, scale=alt.Scale(domain=kinds)), tooltip=[
        alt.Tooltip("pages:N"), alt.Tooltip("walkers:Q"), alt.Tooltip("median:Q", format=".3~r", title="ns"),
        alt.Tooltip("gain:Q", format=".3~r"), alt.Tooltip("n:Q", title="processes")])
    ends = found[found["walkers"] == found.groupby("pages")["walkers"].transform("max")].set_index("pages")
    told = ", ".join(f"{one} {ends.loc[one, 'median']:.1f} ns with {int(ends.loc[one, 'walkers'])}" for one in kinds)
    return Figure(alt.layer(*layers, base.mark_line().encode(y=y), bars, points), "walkers",
                  f"Time per hop against the number of walks that take turns, on logarithmic axes. With the most: {told}.",
                  found[["pages", "walkers", "vertices", "median", "low", "high", "coverage", "n", "unstable", "gain", "floor_ns"]])


def model(points: pd.DataFrame) -> Figure:
    """Measured times beside the model's: columns series, seen (fitted, held out), lines, measured_ns, predicted_ns."""
    if points.empty:
        raise Unavailable("too-few-points", "nothing to compare the model with")
    names = list(dict.fromkeys(points["series"]))
    seen = ["fitted", "held out"]
    colour = alt.Color("series:N", sort=names, scale=alt.Scale(domain=names, range=list(PALETTE[: len(names)])))
    both = pd.concat([points["measured_ns"], points["predicted_ns"]])
    scale = alt.Scale(type="log", nice=False, domain=[both.min() * 0.85, both.max() * 1.3])
    ticks = [tick for tick in TIMES if both.min() * 0.5 <= tick <= both.max() * 1.3]
    x = alt.X("lines:Q", axis=lines_axis("Lines visited"), scale=log_scale())
    base = alt.Chart(points).encode(x=x, color=colour)
    lines = base.mark_line().encode(y=alt.Y("predicted_ns:Q", scale=scale, axis=ns_axis("ns per load", ticks)))
    dots = base.mark_point().encode(
        y=alt.Y("measured_ns:Q", scale=scale), shape=alt.Shape("seen:N", sort=seen, scale=alt.Scale(
            domain=seen, range=["circle", "triangle-up"])),
        tooltip=[alt.Tooltip("series:N"), alt.Tooltip("seen:N"), alt.Tooltip("lines:Q", format=","),
                 alt.Tooltip("measured_ns:Q", format=".3~r"), alt.Tooltip("predicted_ns:Q", format=".3~r")])
    last = points.sort_values("lines").groupby("series", sort=False).tail(1)
    told = "; ".join(f"{row.series}, {row.measured_ns:.0f} ns measured and {row.predicted_ns:.0f} predicted"
                     for row in last.itertuples(index=False))
    return Figure(lines + dots, "model", f"Measured points and the model's lines on logarithmic axes. At the right: {told}.",
                  points[["series", "seen", "lines", "measured_ns", "predicted_ns"]])
