"""A program that runs already: before its memory is joined from outside, and after, in windows that
show how it drifts by itself.

There are no pairs here, for joining is not undone: what the program would have done without is not
known, so there is no verdict.
"""

from __future__ import annotations

import os
import pwd
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import log
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

from tlb.inference.intervals import Interval, median_interval
from tlb.programs import levers, looks
from tlb.programs.guard import guarded
from tlb.programs.levers import LEVERS, Joined
from tlb.programs.looks import Look
from tlb.programs.report import refused
from tlb.programs.runs import Run, run
from tlb.programs.trial import LOOKS_SHARE, Aim
from tlb.prose import listed
from tlb.reasons import Unavailable
from tlb.system import processes, procfs
from tlb.units import format_ns, format_size

LEAST_WINDOWS, MOST_WINDOWS = 6, 12  # a side: of six on, the interval of a median covers 95 %
_PROC = Path("/proc")
_SPACES = {"pid": "processes", "mnt": "files", "net": "networks"}


@dataclass
class Change:
    """What came of it. aim: its command is what is run in each window, before and after. seen: the
    process with all that it started, as its memory was before joining, and after the last window.
    ended: why it ended before its aim, if it did."""

    pid: int
    aim: Aim
    before: list[Run] = field(default_factory=list)
    after: list[Run] = field(default_factory=list)
    seen: list[Look] = field(default_factory=list)
    joined: Joined | None = None
    apart: tuple[str, ...] = ()
    switched_off: bool = False
    ended: str = ""

    @property
    def sides(self) -> list[list[float]]:
        """What was compared, before and after."""
        return [[self.aim.value(run) for run in side] for side in (self.before, self.after)]

    def ratio(self) -> Interval:
        """The median of the windows after over that of those before."""
        before, after = map(median_interval, self.sides)
        return after / before

    def drifts(self) -> list[float]:
        """Of each side, the median of its second half over that of its first: what changes by
        itself."""
        return [
            median(side[-(len(side) // 2) :]) / median(side[: len(side) // 2])
            for side in self.sides
            if len(side) > 1
        ]


def change(pid: int, aim: Aim, tell: Callable[[Change], None] = lambda change: None) -> Change:
    """Measures a process before and after its memory is joined; `tell` hears of each window. A
    process that ends meanwhile leaves the windows before it.

    Raises Unavailable: pid-gone, pid-denied, pid-refused, collapse-denied, no-collapse, what
    `runs.run` raises, and no-metric, program-killed of what is run in a window."""
    check(pid)
    done = Change(pid, aim, apart=apart(pid), switched_off=LEVERS["no-thp"].reached(pid))
    begin, half_s = time.monotonic(), aim.minutes * 30
    with guarded(), _same(pid) as still:
        _window(done)  # which does not count: what is run is read from a disk
        _fill(done, done.before, begin + half_s, still, tell)
        done.seen.append(look(pid, begin))
        done.joined = levers.collapse_all(partial(family, pid), begin, 0.0, Event())
        try:
            still()
            _fill(done, done.after, time.monotonic() + half_s, still, tell)
        except Unavailable as why:
            done.ended = why.text
        except KeyboardInterrupt:
            done.ended = "It was interrupted."
        done.seen.append(look(pid, begin))
    return done


def _fill(
    done: Change,
    side: list[Run],
    limit_s: float,
    still: Callable[[], None],
    tell: Callable[[Change], None],
) -> None:
    while len(side) < MOST_WINDOWS and (
        len(side) < LEAST_WINDOWS or time.monotonic() + side[-1].elapsed_s < limit_s
    ):
        window = _window(done)
        still()  # or what was measured is no longer of it
        side.append(window)
        tell(done)


def _window(done: Change) -> Run:
    window = run(
        done.aim.command,
        LEVERS["none"],
        limit_s=done.aim.minutes * 60,
        share=LOOKS_SHARE,
        metric=done.aim.metric,
    )
    if problem := done.aim.problem(window):
        raise problem
    return window


@contextmanager
def _same(pid: int) -> Iterator[Callable[[], None]]:
    """Holds a process, so that no other of its number is taken for it; gives what raises
    Unavailable("pid-gone") once it has ended."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        raise Unavailable("pid-gone", str(pid)) from None

    def still() -> None:
        if select.select([fd], [], [], 0)[0]:
            raise Unavailable("pid-gone", f"{pid} ended meanwhile")

    try:
        yield still
    finally:
        os.close(fd)


def family(pid: int) -> dict[int, bool]:
    """A process and all that it has started."""
    return {pid: True, **processes.descendants(pid)}


def look(pid: int, start_s: float) -> Look:
    return looks.of(family(pid), lambda pid: False, start_s)


def apart(pid: int, proc: Path = _PROC) -> tuple[str, ...]:
    """Which namespaces of a process are not ours, as those of a container are."""

    def of(who: str, kind: str) -> str:
        try:
            return os.readlink(proc / who / "ns" / kind)
        except OSError:
            return ""

    return tuple(words for kind, words in _SPACES.items() if of(str(pid), kind) != of("self", kind))


def check(pid: int, proc: Path = _PROC) -> None:
    """Raises Unavailable where a process cannot be measured so: pid-gone, pid-denied, pid-refused,
    collapse-denied."""
    stated = procfs.fields(procfs.text(proc / str(pid) / "status"))
    if not stated or stated.get("State", "Z")[0] in "ZX":
        raise Unavailable("pid-gone", str(pid))
    if pid == os.getpid():
        raise Unavailable("pid-refused", f"{pid} is this command itself")
    if pid == 1:
        raise Unavailable(
            "pid-refused", "process 1 starts the others, and has none of their memory"
        )
    if os.getpid() in processes.descendants(pid):
        raise Unavailable("pid-refused", f"{pid} has started this command")
    if stated.get("Tgid") != str(pid):
        raise Unavailable("pid-refused", f"{pid} is a thread of the process {stated.get('Tgid')}")
    if "VmRSS" not in stated:
        raise Unavailable(
            "pid-refused", f"{pid} is a thread of the kernel's, and has no memory of its own"
        )
    try:
        (proc / str(pid) / "smaps_rollup").read_bytes()
    except PermissionError:
        raise Unavailable(
            "pid-denied", f"{pid} is {_owner(int(stated['Uid'].split()[0]))}'s"
        ) from None
    except OSError:  # it ended between the two
        raise Unavailable("pid-gone", str(pid)) from None
    levers.LEVERS["collapse"].check()
    if levers.refusal(pid) == "EPERM":
        raise Unavailable("collapse-denied")


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's
        return f"user {uid}"


def sentences(done: Change) -> list[str]:
    """What came of it, a sentence each: the change first, then by how much it changes by itself."""
    told, what = [], "The time" if done.aim.metric is None else "What is printed"
    if done.before and done.after:
        ratio, drifts = done.ratio(), done.drifts()
        told.append(
            f"{what} after joining is {ratio:.3f} times what it was before, in {len(done.after)} windows after "
            f"{len(done.before)}. There is no pair of the two, so this is no verdict: what would have come without is not known."
        )
        if len(drifts) == 2:
            told.append(
                f"By itself, from the first half of its windows to the second, it changed by {drifts[0] - 1:+.1%} before and by "
                f"{drifts[1] - 1:+.1%} after."
            )
            if abs(log(ratio.value)) <= max(abs(log(drift)) for drift in drifts):
                told.append("So joining changed it by no more than it changes by itself.")
    if done.joined:
        size, took = format_size(done.joined.bytes), format_ns(done.joined.took_s * 1e9)
        told.append(
            f"Collapsing {size} into huge pages took {took}, and cannot be undone."
            if done.joined.bytes
            else "No more of its memory was on huge pages after collapsing than before."
        )
        told += refused(done.joined.errors)
    if done.switched_off:
        told.append(
            "It has transparent huge pages switched off for itself (prctl), and its memory is not joined then."
        )
    if done.apart:
        told.append(
            f"It is in a container or the like, among other {listed(done.apart)}; what is run in each window is not."
        )
    return [*told, *([done.ended] if done.ended else [])]


def rows(done: Change) -> list[tuple[str, str, str]]:
    """What a table shows: the quantity, before, after."""
    told = (
        (lambda value: format_ns(value * 1e9))
        if done.aim.metric is None
        else (lambda value: f"{value:g}")
    )
    looked = [look for look in done.seen if look.processes]

    def shown(say: Callable[[Look], str]) -> tuple[str, str]:
        before, after = [*map(say, looked), "ended", "ended"][:2]
        return before, after

    before, after = (told(median(side)) if side else "ended" for side in done.sides)
    return [
        ("time" if done.aim.metric is None else "what is printed", before, after),
        (
            "on large pages",
            *shown(
                lambda look: (
                    f"{format_size(look.pages.huge_bytes)}, "
                    f"{look.pages.huge_bytes / max(look.pages.resident_bytes, 1):.0%}"
                )
            ),
        ),
        ("resident", *shown(lambda look: format_size(look.pages.resident_bytes))),
        ("page tables", *shown(lambda look: format_size(look.table_bytes))),
    ]


def document(done: Change) -> dict[str, Any]:
    """All of it for a program. Sizes in bytes, times in seconds; the ratio is of after to before."""
    whole = bool(done.before and done.after)
    return {
        "pid": done.pid,
        "command": done.aim.command,
        "lever": "collapse",
        "verdict": None,
        "quantity": "elapsed_s" if done.aim.metric is None else done.aim.metric.pattern,
        "ratio": done.ratio()._asdict() if whole else None,
        "drifts": done.drifts(),
        "before": done.sides[0],
        "after": done.sides[1],
        "pages": [
            {
                "processes": look.processes,
                **look.pages._asdict(),
                "huge_bytes": look.pages.huge_bytes,
                "table_bytes": look.table_bytes,
            }
            for look in done.seen
        ],
        "joined": done.joined and done.joined._asdict(),
        "remarks": sentences(done),
    }
