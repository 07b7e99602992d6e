"""The first page: what translation costs this machine, from each chapter's own rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import ceil, floor
from types import ModuleType
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from experiments import hugepages, stlb_cliff
from experiments.overview import chapter_analysis
from experiments.overview.campaign import points_by_chapter
from experiments.overview.profile import (
    TranslationProfile,
    profile_of_analyses,
    write_profile_if_possible,
)
from tlb.report import analysis, charts, notebooks, quantities, setting
from tlb.report.chapter import Chapter
from tlb.report.quantities import (
    FEW_MAPPINGS_MARK,
    FEWEST_MAPPINGS_WITH_INTERVAL,
    QuantityDeclaration,
)
from tlb.report.render import MUTED_COLOUR, Figure
from tlb.stats import curves
from tlb.stats.curves import Curve, is_comparable, medians_at_largest_common_x
from tlb.stats.intervals import Interval, without_bounds_of_few
from tlb.stats.scatter import MIN_MODE_RATIO
from tlb.system.page_sizes import BASE_PAGES
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty
from tlb.system.units import escape_markdown, format_ns, format_size

# What a machine may lack without the first page failing; a bad parameter is an error there too.
_LACKING = ("no-data", "not-linux", "other-arch")
PACKED_LABEL = "packed"
HUGE_PAGES_LABELS = {"2m": "2 MiB (pool)", "thp": "2 MiB (THP)"}


class Quantities(quantities.Quantities):
    """The numbers of the first page's table. Loads wait for each other, and reach a line in every
    base page."""

    near_ns = QuantityDeclaration(
        "a load that hits the L1 cache and the TLB's first level", "ns", 1
    )
    reach_bytes = QuantityDeclaration("TLB reach on base pages, by CPUID or else measured", "bytes")
    load_4_gib_ns = QuantityDeclaration("a random load over 4 GiB", "ns")
    walk_4_gib_ns = QuantityDeclaration("translation's part of that load, at least", "ns")
    walk_4_gib_share = QuantityDeclaration("the same as a share of that load, at least", "share")
    gain_4_gib = QuantityDeclaration(
        "random loads over 4 GiB on transparent huge pages: times as fast", "times", 2, pages="thp"
    )
    fault_ns = QuantityDeclaration("touching and unmapping a fresh base page", "ns")


class Analysis(analysis.Analysis):
    """No rows of its own, but each chapter's Analysis, of the rows that it has or with machine
    "this" measures first; or the reason for none."""

    chapter = "index"

    def __init__(self, chapter: Chapter, chapters: tuple[ModuleType, ...] = ()):
        """Raises the Unavailable that is no lack of this machine."""
        super().__init__(pd.DataFrame(), chapter)
        self.parameters = chapter.parameters
        self._each = {
            module: _analysis(module, chapter) for module in chapters or notebooks.chapter_modules()
        }
        if chapter.is_this and chapter.left_out:
            # each chapter counted its own points, and they share many
            chapter.left_out.clear()
            chapter.campaign(points_by_chapter(chapter.scope), seconds=0.0)
            if chapter.head:
                chapter.head.update(chapter.left_out)

    def on(self, machine: str) -> Analysis:
        """Return the first page's Analysis of another machine. Raises Unavailable("no-data")."""
        return Analysis(self.about.on(machine), tuple(self._each))

    @property
    def all_rows(self) -> pd.DataFrame:
        """The rows of all chapters. Raises Unavailable("no-data") where none has any."""
        frames = [rows for rows in map(self.rows_of, self._each) if len(rows)]
        return pd.concat(require_nonempty(frames, "any chapter", "no-data"), ignore_index=True)

    def rows_of(self, module: ModuleType) -> pd.DataFrame:
        """Return the rows of a chapter, none where it was not measured."""
        a = self._each[module]
        return pd.DataFrame() if isinstance(a, Unavailable) else a.frame

    def of(self, module: ModuleType) -> Any:
        """Return the Analysis of a chapter. Raises Unavailable where there are no rows."""
        a = self._each[module]
        if isinstance(a, Unavailable):
            raise a
        return a

    @property
    def cliff(self) -> stlb_cliff.Analysis:
        """The chapter about the TLB cliff. Raises Unavailable where there are no rows of it."""
        return self.of(stlb_cliff)

    @property
    def base_label(self) -> str:
        """The name of base pages in the figure."""
        return self.page_labels[BASE_PAGES]

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """ns per load by lines, of those measured: one line to each base page on two page sizes,
        and as many lines packed. Raises Unavailable where no chase was measured."""
        found = {self.base_label: self.cliff.spread}
        large = self._each[hugepages]
        if not isinstance(large, Unavailable):
            of_kind = {
                label: curves.spread_curve(large.frame, pages=pages)
                for pages, label in HUGE_PAGES_LABELS.items()
            }
            # the sort measured at more sizes, as its curve shows each step
            densest = max(of_kind, key=lambda label: len(of_kind[label]))
            found[densest] = of_kind[densest]
        found[PACKED_LABEL] = self.cliff.packed
        return {name: curve for name, curve in found.items() if len(curve)}

    @cached_property
    def profile(self) -> TranslationProfile:
        """What translation costs this machine, kept beside this computer's own rows. Of the survey,
        as much as there is: none is measured for this page."""
        made = profile_of_analyses(self.about.machine, self.of)
        if self.parameters["machine"] == "this":
            write_profile_if_possible(self.about.store, made)
        return made

    def measured(self, name: str) -> Interval:
        """Return a quantity of this machine's profile. Raises the Unavailable for which it has
        none."""
        found = self.profile[name]
        if found.value is None or found.interval is None:
            raise Unavailable(found.reason or "no-data", found.detail)
        return found.interval

    @property
    def setup(self) -> str:
        """Which machine this is and, on a page about this computer, when its results were measured
        and by which kernels, as Markdown."""
        which = "Our reference machine" if self.about.is_reference else self.about.shown_name
        text = f"{which[0].upper()}{which[1:]}: {escape_markdown(setting.machine(self))}."
        if self.parameters["machine"] != "this":  # the page of machines says so
            return text
        days = none_if_unavailable(lambda: self.provenance) or "Its chases were not measured."
        earlier = none_if_unavailable(lambda: setting.earlier_kernels(self.all_rows)) or ""
        return f"{text} {days} {earlier}".strip()

    @property
    def provenance(self) -> str:
        """When this computer's results were measured, and what was left out. Raises Unavailable."""
        self.of(stlb_cliff)  # without a chase, the page has no results
        days = sorted(self.all_rows["started_at"].str[:10].unique())
        when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
        short = (
            " The profile was `smoke`: its numbers are too few and too short to quote."
            if self.parameters["profile"] == "smoke"
            else ""
        )
        return f"Its results were measured {when}.{short}{self._left_out()}"

    def _left_out(self) -> str:
        """Count in one sentence what there was no time to measure, or was disturbed; "" if nothing."""
        counts = self.about.left_out.values()
        missing, every = (sum(count[side] for count in counts) for side in (0, 1))
        if not missing:
            return ""
        return (
            f" {missing:,} of {every:,} measurements are missing or were disturbed; `make book` goes "
            "on with them."
        )


def _analysis(module: ModuleType, chapter: Chapter) -> analysis.Analysis | Unavailable:
    try:
        return chapter_analysis(module, chapter)
    except Unavailable as why:
        if why.code not in _LACKING:
            raise
        return why


# --- the figure: ns per load against the working set, and a slider that answers for one

_COLOURS = {
    **{label: charts.PAGE_COLOURS[pages] for pages, label in HUGE_PAGES_LABELS.items()},
    PACKED_LABEL: charts.PART_COLOURS["data"],
}
_OF_BASE = charts.PAGE_COLOURS["4k"]
_ASKED_LOG2 = 30.0  # the static figure answers for 1 GiB
_STEP = 0.5  # of the slider, in octaves


def load_time_chart(a: Analysis) -> Figure:
    """Draw ns per load by page size, with a working set to choose. Raises Unavailable where no
    chase was measured."""
    page_bytes, found = a.base_page_bytes, a.curves
    data = charts.stacked(found, "no chase was measured", page_bytes=page_bytes)
    data = without_bounds_of_few(data)
    colours = alt.Scale(domain=[*found], range=[_COLOURS.get(name, _OF_BASE) for name in found])
    x, scale = charts.working_set(page_bytes), _scale(data)
    solid = [name for name in found if name != PACKED_LABEL]
    y = alt.Y("median:Q", scale=scale)
    chart = charts.series_chart(data, x, "ns per load", colours, scale=scale, joined=solid)
    control = alt.Chart(data).transform_filter(f"datum.series === '{PACKED_LABEL}'")
    control = control.mark_line(strokeDash=[6, 4], color=_COLOURS[PACKED_LABEL]).encode(x=x, y=y)
    dots = pd.concat([each.processes.assign(series=name) for name, each in found.items()])
    single = None
    if len(dots):
        single = alt.Chart(dots.assign(working_set_bytes=dots["lines"] * page_bytes))
        single = single.mark_circle(size=14).encode(
            x=x, y=y, color=charts.colour("series", colours)
        )
    ends = charts.capacities(a.cliff.entries, base_page_bytes=page_bytes)
    sizes = _sizes(
        require_nonempty(found.get(a.base_label), "no chase was measured on base pages"), page_bytes
    )
    answers = {f"{size:g}": working_set_answer(a, slider_bytes(size)) for size in sizes}
    default = min(sizes, key=lambda size: abs(size - _ASKED_LOG2))
    chosen = _chosen(_times(found, sizes, page_bytes), colours, x, y)
    shade = charts.shaded_sizes(a.cliff.price.gaps, page_bytes, a.cliff.price.xs)
    drawn = charts.layered(shade, chart, control, single, ends, *chosen)
    lines, ns = medians_at_largest_common_x(found)
    largest = ", ".join(f"{name} {format_ns(median)}" for name, median in ns.items())
    columns = ["series", "lines", "working_set_bytes", "median", "low", "high", "coverage", "n"]
    return Figure(
        drawn.add_params(*_slider(sizes, default, answers)),
        f"Time per load against the working set. In {format_size(int(lines) * page_bytes)}: {largest}. "
        f"{answers[f'{default:g}']}",
        data[columns],
        "working_set",
    )


def slider_bytes(position: float) -> int:
    """Return the size at a position of the slider: 28 is 256 MiB, 28.5 is 384 MiB, 29 is 512."""
    whole = int(position)
    return 2**whole if position == whole else 3 * 2 ** (whole - 1)


def _scale(data: pd.DataFrame) -> alt.Scale:
    """Return a scale with room above the curves for the labels of capacities."""
    ends = [data["median"].min() * 0.8, data[["median", "high"]].max().max() * 3]
    return alt.Scale(type="log", nice=False, domain=ends)


def _sizes(curve: Curve, page_bytes: int) -> list[float]:
    """Return the positions of the slider, as far as base pages were measured."""
    low, high = (np.log2(lines * page_bytes) / _STEP for lines in (curve.xs[0], curve.xs[-1]))
    sizes = [step * _STEP for step in range(ceil(low), floor(high) + 1)]
    measured = [
        size for size in sizes if median_at(curve, slider_bytes(size) / page_bytes) is not None
    ]
    return require_nonempty(measured, "base pages were measured at one size")


def _slider(sizes: list[float], default: float, answers: Mapping[str, str]) -> list[alt.Parameter]:
    title = "Your program loads one line of each page in "
    bind = alt.binding_range(min=sizes[0], max=sizes[-1], step=_STEP, name=title)
    return [
        alt.param("size", value=default, bind=bind),
        alt.param("answers", value=dict(answers)),
        alt.param("readout", expr="answers[size]"),
    ]


def _chosen(times: pd.DataFrame, colours: alt.Scale, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return what marks the chosen size, whose times stand above the chart: a rule, and a point on
    each curve."""
    chosen = alt.Chart(times).transform_filter("datum.size == size").encode(x=x)
    points = chosen.mark_point(size=130).encode(y=y, color=charts.colour("series", colours))
    return [chosen.mark_rule(color=MUTED_COLOUR), points]


def _times(found: Mapping[str, Curve], sizes: list[float], page_bytes: int) -> pd.DataFrame:
    """Return a row a size of the slider and curve. n: the fewest mappings of the points around it."""
    rows = [
        (
            size,
            name,
            slider_bytes(size),
            ns,
            fewest_mappings(curve, slider_bytes(size) / page_bytes),
        )
        for size in sizes
        for name, curve in found.items()
        if (ns := median_at(curve, slider_bytes(size) / page_bytes)) is not None
    ]
    return pd.DataFrame(rows, columns=["size", "series", "working_set_bytes", "median", "n"])


def _nearest(curve: Curve, lines: float) -> tuple[float, float]:
    """Return the measured numbers of lines next to one, below and above or equal to it."""
    return max(x for x in curve.xs if x <= lines), min(x for x in curve.xs if x >= lines)


def fewest_mappings(curve: Curve, lines: float) -> int:
    """Return the fewest mappings of the measured points next to a number of lines."""
    return int(curve.table.loc[curve.table[curve.x].isin(_nearest(curve, lines)), "n"].min())


def median_at(curve: Curve, lines: float) -> float | None:
    """Return the median at a number of lines, interpolated in its logarithm; None outside of what
    was measured."""
    if not curve.xs[0] <= lines <= curve.xs[-1]:
        return None
    xs = np.log2(np.array(curve.xs, dtype=float))
    return float(np.interp(np.log2(lines), xs, curve.medians))


def _range(curve: Curve, lines: float) -> str:
    """Return the time as a text, rounded as in tables; to two digits, with the smallest and the
    largest, where the mappings of the nearest points, or these points, differ much. It is marked if
    there are too few mappings."""
    below, above = _nearest(curve, lines)
    values = [float(curve.medians[x]) for x in (below, above)]
    if len(each := curve.processes):
        values += each.loc[each["lines"].isin((below, above)), "median"].tolist()
    is_of_few = fewest_mappings(curve, lines) < FEWEST_MAPPINGS_WITH_INTERVAL
    mark = FEW_MAPPINGS_MARK if is_of_few else ""
    ns = median_at(curve, lines) or 0.0
    if max(values) > MIN_MODE_RATIO * min(values):
        ends = f"{_two_digits(min(values))} to {_two_digits(max(values))}"
        return f"about {_two_digits(ns)} ({ends}) ns{mark}"
    return f"{ns:,.{1 if ns < 10 else 0}f} ns{mark}"


def _two_digits(ns: float) -> str:
    return f"{float(f'{ns:.2g}'):,g}"


def working_set_answer(a: Analysis, working_set_bytes: int) -> str:
    """Return what a working set costs on this machine, in two or three sentences."""
    lines, found = working_set_bytes / a.base_page_bytes, a.curves
    times = {
        n: _range(each, lines) for n, each in found.items() if median_at(each, lines) is not None
    }
    size = format_size(working_set_bytes)
    text = f"{size}, {lines:,.0f} pages of {format_size(a.base_page_bytes)}{_place(a, lines)}. "
    text += f"A load takes {times[a.base_label]}"
    text += (
        f", and {times[PACKED_LABEL]} with the same number of lines packed"
        if PACKED_LABEL in times
        else ""
    )
    if not is_comparable(a.cliff.price, lines):
        text += "; part of the difference may be the data's"
    for name in HUGE_PAGES_LABELS.values():
        if name in times:
            return f"{text}. On {name.replace(' (', ' pages (')} it takes {times[name]}."
    return f"{text}."


def _place(a: Analysis, lines: float) -> str:
    """Say which plateau a number of pages is on; "" where nothing states the entries."""
    entries = a.cliff.entries
    if len(entries) < 2:
        return ""
    if lines <= entries[0]:
        return ": the L1 TLB holds them all"
    times = lines / entries[-1]
    whole = "STLB" if entries.is_stated else "TLB"
    if times < 0.75:
        return f": the {whole} holds them all"
    if times < 1.5:
        return f": about what the {whole} holds"
    return f": {times:,.{times < 10:d}f} times what the {whole} holds"
