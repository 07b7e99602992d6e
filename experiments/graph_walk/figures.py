"""The charts of the chapter about the graph, one function a figure."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt
import pandas as pd

from experiments.graph_walk.analysis import SIZE, Analysis
from experiments.graph_walk.grid import TOUCHES, WALKERS
from tlb.page_sizes import BASE, rank, words
from tlb.prose import extremes, in_words
from tlb.reasons import if_available, required
from tlb.report import axes, charts
from tlb.report.chapter import literature
from tlb.report.render import INK, MUTED, PALETTE, Figure
from tlb.units import format_size, rounded

BESIDE = ("quantiles",)  # with the reference machine's curves behind a switch

_SERIES = {"p50": "median", "p95": "95th percentile"}
_ORDERS = "by address", "in the order of the visits", "in another random order"
_TOUCHED = dict(zip(TOUCHES, _ORDERS, strict=True))
RIDGE_PX, OVERLAP = 30, 1.7  # from one ridge's foot to the next; how many of those a ridge is high
STEP = 0.01  # of that: what is drawn in 0.3 px
_INTERVAL = ["median", "low", "high"]
_SIZES = alt.X(f"{SIZE}:Q", axis=axes.bytes_axis("Working set"), scale=axes.log_scale())
_PROCESSES = alt.Tooltip("n:Q", title="processes")
_DASHES = ([1, 0], [5, 4], [2, 3], [8, 3, 2, 3])


def _pages(data: pd.DataFrame) -> alt.Color:
    return axes.colour("pages", axes.page_colours(data["pages"]))


def _dashes(names: Iterable[str]) -> alt.StrokeDash:
    return axes.dash("series", dict.fromkeys(names), _DASHES)


def ns_axis(title: str, ns: pd.Series) -> alt.Axis:
    return axes.ns_axis(title, axes.within(axes.TIMES, ns.min() * 0.5, ns.max() * 1.3))


def _quantiles(a: Analysis) -> pd.DataFrame:
    """Return the median and 95th percentile of a hop here and as published."""
    tables = [
        part.assign(pages=pages, series=_SERIES[name], where="here")
        for name, curves in (("p50", a.p50), ("p95", a.p95))
        for pages, curve in curves.items()
        if len(part := curve.table[curve.table["median"] > 0])
    ]
    lacking = "no walk was timed hop by hop, or every hop is too short for this clock"
    ours = pd.concat(required(tables, lacking))
    ours = ours.sort_values(["pages", SIZE], key=rank, kind="stable")
    quantile_columns = [f"{name}_ns_per_hop" for name in _SERIES]
    published = literature("graph_walk_quantiles")
    published = published.melt(["pages", SIZE], quantile_columns, "series", "median")
    published["series"] = published["series"].str[:3].map(_SERIES)
    theirs = published[published["pages"].isin(ours["pages"])].assign(where="published")
    columns = ["where", "pages", "series", SIZE, *_INTERVAL, "coverage", "n", "unstable"]
    return pd.concat([ours, theirs], ignore_index=True)[columns]


def quantiles(a: Analysis) -> Figure:
    """Draw the median and 95th percentile of a hop against the working set, by page size; faint, as
    published."""
    data = _quantiles(a)
    ours = data[data["where"] == "here"]
    ticks = ns_axis("ns per hop", data["median"])
    y = alt.Y("median:Q", scale=axes.time_scale(data), axis=ticks)
    measured, faint = (
        alt.Chart(data[data["where"] == where]).encode(x=_SIZES, y=y, color=_pages(data))
        for where in ("here", "published")
    )
    tips, dash = (
        [*axes.tips("pages:N", "series:N", f"{SIZE}:Q"), _PROCESSES],
        _dashes(_SERIES.values()),
    )
    chart = measured.mark_line().encode(strokeDash=dash)
    chart += measured.mark_point().encode(tooltip=tips)
    if len(ours) < len(data):
        faint = charts.published(faint)
        chart += faint.mark_line(opacity=0.35, strokeWidth=1).encode(strokeDash=dash)
        chart += faint.mark_point(opacity=0.5, shape="diamond").encode(tooltip=tips[:4])
    last, ends = {}, []
    for pages, part in ours.groupby("pages", sort=False):
        largest = part[part[SIZE] == part[SIZE].max()]
        ns = " and ".join(f"{ns:.0f} ns" for ns in largest["median"])
        ends.append(f"{words(pages)} at {format_size(part[SIZE].max())}, {ns}")
        if pages in a.p50:
            last[f"the median hop on {words(pages)}"] = a.p50[pages].last.value
    return Figure(
        chart,
        "Median and 95th percentile of a hop against the working set. "
        f"{extremes(last)} They end at: {'; '.join(ends)}.",
        data,
    )


def ridges(a: Analysis) -> Figure:
    """Draw the distribution of a hop's time, a ridge each working set, smallest on top, all
    processes together. Of points at one height, the ends are drawn."""
    full = required(a.ridges, "no walk on base pages was timed hop by hop")
    shares = full["share_per_ns"].map(lambda share: rounded(share, 3))
    data = full.assign(ns=full["ns"].map(rounded), share_per_ns=shares)
    sizes = list(dict.fromkeys(data[SIZE]))
    names = "[" + ", ".join(f"'{format_size(size)}'" for size in sizes) + "]"
    places = {"values": list(range(len(sizes))), "labelExpr": f"{names}[datum.value]"}
    axis = alt.Axis(title="Working set", grid=False, **places)
    scale = alt.Scale(domain=[0, len(sizes) - 1 + OVERLAP], nice=False)
    x = alt.X(
        "ns:Q",
        axis=axes.ns_axis("ns per hop, without the clock's own cost"),
        scale=alt.Scale(nice=False, domain=[data["ns"].min(), data["ns"].max()]),
    )
    y = alt.Y("top:Q", axis=axis, scale=scale)
    layers, shown, peaks = [], [], {}
    for place, (size, part) in enumerate(data.groupby(SIZE, sort=False)):
        share = part["share_per_ns"] / max(part["share_per_ns"].max(), 1e-12)
        height = (share * OVERLAP / STEP).round() * STEP
        bends = (height != height.shift()) | (height != height.shift(-1))
        peaks[size] = max(part["ns"][height.idxmax()], 0)
        shown.append(part[bends])
        ridge = pd.DataFrame({"ns": part["ns"], "top": (place + height).round(2)})[bends]
        outline = {"color": INK, "strokeWidth": 0.8}
        area = alt.Chart(ridge).mark_area(color=PALETTE[0], opacity=0.75, line=outline)
        layers.append(area.encode(x=x, y=y, y2=alt.Y2Datum(place)))
    chart = alt.layer(*reversed(layers), *_peak_rules(a))  # lower ones in front
    last, first = sizes[-1], sizes[0]
    return Figure(
        chart.properties(height=int(RIDGE_PX * (len(sizes) + OVERLAP))),
        "A ridge for each working set, the distribution of a hop's time. The highest mode lies "
        f"at {peaks[last]:.0f} ns at {format_size(last)} and "
        f"at {peaks[first]:.0f} ns at {format_size(first)}.",
        pd.concat(shown)[[SIZE, "ns", "share_per_ns"]],
    )


def _peak_rules(a: Analysis) -> list[alt.Chart]:
    """Return dashed rules at the peaks of the largest graph, each with its number of accesses to
    memory."""
    found = if_available(lambda: a.peaks[BASE])
    if not found or not found.peaks_ns:
        return []
    places = pd.DataFrame({"ns": [peak.value for peak in found.peaks_ns]})
    places["label"] = ["1 access", *map(str, range(2, len(places) + 1))]
    named = alt.Chart(places).encode(x="ns:Q")
    text = named.mark_text(align="left", dx=4, baseline="top", color=MUTED)
    return [
        named.mark_rule(strokeDash=[4, 4], color=MUTED),
        text.encode(text="label:N", y=alt.value(0)),
    ]


def memory_accesses(a: Analysis) -> Figure:
    """Draw the share of hops that wait for two accesses to memory and more, and for three, against
    the working set, by page size."""
    data = a.access_shares[a.access_shares["accesses"] > 1]
    data = required(data, "hops on base pages have one peak").astype({"accesses": int})
    data = data.assign(series=data["accesses"].map(lambda n: f"{in_words(n)} or more"))
    data = data.sort_values(["pages", "accesses", SIZE], key=rank, kind="stable")
    axis = alt.Axis(title="Share of hops", format="%", values=list(axes.SHARES))
    y = alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=axis)
    base = alt.Chart(data).encode(x=_SIZES, y=y, color=_pages(data))
    lines = base.mark_line().encode(strokeDash=_dashes(data.sort_values("accesses")["series"]))
    tips = ["pages:N", "series:N", f"{SIZE}:Q", alt.Tooltip("share:Q", format=".0%")]
    largest = data[data[SIZE] == data[SIZE].max()]
    two = largest[largest["accesses"] == 2].set_index("pages")["share"]
    ends = " and ".join(f"{share:.0%} on {words(pages)}" for pages, share in two.items())
    return Figure(
        lines + base.mark_point().encode(tooltip=tips),
        "The share of hops that wait for more than one access to memory rises with the working "
        "set, more on base pages than on large ones; two or more at "
        f"{format_size(data[SIZE].max())}: {ends}.",
        data[["pages", "accesses", SIZE, "share"]],
    )


def touched(a: Analysis) -> Figure:
    """Draw ns a load at the largest size, a row an order of first touch."""
    curves = required(a.touched, "no chase was measured over pages touched in several orders")
    lines = max(curve.xs[-1] for curve in curves.values())
    rows = [
        (_TOUCHED[mode], lines, *took[:3])
        for mode, curve in curves.items()
        if (took := curve.get(lines)).value > 0
    ]
    data = pd.DataFrame(rows, columns=["order", "lines", *_INTERVAL])
    x = {"axis": axes.ns_axis("ns a load")}
    least, most = data.loc[data["median"].idxmin()], data.loc[data["median"].idxmax()]
    return Figure(
        charts.medians_in_rows(data, "order", list(data["order"]), x, "order:N"),
        f"The same chase over {format_size(lines * a.base_page_bytes)} is fastest over pages "
        f"touched {least['order']}, {least['median']:.0f} ns a load, and slowest over pages "
        f"touched {most['order']}, {most['median']:.0f}.",
        data,
    )


def _published_misses(most: int) -> pd.DataFrame:
    """Return published walks per hop up to `most` bytes; of a range both ends have its value."""
    rows = literature("dtlb_misses_per_hop").rename(columns={"misses_per_hop": "median"})
    rows = rows[rows["working_set_from_bytes"] <= most]
    ends = [rows.assign(**{SIZE: rows[f"working_set_{end}_bytes"]}) for end in ("from", "to")]
    both = pd.concat(ends)
    return both.assign(**{SIZE: both[SIZE].clip(upper=most)}).drop_duplicates(["pages", SIZE])


def _walk_misses(a: Analysis) -> pd.DataFrame:
    """Return series, pages, working set and walks per hop: counted or simulated, predicted, and
    published. Raises Unavailable("no-data")."""
    counted = "simulated" if a.is_simulated else "counted"
    tables = [curve.table.assign(pages=pages, series=counted) for pages, curve in a.counted.items()]
    predicted = "predicted, 1 − C/M" + ", in pieces of 4 KiB" * a.in_pieces
    for pages, share in a.predicted.items():
        if pages in set(a.frame["pages"]) and (pages == BASE or not a.in_pieces):
            line = share.rename("median").rename_axis(SIZE).reset_index()
            tables.append(line.assign(pages=pages, series=predicted))
    tables.append(_published_misses(a.sizes.max()).assign(series="published"))
    columns = ["series", "pages", SIZE, *_INTERVAL, "n"]
    tables = [table.reindex(columns=columns) for table in tables if len(table)]
    required(tables, "walks were neither counted nor can be predicted", "no-data")
    return pd.concat(tables, ignore_index=True)


def walk_misses(a: Analysis) -> Figure:
    """Draw walks per hop against the working set, by page size: counted or simulated, predicted,
    and published."""
    data = _walk_misses(a)
    scale = alt.Scale(domain=[0, max(1.0, data["median"].max())], nice=False)
    y = alt.Y("median:Q", axis=axes.ns_axis("walks per hop", axes.SHARES), scale=scale)
    base = alt.Chart(data).encode(x=_SIZES, color=_pages(data), y=y)
    base = charts.published(base, "datum.series != 'published'")
    points = base.transform_filter("!test(/predicted/, datum.series)").mark_point()
    tooltip = [*axes.tips("series:N", "pages:N", f"{SIZE}:Q"), _PROCESSES]
    points = points.encode(tooltip=tooltip)
    ends = data.loc[data.groupby(["series", "pages"], sort=False)[SIZE].idxmax()]
    last = {f"{words(row.pages)}, {row.series},": row.median for row in ends.itertuples()}
    shares = []
    for series, part in ends.groupby("series", sort=False):
        each = ", ".join(f"{words(row.pages)} {row.median:.2g}" for row in part.itertuples())
        shares.append(f"{series}: {each}")
    return Figure(
        base.mark_line().encode(strokeDash=_dashes(data["series"])) + points,
        "Walks per hop against the working set. "
        f"{extremes(last, 'a hop', 'walk most often', 'least')} "
        f"At the largest of each: {'; '.join(shares)}.",
        data,
    )


def walkers(a: Analysis) -> Figure:
    """Draw ns per hop against how many walks take turns, by page size. Thin and dashed: as many
    walks in the time of one; grey: the loop alone."""
    columns = ["pages", "walkers", "vertices", *_INTERVAL, "coverage", "n", "unstable"]
    data = a.walkers[[*columns, "gain", "floor_ns"]]
    required(data, "no graph was walked by several numbers of walkers")
    floor = data.groupby("walkers")["floor_ns"].median().rename("median").dropna().reset_index()
    drawn = pd.concat([data, floor])
    turns = alt.Axis(title="Walkers that take turns in one thread", values=[*WALKERS], format="d")
    x = alt.X("walkers:Q", axis=turns, scale=axes.log_scale())
    scale = axes.time_scale(drawn)
    y = alt.Y("median:Q", scale=scale, axis=ns_axis("ns per hop", drawn["median"]))
    base = alt.Chart(data).encode(x=x, color=_pages(data))
    same = data.assign(median=data["median"] * data["gain"] / data["walkers"])
    thin = alt.Chart(same.dropna(subset=["median"])).mark_line(
        strokeDash=[2, 3], strokeWidth=1, clip=True
    )
    grey = alt.Chart(floor).mark_line(color=MUTED, strokeWidth=1)
    tooltip = [*axes.tips("pages:N", "walkers:Q", "gain:Q"), _PROCESSES]
    shape = axes.shape("pages", _pages(data)["sort"])
    ends = data.loc[data.groupby("pages", sort=False)["walkers"].idxmax()]
    last = {f"a hop on {words(row.pages)}": row.median for row in ends.itertuples()}
    ns = [f"{words(row.pages)} {row.median:.1f} ns with {row.walkers}" for row in ends.itertuples()]
    return Figure(
        charts.layered(
            thin.encode(x=x, y=y, color=_pages(data)),
            grey.encode(x=x, y=y) if len(floor) else None,
            base.mark_line().encode(y=y),
            base.mark_rule().encode(y=alt.Y("low:Q", scale=scale), y2="high:Q"),
            base.mark_point().encode(y=y, shape=shape, tooltip=tooltip),
        ),
        "Time per hop against the number of walks that take turns. "
        f"{extremes(last)} With the most: {', '.join(ns)}.",
        data,
    )
