"""The figures of the chapter whose code is too long for its page: one chase in two guests, and the
calculator.

The first compares a guest whose host splinters huge pages with one whose host leaves them whole.

The calculator goes from a working set and a page size to reach, walks and nanoseconds.

Loads depend on one another, as in a chase, and each goes to a page drawn at random from M. It finds
its translation in a level of C entries with probability C/M, whatever the replacement
(stats/fits.py). So T = packed + (1 - C1/M) hit + (1 - C2/M) walk, all measured here: walk is
spread minus packed of the same working set on the same pages, less the hit. M counts what an entry
spans, which on a splintered large page is the host's page. Where an entry spans more than a base
page, the chase itself comes to each such piece many times a cycle in random order, as draws do:
there spread minus packed is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from experiments.hugepages.analysis import Analysis
from tlb.report import charts
from tlb.report.chapter import published_chapter
from tlb.report.quantities import FEW_MAPPINGS_MARK, FEWEST_MAPPINGS_WITH_INTERVAL
from tlb.report.render import INK_COLOUR, MUTED_COLOUR
from tlb.stats.curves import Curve, last_level_plateau
from tlb.stats.intervals import summarise
from tlb.system.page_sizes import BASE_PAGES, HUGE_PAGE_KINDS, ordered_page_sizes, page_bytes
from tlb.system.reasons import none_if_unavailable, require_nonempty
from tlb.system.units import format_size, significant_digits

# --- the calculator

ASKED_LOG2, ASKED_PAGES = 30, "2m"  # the static figure answers 1 GiB on 2 MiB pages
_UNMEASURED = "This size was not measured on these pages."
PAST_REACH_TIMES = (
    2  # times the last level's entries: from there on nearly every access of a cycle walks
)


class ModelledTlb(NamedTuple):
    """Entries of the first and of the last level and their source; what a hit in the last adds, ns;
    whether an entry spans a base page at most."""

    first: float
    last: float
    source: str
    hit_ns: float
    is_splintered: bool


def modelled_tlb(a: Analysis) -> ModelledTlb:
    """Return entries as measured, else by CPUID; the hit's price is that of base pages between the
    two levels. Raises Unavailable: no-geometry, too-few-points."""
    found = none_if_unavailable(lambda: a.survey)
    entries = [level.entries.value for level in found.levels] if found else []
    source = "as measured by `tlb geometry`"
    if len(entries) < 2:
        entries, source = [float(n) for n in a.two_levels()], "by CPUID"
    first, last = entries[0], entries[-1]
    is_splintered = none_if_unavailable(lambda: a.pieces.is_splintered) or False
    hit_ns = a.price[BASE_PAGES].level(*last_level_plateau(first, last))
    return ModelledTlb(first, last, source, hit_ns, is_splintered)


def _missed(entries: float, pages: float) -> float:
    """Return the share of random draws among so many pages that miss a level."""
    return max(0.0, 1 - entries / pages)


def expected_load_times(a: Analysis, known: ModelledTlb) -> pd.DataFrame:
    """Return a row a page size and power of two of bytes at which it was chased: pages, log2_bytes,
    span_bytes, reach_bytes, walks_per_access, ns. Raises Unavailable("too-few-points") if no page
    size was measured past twice the last level."""
    rows, base = [], a.base_page_bytes
    for pages, spread in a.spread.items():
        price = spread - a.packed[pages]
        far = price.between(PAST_REACH_TIMES * known.last, inf)
        if not len(far):
            continue
        span = base if known.is_splintered else page_bytes(pages, base)
        least, most = np.log2(base * price.xs[0]), np.log2(base * price.xs[-1])
        for log2_bytes in range(int(np.ceil(least)), int(most) + 1):
            lines = 2**log2_bytes / base
            first, last = (_missed(n, 2**log2_bytes / span) for n in (known.first, known.last))
            walk = max(_at(far, max(lines, far.xs[0])) - known.hit_ns, 0.0)
            drawn = first * known.hit_ns + last * walk
            ns = _at(a.packed[pages], lines) + (_at(price, lines) if span > base else drawn)
            rows.append((pages, log2_bytes, span, known.last * span, last, ns))
    require_nonempty(rows, f"nothing was measured past {PAST_REACH_TIMES * known.last:,.0f} lines")
    columns = ["pages", "log2_bytes", "span_bytes", "reach_bytes", "walks_per_access", "ns"]
    return pd.DataFrame(rows, columns=columns)


def _at(curve: Curve, lines: float) -> float:
    """Return the median at a number of lines, interpolated in its logarithm."""
    return float(np.interp(np.log2(lines), np.log2(np.array(curve.xs, dtype=float)), curve.medians))


def calculator_answer(row: pd.Series, label: str) -> str:
    """Return a row of `model` in words. label: of its page size."""
    size, reach = format_size(2 ** int(row["log2_bytes"])), format_size(int(row["reach_bytes"]))
    return (
        f"{size} on {label} pages: reach {reach}, {row['walks_per_access']:.2f} walks per "
        f"load, about {significant_digits(row['ns'], 2)} ns."
    )


def calculator_table(a: Analysis) -> pd.DataFrame:
    """Return `model` with the columns working_set_bytes, label (of the page size) and answer (in
    words); empty where it raises Unavailable."""
    rows = none_if_unavailable(lambda: expected_load_times(a, modelled_tlb(a)))
    if rows is None:
        return pd.DataFrame()
    labels = rows["pages"].map(a.page_labels)
    answers = [
        calculator_answer(row, label)
        for (_, row), label in zip(rows.iterrows(), labels, strict=True)
    ]
    return rows.assign(
        working_set_bytes=2.0 ** rows["log2_bytes"], label=labels, answer=answers
    ).astype({"log2_bytes": int})


def initial_choice(rows: pd.DataFrame) -> tuple[int, str]:
    """Return the size, as a power of two, and the page size that the figure shows at first."""
    kinds = ordered_page_sizes(rows["pages"])
    pages = ASKED_PAGES if ASKED_PAGES in kinds else kinds[-1]
    return min(ASKED_LOG2, int(rows.loc[rows["pages"] == pages, "log2_bytes"].max())), pages


def _menus(rows: pd.DataFrame) -> list[alt.Parameter]:
    """Return the menus of sizes and page sizes, and the answer to each choice."""
    names = dict(zip(rows["pages"], rows["label"], strict=True))
    kinds, sizes = ordered_page_sizes(names), sorted(set(rows["log2_bytes"]))
    size, pages = initial_choice(rows)
    answers: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
    for row in rows.itertuples():
        answers[str(row.pages)][str(row.log2_bytes)] = str(row.answer)
    labels = [format_size(2**n) for n in sizes]
    menu = alt.binding_select(options=sizes, labels=labels, name="Working set ")
    other = alt.binding_select(options=kinds, labels=[names[k] for k in kinds], name="Pages ")
    return [
        alt.param("size", value=size, bind=menu),
        alt.param("pages", value=pages, bind=other),
        alt.param("answers", value=answers),
        alt.param("readout", expr=f"answers[pages][size] || '{_UNMEASURED}'"),
    ]


def calculator_chart(rows: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw expected ns of a dependent load of `table` against the working set: curves of base pages
    and of one kind of huge pages, which stands for the others too, and a dot for a size and a page
    size to choose."""
    names = dict(zip(rows["pages"], rows["label"], strict=True))
    drawn = [BASE_PAGES, next((kind for kind in HUGE_PAGE_KINDS if kind in names), BASE_PAGES)]
    axis = charts.bytes_axis("Working set")
    x = alt.X("working_set_bytes:Q", axis=axis, scale=charts.log_scale())
    ns = rows["ns"]
    ticks = charts.within(charts.TIMES, ns.min() * 0.5, ns.max() * 1.3)
    y = alt.Y(
        "ns:Q",
        scale=charts.time_scale(pd.DataFrame({"median": ns, "high": ns})),
        axis=charts.ns_axis("expected ns per dependent load", ticks),
    )
    shown = [names[kind] for kind in dict.fromkeys(drawn) if kind in names]
    scheme = charts.page_colours(names, names)
    colour = charts.unnamed_colour("label", scheme)
    base = alt.Chart(rows.drop(columns="answer")).encode(x=x, y=y, color=colour)
    dashes = charts.dash("label", shown).legend(None)  # show where the curves are one
    curves = base.encode(strokeDash=dashes)
    curves = curves.transform_filter(alt.FieldOneOfPredicate(field="pages", oneOf=drawn))
    dot = base.transform_filter("datum.pages == pages && datum.log2_bytes == size")
    ends = charts.curve_names(rows[rows["pages"].isin(drawn)], x, y, "label", scheme)
    layers = alt.layer(curves.mark_line(), dot.mark_point(size=140), ends)
    return layers.add_params(*_menus(rows)).properties(height=180)


# --- one chase in two guests

SPLINTERED, WHOLE = "zen-4-b312e3a0", "emerald-rapids-64b9489c"
HOSTS = {
    SPLINTERED: "ns per load, Zen 4: host splinters huge pages",
    WHOLE: "ns per load, Emerald Rapids: left whole",
}
BASE_CURVE, HUGE_CURVE, PACKED_CURVE = "4 KiB", "2 MiB", "packed"
UNPRICED = "no price"  # where only the packed lines fit a cache
CURVE_COLOURS = {
    BASE_CURVE: charts.PAGE_COLOURS["4k"],
    HUGE_CURVE: charts.PAGE_COLOURS["2m"],
    PACKED_CURVE: charts.PART_COLOURS["data"],
    UNPRICED: MUTED_COLOUR,
}
TWO_HOSTS_DESCRIPTION = (
    "Two charts of the time per load, each with a curve of 4 KiB pages, of 2 MiB pages and of packed "
    "lines. On Zen 4 the curve of 2 MiB pages leaves that of 4 KiB pages past 12 MiB and stays far "
    "above the packed lines. On Emerald Rapids it lies on them: translation is gone."
)
_NOTED_BYTES = 64 << 20  # where each panel says what 2 MiB pages remove and leave
_NAMES_APART = 1.5  # times, on the logarithmic axis: the height of a line of text


def two_hosts_loads() -> pd.DataFrame:
    """Return the published chase of both machines. below: the next cheaper curve at this size,
    where the difference is translation; where it is not, the rows of UNPRICED have it. stretch: of
    neighbouring sizes of one or the other kind. removed, left: at one size, what 2 MiB pages remove
    and leave of translation, in words. name_y: where the name of a curve stands."""
    return pd.concat([_loads_on(machine, host) for machine, host in HOSTS.items()])


def _loads_on(machine: str, host: str) -> pd.DataFrame:
    chapter = published_chapter("hugepages", machine)
    rows = chapter.kept("hugepages")
    price = Analysis(rows, chapter).price
    rows = rows.query("kernel == 'page_chase' and pages in ('4k', '2m')")
    found = summarise(rows, ["layout", "pages", "lines"])
    found = found.query("layout == 'spread' or pages == '4k'")
    names = found["pages"].map({"4k": BASE_CURVE, "2m": HUGE_CURVE})
    found["curve"] = names.where(found["layout"] == "spread", PACKED_CURVE)
    found["working_set_bytes"] = found["lines"] * 4096  # on both, a line on each 4 KiB
    for curve, other in ((BASE_CURVE, HUGE_CURVE), (HUGE_CURVE, PACKED_CURVE)):
        floor, is_curve = found[found["curve"] == other], found["curve"] == curve
        logs = (np.log(each) for each in (found["lines"], floor["lines"], floor["median"]))
        found.loc[is_curve, "below"] = np.exp(np.interp(*logs))[is_curve]
    ends = charts.ends_of_curves(found, "curve", "working_set_bytes", "median", _NAMES_APART)
    found = found.join(ends["name_y"])
    priced = _with_stretches_apart(found, price["2m"].gaps)
    columns = ["host", "curve", "stretch", "working_set_bytes", "median", "low", "high", "below"]
    noted = _noted(priced.assign(host=host), price)
    return noted[[*columns, "removed", "left", "name_y", "n"]]


def _with_stretches_apart(found: pd.DataFrame, gaps: Sequence[float]) -> pd.DataFrame:
    """Return the rows with `stretch`, those of the 2 MiB curve without `below` at the sizes without a
    price; and rows of UNPRICED from the size before such sizes to the one after."""
    huge = found[found["curve"] == HUGE_CURVE].sort_values("lines")
    is_gap = huge["lines"].isin(gaps)
    is_near = is_gap | is_gap.shift(fill_value=False) | is_gap.shift(-1, fill_value=False)
    unpriced = huge[is_near].assign(curve=UNPRICED, name_y=np.nan)
    unpriced["stretch"] = (~is_near).cumsum()[is_near]
    # its name stands in the room below the packed curve
    unpriced.loc[unpriced["lines"].idxmax() if len(unpriced) else [], "name_y"] = (
        unpriced["below"].max() / 4
    )
    found = found.assign(stretch=np.searchsorted([0, *gaps], found["lines"]))
    found.loc[huge.index[is_gap], "below"] = np.nan
    found.loc[found["curve"] != HUGE_CURVE, "stretch"] = 0
    return pd.concat([found, unpriced], ignore_index=True)


def _noted(found: pd.DataFrame, price: Mapping[str, Curve]) -> pd.DataFrame:
    """Return the rows with `removed` and `left`, in the row of base pages at the size noted. price:
    of translation, by page size, each with packed lines on the same pages as its control."""
    is_noted = (found["working_set_bytes"] == _NOTED_BYTES) & (found["curve"] == BASE_CURVE)
    lines = found.loc[is_noted, "lines"].iloc[0]
    prices = pd.DataFrame([price[pages].row(lines) for pages in (BASE_PAGES, "2m")])
    base, huge = prices["median"].clip(lower=0)
    mark = FEW_MAPPINGS_MARK if prices["n"].min() < FEWEST_MAPPINGS_WITH_INTERVAL else ""
    found.loc[is_noted, "removed"] = f"remove {base - huge:.0f} ns{mark}"
    found.loc[is_noted, "left"] = f"and leave {huge:.0f} ns{mark}"
    return found


def two_hosts(loads: pd.DataFrame) -> alt.FacetChart:
    """Draw both machines beside each other. Shaded: translation, in the colour of the pages that
    pay it; grey where it has no price."""
    scale = alt.Scale(domain=list(CURVE_COLOURS), range=list(CURVE_COLOURS.values()))
    axis = charts.bytes_axis(
        "Working set, one cache line per 4 KiB", [2**n for n in range(18, 33, 4)]
    )
    # with room for names on the right
    x = alt.X("working_set_bytes:Q", axis=axis, scale=charts.log_scale(domain=(2**16, 2.0**36)))
    ends_of_y = (loads["median"].min() * 0.7, loads["high"].max() * 1.2)
    y = charts.median_y(loads, "", scale=charts.log_scale(10, ends_of_y))
    base = alt.Chart(loads).encode(x=x, color=charts.unnamed_colour("curve", scale))
    price = base.transform_filter("isValid(datum.below)")
    shaded = price.mark_area(opacity=0.25).encode(y=y, y2="below:Q", detail="stretch:N")
    ends = base.transform_filter("datum.high > 1.5 * datum.low")
    ends = ends.mark_rule(opacity=0.6).encode(y="low:Q", y2="high:Q")
    lines = base.transform_filter(f"datum.curve != '{UNPRICED}'").mark_line().encode(y=y)
    at_one_size = price.transform_filter(f"datum.working_set_bytes == {_NOTED_BYTES}")
    spans = at_one_size.mark_rule(strokeWidth=2).encode(y=y, y2="below:Q")
    names = base.transform_filter("isValid(datum.name_y)")
    names = names.mark_text(align="left", dx=5, fontWeight="bold")
    names = names.encode(y="name_y:Q", text="curve:N")
    layers = [shaded, ends, lines, spans, names, *_notes(loads)]
    left = alt.Header(labelAnchor="start", labelLimit=0)
    return (
        alt.layer(*layers)
        .properties(width=295, height=220)
        .facet(alt.Facet("host:N", title=None, sort=[*HOSTS.values()], header=left), columns=2)
    )


def _notes(loads: pd.DataFrame) -> list[alt.Chart]:
    """Return three lines of text in the lower right corner: what 2 MiB pages remove and leave."""
    noted = alt.Chart(loads).transform_filter("isValid(datum.removed)")
    head = f"In {format_size(_NOTED_BYTES)}, 2 MiB pages"
    lines = (
        (alt.value(head), INK_COLOUR, 180),
        (alt.Text("removed:N"), CURVE_COLOURS[BASE_CURVE], 196),
        (alt.Text("left:N"), CURVE_COLOURS[HUGE_CURVE], 212),
    )
    return [
        noted.mark_text(align="right", dx=-4, color=colour).encode(
            x=alt.value("width"), y=alt.value(height), text=text
        )
        for text, colour, height in lines
    ]
