"""The charts of the pages that re-run a published measurement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import altair as alt
import numpy as np
import pandas as pd

from tlb.report import charts
from tlb.report.render import PALETTE, TEXT_COLOUR
from tlb.stats.curves import Curve
from tlb.stats.intervals import Interval
from tlb.system.units import format_size, list_in_words

# --- five levels: records by threads, and how long faults take

# Published series, each with its dash.
PUBLISHED_KERNELS = {"published, four levels": [6, 3], "published, five levels": [2, 3]}
RATE_TICKS = [n * 10**power for power in range(3, 6) for n in (1, 3)]  # ticks
FAULT_TIME_BUCKETS_NS = [2**n for n in range(7, 14)]  # ns


def records_by_threads(rates: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw records per second by threads, a panel for each kind of buffer.

    rates: columns machine, buffer, threads, rate, low, high. colours: of machines.
    """
    names = [name for name in colours if name in set(rates["machine"])]
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    axis = alt.Axis(title="threads", values=list(range(1, 8)))
    x = alt.X("threads:Q", scale=alt.Scale(domain=[0.8, 7.2], nice=False), axis=axis)
    axis = alt.Axis(title=None, format="~s", values=RATE_TICKS)
    y = alt.Y("rate:Q", scale=charts.log_scale(10, (3e3, 5e5)), axis=axis)
    base = alt.Chart().encode(x=x, color=charts.colour("machine", scale, title=None))
    ends = base.mark_rule().encode(y="low:Q", y2="high:Q")
    lines = base.mark_line(point=True).encode(y=y, tooltip=["machine:N", "threads:Q", "rate:Q"])
    chart = alt.layer(ends, lines, data=rates).properties(width=290, height=220)
    header = alt.Header(labelAnchor="start", labelLimit=0)
    buffers = alt.Facet("buffer:N", title=None, header=header, sort=[*rates["buffer"].unique()])
    return chart.facet(buffers, columns=2)


def fault_times(shares: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw the shares of faults by powers of two of their time, a panel for each machine with the
    published ones, as hollow points, in each.

    shares: columns series (of PUBLISHED, or a machine), from_ns, share. colours: of machines.
    """
    is_published = shares["series"].isin(PUBLISHED_KERNELS)
    names = [name for name in colours if name in set(shares["series"])]
    theirs = shares[is_published].merge(pd.DataFrame({"machine": names}), how="cross")
    ours = shares[~is_published].assign(machine=shares["series"])
    series = [*PUBLISHED_KERNELS, *names]
    scale = alt.Scale(domain=series, range=[colours.get(name, TEXT_COLOUR) for name in series])
    dashes = [PUBLISHED_KERNELS.get(name, [1, 0]) for name in series]
    base = alt.Chart(pd.concat([theirs, ours], ignore_index=True)).encode(
        x=alt.X(
            "from_ns:Q",
            # With room for labels at both ends: panels stand beside each other.
            scale=charts.log_scale(
                2, (FAULT_TIME_BUCKETS_NS[0] / 1.5, FAULT_TIME_BUCKETS_NS[-1] * 1.5)
            ),
            axis=charts.ns_axis("bucket begins at, ns", FAULT_TIME_BUCKETS_NS[::3]),
        ),
        y=alt.Y("share:Q", axis=alt.Axis(title=None, format="%")),
        color=alt.Color("series:N", sort=series, scale=scale, legend=charts.line_legend(columns=3)),
        tooltip=["series:N", "from_ns:Q", alt.Tooltip("share:Q", format=".1%")],
    )
    lines = base.mark_line().encode(strokeDash=charts.dash("series", series, dashes, columns=3))
    published = "indexof(datum.series, 'published') == 0"
    hollow = base.transform_filter(published).mark_point(filled=False, opacity=1, size=40)
    filled = base.transform_filter(f"!({published})").mark_point(filled=True, opacity=1, size=40)
    return charts.panels(
        alt.LayerChart(layer=[lines, filled, hollow]), names, "share of the faults", columns=3
    )


# --- large pages in Java: how many times as fast reads are on transparent huge pages

PUBLISHED_SERIES = "published"  # the series of the article's points
ARRAY_SIZE_LABELS = {1_000: "1 kB", 10_000: "10 kB", 10**6: "1 MB", 10**7: "10 MB", 10**8: "100 MB"}
SPEEDUP_TICKS = [0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4]  # ticks


def thp_read_speedups(shown: pd.DataFrame, colours: Mapping[str, str]) -> alt.FacetChart:
    """Draw the gains in the largest array, a panel for each loop, the published one as a hollow point.

    shown: columns loop, machine, median, low, high. colours: of machines.
    """
    names = [name for name in colours if name in set(shown["machine"])]
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    y = alt.Y("machine:N", sort=names, axis=alt.Axis(title=None, minExtent=110))
    x = alt.X(
        "median:Q",
        axis=alt.Axis(title=None, values=SPEEDUP_TICKS, grid=True),
        scale=alt.Scale(zero=False),
    )
    colour = alt.Color("machine:N", scale=scale, legend=None)
    base = alt.Chart().encode(y=y, color=colour)
    tooltip = charts.tips("machine:N", unit="times as fast")
    points = base.encode(x=x, tooltip=tooltip)
    is_published = f"datum.machine == '{PUBLISHED_SERIES}'"
    chart = alt.layer(
        alt.Chart().mark_rule(color=TEXT_COLOUR).encode(x=alt.datum(1)),
        base.mark_rule().encode(x="low:Q", x2="high:Q"),
        points.transform_filter(f"!({is_published})").mark_point(filled=True, size=60, opacity=1),
        points.transform_filter(is_published).mark_point(filled=False, size=70, opacity=1),
        data=shown,
    )
    header = alt.Header(labelAnchor="start", labelLimit=0)
    loops = alt.Facet("loop:N", title=None, header=header, sort=[*shown["loop"].unique()])
    return chart.properties(width=230, height=150).facet(loops, columns=2)


# --- what translation costs: the article's two figures, a panel for each machine

ARTICLE_SERIES = "article"  # the series of published points
OUR_SERIES = "ours"


def sample_run(loops: pd.DataFrame) -> alt.FacetChart:
    """Draw the time per access by working set: the article's, its program's on each machine and that
    of the same loads in C.

    loops: columns machine, series, working_set_bytes, median, low, high.
    """
    times = charts.within(charts.TIMES, loops["median"].min(), loops["median"].max())
    y = alt.Y("median:Q", axis=charts.ns_axis("", times), scale=charts.log_scale(10))
    return _beside_article(loops, y, "ns per access, log scale", 1.7)


def huge_page_speedups(found: pd.DataFrame) -> alt.FacetChart:
    """Draw how many times as fast the published loop is on 2 MiB pages, by working set.

    found: columns machine, series, working_set_bytes, median, low, high.
    """
    axis = charts.ns_axis("", [1, 2, 5, 9])
    y = alt.Y("median:Q", axis=axis, scale=charts.log_scale(10, (0.7, 10)))
    one = alt.Chart().mark_rule(color=charts.MUTED_COLOUR, strokeWidth=0.5).encode(y=alt.datum(1))
    return _beside_article(found, y, "times as fast on 2 MiB pages, log scale", 1.2, one)


def _beside_article(
    data: pd.DataFrame, y: alt.Y, unit: str, apart: float, *more: alt.Chart
) -> alt.FacetChart:
    """Draw series by working set with their intervals, and in each panel the article's as hollow
    points. A series' name stands at its end; apart: how many times as high the next one is. more:
    layers below, a line at 1, above which names stand."""
    data = data.reset_index(drop=True)
    ends = [
        charts.ends_of_curves(part, "series", "working_set_bytes", "median", apart)
        for _, part in data.groupby("machine")
    ]
    data = data.join(pd.concat(ends)[charts.NAME_Y])
    series = list(dict.fromkeys([ARTICLE_SERIES, *data["series"]]))
    scale = alt.Scale(domain=series, range=[TEXT_COLOUR, *charts.OTHER_COLOURS][: len(series)])
    x = alt.X(
        "working_set_bytes:Q",
        axis=charts.bytes_axis("Working set", [2**20, 2**25, 2**30]),
        scale=charts.log_scale(domain=(float(data["working_set_bytes"].min()), 2.0**37)),
    )
    base = alt.Chart().encode(x=x, y=y, color=alt.Color("series:N", scale=scale, legend=None))
    ours = base.transform_filter(f"datum.series != '{ARTICLE_SERIES}'")
    published = base.transform_filter(f"datum.series == '{ARTICLE_SERIES}'")
    layers = [
        *more,
        # Of all: the article has no intervals, and each filter is one more for Vega to settle, which
        # warns of too many.
        base.mark_rule(strokeWidth=2, opacity=0.5).encode(y="low:Q", y2="high:Q"),
        ours.mark_line(point=alt.OverlayMarkDef(size=24)),
        published.mark_line(strokeDash=[3, 3], strokeWidth=1),
        published.mark_point(filled=False, size=45),
        *_names_at_ends(base, -8 if more else 0),
    ]
    panels = [*data["machine"].unique()]
    return charts.panels(alt.LayerChart(layer=layers, data=data), panels, unit)


def _names_at_ends(base: alt.Chart, dy: float) -> list[alt.Chart]:
    """Return the name of each series at its last point, and a stroke from there to the name, as
    lines that end close together push names apart."""
    y = f"{charts.NAME_Y}:Q"  # null at all other points, which then have no mark
    return [
        base.mark_rule(x2Offset=7, opacity=0.6).encode(x2="working_set_bytes:Q", y2=y),
        base.mark_text(align="left", dx=9, dy=dy).encode(y=y, text="series:N"),
    ]


# --- a graph walk: hops by the size of the graph, the machines' and the article's in one plot

NAME_NEAR_SHARE = 0.08  # of the highest y: what is nearer to a name would cross it
APART_RATIO = 1.13  # of a size's points: else intervals would lie on each other


def hops_by_graph(hops: pd.DataFrame) -> alt.LayerChart:
    """Draw nanoseconds per hop by the size of the graph, a curve for each machine and the article's.
    Those of one size stand a little apart.

    hops: columns series, working_set_bytes, median, low, high.
    """
    ours = [name for name in dict.fromkeys(hops["series"]) if name != ARTICLE_SERIES]
    places = {name: n - (len(ours) - 1) / 2 for n, name in enumerate(ours)}
    apart = APART_RATIO ** hops["series"].map(places).fillna(0)
    hops = _in_pieces(hops.assign(x=hops["working_set_bytes"] * apart))
    top = float(hops[["median", "high"]].max().max())
    y = alt.Y("median:Q", title="ns per hop", scale=alt.Scale(domain=[0, 1.1 * top], nice=False))
    colours = charts.machine_colours(list(dict.fromkeys(hops["series"])))
    x, colour = _graph_sizes(hops, 2, "x"), charts.unnamed_colour("series", colours)
    at_ends = _places_of_names(hops, NAME_NEAR_SHARE * top)
    is_above = at_ends["above"].astype(bool)
    at_ends = at_ends.assign(x=hops["x"], beside=at_ends["series"].mask(is_above, ""))
    at_ends["above"] = at_ends["series"].where(is_above, "")
    names = alt.Chart(at_ends).encode(x=x, y="name_y:Q", color=colour)
    layers = [
        *_points_and_lines(alt.Chart(hops), x, y, colour),
        names.mark_text(align="left", dx=9, fontWeight="bold").encode(text="beside:N"),
        names.mark_text(align="right", dy=-14, fontWeight="bold").encode(text="above:N"),
    ]
    return alt.LayerChart(layer=layers)


def tails_by_graph(tails: pd.DataFrame) -> alt.FacetChart:
    """Draw the 95th percentile of a hop over its median by the size of the graph, a panel for each
    machine with the article's curve in each. Its name stands at its last point, and ours at the first.

    tails: as the hops of `hops_by_graph`.
    """
    is_article = tails["series"] == ARTICLE_SERIES
    machines = pd.DataFrame({"machine": tails.loc[~is_article, "series"].unique()})
    ours = tails[~is_article].assign(machine=lambda rows: rows["series"], series=OUR_SERIES)
    data = pd.concat([tails[is_article].merge(machines, how="cross"), ours], ignore_index=True)
    data = _in_pieces(data)
    first, last = data["working_set_bytes"].agg(["min", "max"])
    y = alt.Y("median:Q", title=None, scale=alt.Scale(domain=[1, 2.4], nice=False))
    scale = alt.Scale(domain=[OUR_SERIES, ARTICLE_SERIES], range=[PALETTE[0], TEXT_COLOUR])
    colour = charts.unnamed_colour("series", scale)
    x = _graph_sizes(data, 3)
    size, is_ours = data["working_set_bytes"], data["series"] == OUR_SERIES
    data["first_name"] = data["series"].where(is_ours & (size == first), "")
    data["last_name"] = data["series"].where(~is_ours & (size == last), "")
    names = alt.Chart().encode(x=x, y=y, color=colour)
    layers = [
        *_points_and_lines(alt.Chart(), x, y, colour),
        names.mark_text(align="left", dx=4, dy=-14, fontWeight="bold").encode(text="first_name:N"),
        names.mark_text(align="right", dy=-14, fontWeight="bold").encode(text="last_name:N"),
    ]
    panel = alt.LayerChart(layer=layers, data=data)
    return charts.panels(panel, list(machines["machine"]), "95th percentile over median")


def _in_pieces(data: pd.DataFrame) -> pd.DataFrame:
    """Return curves with the column `piece`, another one past each doubling without a point, over
    which no line is drawn."""
    data = data.sort_values("working_set_bytes", kind="stable")
    curves = data.groupby([name for name in ("machine", "series") if name in data])
    ratio = data["working_set_bytes"] / curves["working_set_bytes"].shift()
    pieces = (ratio > 2).groupby(curves.ngroup()).cumsum()
    return data.assign(piece=pieces).sort_index()


def _graph_sizes(data: pd.DataFrame, each: int, field: str = "working_set_bytes") -> alt.X:
    """Return the x of graphs' sizes, on which one in so many doublings has a tick; not the last, at
    which the next panel begins."""
    low, high = (int(data["working_set_bytes"].agg(end)) for end in ("min", "max"))
    ticks = [low << n for n in range(0, (high // low).bit_length() - 1, each)]
    axis = charts.bytes_axis("size of the graph", ticks)
    ends = (low, high * 1.1) if field == "working_set_bytes" else (low / 1.25, high * 1.15)
    return alt.X(f"{field}:Q", axis=axis, scale=charts.log_scale(domain=ends))


def _points_and_lines(chart: alt.Chart, x: alt.X, y: alt.Y, colour: alt.Color) -> list[alt.Chart]:
    """Return our curves with their intervals, and the article's, dashed, with hollow points."""
    base = chart.encode(x=x, y=y, color=colour)
    ours = base.transform_filter(f"datum.series != '{ARTICLE_SERIES}'")
    published = base.transform_filter(f"datum.series == '{ARTICLE_SERIES}'")
    tooltip = charts.tips("series:N", "working_set_bytes:Q")
    low = alt.Y("low:Q", title=y["title"], scale=y["scale"])
    return [
        # Of all: see `_beside_article`
        base.mark_rule(opacity=0.5, strokeWidth=2).encode(y=low, y2="high:Q"),
        ours.mark_line(point=True).encode(tooltip=tooltip, detail="piece:N"),
        published.mark_line(strokeDash=[3, 3]),
        published.mark_point(filled=False, size=45),
    ]


def _places_of_names(data: pd.DataFrame, near: float) -> pd.DataFrame:
    """Return the last point of each series, with `name_y` and whether its name stands above that
    point, else right of it: above if another curve goes on past it or ends below it, within `near`,
    or if the plot ends there."""
    ordered = data.sort_values("working_set_bytes")
    ends = ordered.groupby("series", sort=False).tail(1)[["series", "working_set_bytes", "median"]]
    last = ordered["working_set_bytes"].max()
    places = []
    for series, x, y in ends.itertuples(index=False):
        others = [curve for name, curve in ordered.groupby("series") if name != series]
        going_on = [
            float(np.interp(x, curve["working_set_bytes"], curve["median"]))
            for curve in others
            if curve["working_set_bytes"].max() > x
        ]
        in_way = [place for place in going_on if abs(place - y) < near]
        below = ends[(ends["working_set_bytes"] == x) & (ends["median"] < y)]["median"]
        is_above = x == last or bool(in_way) or bool((y - below < near).any())
        places.append((max([y, *in_way]), is_above))
    return ends.assign(name_y=[y for y, _ in places], above=[above for _, above in places])


# --- what each machine has, in a sentence, in a table and over a panel


def on_each_machine(found: Mapping[str, Interval], form: str = ".0f", unit: str = "") -> str:
    """Return "45 (40 to 55) ns on Zen 4 and 18 to 28 ns on Emerald Rapids", without those not
    measured. unit: with its blank."""
    known = {name: one for name, one in found.items() if one.is_known}
    return list_in_words(f"{one:{form}}{unit} on {name}" for name, one in known.items())


def interval_cells(curves: Mapping[str, Curve], xs: Iterable[float], form: str) -> pd.DataFrame:
    """Return each machine's estimates at each x as a table prints them, None where there is none."""
    xs = [*xs]
    found = {name: [curve.get(x) for x in xs] for name, curve in curves.items()}
    return pd.DataFrame(found, index=xs).map(lambda one: f"{one:{form}}" if one.is_known else None)


def name_and_end(name: str, largest_bytes: float, of_bytes: float) -> str:
    """Return the title of a machine's panel: "Zen 5, up to 256 MiB", or its name alone where its
    largest size is the article's, of_bytes, or more."""
    if largest_bytes >= of_bytes:
        return name
    return f"{name}, up to {format_size(int(largest_bytes))}"
