"""Watching a program from outside: looks at what it touches in windows of several lengths, as rare
as their price asks, until it ends or the time is over."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tlb.programs import active, folios, looks
from tlb.programs.active import Sight, Used
from tlb.programs.guard import guarded, watched_over
from tlb.programs.runs import GRACE_S
from tlb.reasons import Unavailable
from tlb.system import processes
from tlb.system.smaps import Mapping

WINDOWS_S = (0.01, 0.1, 1.0, 10.0)
# What a look costs a program, over the look itself: each mark that was cleared is set again as its
# page is walked to. Under a hypervisor that took about as long again as the look (bench: fixed work
# over 1 GiB with looks and without).
PRICE = 2.0
_SETTLED = (
    0.5  # of the most that was resident: a look at less is of a program that is still starting
)
# looks, the last ones: an hour's at the most that there are of a small process would be 14,400
_KEPT = 400
_LEAST_PAUSE_S = 0.25  # nothing changes so fast that a person would see it
_ROUNDING = 1e-9  # of a pause that ends exactly when it may
_STEP_S = 1.0  # a pause's, after which it is asked whether the program still runs


@dataclass
class Target:
    """What is watched. pids: its processes now. ended: waits so many seconds for its end, and says
    whether it has ended. command: what it is called with; status: its exit code once it has ended,
    where it was started here."""

    pid: int
    pids: Callable[[], list[int]]
    ended: Callable[[float], bool]
    command: list[str]
    status: Callable[[], int | None] = lambda: None


@dataclass
class Watched:
    """What came of it so far. overhead: the share of its time that looks may cost a program; each:
    what each process has used; elapsed_s and look_s are since the beginning, look_s of looks alone.
    left_out_s: windows for which there was no time, or which are shorter than a look. folios: which
    part of its base pages lies in folios of which size, or why that is not known; they are looked
    up again at folios_due_s."""

    target: Target
    overhead: float
    sights: list[Sight] = field(default_factory=list)
    each: dict[int, Used] = field(default_factory=dict)
    elapsed_s: float = 0.0
    look_s: float = 0.0
    left_out_s: tuple[float, ...] = ()
    has_ended: bool = False
    folios: dict[str, float] | Unavailable = field(default_factory=dict)
    folios_due_s: float = 0.0

    @property
    def used(self) -> Used:
        """What its processes have used meanwhile, as far as they were there at a look."""
        return sum(self.each.values(), Used())

    @property
    def cost(self) -> float:
        """The share of the time that looks have cost the program."""
        return PRICE * self.look_s / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def due_s(self) -> float:
        """How long to watch for the looks so far to cost no more than the share allowed."""
        return PRICE * self.look_s / self.overhead

    @property
    def within_overhead(self) -> bool:
        """Whether looks cost no more than allowed. One look is made however short the watching, so
        one look alone can cost more."""
        return self.due_s <= self.elapsed_s * (1 + _ROUNDING)

    @property
    def settled(self) -> list[Sight]:
        """The looks at so much of its memory that it had started by then."""
        most = max((sum(sight.mapped.values()) for sight in self.sights), default=0)
        return [sight for sight in self.sights if sum(sight.mapped.values()) >= _SETTLED * most]

    def of(self, window_s: float) -> list[Sight]:
        return [sight for sight in self.settled if sight.window_s == window_s]

    @property
    def windows_s(self) -> list[float]:
        """Those that were looked through, ascending."""
        return sorted({sight.window_s for sight in self.settled})


@contextlib.contextmanager
def running(pid: int, proc: Path = active.PROC) -> Iterator[Target]:
    """A process that runs already, which is left as it is. Raises Unavailable, as `active.check`
    does, and not-linux."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    try:
        fd = os.pidfd_open(pid)  # so that no later process of the same number is taken for it
    except OSError:
        active.check(pid, proc)  # of a thread that is no process: gone
        raise Unavailable("process-gone", f"process {pid}") from None
    try:
        active.check(pid, proc)
        words = (proc / str(pid) / "cmdline").read_bytes().removesuffix(b"\0").split(b"\0")
        yield Target(
            pid,
            lambda: [pid],
            lambda wait_s: bool(select.select([fd], [], [], wait_s)[0]),
            [os.fsdecode(word) for word in words],
        )
    finally:
        os.close(fd)


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[Target]:
    """A command, without a shell, with nothing to read and what it writes dropped; it ends with the
    watching, with all that it started.

    Raises Unavailable: not-linux, program-missing."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    with guarded(), processes.adopting():
        before = set(processes.descendants(os.getpid()))

        def mine() -> dict[int, bool]:
            return looks.own(before)

        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as why:
            raise Unavailable(
                "program-missing", f"{command[0]}: {getattr(why, 'strerror', None) or why}"
            ) from None

        def ended(wait_s: float) -> bool:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(wait_s)
            return child.returncode is not None

        with watched_over(child.pid):
            try:
                yield Target(
                    child.pid,
                    lambda: [pid for pid, runs in mine().items() if runs],
                    ended,
                    command,
                    lambda: child.returncode,
                )
            finally:
                ended(0)  # else its end is taken notice of below, and its exit code is lost
                processes.end(mine, GRACE_S)


def watch(
    target: Target,
    seconds: float,
    overhead: float,
    tell: Callable[[Watched], None],
    pause: Callable[[float], None] | None = None,
) -> Watched:
    """Looks through each window in turn, the shortest first, until the program has ended, `seconds`
    are over, or Ctrl-C. After each look the program runs unseen until looks are no more than
    `overhead` of its time. pause: what is done meanwhile, for so many seconds.

    Raises Unavailable where nothing was seen: process-gone, process-denied. KeyboardInterrupt
    likewise."""
    watched, begin, first = (
        Watched(target, overhead),
        time.monotonic(),
        {target.pid: active.used(target.pid)},
    )
    watched.look_s = (
        active.reading_s(target.pids()) / PRICE
    )  # it clears nothing, so that no bit is set again
    try:
        while window_s := _next_s(watched, begin + seconds - time.monotonic(), seconds):
            watched.sights = [
                *watched.sights[-_KEPT:],
                active.sight(target.pids(), window_s, target.ended, then=partial(_draw, watched)),
            ]
            watched.look_s += watched.sights[-1].look_s
            _use(watched, begin, first)
            tell(watched)
            if not _pays(watched, begin, seconds, pause):
                break
    except (KeyboardInterrupt, Unavailable):  # what was seen before stays
        if not watched.sights:
            raise
    _use(watched, begin, first)
    watched.has_ended = target.ended(0)
    return watched


def _draw(watched: Watched, read: list[tuple[int, list[Mapping]]]) -> None:
    """Looks folios up, at once and then as rarely as the share of the time that looks may take
    asks. The program waits for none of it."""
    begin = time.monotonic()
    if watched.elapsed_s < watched.folios_due_s:
        return
    try:
        watched.folios = folios.shares(read, os.sysconf("SC_PAGE_SIZE"))
    except Unavailable as why:
        watched.folios = why
    watched.folios_due_s = watched.elapsed_s + (time.monotonic() - begin) / watched.overhead


def _use(watched: Watched, begin: float, first: dict[int, Used]) -> None:
    watched.elapsed_s = time.monotonic() - begin
    for pid in {watched.target.pid, *watched.target.pids()}:
        with contextlib.suppress(Unavailable):  # it has ended, and what was known before stays
            watched.each[pid] = active.used(pid) - first.get(
                pid, Used()
            )  # what is not in `first` was started since


def _next_s(watched: Watched, left_s: float, seconds: float) -> float | None:
    """The window that was looked through least often, of those that are no shorter than a look and
    end in time. Before any look, where there is none, as long as a look; else None, as where
    another look would be more than may be paid for in all the time."""
    # Before the first, as long as two readings: clearing goes through the same pages.
    look_s = max(
        [2 * PRICE * watched.look_s]
        if not watched.sights
        else [sight.look_s for sight in watched.settled]
    )
    fitting = [window_s for window_s in WINDOWS_S if look_s <= window_s <= left_s]
    watched.left_out_s = tuple(sorted({*WINDOWS_S} - {*fitting} - {*watched.windows_s}))
    if not watched.sights:
        return fitting[0] if fitting else max(look_s, WINDOWS_S[0])
    if not fitting or PRICE * (watched.look_s + look_s) > watched.overhead * seconds:
        return None
    return min(fitting, key=lambda window_s: (len(watched.of(window_s)), window_s))


def _pays(
    watched: Watched, begin: float, seconds: float, pause: Callable[[float], None] | None
) -> bool:
    """Waits until looks are as small a share of the time as they may be; False where the program or
    the time ends before."""
    due_s = max(begin + watched.due_s, time.monotonic() + _LEAST_PAUSE_S)
    while (left_s := min(due_s, begin + seconds) - time.monotonic()) > 0:
        if pause:
            pause(min(left_s, _STEP_S))
        if watched.target.ended(0 if pause else min(left_s, _STEP_S)):
            return False
    return due_s < begin + seconds
