"""The page of machines: all that are in data/, each with its translation profile, its host, and
what of these cannot be read and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import isfinite
from typing import Any, Literal, NamedTuple

import pandas as pd

from experiments.overview.profile import (
    Quantity,
    TranslationProfile,
    is_profile_current,
    profile_of_chapter,
    read_translation_profile,
)
from tlb.machine.host import Host
from tlb.measure import build, states
from tlb.measure.store import Store
from tlb.report import analysis
from tlb.report.chapter import Chapter
from tlb.report.names import THIS_COMPUTER
from tlb.report.quantities import ValueOrFunction
from tlb.stats import splinter
from tlb.stats.intervals import Interval
from tlb.system import procfs
from tlb.system.prose import escape_markdown
from tlb.system.reasons import Unavailable, if_available, required

# as found or, where nothing was, as stated
ENTRY_QUANTITIES = {level: (f"entries_level_{level}", f"stated_level_{level}") for level in (1, 2)}
Backing = Literal["whole", "splintered", "unknown"]
_PAGES: dict[str, Backing] = {"not splintered": "whole", "splintered by the host": "splintered"}
_LABEL_CHARS = 40  # what a phone has room for


class Machine(NamedTuple):
    """One computer of data/. host, profile: None where `why` says why. days: the first and the last
    of its rows, "" without any."""

    name: str  # its folder
    label: str  # what a figure calls it
    host: Host | None
    profile: TranslationProfile | None
    pages: Backing  # what its host makes of large pages
    days: tuple[str, str]
    rows: int
    has_nodes: bool = False  # whether remote memory was measured
    has_card: bool = False
    why: tuple[str, ...] = ()
    is_own: bool = False
    # whether an earlier version of a kernel than the present one measured rows of it, and none
    # later
    is_earlier: bool = False

    def quantity(self, name: str) -> Quantity | None:
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
    """machines: those in data/ by label and, on a page about this computer, itself first."""

    chapter = "machines"

    def __init__(self, chapter: Chapter):
        super().__init__(pd.DataFrame(), chapter)
        # nothing is measured for this page
        self._chapter = replace(chapter, parameters=chapter.parameters | {"minutes": 0.0}, notes=[])

    @cached_property
    def machines(self) -> list[Machine]:
        """Raises Unavailable("no-data") where there is none."""
        data = self._chapter.data
        every = [self._machine(data, name) for name in data.machines()]
        often = Counter(each.label for each in every)
        every = sorted(
            (each if often[each.label] == 1 else each._replace(label=each.name) for each in every),
            key=lambda each: (each.label, each.name),
        )
        if self._chapter.is_this and self._chapter.machine in data.own.machines():
            own = self._machine(data.own, self._chapter.machine)
            every.insert(0, own._replace(label=THIS_COMPUTER, is_own=True))
        if not every:
            raise Unavailable("no-data", "data/ holds no machine")
        return every

    def _machine(self, store: Store, name: str) -> Machine:
        is_own, why = store.root.name == "own", list[str]()
        given = self._chapter.parameters | {"machine": "this" if is_own else name}
        about = replace(self._chapter, parameters=given, notes=[])

        def known_profile() -> TranslationProfile:
            # The first page keeps this computer's own, perhaps before its last row was measured.
            known = if_available(_profile, store, name) if is_own else _profile(store, name)
            return known or profile_of_chapter(about)

        host = _or_reason(lambda: states.latest_description(store, name), why)
        known = _or_reason(known_profile, why)
        label = host.microarchitecture if host and host.microarchitecture != "unknown" else name
        rows = store.load(name)
        days = sorted({*rows["started_at"].str[:10]})
        return Machine(
            name,
            procfs.label(label)[:_LABEL_CHARS] or name,
            host,
            known,
            _pages(about, name, host),
            (days[0], days[-1]) if days else ("", ""),
            len(rows),
            has_nodes="numa_chase" in {*rows["kernel"]},
            has_card=(store.root / name / "README.md").is_file(),
            why=tuple(why),
            is_earlier=_is_earlier(rows),
        )

    def with_value(self, *names: str) -> list[Machine]:
        """Those that have one of these quantities, the smallest value first."""
        return sorted(
            (each for each in self.machines if isfinite(each.value(*names))),
            key=lambda each: each.value(*names),
        )

    def not_shown(self) -> str:
        """List the machines that are not shown, and why, as Markdown."""
        return "\n".join(
            f"- {escape_markdown(each.label)} is not shown: {escape_markdown(why)}"
            for each in self.machines
            for why in each.why
        )

    def page_quantities(self) -> dict[str, ValueOrFunction]:
        """Return what the page's text quotes, by name of MachinesPage."""
        published = [each for each in self.machines if not each.is_own]

        def of(family: str, *names: str) -> ValueOrFunction:
            return lambda: _of(published, family).interval(*names)

        found, stated = ENTRY_QUANTITIES[2]

        def most_off() -> float:
            stating = [_of(published, f"zen-{number}") for number in (3, 4, 5)]
            return max(abs(each.value(found) / each.value(stated) - 1) for each in stating)

        gain = "gain_thp", "gain_2m"
        return {
            "machines": len(published),
            "first_level_zen5_ns": of("zen-5", "load_first_level"),
            "first_level_emerald_ns": of("emerald-rapids", "load_first_level"),
            "entries_emerald": of("emerald-rapids", found),
            "entries_zen5": of("zen-5", found),
            "off_stated": most_off,
            "gain_emerald": of("emerald-rapids", *gain),
            "gain_zen5": of("zen-5", *gain),
            "gain_zen3": of("zen-3", *gain),
            "gain_zen4": of("zen-4", *gain),
        }


def _of(machines: list[Machine], family: str) -> Machine:
    """Return the first machine of a family. Raises Unavailable("no-data")."""
    found = [each for each in machines if each.name.startswith(f"{family}-")]
    return required(found, f"data/ holds no machine of the family {family}", "no-data")[0]


def _is_earlier(rows: pd.DataFrame) -> bool:
    """Whether all rows of a kernel are of an earlier version than its file declares."""
    newest = rows.groupby("kernel")["measures"].max()
    return any(build.declared_measures(str(name), "c") > last for name, last in newest.items())


def _pages(about: Chapter, name: str, host: Host | None) -> Backing:
    """As the chapter about page sizes infers it from its rows."""
    if host is None or "hugepages" not in (if_available(about.store.experiments, name) or ()):
        return "unknown"
    found = if_available(lambda: splinter.judge(about.kept("hugepages"), host.hypervisor))
    return _PAGES.get(found.verdict, "unknown") if found else "unknown"


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
