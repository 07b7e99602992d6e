"""The figures whose code is too long for a page: the calculator, and what a load waits for in two
guests, of which one's host splinters huge pages and the other's leaves them whole.

The calculator goes from a working set and a page size to reach, walks and nanoseconds.

Loads depend on one another, as in a chase, and each goes to a page drawn at random from M. It finds
its translation in a level of C entries with probability C/M, whatever the replacement
(stats/fits.py). So T = packed + (1 - C1/M) hit + (1 - C2/M) walk, all measured here: walk is
spread minus packed of the same working set on the same pages, less the hit. The page computes T from
`measured_loads`. M counts what an entry spans, which on a splintered large page is the host's page.
Where an entry spans more than a base page, the chase itself comes to each such piece many times a
cycle in random order, as draws do: there spread minus packed is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isnan, nan
from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from experiments.hugepages.analysis import Analysis
from tlb.report import charts
from tlb.report.chapter import chapter_of_published_machine
from tlb.report.quantities import FEW_MAPPINGS_MARK
from tlb.stats.curves import Curve, last_level_plateau
from tlb.stats.intervals import Interval, median_interval
from tlb.stats.scatter import MIN_MODE_RATIO
from tlb.system.page_sizes import BASE_PAGES, HUGE_PAGE_KINDS, ordered_page_sizes, page_bytes
from tlb.system.reasons import none_if_unavailable, require_nonempty
from tlb.system.units import format_significant_digits, format_size

# --- the calculator

ASKED_LOG2, ASKED_PAGES = 30, "2m"  # the static figure answers 1 GiB on 2 MiB pages
_UNKNOWN = "This size is not known on these pages."
# Octaves between measured sizes across which a time is interpolated: a step of the TLB or of a
# cache may hide in more.
MOST_OCTAVES_BETWEEN = 2.0
AS_GOOD_AS_MEASURED = 0.2  # octaves from a measured size
# From this share of loads on that walk, their time is nearly the chase's own, however it divides
# into data and translation.
NEARLY_ALL_WALK = 0.75
# For the names of curves: the room right of them, in multiples of a working set, and how many times
# one stands above another in so low a panel.
_NAMES_ROOM, _NAMES_APART = 2**5, 2.0
PAST_REACH_TIMES = (
    2  # times the last level's entries: from there on nearly every access of a cycle walks
)


class ModelledTlb(NamedTuple):
    """Entries of the first and of the last level; what a hit in the last adds, ns;
    whether an entry spans a base page at most, None if that is not known: then nothing is expected of
    huge pages."""

    first: float
    last: float
    hit_ns: float
    is_splintered: bool | None


def modelled_tlb(a: Analysis) -> ModelledTlb:
    """Return entries by CPUID, else as measured; the hit's price is that of base pages between the
    two levels. Raises Unavailable: no-geometry, too-few-points."""
    first, last = a.two_levels()
    found_pages = none_if_unavailable(lambda: a.pieces)
    is_known = found_pages is not None and found_pages.verdict != "cannot tell"
    is_splintered = found_pages.is_splintered if found_pages and is_known else None
    hit_ns = a.price[BASE_PAGES].level(*last_level_plateau(first, last))
    return ModelledTlb(first, last, hit_ns, is_splintered)


def measured_loads(hosts: Mapping[str, Analysis]) -> pd.DataFrame:
    """Return what the formula takes, a row a machine, page size and power of two of bytes at which it
    was chased: machine, pages, label, log2_bytes, working_set_bytes, entry_bytes (that a TLB entry
    covers), is_whole (if that is a huge page), first_entries, last_entries, and in ns packed, hit,
    walk (less the hit) and added (spread minus packed). packed is NaN where a step may hide between
    measured sizes, walk where spread and packed are not comparable unless nearly all loads walk.
    hosts: by name; left out where their loads raise Unavailable."""
    tables = []
    for host, a in hosts.items():
        rows = none_if_unavailable(lambda a=a: loads_of(a, modelled_tlb(a)))
        if rows is None:
            continue
        is_known = rows["packed"].notna() & (rows["is_whole"] | rows["walk"].notna())
        if is_known.any():
            tables.append(rows.assign(machine=host, label=rows["pages"].map(a.page_labels)))
    return pd.concat(tables, ignore_index=True)


def loads_of(a: Analysis, known: ModelledTlb) -> pd.DataFrame:
    """Return `measured_loads` of one machine, without its name. Raises Unavailable("too-few-points") if
    no page size was measured past twice the last level."""
    rows, base = [], a.base_page_bytes
    for pages, spread in a.spread.items():
        price = spread - a.packed[pages]
        far = price.between(PAST_REACH_TIMES * known.last, inf)
        is_known = pages == BASE_PAGES or known.is_splintered is not None
        if not (len(far) and is_known):
            continue
        span = base if known.is_splintered else page_bytes(pages, base)
        for log2_bytes in _powers_of_two(price, base):
            lines = 2**log2_bytes / base
            packed, added = _at(a.packed[pages], lines), _at(price, lines)
            walk = max(_at(far, max(lines, far.xs[0])) - known.hit_ns, 0.0)
            nearly_all_walk = 1 - known.last * span / 2**log2_bytes >= NEARLY_ALL_WALK
            if not _is_near_measured(price, lines):
                packed = nan  # breaks the curve
            if span <= base and not (nearly_all_walk or a.has_price(pages, lines)):
                walk = nan
            rows.append((pages, log2_bytes, span, span > base, packed, walk, added))
    require_nonempty(rows, f"nothing was measured past {PAST_REACH_TIMES * known.last:,.0f} lines")
    columns = ["pages", "log2_bytes", "entry_bytes", "is_whole", "packed", "walk", "added"]
    table = pd.DataFrame(rows, columns=columns).assign(
        first_entries=known.first, last_entries=known.last, hit=known.hit_ns
    )
    return table.assign(working_set_bytes=2.0 ** table["log2_bytes"])


def _powers_of_two(curve: Curve, base_page_bytes: int) -> range:
    """Return the powers of two of bytes from a curve's first to its last number of lines."""
    least, most = (np.log2(base_page_bytes * curve.xs[end]) for end in (0, -1))
    return range(int(np.ceil(least)), int(most) + 1)


def _is_near_measured(curve: Curve, lines: float) -> bool:
    """Whether a number of lines was nearly measured, or lies between two that are close enough."""
    octaves = np.log2(np.array(curve.xs, dtype=float)) - np.log2(lines)
    below, above = octaves[octaves <= 0], octaves[octaves >= 0]
    if min(abs(octaves)) <= AS_GOOD_AS_MEASURED or not (len(below) and len(above)):
        return True
    return bool(above.min() - below.max() <= MOST_OCTAVES_BETWEEN)


def _at(curve: Curve, lines: float) -> float:
    """Return the median at a number of lines, interpolated in its logarithm."""
    return float(np.interp(np.log2(lines), np.log2(np.array(curve.xs, dtype=float)), curve.medians))


def calculator_answer(row: pd.Series, where: str) -> str:
    """Return a row of loads with ns and miss_both in words. where: the size and the pages, or the
    host. Entries were found on base pages and fewer may hold larger ones: a bound of what they
    reach."""
    if isnan(row["ns"]):
        return f"{where}: not known."
    at_most, or_more = ("at most ", " or more") if row["is_whole"] else ("", "")
    reach = format_size(int(row["last_entries"] * row["entry_bytes"]))
    walks = f"{row['miss_both']:.2f} walks per load{or_more}"
    if row["miss_both"] == 0:
        walks = "no walks within it"
    return (
        f"{where}: reach {at_most}{reach}, {walks}, "
        f"about {format_significant_digits(row['ns'], 2)} ns."
    )


def is_of_few(a: Analysis) -> bool:
    """Whether a machine is this computer and has fewer mappings than an interval takes."""
    return a.about.is_this and bool(a.about.few_mappings)


def with_answers(loads: pd.DataFrame, hosts: Mapping[str, Analysis]) -> pd.DataFrame:
    """Return `measured_loads` with the formula's ns and miss_both at the sizes of the first machine,
    with a column answer: there of all machines in words, unless it is of few mappings, which are
    compared with nothing; at the others empty."""
    first, choice = loads["machine"].iloc[0], ["pages", "log2_bytes"]
    is_first = loads["machine"] == first
    is_few, sizes = is_of_few(hosts[first]), loads.loc[is_first, "log2_bytes"]
    table = loads[loads["log2_bytes"].isin(sizes)].reset_index(drop=True)
    is_first = table["machine"] == first
    table["answer"] = [_answer(row, row["machine"] == first) for _, row in table.iterrows()]
    if is_few:
        table.loc[is_first & table["ns"].notna(), "answer"] += FEW_MAPPINGS_MARK
    else:
        table["answer"] = table.groupby(choice)["answer"].transform(" ".join)
    table["answer"] = table["answer"].where(is_first, "")
    times = dict.fromkeys(["packed", "hit", "walk", "added", "ns"], 2)
    return table.round(times | {"miss_first": 4, "miss_both": 4})


def _answer(row: pd.Series, is_first: bool) -> str:
    if not is_first:
        return calculator_answer(row, f"On {row['machine']}")
    if isnan(row["ns"]):
        return _UNKNOWN
    size = format_size(int(row["working_set_bytes"]))
    return calculator_answer(row, f"{size} on {row['label']} pages")


def initial_choice(rows: pd.DataFrame) -> tuple[int, str]:
    """Return the size, as a power of two, and the page size that the figure shows at first: both
    of the first host."""
    rows = _known_of_first_host(rows)
    kinds = ordered_page_sizes(rows["pages"])
    pages = ASKED_PAGES if ASKED_PAGES in kinds else kinds[-1]
    return min(ASKED_LOG2, int(rows.loc[rows["pages"] == pages, "log2_bytes"].max())), pages


def _known_of_first_host(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a time of the first host, which alone are offered."""
    return rows[(rows["machine"] == rows["machine"].iloc[0]) & rows["ns"].notna()]


def _menus(rows: pd.DataFrame) -> list[alt.Parameter]:
    """Return the menus of sizes and page sizes, and the answer to each choice."""
    known = _known_of_first_host(rows)
    names = dict(zip(known["pages"], known["label"], strict=True))
    kinds, sizes = ordered_page_sizes(names), sorted(set(rows["log2_bytes"]))
    size, pages = initial_choice(rows)
    answers: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
    for row in rows[(rows["answer"] != "") & rows["pages"].isin(kinds)].itertuples():
        answers[str(row.pages)][str(row.log2_bytes)] = str(row.answer)
    labels = [format_size(2**n) for n in sizes]
    menu = alt.binding_select(options=sizes, labels=labels, name="Working set ")
    other = alt.binding_select(options=kinds, labels=[names[k] for k in kinds], name="Pages ")
    return [
        alt.param("size", value=size, bind=menu),
        alt.param("pages", value=pages, bind=other),
        alt.param("answers", value=answers),
        alt.param("readout", expr=f"answers[pages][size] || '{_UNKNOWN}'"),
    ]


def calculator(rows: pd.DataFrame) -> alt.FacetChart:
    """Draw expected ns of a dependent load of `with_answers` against the working set, a panel for
    each host: a curve of base pages and one of a kind of huge pages, which stands for the others too,
    dotted across sizes without a time, and dots for a size and a page size to choose."""
    ns, menus = rows["ns"], _menus(rows)
    rows = rows.assign(name=rows["label"].str.partition(" (")[0])
    names = rows.groupby("pages")["name"].first()
    colours = {
        names[pages]: charts.PAGE_COLOURS[pages] for pages in ordered_page_sizes(names.index)
    }
    rows["is_drawn"] = rows.groupby("machine")["pages"].transform(_is_drawn)
    rows[charts.NAME_Y] = _name_places(rows)
    columns = ["pages", "log2_bytes", "working_set_bytes", "ns", "name", "machine", "is_drawn"]
    rows = rows.loc[rows["is_drawn"] | rows["ns"].notna(), [*columns, charts.NAME_Y]]

    ticks = charts.within(charts.TIMES, ns.min() * 0.5, ns.max() * 1.3)
    axis = charts.bytes_axis("Working set", [2**18, 2**24, 2**30])
    sizes = rows["working_set_bytes"]
    with_room = charts.log_scale(domain=(sizes.min(), sizes.max() * _NAMES_ROOM))
    x = alt.X("working_set_bytes:Q", axis=axis, scale=with_room)
    y_scale = charts.time_scale(pd.DataFrame({"median": ns, "high": ns}))
    y = alt.Y("ns:Q", scale=y_scale, axis=charts.ns_axis("", ticks))
    colour = charts.unnamed_colour("name", charts.named_colours(colours))
    base = alt.Chart(rows).encode(x=x, y=y, color=colour)
    curves = base.transform_filter("datum.is_drawn")  # a size without a time breaks a curve
    across = curves.transform_filter("isValid(datum.ns)").mark_line(strokeDash=charts.GAP_DASH)
    dots = base.transform_filter("datum.pages == pages && datum.log2_bytes == size")
    ends = base.transform_filter(f"isValid(datum.{charts.NAME_Y})")
    ends = ends.mark_text(align="left", dx=6, fontWeight="bold")
    ends = ends.encode(y=alt.Y(f"{charts.NAME_Y}:Q", scale=y_scale), text="name:N")
    layers = charts.layered(across, curves.mark_line(), dots.mark_point(size=140), ends)
    hosts = rows["machine"].unique().tolist()
    return charts.panels(layers, hosts, "expected ns per dependent load, log scale").add_params(
        *menus
    )


def _name_places(rows: pd.DataFrame) -> pd.Series:
    """Return where the name of each curve stands on y, at its last time; NaN elsewhere."""
    known = rows[rows["is_drawn"] & rows["ns"].notna()]
    ends = [
        charts.ends_of_curves(curves, "name", "working_set_bytes", "ns", _NAMES_APART)
        for _, curves in known.groupby("machine")
    ]
    return pd.concat(ends)[charts.NAME_Y].reindex(rows.index)


def _is_drawn(pages: pd.Series) -> pd.Series:
    """Return whether a host's row is of base pages, or of the huge pages that stand for the others."""
    measured = {*pages}
    huge = next((kind for kind in HUGE_PAGE_KINDS if kind in measured), BASE_PAGES)
    return pages.isin([BASE_PAGES, huge])


# --- what a load waits for in two guests

# Machines by whether a TLB entry covers a huge page, as the figure calls them
HOSTS = {"zen-4-b312e3a0": "Zen 4", "emerald-rapids-64b9489c": "Emerald Rapids"}
_SHOWN_LINES = 4 * 2**30 // 4096  # of 4 GiB, a line on each base page of both machines
_WIDE_PX = 450  # a plot that has room for the parts in words
_DATA = "data (packed lines)"
_ON_BASE, _ON_HUGE = "translation on 4 KiB pages", "translation on 2 MiB pages"
LOAD_PART_COLOURS = {
    _DATA: charts.PART_COLOURS["data"],
    _ON_BASE: charts.PAGE_COLOURS["4k"],
    _ON_HUGE: charts.PAGE_COLOURS["2m"],
}
LOAD_PARTS_DESCRIPTION = (
    "Bars of one random load's time in 4 GiB, divided into data and translation. On Zen 4, 2 MiB "
    "pages leave more than a third of the translation of 4 KiB pages, on Emerald Rapids too little to "
    "measure."
)


def load_parts() -> pd.DataFrame:
    """Return a row a machine of HOSTS, page size and part of a random load in 4 GiB: name (of the
    bar), part, begin, end (ns), label (the parts in words), short (the same, for a phone), is_bound
    (whether the part is at most so long, and may be none)."""
    return pd.concat(map(_parts_on, HOSTS), ignore_index=True)


def _parts_on(machine: str) -> pd.DataFrame:
    rows = chapter_of_published_machine("hugepages", machine).kept("hugepages")
    chase = rows.query("kernel == 'page_chase' and pages in ('4k', '2m')")
    chase = chase[chase["lines"] == _SHOWN_LINES]
    times = chase.pivot_table("ns_per_access", ["pages", "repeat"], "layout").dropna()
    times["translation"] = times["spread"] - times["packed"]
    parts = []
    for pages, measured in times.groupby("pages"):
        data = measured["packed"].median()
        added = median_interval(measured["translation"])
        name = f"{HOSTS[machine]}, {'4 KiB' if pages == '4k' else '2 MiB'} pages"
        label, short = _words_of_parts(data, added)
        is_bound = added.low <= 0
        end = data + (added.high if is_bound else added.value)
        kind = _ON_BASE if pages == "4k" else _ON_HUGE
        parts += [
            (name, _DATA, 0.0, data, label, short, False),
            (name, kind, data, end, label, short, is_bound),
        ]
    columns = ["name", "part", "begin", "end", "label", "short", "is_bound"]
    return pd.DataFrame(parts, columns=columns)


def _words_of_parts(data_ns: float, added: Interval) -> tuple[str, str]:
    """Return the parts of a load in words, and in the fewest, for a phone. As in texts, there is no
    median where the ends are far apart; and what may be nothing is too small to measure."""
    if added.low <= 0:
        most = f"under {added.high:.0f}"
        data = f"{data_ns:.0f} data"
        long = f"{data}, translation too small to measure ({most})"
        return long, f"{data_ns:.0f} + {most} translation"
    is_wide = added.high > MIN_MODE_RATIO * added.low
    shown = f"{added.low:.0f} to {added.high:.0f}" if is_wide else f"{added.value:.0f}"
    words = f"{data_ns:.0f} data + {shown} translation"
    return words, words


def load_parts_chart(parts: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw a bar for each load: data and then translation, outlined if that is a bound."""
    order = list(dict.fromkeys(parts["name"].sort_values(ascending=False)))
    colour = charts.colour("part", charts.named_colours(LOAD_PART_COLOURS), columns=3, offset=10)
    row_px = 32  # low, for the first screen of the first page
    base = alt.Chart(parts).encode(y=charts.row("name", order))
    x = alt.X("begin:Q", axis=charts.ns_axis("ns per load"))
    ends = base.encode(x=x, x2="end:Q", color=colour)
    bars = ends.transform_filter("!datum.is_bound").mark_bar(height=10, yOffset=4)
    bounds = ends.transform_filter("datum.is_bound")
    bounds = bounds.mark_bar(height=9, yOffset=4, filled=False, strokeWidth=1)
    first = base.transform_filter("datum.begin == 0")
    labels = first.mark_text(align="left", dy=-11)
    words = f"(width < {_WIDE_PX} ? datum.short : datum.label)"
    labels = labels.transform_calculate(words=f"replace(datum.name, ' pages', '') + ': ' + {words}")
    labels = labels.encode(x=alt.value(0), text="words:N")
    return alt.layer(bars, bounds, labels).properties(height=row_px * len(order))
