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

Many facts differ between two computers at once, and their times name none of them as the cause. But
a fact that cannot touch what differs does not explain it, and where one fact alone can, there is
one thing to look at. Two states of one computer differ in few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from math import isfinite, nan
from typing import Any, NamedTuple

import pandas as pd

from experiments.overview import profile_comparison
from experiments.overview.machine_pairs import (
    Pair,
    point_pairs,
    rows_of_shared_kernels,
    run_numbers,
)
from experiments.overview.profile_comparison import (
    CANNOT_TELL,
    DIFFERS,
    MOST_HIDDEN,
    NO_DIFFERENCE,
    QuantityPair,
)
from tlb.machine import background, doctor
from tlb.machine import host as hosts
from tlb.machine.host import Host, data_caches, data_tlbs
from tlb.measure import kernels, states, survey
from tlb.measure.events import CANONICAL
from tlb.measure.last_campaign import have_same_versions, last_campaign
from tlb.measure.store import Store, data_root
from tlb.report.card import point_columns
from tlb.report.parameters import table_of_contents
from tlb.report.verdicts import LEAST_COVERAGE, WRONG_BY_CHANCE, decided, inside
from tlb.stats import splinter
from tlb.stats.intervals import Interval
from tlb.system.page_sizes import LARGE, PAGES
from tlb.system.prose import count, listed
from tlb.system.reasons import Unavailable, if_available
from tlb.system.units import format_size

UNITS = {"ns_per_access": "ns"} | {
    f"{quantity}_per_access": quantity.replace("_", " ") for quantity in CANONICAL
}
_SIDE = re.compile(r"(own/)?([^@/]+)(?:@([\w.+=,-]+))?")
_IDENTITY = ["kernel", "started_at", "elapsed_ns", "wall_ns", "checksum"]  # of one process
# Labels of a description that differ by themselves, or that no time here depends on.
_IGNORED = {"load, one minute", "memory", "memory limit", "family, model, stepping", "counters"}
_IGNORED |= {"boot id"}
Line = tuple[str, str, str]  # label, A, B


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
        return NO_DIFFERENCE if is_same else CANNOT_TELL

    @property
    def ratio(self) -> Interval | None:
        """B over A, as wide as its verdict takes it."""
        return self.pair.widened(self.among)

    @property
    def would_show(self) -> float:
        """The least difference that would have shown, as a part of 1."""
        return self.pair.would_show(self.among) - 1


class Fact(NamedTuple):
    """What differs, on A and on B; what it can touch in words; and of the compared quantities how
    many it can touch, and how many of these differ."""

    what: str
    a: str
    b: str
    touches: str
    compared: int
    differ: int


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
    found, lacking = [], [*points_of_one_side(one.rows, two.rows, chapters)]
    # A profile is of a machine's rows together.
    is_whole = chapter is None and not any("@" in name or name == "this" for name in (a, b))
    if is_whole and have_same_versions(*(side.rows for side in sides)):
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
    rows = rows.assign(run=run_numbers(rows["started_at"]))
    chosen = state or (hosts.state(present) if present else "")
    if chosen:
        rows = states.rows_of_state(store, machine, chosen, rows)
    called = f"{'own/' * is_own}{machine}{f'@{state}' if state else ''}"
    return Side(called, machine, store, rows)


def _same_kernels(a: Side, b: Side, chapters: list[str]) -> tuple[Side, Side, set[str]]:
    """Return both with their rows of the same kernels, and the kernels that are left out."""
    kept, left_out = [], set[str]()
    for chapter in chapters:
        of_both = [side.rows[side.rows["chapter"] == chapter] for side in (a, b)]
        *rows, found = rows_of_shared_kernels(*of_both)
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
        for values, pair in (
            point_pairs(a, b, by, quantity) if quantity in a and quantity in b else ()
        ):
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
    unknown = {task for task in tasks if any(task not in host.background for host in described)}
    labels = [label for label in labels if label not in unknown]
    of_a, of_b = both
    found = [(name, of_a.get(name, "not stated"), of_b.get(name, "not stated")) for name in labels]
    return [line for line in found if line[1] != line[2]]


def _printable(text: str) -> str:
    """Return a machine's own words on one line, without characters that a terminal obeys."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _clock(rows: pd.DataFrame) -> str:
    ghz = rows.loc[rows["core_ghz"] > 0, "core_ghz"].median()
    return f"{ghz:.2f} GHz" if isfinite(ghz) else "not measured"


# --- what differs about the computers, each fact with the quantities that it can touch

Hosts = tuple[Host | None, Host | None]
Touches = Callable[[Compared], bool]
_MEMORY_BYTES = 1 << 30  # Linux keeps some memory for itself, by boot; less than this
_TABLE_ENTRY_BYTES = 8  # of a page: beside its line, what a cache has to hold for a walk
# Their timed part is the OS kernel's work, or begins and ends in it.
_OS_WORK = {name for name, kernel in kernels.CATALOGUE.items() if kernel.faults_in}
_OS_WORK |= {"shootdown", "switch_chase", "neighbour_chase"}
_LARGE_PAGES = "large pages, as rows show them"

# By label of `tlb inspect` (shell patterns, the first that matches counts): which tags of a point
# the fact can touch (`_tags`), and that in words. Sources are where the reason can be read.
_WALKS = "walks os"
_MTHP = " ".join(name for name, page in PAGES.items() if page.source == "mthp")
_NOTHING = "nothing: kernels offer it no pages, and a limit ends a process or leaves it alone"
_GUESTS = ("os guest_chase", "the way into the kernel and into guests")
_CLOCK = ("all", "every time that a core and not memory decides")
_PERIODIC = ("all", "whatever runs long enough for it to come by")
FACT_KINDS: dict[str, tuple[str, str]] = {
    "CPU": ("all", "everything"),
    # It has the instructions by which mitigations flush buffers (Linux, admin-guide/hw-vuln).
    "microcode": ("os", "the way into the kernel and back, where mitigations stand"),
    # Other CPUs are asked to flush, zero pages, and run threads beside the one that is measured.
    "CPUs": ("shootdown neighbour_chase map_churn prefault", "what several CPUs do together"),
    # A second dimension of walks, its own backing of memory, exits (Bhargava et al., ASPLOS 2008).
    "hypervisor": (
        _WALKS,
        "walks, which it may give a second dimension, first touches and flushes",
    ),
    "KVM, *": ("guest_chase", "guests of this machine"),
    **dict.fromkeys(
        ("L* instruction", "TLB level * instruction"), ("code_chase", "jumps through much code")
    ),
    "L* *": ("past a cache", "what leaves the smaller of the two"),
    "TLB level *": ("past a TLB", "loads of more pages than the smaller of the two holds"),
    "TLB": ("", "nothing: it is what is stated, and no time"),
    # One more level is a step where the walk caches do not hold it, and one more table to fill.
    "page table": (_WALKS, "walks and first touches"),
    "base page": ("all", "everything: a page is another thing"),
    # What madvise(2) gets, and the effort at a fault (Linux, admin-guide/mm/transhuge.rst).
    "THP": ("thp", "what lies on transparent 2 MiB pages"),
    "mTHP": (_MTHP, "what lies on transparent pages between base and 2 MiB"),
    "pool *": ("its pages", "which points on its pages could be measured"),
    # Unmaps pages now and then to see who touches them (Linux, admin-guide/sysctl/kernel.rst).
    "NUMA balancing": ("all", "whatever runs long enough to be looked at"),
    # machine/background.py: what each does to a program meanwhile.
    **dict.fromkeys(("DAMON", "khugepaged", "swap"), _PERIODIC),
    **dict.fromkeys(("KSM", "memory cgroup", "hugetlb cgroup", "user namespace"), ("", _NOTHING)),
    "seccomp filter": ("", "nothing: what needs a refused call was not measured"),
    "CPU quota": ("all", "whatever runs when a period's CPU time is used up"),
    "THP of this process": ("thp", "what lies on transparent 2 MiB pages"),
    # L1TF flushes the first-level cache on the way into a guest.
    **dict.fromkeys(("against l1tf", "against mmio_stale_data", "against vmscape"), _GUESTS),
    # Meltdown's remedy changes the page table at each entry of the kernel.
    "against *": ("os", "the way into the kernel and back"),
    **dict.fromkeys(("governor", "turbo", "clock beside the points"), _CLOCK),
    "SMT": ("all", "everything, while the other thread of the core works"),
    # Rows of two compilers' kernels are not compared.
    "C compiler": ("", "nothing that is compared: another compiler's kernel is another kernel"),
    "system": ("os", "the kernel's own work"),
    # settings.BOOT_WORDS: levels of the table, its isolation, what a switch keeps.
    "booted with": (_WALKS, "walks, the way into the kernel, and what a switch keeps"),
    "memory": ("", "how far sweeps go, and so which points both have"),
    # An entry spans the smaller of the guest's page and the host's (stats/splinter.py).
    _LARGE_PAGES: (" ".join([*LARGE, "1g"]), "what lies on large pages"),
}


def facts(
    hosts: Hosts,
    rows: tuple[pd.DataFrame, pd.DataFrame],
    computers: Sequence[Line],
    quantities: Sequence[Compared],
) -> tuple[list[Fact], list[str]]:
    """Return the facts that differ, and sentences on what follows from what they can touch.
    computers: the lines of `tlb compare` about both."""
    found, touching = [], {}
    for line in [*computers, *_memory(hosts), *_large_pages(hosts, rows)]:
        touches = touching[line[0]] = touches_of(line[0], hosts)
        touched = [quantity for quantity in quantities if touches(quantity)]
        differ = sum(quantity.verdict == DIFFERS for quantity in touched)
        found.append(Fact(*line, FACT_KINDS[_kind(line[0])][1], len(touched), differ))
    return found, _follows(touching, [q for q in quantities if q.verdict == DIFFERS])


def _kind(label: str) -> str:
    """Return the pattern of KINDS. Raises StopIteration for what `tlb inspect` does not print."""
    return next(pattern for pattern in FACT_KINDS if fnmatchcase(label, pattern))


def touches_of(label: str, hosts: Hosts) -> Touches:
    """Return whether a fact can touch a quantity, as a function of the quantity."""
    tags = FACT_KINDS[_kind(label)][0]
    if tags == "its pages":
        tags = label.removeprefix("pool ")
    if not tags.startswith("past"):
        return lambda compared: not _tags(compared.point).isdisjoint(tags.split())
    level = int(re.search(r"-?\d+", label)[0])  # type: ignore[index]
    known = [host for host in hosts if host]
    if tags == "past a cache":
        caches = [data_caches(host).get(level, 0) for host in known]
        least = min(caches, default=0) / (kernels.LINE_BYTES + _TABLE_ENTRY_BYTES)
        return lambda compared: compared.point["lines"] > least
    entries = [tlb.entries for host in known for tlb in data_tlbs(host) if tlb.level == level]
    least = min(entries, default=0)
    return lambda compared: compared.point["lines"] > least and "walks" in _tags(compared.point)


def _tags(point: dict) -> set[str]:
    """Return a point's kernel and page size, "os" if Linux works in it, and "walks" unless its
    lines are packed on so few pages that their entries stay in the TLB."""
    kernel = kernels.CATALOGUE.get(point["kernel"])
    tags = {"all", point["kernel"], point["pages"]}
    if point["kernel"] in _OS_WORK:
        tags.add("os")
    if point["layout"] != "packed" or (kernel and not kernel.is_chase):
        tags.add("walks")
    return tags


def _memory(hosts: Hosts) -> list[Line]:
    totals = [host.memory.total_bytes for host in hosts if host]
    if len(totals) < 2 or abs(totals[0] - totals[1]) < _MEMORY_BYTES:
        return []
    return [("memory", format_size(totals[0]), format_size(totals[1]))]


def _large_pages(hosts: Hosts, rows: tuple[pd.DataFrame, pd.DataFrame]) -> list[Line]:
    """Return what each host makes of large pages, if both sides' rows show it and it differs."""
    a, b = (_backing(host, side) for host, side in zip(hosts, rows, strict=True))
    return [(_LARGE_PAGES, a, b)] if a != b else []


def _backing(host: Host | None, side: pd.DataFrame) -> str:
    chase = side[side["chapter"] == "hugepages"]
    if host is None or chase.empty:
        return "cannot tell"
    judged = if_available(lambda: splinter.judge(last_campaign(chase).copy(), host.hypervisor))
    return judged.verdict if judged else "cannot tell"


def _follows(touching: dict[str, Touches], differ: Sequence[Compared]) -> list[str]:
    """Return sentences: what none of the facts can touch, and what one alone can."""
    if not differ:
        return []
    by = [[what for what, touches in touching.items() if touches(each)] for each in differ]
    sentences, none = [], by.count([])
    if none:
        sentences.append(
            f"Of {count(len(differ))} quantities that differ, {count(none)} are of a kind that "
            "none of these facts touches: other guests of the host, the hour, or the physical "
            "pages that a boot had left may be behind them."
        )
    alone = [(what, by.count([what])) for what in touching]
    if words := listed(f"{what} ({count(number)})" for what, number in alone if number):
        sentences.append(f"One fact alone touches some of them: {words}.")
    if len({what for facts in by for what in facts}) > 1:
        sentences.append(
            "Several facts differ at once, and nothing here says which of them is a cause. Two "
            "states of one computer, compared as NAME@STATE, differ in few."
        )
    return sentences


# --- sentences: what to know of both sides, and which points only one has


def points_of_one_side(a: pd.DataFrame, b: pd.DataFrame, chapters: Sequence[str]) -> Iterator[str]:
    """Yield a sentence a chapter of which only one side has some points."""
    for chapter in chapters:
        sides = [side[side["chapter"] == chapter] for side in (a, b)]
        by = [*dict.fromkeys(name for side in sides for name in point_columns(side))]
        points = [side.reindex(columns=by).drop_duplicates() for side in sides]
        one, two = ({*map(str, side.itertuples(index=False))} for side in points)
        alone = (("A", len(one - two)), ("B", len(two - one)))
        words = [f"{count(number)} of {letter} alone" for letter, number in alone if number]
        if words:
            yield f"Of {chapter} these points are measured on one side: {listed(words)}."


def notes(
    sides: tuple[Side, Side], quantities: list[Compared], left_out: set[str]
) -> Iterator[str]:
    """Yield what to know of both sides."""
    among = count(sum(quantity.can_tell for quantity in quantities))
    yield (
        f"{count(len(quantities))} quantities of points that both have measured are compared, "
        f"{among} of them with five processes or more on both sides. The intervals are widened for "
        f"{among} comparisons (Bonferroni): of tables like this one about machines that are alike, "
        f"at most {WRONG_BY_CHANCE:.0%} name any difference."
    )
    for place, side in enumerate(sides):
        yield from _about(side, "AB"[place], sum(q.pair.runs[place] > 1 for q in quantities))
    if left_out:
        names = listed(sorted(left_out))
        yield f"Left out, since one side was measured with an earlier version of the kernel: {names}."


def _about(side: Side, letter: str, several: int) -> Iterator[str]:
    """Yield sentences about one side. several: quantities of which there are several runs."""
    days = sorted({*side.rows["started_at"].str[:10]})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    rests = "Each of its quantities is of one run, so a difference may be that of the hour."
    if several:
        rests = f"{count(several)} of its quantities are of several runs; a difference has to "
        rests += "exceed that between runs."
    yield f"{letter} is {side.name}, measured {when}. {rests}"
    if len(boots := states.boots_of(side.rows)) > 1:
        each = f"{len(boots)} boots, {listed(boots)}"
        yield f"{letter} has rows of {each}; compare one alone as NAME@BOOT."
    if if_available(states.description_of_state, side.store, side.machine, side.state) is None:
        yield f"{side.name} has no description in the state {side.state}; the latest one is shown."
