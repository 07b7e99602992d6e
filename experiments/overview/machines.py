"""The page of machines: all that are in data/, each with its translation profile, its host, and
what of these cannot be read and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil, floor, isfinite, log10
from typing import Any, Literal, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from experiments.overview.profile import (
    ProfileQuantity,
    TranslationProfile,
    is_profile_current,
    profile_of_chapter,
    read_translation_profile,
)
from tlb.machine.host import Host
from tlb.measure import build, machine_states
from tlb.measure.store import Store
from tlb.report import analysis, charts, quantities
from tlb.report.card import THIS_COMPUTER_LABEL
from tlb.report.chapter import Chapter
from tlb.report.quantities import FEW_MAPPINGS_MARK, QuantityDeclaration, ValueOrFunction
from tlb.report.render import GRID_LINE_COLOUR, MUTED_COLOUR, PALETTE, Figure
from tlb.stats.intervals import LEAST_COVERAGE, Interval, without_bounds_of_few
from tlb.stats.scatter import MIN_MODE_RATIO
from tlb.stats.splinter import SplinteringVerdict, judge_splintering
from tlb.system import procfs
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty
from tlb.system.units import escape_markdown

# as found or, where nothing was, as stated
TLB_ENTRY_QUANTITY_NAMES = {
    level: (f"entries_level_{level}", f"stated_level_{level}") for level in (1, 2)
}
Backing = Literal["whole", "splintered", "unknown"]
_PAGES: dict[str, Backing] = {"not splintered": "whole", "splintered by the host": "splintered"}
_INFERRED = {"whole": "whole", "splintered": "splintered", "unknown": "not known"}
_LABEL_CHARS = 40  # what a phone has room for


class MachinesPageQuantities(quantities.Quantities):
    """Entries are those that a chase finds in all levels."""

    machines = QuantityDeclaration("machines with published rows", "")
    first_level_zen5_ns = QuantityDeclaration("a load that hits the first level, Zen 5", "ns", 1)
    first_level_emerald_ns = QuantityDeclaration(
        "a load that hits the first level, Emerald Rapids", "ns", 1
    )
    entries_emerald = QuantityDeclaration("entries of the TLB, Emerald Rapids", "pages")
    entries_zen5 = QuantityDeclaration("entries of the TLB, Zen 5", "pages")
    off_stated = QuantityDeclaration("largest difference of found from stated entries", "share", 1)


class MeasuredMachine(NamedTuple):
    """One computer of data/. host, profile: None where `why` says why. days: the first and the last
    of its rows, "" without any."""

    name: str  # its folder
    label: str  # what a figure calls it
    host: Host | None
    profile: TranslationProfile | None
    splinter: SplinteringVerdict | None  # whether its host splinters huge pages; None if unknown
    days: tuple[str, str]
    ghz: float = float("nan")  # its median clock beside measurements, timed by register additions
    has_nodes: bool = False  # whether remote memory was measured
    has_card: bool = False
    why: tuple[str, ...] = ()
    is_own: bool = False
    kernels: int = 0  # that measured rows of it
    earlier_kernels: int = 0  # of these, in an earlier version than the present one alone

    @property
    def pages(self) -> Backing:
        """What its host makes of huge pages."""
        return _PAGES.get(self.splinter.verdict, "unknown") if self.splinter else "unknown"

    def quantity(self, name: str) -> ProfileQuantity | None:
        """One with a value; None where it has none."""
        for found in self.profile.quantities if self.profile else ():
            if found.name == name and found.value is not None and isfinite(found.value):
                return found
        return None

    def value(self, *names: str) -> float:
        """Of the first of these quantities that has one; NaN where none has."""
        found = filter(None, map(self.quantity, names))
        return next((one.value for one in found if one.value is not None), float("nan"))

    def interval(self, *names: str) -> Interval:
        """Return the first of these quantities that has a value. Raises Unavailable("no-data")."""
        found = (one.interval for one in map(self.quantity, names) if one)
        known = next((one for one in found if one is not None), None)
        if known is None:
            raise Unavailable("no-data", f"{' or '.join(names)} of {self.name}")
        return known

    @property
    def counts(self) -> bool:
        """Whether hardware counters answer."""
        return bool(self.host and self.host.pmu.tier == "counters")

    @property
    def is_guest(self) -> bool | None:
        """Whether it is a virtual machine; None if unknown."""
        if self.host is None or self.host.hypervisor == "unknown":
            return None
        return self.host.hypervisor != "none"


class Analysis(analysis.Analysis):
    """machines: those in data/ in the order of all pages and, on a page about this computer, itself
    first."""

    chapter = "machines"

    def __init__(self, chapter: Chapter):
        super().__init__(pd.DataFrame(), chapter)
        # nothing is measured for this page
        self._chapter = replace(chapter, parameters=chapter.parameters | {"minutes": 0.0}, notes=[])

    @cached_property
    def machines(self) -> list[MeasuredMachine]:
        """Raises Unavailable("no-data") where there is none."""
        data = self._chapter.data
        every = [self._machine(data, name) for name in data.machines_in_order()]
        often = Counter(each.label for each in every)
        every = [
            each if often[each.label] == 1 else each._replace(label=each.name) for each in every
        ]
        if self._chapter.is_this and self._chapter.machine in data.own.machines():
            own = self._machine(data.own, self._chapter.machine)
            every.insert(0, own._replace(label=THIS_COMPUTER_LABEL, is_own=True))
        if not every:
            raise Unavailable("no-data", "data/ holds no machine")
        return every

    def _machine(self, store: Store, name: str) -> MeasuredMachine:
        is_own, why = store.root.name == "own", list[str]()
        given = self._chapter.parameters | {"machine": "this" if is_own else name}
        about = replace(self._chapter, parameters=given, notes=[])

        def known_profile() -> TranslationProfile:
            # The first page keeps this computer's own, perhaps before its last row was measured.
            known = none_if_unavailable(_profile, store, name) if is_own else _profile(store, name)
            return known or profile_of_chapter(about)

        host = _or_reason(lambda: machine_states.latest_description(store, name), why)
        known = _or_reason(known_profile, why)
        label = host.microarchitecture if host and host.microarchitecture != "unknown" else name
        rows = store.load(name)
        days = sorted({*rows["started_at"].str[:10]})
        return MeasuredMachine(
            name,
            procfs.label(label)[:_LABEL_CHARS] or name,
            host,
            known,
            _splinter(about, name, host),
            (days[0], days[-1]) if days else ("", ""),
            ghz=float(rows.loc[rows["core_ghz"] > 0, "core_ghz"].median()),
            has_nodes="numa_chase" in {*rows["kernel"]},
            has_card=(store.root / name / "README.md").is_file(),
            why=tuple(why),
            kernels=rows["kernel"].nunique(),
            earlier_kernels=_earlier_kernels(rows),
        )

    def with_value(self, *names: str) -> list[MeasuredMachine]:
        """Those that have one of these quantities, the smallest value first."""
        return sorted(
            (each for each in self.machines if isfinite(each.value(*names))),
            key=lambda each: each.value(*names),
        )

    def huge_pages_inferred(self) -> pd.DataFrame:
        """A row a machine: its clock, and what translation adds to a load between the levels of the
        TLB, in cycles, from which `pages` is inferred."""
        pages = {"4 KiB pages, cycles": "base", "2 MiB pages, cycles": "large"}
        rows = [
            {"machine": each.label, "clock": f"{each.ghz:.1f} GHz"}
            | {name: _cycles(each.splinter, side) for name, side in pages.items()}
            | {"we infer": _INFERRED[each.pages]}
            for each in self.machines
            if each.splinter and each.splinter.unit == "cycles"
        ]
        return pd.DataFrame(rows)

    def not_shown(self) -> str:
        """List the machines that are not shown, and why, as Markdown."""
        return "\n".join(
            f"- {escape_markdown(each.label)} is not shown: {escape_markdown(why)}"
            for each in self.machines
            for why in each.why
        )

    def page_quantities(self) -> dict[str, ValueOrFunction]:
        """Return what the page's text quotes, by name of MachinesPageQuantities."""
        published = [each for each in self.machines if not each.is_own]

        def of(family: str, *names: str) -> ValueOrFunction:
            return lambda: _of(published, family).interval(*names)

        found, stated = TLB_ENTRY_QUANTITY_NAMES[2]

        def most_off() -> float:
            stating = [_of(published, f"zen-{number}") for number in (3, 4, 5)]
            return max(abs(each.value(found) / each.value(stated) - 1) for each in stating)

        return {
            "machines": len(published),
            "first_level_zen5_ns": of("zen-5", "load_first_level"),
            "first_level_emerald_ns": of("emerald-rapids", "load_first_level"),
            "entries_emerald": of("emerald-rapids", found),
            "entries_zen5": of("zen-5", found),
            "off_stated": most_off,
        }


def _cycles(found: SplinteringVerdict, side: str) -> str:
    """Return what translation adds on one kind of pages, marked if it is of few mappings."""
    mark = FEW_MAPPINGS_MARK if found.is_of_few else ""
    return f"{getattr(found.first, side):z.1f}{mark}"


def _of(machines: list[MeasuredMachine], family: str) -> MeasuredMachine:
    """Return the first machine of a family. Raises Unavailable("no-data")."""
    found = [each for each in machines if each.name.startswith(f"{family}-")]
    return require_nonempty(found, f"data/ holds no machine of the family {family}", "no-data")[0]


def _earlier_kernels(rows: pd.DataFrame) -> int:
    """Count the kernels of which all rows are of an earlier version than their file declares."""
    newest = rows.groupby("kernel")["measures"].max()
    return sum(build.declared_measures(str(name), "c") > last for name, last in newest.items())


def _splinter(about: Chapter, name: str, host: Host | None) -> SplinteringVerdict | None:
    """As the chapter about page sizes infers it from its rows."""
    if host is None or "hugepages" not in (
        none_if_unavailable(about.store.experiments, name) or ()
    ):
        return None
    return none_if_unavailable(lambda: judge_splintering(about.kept("hugepages"), host.hypervisor))


def _or_reason(make: Callable[[], Any], why: list[str]) -> Any:
    """Return what `make` gives; None if it raises Unavailable, whose reason is added to `why`."""
    try:
        return make()
    except Unavailable as lacks:
        why.append(str(lacks))
        return None


def _profile(store: Store, name: str) -> TranslationProfile:
    """A machine's profile, where it is that of its rows. Raises Unavailable("no-data")."""
    known = read_translation_profile(store, name)
    if not is_profile_current(store, known):
        raise Unavailable(
            "no-data",
            f"translation.json of {name} is of other rows; `tlb refresh index` makes it again",
        )
    return known


# --- all machines' times in one figure: a row a quantity, a mark a machine

# What a row shows, in words that a phone has room for. Not every machine has each.
_SHOWN = {
    "hit_last_level": "a hit in the STLB adds",
    "walk_table_l2": "a walk adds, its entry in the L2 cache",
    "walk_table_memory": "a walk adds, its entry in memory",
    "walk_past_last_level": "translation adds, over 2 to 4 times the reach",
    "walk_over_2_gib": "translation adds over 2 GiB, at least",
}

_ROW_PX = 104  # room for the name and, below it, a line for each machine
_PLACES_PX = [46, 97]  # of these lines in a row


def times_by_machine(a: Analysis) -> Figure:
    """Draw all machines' times. Raises Unavailable("too-few-points") where no machine has one."""
    found = [
        (each.name, each.label, words, q.value, q.low, q.high, q.coverage)
        for each in a.machines
        for name, words in _SHOWN.items()
        if (q := each.quantity(name)) and each.value(name) > 0  # on a logarithmic axis
    ]
    columns = ["machine", "label", "what", "value", "low", "high", "coverage"]
    data = pd.DataFrame(
        require_nonempty(found, "no machine has a time in its profile"), columns=columns
    )
    data, ends = charts.intervals_on_log(data)
    is_of_few = data["coverage"] < LEAST_COVERAGE
    rows = [words for words in _SHOWN.values() if (data["what"] == words).any()]
    names = [*data["label"].unique()]
    shown = data.assign(
        median=data["value"],
        low=data["begin"].mask(is_of_few, data["value"]),
        high=data["end"].mask(is_of_few, data["value"]),
    )
    decades = _decades(ends)
    ends = (decades[0], decades[-1])
    axis = alt.Axis(title="ns", format=",", values=decades)
    x: dict[str, Any] = {"scale": charts.log_scale(10, ends), "axis": axis}
    channels: dict[str, Any] = {"color": charts.colour("label", _colours(names))}
    if len(names) <= len(PALETTE):  # names stand at the marks
        channels["color"] = charts.unnamed_colour("label", _colours(names))
        channels["shape"] = charts.shape("label", names).legend(None)
        # In a row one below the other, as marks that lie close would cover each other
        places = alt.Scale(domain=names, range=_PLACES_PX)
        channels["yOffset"] = alt.YOffset("label:N", sort=names, scale=places)
    medians = charts.medians_in_rows(
        shown, "what", rows, x, "label:N", "what:N", width=2, size=50, **channels
    )
    layers: list[Any] = [*_grid(rows, x, decades), medians]
    if "yOffset" in channels:
        layers += _values(shown, rows, x, ends, channels["color"], channels["yOffset"])
    chart = charts.layered(*layers).properties(height=_ROW_PX * len(rows))
    return Figure(chart, _finding(a, names), without_bounds_of_few(data[columns]), "machines_times")


def _decades(ends: tuple[float, float]) -> list[float]:
    """Return the powers of ten from the last one below the ends to the first one above."""
    low, high = floor(log10(ends[0])), ceil(log10(ends[1]))
    return [10.0**power for power in range(low, high + 1)]


def _values(
    shown: pd.DataFrame,
    rows: Sequence[str],
    x: Mapping[str, Any],
    ends: tuple[float, float],
    color: alt.Color,
    place: alt.YOffset,
) -> list[alt.Chart]:
    """Return the machine and the number of each mark, on the side of it that has more room: its ends
    if they are far apart."""
    digits = np.where(shown["value"] < 10, 1, 0)
    is_wide = shown["high"] > MIN_MODE_RATIO * shown["low"]
    words = [
        f"{row.label}: {row.low:,.{d}f} to {row.high:,.{d}f}"
        if wide
        else f"{row.label}: {row.value:,.{d}f}"
        for row, d, wide in zip(shown.itertuples(), digits, is_wide, strict=True)
    ]
    few = np.where(shown["coverage"] < LEAST_COVERAGE, FEW_MAPPINGS_MARK, "")
    labelled = shown.assign(words=np.char.add(words, few))
    is_right = ends[1] / shown["high"] >= shown["low"] / ends[0]
    channels = {"y": charts.row("what", rows), "color": color, "yOffset": place}
    right, left = alt.Chart(labelled[is_right]), alt.Chart(labelled[~is_right])
    return [
        right.mark_text(align="left", dx=7).encode(
            x=alt.X("high:Q", **x), text="words:N", **channels
        ),
        left.mark_text(align="right", dx=-7).encode(
            x=alt.X("low:Q", **x), text="words:N", **channels
        ),
    ]


def _grid(rows: Sequence[str], x: Mapping[str, Any], decades: Sequence[float]) -> list[alt.Chart]:
    """Return a line above each row but the first, and one at each power of ten."""
    upright = alt.Chart(pd.DataFrame({"decade": decades})).mark_rule(
        color=GRID_LINE_COLOUR, strokeWidth=1
    )
    between = alt.Chart(pd.DataFrame({"what": [*rows[1:]]})).mark_rule(
        color=GRID_LINE_COLOUR, strokeWidth=1
    )
    above = alt.Y("what:N", sort=[*rows], axis=None, bandPosition=0)
    return [
        upright.encode(x=alt.X("decade:Q", **x)),
        between.encode(x=alt.value(0), x2=alt.value("width"), y=above),
    ]


def _colours(names: list[str]) -> alt.Scale:
    """Return a colour a machine; of more machines than there are shapes, one for this computer and
    one for all others."""
    if len(names) <= len(PALETTE):
        return charts.machine_colours(names)
    return alt.Scale(
        domain=names,
        range=[PALETTE[0] if n == THIS_COMPUTER_LABEL else MUTED_COLOUR for n in names],
    )


def _finding(a: Analysis, names: list[str]) -> str:
    """Return a sentence about the machines whose hit in the STLB takes longest and least."""
    hit = "hit_last_level"
    timed = [each for each in a.with_value(hit) if each.label in names]
    if len(timed) < 2:
        return f"Times of {len(names)} machines, a row a quantity."
    low, high = timed[0], timed[-1]
    return (
        f"Times of {len(names)} machines, a row a quantity. A hit in the second level adds most "
        f"on {high.label}, {high.value(hit):,.2g} ns, and least on {low.label}, "
        f"{low.value(hit):,.2g} ns."
    )
