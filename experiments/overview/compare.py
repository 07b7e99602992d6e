"""Two computers, or two states of one, point by point: the times of what both have measured, their
ratio, and whether they differ.

A side is a folder of data/ (`zen-5-b15e0e32`), one of data/own/ (`own/zen-5-b15e0e32`),
`reference`, or `this` in its present state; with `@STATE` its rows of one state, with `@BOOT` those
of one boot (lab.states), else those of each kernel's last campaign, as pages show them. A point is
the same where the code that it timed is, to the digest, what its kernel measures is, by version,
and all its parameters are.

The rule is that of verdicts. Two sides *differ* where the interval of their ratio, as wide as one
of so many needs that may not all be right (`Interval.widened`), lies on one side of 1, and farther
from it than the runs of each side lie apart where there are several. Where it does not, there is
*no difference* if that interval would have told one of MOST_HIDDEN from none. Otherwise, and of
fewer than five processes, one *cannot tell*. tests/overview/test_compare.py holds how often each is
wrong.
"""

from __future__ import annotations

import re
from math import isfinite, nan
from typing import Any, NamedTuple

import pandas as pd

from experiments.overview import compare_lacking
from experiments.overview.compare_facts import Fact, facts
from experiments.overview.profiles import DIFFERS, MOST_HIDDEN, SAME, UNKNOWN, Beside, of_machines
from tlb.inference.intervals import Interval
from tlb.inference.sides import Pair, measured_alike, numbered_runs, of_the_same_kernels, pairs
from tlb.lab import kernels, states, survey
from tlb.lab.events import CANONICAL
from tlb.lab.store import Store, data_root
from tlb.machine import background, doctor
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.prose import count, listed
from tlb.reasons import Unavailable, if_available
from tlb.report.parameters import table_of_contents
from tlb.report.setting import point_columns
from tlb.report.verdicts import LEAST_COVERAGE, WRONG_BY_CHANCE, decided, inside

UNITS = {"ns_per_access": "ns"} | {
    f"{quantity}_per_access": quantity.replace("_", " ") for quantity in CANONICAL
}
_SIDE = re.compile(r"(own/)?([^@/]+)(?:@([\w.+=,-]+))?")
_IDENTITY = [
    "kernel",
    "started_at",
    "elapsed_ns",
    "wall_ns",
    "checksum",
]  # no two processes have all of these the same
_LEFT_OUT = {
    "measured-differently": "Left out, since one side was measured with an earlier version of the kernel",
    "other-kernels": "Left out as of other code, or of another compiler",
}
# Of a description: what differs by itself, and what no time here depends on.
_BESIDE = {
    "load, one minute",
    "memory",
    "memory limit",
    "family, model, stepping",
    "counters",
    "boot id",
}


class Side(NamedTuple):
    """One of the two. rows: those that are compared, with columns `chapter` and `run`. broken: of
    its kernels, lines that do not prove whole."""

    name: str
    machine: str
    store: Store
    rows: pd.DataFrame
    broken: dict[str, int]

    @property
    def state(self) -> str:
        """That of most of its rows."""
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
        if decided(inside(self.pair.logs, -self.pair.slack, self.pair.slack, self.among)) is False:
            return DIFFERS
        return (
            SAME
            if self.can_tell and self.pair.logs.modes == 1 and self.would_show <= MOST_HIDDEN
            else UNKNOWN
        )

    @property
    def ratio(self) -> Interval | None:
        """B over A, as wide as its verdict takes it."""
        return self.pair.widened(self.among)

    @property
    def would_show(self) -> float:
        """The least difference that would have shown, as a part of 1."""
        return self.pair.would_show(self.among) - 1


class Comparison(NamedTuple):
    """computers: label, of A, of B, of what their descriptions do not say alike. quantities: by
    chapter, largest differences first. notes: what to know of both, in sentences. profiles: of
    whole machines, the quantities that both profiles have. facts: what differs about the computers,
    with what it can touch; explained: what follows of that. lacking: what is not compared, and why,
    in sentences."""

    a: Side
    b: Side
    computers: list[tuple[str, str, str]]
    quantities: list[Compared]
    notes: list[str]
    profiles: list[Beside] = []
    facts: list[Fact] = []
    explained: list[str] = []
    lacking: list[str] = []


def compare(a: str, b: str, chapter: str | None = None) -> Comparison:
    """Of all chapters, or of one. Raises Unavailable: bad-parameter for what names no machine,
    state or chapter, and for rows compared with themselves; no-data where a side has none,
    measured-differently and other-kernels where none are of a kernel of both, nothing-common where
    no point is."""
    known = [*table_of_contents(), survey.NAME]
    if chapter is not None and chapter not in known:
        raise Unavailable(
            "bad-parameter", f"there is no chapter '{chapter[:80]}'; there are {', '.join(known)}"
        )
    chapters = [chapter] if chapter else known
    sides = _side(a, chapter), _side(b, chapter)
    one, two, left_out = _alike(*sides, chapters)
    quantities = compared(one.rows, two.rows, chapters)
    if not quantities:
        raise Unavailable("nothing-common")
    # A profile is of a machine's rows together.
    whole = (
        chapter is None
        and not any("@" in name or name == "this" for name in (a, b))
        and measured_alike(*(side.rows for side in sides))
    )
    profiles = of_machines((one.store, one.machine), (two.store, two.machine)) if whole else []
    described = _host(one), _host(two)
    computers = _computers((one, two), described)
    return Comparison(
        one,
        two,
        computers,
        quantities,
        _notes((one, two), quantities, left_out),
        profiles,
        *facts(described, (one.rows, two.rows), computers, quantities),
        [
            *compare_lacking.points(one.rows, two.rows, chapters),
            *(
                compare_lacking.of_profiles(
                    [("A", one.store, one.machine), ("B", two.store, two.machine)]
                )
                if whole
                else ()
            ),
        ],
    )


def compared(a: pd.DataFrame, b: pd.DataFrame, chapters: list[str]) -> list[Compared]:
    """Each quantity of both, by chapter, those that differ first and of these the farthest apart. A
    point that several chapters ask for is of the first. Frames are those of `Store.load`, with
    columns `chapter` and `run`."""
    each = [quantity for chapter in chapters for quantity in _of_chapter(chapter, a, b)]
    once = list({(q.quantity, *map(str, q.point.items())): q for q in reversed(each)}.values())[
        ::-1
    ]
    among = max(1, sum(q.can_tell for q in once))
    return sorted(
        (q._replace(among=among) for q in once),
        key=lambda q: (
            chapters.index(q.chapter),
            q.verdict != DIFFERS,
            -abs(q.pair.logs.value) if q.pair.ratio else 0.0,
        ),
    )


def _side(name: str, chapter: str | None) -> Side:
    """The rows of a machine, of all its states or of the one that it is named with."""
    parts, data = _SIDE.fullmatch(name), Store(data_root())
    own, machine, state = parts.groups() if parts else ("", "", "")
    if not machine or (own and machine == "reference"):
        raise Unavailable(
            "bad-parameter",
            f"'{name[:80]}' is no machine: name one as NAME, own/NAME, reference or this, or as NAME@STATE",
        )
    present = hosts.inspect() if machine == "this" else None
    is_own = bool(
        own or present or (machine in data.own.machines() and machine not in data.machines())
    )
    store = data.own if is_own else data
    machine = store.resolve(machine, hosts.machine_id(present) if present else "", chapter or "")
    frames = [
        kernels.with_defaults(store.load(machine, experiment)).assign(chapter=experiment)
        for experiment in store.experiments(machine)
        if chapter in (None, experiment)
    ]
    rows, broken = (
        pd.concat([frame for frame in frames if len(frame)] or [pd.DataFrame()], ignore_index=True),
        store.broken(machine),
    )
    if rows.empty:
        raise Unavailable(
            "no-data", f"{chapter or 'any chapter'} on {name[:80]}{_broken(broken, '; there, ')}"
        )
    rows = rows.assign(run=numbered_runs(rows["started_at"]))
    if state or present:
        rows = states.rows_of(store, machine, state or hosts.state(present), rows)
    return Side(
        f"{'own/' * is_own}{machine}{f'@{state}' if state else ''}", machine, store, rows, broken
    )


def _broken(counts: dict[str, int], lead: str = "") -> str:
    """A phrase; "" for no lines."""
    lines = listed(f"{count(number)} of {kernel}.jsonl" for kernel, number in counts.items())
    return f"{lead}lines do not prove whole: {lines}" if counts else ""


def _alike(a: Side, b: Side, chapters: list[str]) -> tuple[Side, Side, dict[str, set[str]]]:
    """Both with their rows of the same kernels, and the kernels that are left out by the code of
    the reason."""
    kept, left_out = [], dict[str, set[str]]()
    for chapter in chapters:
        *rows, found = of_the_same_kernels(
            *(side.rows[side.rows["chapter"] == chapter] for side in (a, b))
        )
        kept.append(rows)
        left_out = {code: kernels | left_out.get(code, set()) for code, kernels in found.items()}
    one, two = (
        side._replace(rows=pd.concat(rows, ignore_index=True))
        for side, rows in zip((a, b), zip(*kept, strict=True), strict=True)
    )
    if one.rows.empty:
        code = next((code for code, kernels in left_out.items() if kernels), None)
        raise (
            Unavailable(code, listed(sorted(left_out[code])))
            if code
            else Unavailable("nothing-common")
        )
    if len(one.rows[_IDENTITY].merge(two.rows[_IDENTITY], on=_IDENTITY)):
        raise Unavailable(
            "bad-parameter",
            f"{a.name} and {b.name} have rows in common, which would be compared with themselves",
        )
    return one, two, left_out


def _of_chapter(chapter: str, a: pd.DataFrame, b: pd.DataFrame) -> list[Compared]:
    a, b = (side[side["chapter"] == chapter] for side in (a, b))
    # An option that one side never had is a column of the other's alone, and tells that one's
    # points apart.
    by = [*dict.fromkeys([*point_columns(a), *point_columns(b)])]
    a, b = (side.assign(**dict.fromkeys(set(by) - set(side), nan)) for side in (a, b))
    return [
        Compared(
            chapter,
            {name: value for name, value in zip(by, setting, strict=True) if value == value},
            quantity,
            pair,
        )  # no NaN
        for quantity in UNITS
        if quantity in a and quantity in b
        for setting, pair in pairs(a, b, by, quantity)
    ]


def _host(side: Side) -> Host:
    """As it was in the state of most of its rows; else as it was inspected last."""
    return if_available(states.described, side.store, side.machine, side.state) or states.latest(
        side.store, side.machine
    )


def _computers(
    sides: tuple[Side, Side], described: tuple[Host, Host]
) -> list[tuple[str, str, str]]:
    told = []
    for side, host in zip(sides, described, strict=True):
        lines: dict[str, str] = {}
        for label, words in map(
            _printable, [*doctor.describe(host), ("clock beside the points", _clock(side.rows))]
        ):
            lines[label] = f"{lines[label]}; {words}" if label in lines else words
        told.append(lines)
    labels = [label for label in {**told[0], **told[1]} if label not in _BESIDE]
    both = [(label, *(lines.get(label, "not stated") for lines in told)) for label in labels]
    older = {
        task.name for task in background.TASKS if any(not host.background for host in described)
    }  # which say nothing of them
    return [
        line for line in both if line[1] != line[2] and line[0] not in older - {background.NUMA}
    ]


def _printable(words: tuple[str, str]) -> tuple[str, str]:
    """Of a machine's own words what shows, on one line: none turns the direction of others or
    speaks to a terminal."""
    label, text = (
        "".join(letter if letter.isprintable() else " " for letter in part) for part in words
    )
    return label, text


def _clock(rows: pd.DataFrame) -> str:
    ghz = rows.loc[rows["core_ghz"] > 0, "core_ghz"].median()
    return f"{ghz:.2f} GHz" if isfinite(ghz) else "not measured"


def _notes(
    sides: tuple[Side, Side], quantities: list[Compared], left_out: dict[str, set[str]]
) -> list[str]:
    among = sum(quantity.can_tell for quantity in quantities)
    told = [
        f"{count(len(quantities))} quantities of points that both have measured are compared, of which {count(among)} are of five "
        f"processes or more on both sides: the interval of each ratio is as wide as one of {count(among)} needs (Bonferroni), so "
        f"of tables like this one about machines that are alike at most {WRONG_BY_CHANCE:.0%} name any difference."
    ]
    for place, side in enumerate(sides):
        days = sorted({*side.rows["started_at"].str[:10]})
        several = sum(quantity.pair.runs[place] > 1 for quantity in quantities)
        told.append(
            f"{'AB'[place]} is {side.name}, measured {' to '.join(dict.fromkeys((days[0], days[-1])))}. "
            + (
                f"Several runs are behind {count(several)} of its quantities, and a difference counts beyond what these differ by."
                if several
                else "Each of its quantities is of one run, so what differs may be the hour and not the computer."
            )
        )
        if len(boots := states.boots_of(side.rows)) > 1:
            told.append(
                f"{'AB'[place]} has rows of {len(boots)} boots, {listed(boots)}; compare one alone as NAME@BOOT."
            )
        if if_available(states.described, side.store, side.machine, side.state) is None:
            told.append(
                f"Nothing says what {side.name} was in the state {side.state}; it is described as it was inspected last."
            )
        if side.broken:
            told.append(f"Of {side.name} {_broken(side.broken)}. They are left out.")
    return told + [
        f"{_LEFT_OUT[code]}: {listed(sorted(kernels))}."
        for code, kernels in left_out.items()
        if kernels
    ]
