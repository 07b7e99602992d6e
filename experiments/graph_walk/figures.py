"""The charts of the chapter about the graph, one function a figure, and the table of the model's
parameters."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from experiments.graph_walk.analysis import SIZE, Analysis
from experiments.graph_walk.grid import WALKERS
from experiments.graph_walk.model import CHASES, WALK
from tlb.inference.cost import LOOSE
from tlb.page_sizes import BASE, ordered, rank, words
from tlb.prose import extremes, in_words
from tlb.reasons import if_available, required
from tlb.report import charts
from tlb.report.chapter import literature
from tlb.report.render import INK, MUTED, PALETTE, Figure, Html, data_table
from tlb.units import format_size, rounded

BESIDE = ("quantiles",)  # with the reference machine's curves behind a switch

_COUNTS = (0, 0.2, 0.4, 0.6, 0.8, 1)
_SERIES = {"p50": "median", "p95": "95th percentile"}
RIDGE_PX = 30  # from one ridge's foot to the next
OVERLAP = 1.7  # how many of those a ridge is high
STEP = 0.01  # of that: what is drawn in 0.3 px
_SIZES = alt.X(f"{SIZE}:Q", axis=charts.bytes_axis("Working set"), scale=charts.log_scale())


def _ticks(ns: pd.Series) -> list[float]:
    return [tick for tick in charts.TIMES if ns.min() * 0.5 <= tick <= ns.max() * 1.3]


def _pages(data: pd.DataFrame) -> alt.Color:
    scale = charts.page_colours(data["pages"])
    return alt.Color("pages:N", sort=scale.domain, scale=scale)


def _dashes(names: Sequence[str]) -> alt.StrokeDash:
    return alt.StrokeDash(
        "series:N",
        sort=list(names),
        legend=charts.line_legend(columns=1),
        scale=alt.Scale(
            domain=list(names), range=[[1, 0], [5, 4], [2, 3], [8, 3, 2, 3]][: len(names)]
        ),
    )


def _tooltips(*more: str) -> list[alt.Tooltip]:
    ns = [
        alt.Tooltip("median:Q", format=".3~r", title="ns"),
        *(alt.Tooltip(f"{name}:Q", format=".3~r") for name in ("low", "high")),
    ]
    return [*map(alt.Tooltip, more), *ns, alt.Tooltip("n:Q", title="processes")]


def quantiles(a: Analysis) -> Figure:
    """Median and 95th percentile of a hop against the working set, by page size; faint, as
    published."""
    tables = [
        part.assign(pages=pages, series=_SERIES[name], where="here")
        for name, curves in (("p50", a.p50), ("p95", a.p95))
        for pages, curve in curves.items()
        if len(part := curve.table[curve.table["median"] > 0])
    ]
    ours = pd.concat(
        required(tables, "no walk was timed hop by hop, or every hop is too short for this clock")
    )
    ours = ours.sort_values(["pages", SIZE], key=rank, kind="stable")
    published = literature("graph_walk_quantiles").melt(
        ["pages", SIZE], [f"{name}_ns_per_hop" for name in _SERIES], "q", "median"
    )
    theirs = published[published["pages"].isin(ours["pages"])]
    theirs = theirs.assign(
        where="published", series=theirs["q"].map(lambda name: _SERIES[name[:3]])
    )
    columns = [
        "where",
        "pages",
        "series",
        SIZE,
        "median",
        "low",
        "high",
        "coverage",
        "n",
        "unstable",
    ]
    data = pd.concat([ours, theirs], ignore_index=True)[columns]
    y = alt.Y(
        "median:Q",
        scale=charts.time_scale(data),
        axis=charts.ns_axis("ns per hop", _ticks(data["median"])),
    )
    measured, faint = (
        alt.Chart(data[data["where"] == where]).encode(x=_SIZES, y=y, color=_pages(data))
        for where in ("here", "published")
    )
    tips, dash = _tooltips("pages:N", "series:N", f"{SIZE}:Q"), _dashes(list(_SERIES.values()))
    chart = measured.mark_line().encode(strokeDash=dash) + measured.mark_point().encode(
        tooltip=tips
    )
    if len(theirs):
        faint = charts.published(faint)
        chart += faint.mark_line(opacity=0.35, strokeWidth=1).encode(strokeDash=dash)
        chart += faint.mark_point(opacity=0.5, shape="diamond").encode(tooltip=tips[:4])
    last = {
        f"the median hop on {words(pages)}": a.p50[pages].last.value
        for pages in dict.fromkeys(ours["pages"])
        if pages in a.p50
    }
    ends = "; ".join(
        f"{words(pages)} at {format_size(part[SIZE].max())}, "
        + " and ".join(f"{ns:.0f} ns" for ns in part.loc[part[SIZE] == part[SIZE].max(), "median"])
        for pages, part in ours.groupby("pages", sort=False)
    )
    return Figure(
        chart,
        f"Median and 95th percentile of a hop against the working set. {extremes(last)} They end at: {ends}.",
        data,
    )


def ridges(a: Analysis) -> Figure:
    """The distribution of a hop's time, a ridge each working set, smallest on top, all processes
    together. Of points at one height, the ends are drawn."""
    full = required(a.ridges, "no walk on base pages was timed hop by hop")
    data = full.assign(
        ns=full["ns"].map(rounded),
        share_per_ns=full["share_per_ns"].map(lambda share: rounded(share, 3)),
    )
    sizes = list(dict.fromkeys(data[SIZE]))
    names = "[" + ", ".join(f"'{format_size(size)}'" for size in sizes) + "]"
    axis = alt.Axis(
        title="Working set",
        values=list(range(len(sizes))),
        labelExpr=f"{names}[datum.value]",
        grid=False,
    )
    scale = alt.Scale(domain=[0, len(sizes) - 1 + OVERLAP], nice=False)
    x = alt.X(
        "ns:Q",
        axis=charts.ns_axis("ns per hop, without the clock's own cost"),
        scale=alt.Scale(nice=False, domain=[data["ns"].min(), data["ns"].max()]),
    )
    layers, shown, peaks = [], [], {}
    for place, (size, part) in enumerate(data.groupby(SIZE, sort=False)):
        height = (
            part["share_per_ns"] / max(part["share_per_ns"].max(), 1e-12) * OVERLAP / STEP
        ).round() * STEP
        bends = (height != height.shift()) | (height != height.shift(-1))
        peaks[size] = max(part["ns"][height.idxmax()], 0)
        shown.append(part[bends])
        layers.append(
            alt.Chart(pd.DataFrame({"ns": part["ns"], "top": (place + height).round(2)})[bends])
            .mark_area(color=PALETTE[0], opacity=0.75, line={"color": INK, "strokeWidth": 0.8})
            .encode(x=x, y=alt.Y("top:Q", axis=axis, scale=scale), y2=alt.Y2Datum(place))
        )
    chart = alt.layer(*reversed(layers), *_peak_rules(a)).properties(
        height=int(RIDGE_PX * (len(sizes) + OVERLAP))
    )  # lower ones in front
    modes = " and ".join(
        f"at {peaks[size]:.0f} ns at {format_size(size)}" for size in (sizes[-1], sizes[0])
    )
    return Figure(
        chart,
        f"A ridge for each working set, the distribution of a hop's time. The highest mode lies {modes}.",
        pd.concat(shown)[[SIZE, "ns", "share_per_ns"]],
    )


def _peak_rules(a: Analysis) -> list[alt.Chart]:
    """Dashed rules at the peaks of the largest graph, each with the number of accesses to memory it
    is."""
    found = if_available(lambda: a.peaks[BASE])
    peaks = enumerate(found.peaks_ns if found else [], 1)
    places = pd.DataFrame(
        [(peak.value, "1 access" if n == 1 else str(n)) for n, peak in peaks],
        columns=["ns", "label"],
    )
    if places.empty:
        return []
    named = alt.Chart(places).encode(x="ns:Q")
    return [
        named.mark_rule(strokeDash=[4, 4], color=MUTED),
        named.mark_text(align="left", dx=4, baseline="top", color=MUTED).encode(
            text="label:N", y=alt.value(0)
        ),
    ]


def memory_accesses(a: Analysis) -> Figure:
    """Of all hops, those that wait for two accesses to memory and more, and for three, against the
    working set, by page size."""
    data = required(
        a.access_shares[a.access_shares["accesses"] > 1], "hops on base pages have one peak"
    )
    data = data.assign(series=data["accesses"].map(lambda n: f"{in_words(n)} or more"))
    data = data.sort_values(["pages", "accesses", SIZE], key=rank, kind="stable").astype(
        {"accesses": int}
    )
    y = alt.Y(
        "share:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(title="Share of hops", format="%", values=list(_COUNTS)),
    )
    base = alt.Chart(data).encode(x=_SIZES, y=y, color=_pages(data))
    names = list(dict.fromkeys(data.sort_values("accesses")["series"]))
    chart = base.mark_line().encode(strokeDash=_dashes(names)) + base.mark_point().encode(
        tooltip=["pages:N", "series:N", f"{SIZE}:Q", alt.Tooltip("share:Q", format=".0%")]
    )
    last = data[data[SIZE] == data[SIZE].max()]
    two = last[last["accesses"] == 2].set_index("pages")["share"]
    told = " and ".join(f"{share:.0%} on {words(pages)}" for pages, share in two.items())
    return Figure(
        chart,
        "The share of hops that wait for more than one access to memory rises with the working set, more on base pages "
        f"than on large ones; two or more at {format_size(data[SIZE].max())}: {told}.",
        data[["pages", "accesses", SIZE, "share"]],
    )


def touched(a: Analysis) -> Figure:
    """ns a load at the largest size, a row an order of first touch: the median with its interval."""
    curves = required(a.touched, "no chase was measured over pages touched in several orders")
    lines = max(curve.xs[-1] for curve in curves.values())
    data = pd.DataFrame(
        [
            {
                "order": _TOUCHED[mode],
                "lines": lines,
                "median": took.value,
                "low": took.low,
                "high": took.high,
            }
            for mode, curve in curves.items()
            if (took := curve.get(lines)).value > 0
        ]
    )
    axis = charts.ns_axis("ns a load")
    base = alt.Chart(data).encode(y=charts.row("order", data["order"]))
    medians = base.mark_point(filled=True).encode(
        x=alt.X("median:Q", axis=axis),
        tooltip=[
            "order:N",
            *(alt.Tooltip(f"{name}:Q", format=".0f") for name in ("median", "low", "high")),
        ],
    )
    least, most = data.loc[data["median"].idxmin()], data.loc[data["median"].idxmax()]
    chart = charts.rows(
        "order",
        data["order"],
        base.mark_rule().encode(x=alt.X("low:Q", axis=axis), x2="high:Q"),
        medians,
    )
    return Figure(
        chart,
        f"The same chase over {format_size(lines * a.base_page_bytes)} is fastest over pages touched {least['order']}, "
        f"{least['median']:.0f} ns a load, and slowest over pages touched {most['order']}, {most['median']:.0f}.",
        data,
    )


_TOUCHED = {
    "address": "by address",
    "visit": "in the order of the visits",
    "shuffled": "in another random order",
}


def walk_misses(a: Analysis) -> Figure:
    """Walks per hop against the working set, by page size: counted or simulated, predicted, and
    published."""
    most = a.sizes.max()
    published = literature("dtlb_misses_per_hop").rename(columns={"misses_per_hop": "median"})
    published = published[
        published["working_set_from_bytes"] <= most
    ]  # a figure for a range holds at both of its ends
    published = pd.concat(
        [
            published.assign(**{SIZE: published[f"working_set_{end}_bytes"].clip(upper=most)})
            for end in ("from", "to")
        ]
    )
    series = {
        "simulated" if a.is_simulated else "counted": [
            curve.table.assign(pages=pages) for pages, curve in a.counted.items()
        ],
        "predicted, 1 − C/M" + ", in pieces of 4 KiB" * a.in_pieces: [
            pd.DataFrame({SIZE: share.index, "median": share.to_numpy(), "pages": pages})
            for pages, share in a.predicted.items()
            if pages in set(a.frame["pages"]) and (pages == BASE or not a.in_pieces)
        ],
        "published": [published.drop_duplicates(["pages", SIZE])],
    }
    columns = ["pages", SIZE, "median", "low", "high", "n"]
    tables = [
        table.reindex(columns=columns).assign(series=label)
        for label, parts in series.items()
        for table in parts
        if len(table)
    ]
    data = pd.concat(
        required(tables, "walks were neither counted nor can be predicted", "no-data"),
        ignore_index=True,
    )
    scale = alt.Scale(domain=[0, max(1.0, data["median"].max())], nice=False)
    y = alt.Y("median:Q", axis=charts.ns_axis("walks per hop", _COUNTS), scale=scale)
    base = charts.published(
        alt.Chart(data).encode(x=_SIZES, color=_pages(data), y=y), "datum.series != 'published'"
    )
    points = (
        base.transform_filter("!test(/predicted/, datum.series)")
        .mark_point()
        .encode(tooltip=_tooltips("series:N", "pages:N", f"{SIZE}:Q"))
    )
    ends = data.loc[data.groupby(["series", "pages"], sort=False)[SIZE].idxmax()]
    last = {f"{words(row.pages)}, {row.series},": row.median for row in ends.itertuples()}
    shares = "; ".join(
        f"{label}: "
        + ", ".join(f"{words(row.pages)} {row.median:.2g}" for row in part.itertuples())
        for label, part in ends.groupby("series", sort=False)
    )
    return Figure(
        base.mark_line().encode(strokeDash=_dashes(list(dict.fromkeys(data["series"])))) + points,
        f"Walks per hop against the working set. {extremes(last, 'a hop', 'walk most often', 'least')} At the largest of each: "
        f"{shares}.",
        data[["series", *columns]],
    )


def walkers(a: Analysis) -> Figure:
    """ns per hop against how many walks take turns, by page size. Thin and dashed: as many walks in
    the time of one; grey: the loop alone."""
    columns = [
        "pages",
        "walkers",
        "vertices",
        "median",
        "low",
        "high",
        "coverage",
        "n",
        "unstable",
        "gain",
        "floor_ns",
    ]
    data = required(a.walkers[columns], "no graph was walked by several numbers of walkers")
    floor = data.groupby("walkers")["floor_ns"].median().rename("median").dropna().reset_index()
    scale = charts.time_scale(pd.concat([data, floor]))
    x = alt.X(
        "walkers:Q",
        axis=alt.Axis(
            title="Walkers that take turns in one thread", values=list(WALKERS), format="d"
        ),
        scale=charts.log_scale(),
    )
    y = alt.Y(
        "median:Q",
        scale=scale,
        axis=charts.ns_axis("ns per hop", _ticks(pd.concat([data["median"], floor["median"]]))),
    )
    base = alt.Chart(data).encode(x=x, color=_pages(data))
    same = data.assign(median=data["median"] * data["gain"] / data["walkers"]).dropna(
        subset=["median"]
    )
    thin = (
        alt.Chart(same)
        .mark_line(strokeDash=[2, 3], strokeWidth=1, clip=True)
        .encode(x=x, y=y, color=_pages(data))
    )
    grey = alt.Chart(floor).mark_line(color=MUTED, strokeWidth=1).encode(x=x, y=y)
    bars = base.mark_rule().encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    kinds = ordered(data["pages"])
    points = base.mark_point().encode(
        y=y,
        shape=alt.Shape("pages:N", sort=kinds, scale=alt.Scale(domain=kinds)),
        tooltip=_tooltips("pages:N", "walkers:Q", "gain:Q"),
    )
    ends = data.loc[data.groupby("pages", sort=False)["walkers"].idxmax()]
    last = {f"a hop on {words(row.pages)}": row.median for row in ends.itertuples()}
    times = ", ".join(
        f"{words(row.pages)} {row.median:.1f} ns with {row.walkers}" for row in ends.itertuples()
    )
    return Figure(
        charts.layered(
            thin if len(same) else None,
            grey if len(floor) else None,
            base.mark_line().encode(y=y),
            bars,
            points,
        ),
        f"Time per hop against the number of walks that take turns. {extremes(last)} With the most: {times}.",
        data,
    )


def model(a: Analysis) -> Figure:
    """Points measured in random order, those that the fit saw and those that it did not, beside the
    model's lines."""
    data = a.modelled
    scale_of = (
        pd.concat([data["measured_ns"], data["predicted_ns"]])
        .rename("median")
        .to_frame()
        .assign(high=np.nan)
    )
    scale = charts.time_scale(scale_of)
    scheme = charts.colours(
        [name for name in (*CHASES.values(), WALK) if (data["series"] == name).any()]
    )
    base = alt.Chart(data).encode(
        x=alt.X("lines:Q", axis=charts.lines_axis("Lines visited"), scale=charts.log_scale()),
        color=alt.Color("series:N", sort=scheme.domain, scale=scheme),
    )
    lines = base.mark_line().encode(
        y=alt.Y(
            "predicted_ns:Q",
            scale=scale,
            axis=charts.ns_axis("ns per load", _ticks(scale_of["median"])),
        )
    )
    seen = ["fitted", "held out"]
    dots = base.mark_point().encode(
        y=alt.Y("measured_ns:Q", scale=scale),
        shape=alt.Shape(
            "seen:N", sort=seen, scale=alt.Scale(domain=seen, range=["circle", "triangle-up"])
        ),
        tooltip=[
            "series:N",
            "seen:N",
            alt.Tooltip("lines:Q", format=","),
            *(alt.Tooltip(f"{name}_ns:Q", format=".3~r") for name in ("measured", "predicted")),
        ],
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
    """Each parameter of the model, its unit in its name, with its interval; without a value where
    the points do not determine it."""
    rows = []
    for name, fit in a.fitted.parameters.items():
        known = name not in a.fitted.undetermined
        interval = (
            f"{fit.low:,.3g} to {fit.high:,.3g}"
            if known
            else f"not determined: bounds more than {LOOSE:.0f} times apart"
        )
        if name in a.fitted.at_bound:
            interval += " (at its bound)"
        rows.append((name.replace("_", " "), f"{fit.value:,.3g}" if known else "–", interval))
    return data_table(pd.DataFrame(rows, columns=["parameter", "value", "95 % interval"]))
