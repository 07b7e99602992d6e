"""Compare two computers, or two states of one, point by point: the times of what both have
measured, their ratio, and whether they differ.

A side is a folder of data/ (`zen-5-b15e0e32`), one of data/own/ (`own/zen-5-b15e0e32`),
`reference`, or `this` in its present state; with `@STATE` its rows of one state, with `@BOOT` those
of one boot (measure.states), else those of each kernel's last campaign, as pages show them. A point is
the same where the version of what its kernel measures and all its parameters are.

The rule is that of verdicts. Two sides *differ* where the interval of their ratio, as wide as one
of so many needs (`Interval.widened`), excludes 1 and lies farther from it than each side's own runs
differ. Otherwise there is *no difference* if that interval would have told one of MOST_HIDDEN from
none; else, and of fewer than five processes, one *cannot tell*. tests/overview/test_compare.py
holds how often each is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite, nan
from typing import Any, NamedTuple

import pandas as pd

from experiments.overview import profile_comparison
from experiments.overview.compare_facts import Fact, Line, facts
from experiments.overview.compare_notes import alone, notes
from experiments.overview.profile_comparison import (
    DIFFERS,
    MOST_HIDDEN,
    SAME,
    UNKNOWN,
    QuantityPair,
)
from tlb.machine import background, doctor
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure import kernels, states, survey
from tlb.measure.events import CANONICAL
from tlb.measure.store import Store, data_root
from tlb.report.parameters import table_of_contents
from tlb.report.setting import point_columns
from tlb.report.verdicts import LEAST_COVERAGE, decided, inside
from tlb.stats.intervals import Interval
from tlb.stats.two_machines import Pair, measured_alike, numbered_runs, of_the_same_kernels, pairs
from tlb.system.prose import listed
from tlb.system.reasons import Unavailable, if_available

UNITS = {"ns_per_access": "ns"} | {
    f"{quantity}_per_access": quantity.replace("_", " ") for quantity in CANONICAL
}
_SIDE = re.compile(r"(own/)?([^@/]+)(?:@([\w.+=,-]+))?")
_IDENTITY = ["kernel", "started_at", "elapsed_ns", "wall_ns", "checksum"]  # of one process
# Labels of a description that differ by themselves, or that no time here depends on.
_IGNORED = {"load, one minute", "memory", "memory limit", "family, model, stepping", "counters"}
_IGNORED |= {"boot id"}


class Side(NamedTuple):
    """One of the two. rows: those that are compared, with columns `chapter` and `run`."""

    name: str
    machine: str
    store: Store
    rows: pd.DataFrame

    @property
    def state(self) -> str:
        """The state of most of its rows."""
        return str(self.rows["state"].mode()[0])


class Compared(NamedTuple):
    """One quantity of one point. point: its columns. among: how many are compared that could be
    told apart."""

    chapter: str
    point: dict[str, Any]
    quantity: str
    pair: Pair
    among: int = 1

    @property
    def can_tell(self) -> bool:
        return self.pair.logs.coverage >= LEAST_COVERAGE

    @property
    def verdict(self) -> str:
        logs, slack = self.pair.logs, self.pair.slack
        if decided(inside(logs, -slack, slack, self.among)) is False:
            return DIFFERS
        is_same = self.can_tell and logs.modes == 1 and self.would_show <= MOST_HIDDEN
        return SAME if is_same else UNKNOWN

    @property
    def ratio(self) -> Interval | None:
        """B over A, as wide as its verdict takes it."""
        return self.pair.widened(self.among)

    @property
    def would_show(self) -> float:
        """The least difference that would have shown, as a part of 1."""
        return self.pair.would_show(self.among) - 1


class Comparison(NamedTuple):
    """computers: what their descriptions do not say alike. quantities: by chapter, largest
    differences first. notes: sentences about both. profiles: of whole machines, the quantities that
    both profiles have. facts: what differs about the computers; explained: what follows of that.
    lacking: what is not compared, and why, in sentences."""

    a: Side
    b: Side
    computers: list[Line]
    quantities: list[Compared]
    notes: list[str]
    profiles: list[QuantityPair] = []
    facts: list[Fact] = []
    explained: list[str] = []
    lacking: list[str] = []


def compare(a: str, b: str, chapter: str | None = None) -> Comparison:
    """Compare all chapters, or one.

    Raises Unavailable: bad-parameter for what names no machine, state or chapter, and for rows
    compared with themselves; no-data where a side has none, measured-differently where
    none are of a version of a kernel of both, nothing-common where no point is.
    """
    known = [*table_of_contents(), survey.NAME]
    if chapter is not None and chapter not in known:
        why = f"there is no chapter '{chapter[:80]}'; there are {', '.join(known)}"
        raise Unavailable("bad-parameter", why)
    chapters = [chapter] if chapter else known
    sides = _side(a, chapter), _side(b, chapter)
    one, two, left_out = _same_kernels(*sides, chapters)
    quantities = compared(one.rows, two.rows, chapters)
    if not quantities:
        raise Unavailable("nothing-common")
    found, lacking = [], [*alone(one.rows, two.rows, chapters)]
    # A profile is of a machine's rows together.
    is_whole = chapter is None and not any("@" in name or name == "this" for name in (a, b))
    if is_whole and measured_alike(*(side.rows for side in sides)):
        machines = (one.store, one.machine), (two.store, two.machine)
        found = profile_comparison.of_machines(*machines)
    described = _host(one), _host(two)
    computers = _computers((one, two), described)
    sentences = [*notes((one, two), quantities, left_out)]
    told = facts(described, (one.rows, two.rows), computers, quantities)
    return Comparison(one, two, computers, quantities, sentences, found, *told, lacking)


def compared(a: pd.DataFrame, b: pd.DataFrame, chapters: list[str]) -> list[Compared]:
    """Return each quantity of both, by chapter, those that differ first and of these the farthest
    apart. A point of several chapters is listed with the first. Frames are those of `Store.load`,
    with columns `chapter` and `run`."""
    once: dict[tuple[str, ...], Compared] = {}
    for chapter in chapters:
        for each in _of_chapter(chapter, a, b):
            once.setdefault((each.quantity, *map(str, each.point.items())), each)
    among = max(1, sum(each.can_tell for each in once.values()))

    def rank(each: Compared) -> tuple[int, bool, float]:
        distance = abs(each.pair.logs.value) if each.pair.ratio else 0.0
        return chapters.index(each.chapter), each.verdict != DIFFERS, -distance

    return sorted((each._replace(among=among) for each in once.values()), key=rank)


def _side(name: str, chapter: str | None) -> Side:
    """Return the rows of a machine, of all its states or of the one that it is named with."""
    match, data = _SIDE.fullmatch(name), Store(data_root())
    own, machine, state = match.groups() if match else ("", "", "")
    if not machine or (own and machine == "reference"):
        raise Unavailable(
            "bad-parameter",
            f"'{name[:80]}' is no machine: name one as NAME, own/NAME, reference or this, or as "
            "NAME@STATE",
        )
    present = hosts.inspect() if machine == "this" else None
    is_only_own = machine in data.own.machines() and machine not in data.machines()
    is_own = bool(own or present or is_only_own)
    store = data.own if is_own else data
    machine = store.resolve(machine, hosts.machine_id(present) if present else "", chapter or "")
    frames = [pd.DataFrame()]
    for experiment in store.experiments(machine):
        if chapter in (None, experiment):
            rows = kernels.with_defaults(store.load(machine, experiment))
            frames += [rows.assign(chapter=experiment)] if len(rows) else []
    rows = pd.concat(frames[1:] or frames, ignore_index=True).copy()  # in one piece
    if rows.empty:
        raise Unavailable("no-data", f"{chapter or 'any chapter'} on {name[:80]}")
    rows = rows.assign(run=numbered_runs(rows["started_at"]))
    if state or present:
        rows = states.rows_of_state(store, machine, state or hosts.state(present), rows)
    called = f"{'own/' * is_own}{machine}{f'@{state}' if state else ''}"
    return Side(called, machine, store, rows)


def _same_kernels(a: Side, b: Side, chapters: list[str]) -> tuple[Side, Side, set[str]]:
    """Return both with their rows of the same kernels, and the kernels that are left out."""
    kept, left_out = [], set[str]()
    for chapter in chapters:
        of_both = [side.rows[side.rows["chapter"] == chapter] for side in (a, b)]
        *rows, found = of_the_same_kernels(*of_both)
        kept.append(rows)
        left_out |= found
    one, two = (
        side._replace(rows=pd.concat(rows, ignore_index=True))
        for side, rows in zip((a, b), zip(*kept, strict=True), strict=True)
    )
    if one.rows.empty:
        if left_out:
            raise Unavailable("measured-differently", listed(sorted(left_out)))
        raise Unavailable("nothing-common")
    if len(one.rows[_IDENTITY].merge(two.rows[_IDENTITY], on=_IDENTITY)):
        why = f"{a.name} and {b.name} have rows in common, which would be compared with themselves"
        raise Unavailable("bad-parameter", why)
    return one, two, left_out


def _of_chapter(chapter: str, a: pd.DataFrame, b: pd.DataFrame) -> Iterator[Compared]:
    a, b = (side[side["chapter"] == chapter] for side in (a, b))
    # An option that one side never had is a column of the other's alone, which no point shares.
    by = [*dict.fromkeys([*point_columns(a), *point_columns(b)])]
    a, b = (side.assign(**dict.fromkeys(set(by) - set(side), nan)) for side in (a, b))
    for quantity in UNITS:
        for values, pair in pairs(a, b, by, quantity) if quantity in a and quantity in b else ():
            point = dict(zip(by, values, strict=True))
            point = {name: value for name, value in point.items() if pd.notna(value)}
            yield Compared(chapter, point, quantity, pair)


def _host(side: Side) -> Host:
    """Return its description in the state of most of its rows, else the latest one."""
    described = if_available(states.description_of_state, side.store, side.machine, side.state)
    return described or states.latest_description(side.store, side.machine)


def _computers(sides: tuple[Side, Side], described: tuple[Host, Host]) -> list[Line]:
    """Return the lines of `tlb inspect` that differ."""
    both: list[dict[str, str]] = []
    for side, host in zip(sides, described, strict=True):
        lines: dict[str, str] = {}
        for line in [*doctor.describe(host), ("clock beside the points", _clock(side.rows))]:
            label, words = map(_printable, line)
            lines[label] = f"{lines[label]}; {words}" if label in lines else words
        both.append(lines)
    labels = [label for label in {**both[0], **both[1]} if label not in _IGNORED]
    # Earlier versions of descriptions have fewer tasks, or none.
    tasks = {task.name for task in background.TASKS} - {background.NUMA}
    unknown = tasks - set.intersection(*({*host.background} for host in described))
    labels = [label for label in labels if label not in unknown]
    found = [(label, *(lines.get(label, "not stated") for lines in both)) for label in labels]
    return [line for line in found if line[1] != line[2]]


def _printable(text: str) -> str:
    """Return a machine's own words on one line, without characters that a terminal obeys."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _clock(rows: pd.DataFrame) -> str:
    ghz = rows.loc[rows["core_ghz"] > 0, "core_ghz"].median()
    return f"{ghz:.2f} GHz" if isfinite(ghz) else "not measured"
