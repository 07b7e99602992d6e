"""Watch a program from outside: sample what it touches in windows of several lengths, as rarely as
the allowed overhead asks, until it ends or the time is over."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tlb.programs import activity, children
from tlb.programs.activity import ActivitySample, ProcessUsage, samples_after_start
from tlb.programs.guard import running_guard
from tlb.programs.snapshots import new_descendants, process_has_no_thp
from tlb.system import processes, procfs
from tlb.system.reasons import Unavailable

WINDOWS_S = (0.01, 0.1, 1.0)
_SHORT_SAMPLES = 3  # of the shortest window, for one of each other: these show what is hot
# What a sample costs a program, in times of taking it: afterwards each page is walked to again to
# set its bit. Under a hypervisor that takes about as long as the sample (`make bench TABLE=overhead`).
SAMPLE_COST_FACTOR = 2.0
# A program that starts up changes its memory by more than a tenth in a third of a second; one that
# never stops doing so is watched all the same.
_RESIZED, _STILL_S, _MOST_START_S, _LOOK_S = 0.1, 0.3, 10.0, 0.05
_KEPT = 400  # samples; an hour of a small process would have 14,400
_LEAST_PAUSE_S = 0.25  # a person sees no faster change
_ROUNDING = 1e-9  # of a pause that ends exactly when it may
_STEP_S = 1.0  # of a pause, after which the program may have ended


@dataclass
class WatchState:
    """What was seen so far. overhead: the allowed share of the program's time. usage: by PID.
    sampling_s: CPU time that all samples took. left_out_s: windows that did not fit. throttled:
    periods in which its CPU quota was used up. thp_disabled: for the process, by prctl. ports: where it
    accepts connections, 0 for a Unix socket."""

    target: WatchedProgram
    overhead: float
    samples: list[ActivitySample] = field(default_factory=list)
    usage: dict[int, ProcessUsage] = field(default_factory=dict)
    elapsed_s: float = 0.0
    sampling_s: float = 0.0
    left_out_s: tuple[float, ...] = ()
    has_ended: bool = False
    throttled: int = 0
    thp_disabled: bool = False
    ports: frozenset[int] = frozenset()
    _sorted: list[ActivitySample] | None = None  # the list that these are of
    _after_start: list[ActivitySample] = field(default_factory=list)

    @property
    def used(self) -> ProcessUsage:
        """What its processes have used, as far as they were there at a sample."""
        return sum(self.usage.values(), ProcessUsage())

    @property
    def cost(self) -> float:
        """The share of the program's time that sampling has cost."""
        return SAMPLE_COST_FACTOR * self.sampling_s / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def due_s(self) -> float:
        """How long to watch until the samples cost no more than the share allowed."""
        return SAMPLE_COST_FACTOR * self.sampling_s / self.overhead

    @property
    def within_overhead(self) -> bool:
        """Whether samples cost no more than allowed. A single sample, always taken, can."""
        return self.due_s <= self.elapsed_s * (1 + _ROUNDING)

    @property
    def samples_after_start(self) -> list[ActivitySample]:
        """The samples taken after the program had started up; with any sample, at least one."""
        if self._sorted is not self.samples:
            self._sorted, self._after_start = self.samples, samples_after_start(self.samples)
        return self._after_start

    @property
    def used_after_start(self) -> ProcessUsage:
        """What its processes have used since the first of these samples began."""
        return self.used - self.samples_after_start[0].used

    @property
    def after_start_s(self) -> float:
        """The time since the first of these samples began."""
        return self.elapsed_s - self.samples_after_start[0].at_s

    def of(self, window_s: float) -> list[ActivitySample]:
        return [sample for sample in self.samples_after_start if sample.window_s == window_s]

    @property
    def windows_s(self) -> list[float]:
        """The windows with samples, ascending."""
        return sorted({sample.window_s for sample in self.samples_after_start})


def watch(
    target: WatchedProgram,
    seconds: float,
    overhead: float,
    tell: Callable[[WatchState], None],
    pause: Callable[[float], bool] | None = None,
) -> WatchState:
    """Wait until the program has started up, then sample each window in turn, the shortest first,
    until it has ended, `seconds` are over, or Ctrl-C. After each sample the program runs alone
    until sampling is no more than `overhead` of its time. pause: called meanwhile with seconds that
    it may take; returns whether it took any.

    Raises Unavailable (process-gone, not-permitted, program-killed) or KeyboardInterrupt before a first sample."""
    watched, begin = WatchState(target, overhead), time.monotonic()
    watched.thp_disabled = process_has_no_thp(target.pid)
    first: dict[int, activity.ProcessUsage] = {}  # other processes start later, from nothing
    try:
        first[target.pid] = activity.used(target.pid)
        throttled_before = _throttled(target)
        _wait_for_start(target, min(seconds / 2, _MOST_START_S))
        # Reading alone clears no bits, so none has to be set again.
        begun_s = time.thread_time()
        activity.reading_s(target.pids())
        watched.sampling_s = (time.thread_time() - begun_s) / SAMPLE_COST_FACTOR
        while window_s := _next_s(watched, begin + seconds - time.monotonic(), seconds):
            _sample(watched, window_s, begin, first)
            # a process that has ended is in no cgroup, and what was counted stays
            watched.throttled = max(_throttled(target) - throttled_before, watched.throttled)
            tell(watched)
            if not _rest(watched, begin, seconds, pause):
                break
    except (KeyboardInterrupt, Unavailable):  # earlier samples stay
        if not watched.samples:
            if target.ended(0) and (status := target.status()) is not None and status < 0:
                raise Unavailable("program-killed", children.signal_in_words(status)) from None
            raise
    _use(watched, begin, first)
    watched.ports = watched.ports or _ports(target)
    watched.has_ended = target.ended(0)
    return watched


def _wait_for_start(target: WatchedProgram, most_s: float) -> None:
    """Wait until the program's memory stands still, or it has ended; no longer than most_s."""
    begin = still_since = time.monotonic()
    level = 0.0
    while (now := time.monotonic()) - begin < most_s and now - still_since < _STILL_S:
        size = activity.resident_bytes(target.pids())
        if abs(size - level) > _RESIZED * level:
            level, still_since = size, now
        if target.ended(_LOOK_S):
            return


def _sample(
    watched: WatchState, window_s: float, begin: float, first: dict[int, ProcessUsage]
) -> None:
    """Take a sample. Raises Unavailable as `activity.sample` does."""
    target = watched.target
    _use(watched, begin, first)
    at_s, used = watched.elapsed_s, watched.used
    begun_s = time.thread_time()  # the CPU's, because others may run while this one waits
    sample, _ = activity.sample(target.pids(), window_s, target.ended)
    watched.sampling_s += time.thread_time() - begun_s
    _use(watched, begin, first)
    cpu_share = (watched.used - used).cpu_s / (watched.elapsed_s - at_s)
    taken = sample._replace(at_s=at_s, used=used, cpu_share=cpu_share)
    watched.samples = [*watched.samples[-_KEPT:], taken]
    if len(watched.samples) == 1:
        watched.ports = _ports(target)


def _throttled(target: WatchedProgram) -> int:
    from tlb.machine import background  # late: `tlb --help` does not wait for it

    return background.throttled(process=str(target.pid))


def _ports(target: WatchedProgram) -> frozenset[int]:
    from tlb.programs.runs import listening_ports  # late, as in _throttled

    return frozenset(port for pid in target.pids() for port in listening_ports(pid))


def _use(watched: WatchState, begin: float, first: dict[int, ProcessUsage]) -> None:
    watched.elapsed_s = time.monotonic() - begin
    for pid in {watched.target.pid, *watched.target.pids()}:
        with contextlib.suppress(Unavailable):  # it has ended: what was known before stays
            watched.usage[pid] = activity.used(pid) - first.get(pid, ProcessUsage())


def _next_s(watched: WatchState, left_s: float, seconds: float) -> float | None:
    """Return the window to sample next, of those that are no shorter than a sample takes and end
    in time; None if there is none, or another sample would cost too much of all the time.
    The first sample is always taken."""
    # Before the first: two readings, because clearing visits the same pages.
    expected = [sample.took_s for sample in watched.samples_after_start] or [
        2 * SAMPLE_COST_FACTOR * watched.sampling_s
    ]
    sample_s = max(expected)
    fitting = [window_s for window_s in WINDOWS_S if sample_s <= window_s <= left_s]
    watched.left_out_s = tuple(sorted({*WINDOWS_S} - {*fitting} - {*watched.windows_s}))
    if not watched.samples:
        return fitting[0] if fitting else max(sample_s, WINDOWS_S[0])
    if (
        not fitting
        or SAMPLE_COST_FACTOR * (watched.sampling_s + sample_s) > watched.overhead * seconds
    ):
        return None

    def turns(window_s: float) -> int:
        number = len(watched.of(window_s))
        return number // _SHORT_SAMPLES if window_s == fitting[0] else number

    return min(fitting, key=lambda window_s: (turns(window_s), window_s))


def _rest(
    watched: WatchState, begin: float, seconds: float, pause: Callable[[float], bool] | None
) -> bool:
    """Wait until sampling is a small enough share of the time. Return False if the program or the
    time ends before."""
    due_s = max(begin + watched.due_s, time.monotonic() + _LEAST_PAUSE_S)
    while (left_s := min(due_s, begin + seconds) - time.monotonic()) > 0:
        has_paused = bool(pause and pause(min(left_s, _STEP_S)))
        if watched.target.ended(0 if has_paused else min(left_s, _STEP_S)):
            return False
    return due_s < begin + seconds


# --- what is watched: a process that runs already, or a command that is started


class ProcessStart(NamedTuple):
    """How a process is started again. command: [] if none is known; as_user: words before it, if it
    runs as another user. cwd: its folder. input_file: its stdin, "" unless that is a regular file.
    running_s: how long it has run. worker_of: the process of the same program that forked it and
    gave it a title, 0 without one: such a process is not started by a command. has_lost_arguments:
    it has overwritten them, so the command is its file alone."""

    command: list[str]
    cwd: str = "."
    as_user: tuple[str, ...] = ()
    input_file: str = ""
    running_s: float = 0.0
    worker_of: int = 0
    has_lost_arguments: bool = False


@dataclass
class WatchedProgram:
    """The program. pids: its processes now. ended: waits so many seconds for its end, and returns
    whether it has ended. start: how it is started again. status: its exit code if it was started
    here and has ended."""

    pid: int
    pids: Callable[[], list[int]]
    ended: Callable[[float], bool]
    start: ProcessStart
    status: Callable[[], int | None] = lambda: None
    was_started: bool = False


@contextlib.contextmanager
def attached_program(pid: int, proc: Path = activity.PROC) -> Iterator[WatchedProgram]:
    """Yield a process that runs already, with those that it has started; they are left running.
    Raises Unavailable: not-linux, and
    what `activity.check` raises."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    try:
        fd = os.pidfd_open(pid)  # so that no later process with the same PID is taken for it
    except OSError as error:
        activity.check(pid, proc)  # says more, except of a thread's number
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise children.no_pidfd(str(error.strerror)) from None
        raise Unavailable("process-gone", f"process {pid}") from None
    try:
        activity.check(pid, proc)
        start = process_start_of(pid, proc)

        def ended(wait_s: float) -> bool:
            return bool(select.select([fd], [], [], wait_s)[0])

        def running() -> list[int]:
            own = {os.getpid(), *ancestors(os.getpid())}
            started = processes.process_descendants(pid)
            return [pid, *(each for each, runs in started.items() if runs and each not in own)]

        yield WatchedProgram(pid, running, ended, start)
    finally:
        os.close(fd)


def process_start_of(pid: int, proc: Path = activity.PROC) -> ProcessStart:
    """Return how a process's program is started again.

    A program may have overwritten its command line (setproctitle): then its file takes the place of
    the first word, and its arguments are lost. The file of another container, or
    one that was replaced, is reached by the process."""
    folder = proc / str(pid)
    try:
        words = _command_line(folder)
        file, cwd = os.readlink(folder / "exe"), os.readlink(folder / "cwd")
    except OSError:
        return ProcessStart([])
    has_lost_arguments = _argument_count(pid, proc) not in (None, len(words))
    start = ProcessStart(
        [], cwd, _as_user(folder), _input_file(folder), activity.running_s(pid, proc)
    )._replace(has_lost_arguments=has_lost_arguments)
    arguments = [] if has_lost_arguments else words[1:]
    # A link to the file may have another name, which tells the program what to do (busybox).
    if named := _named(words[0], cwd, folder / "exe"):
        while arguments[-1:] == [""]:
            arguments.pop()
        return start._replace(command=[named if "/" in words[0] else words[0], *arguments])
    title = words[0].split(maxsplit=1)[0].rstrip(":") if words[0].strip() else ""
    if title and _named(title, cwd, folder / "exe"):
        file = title
    elif not os.path.exists(file):
        file = str(folder / "exe")
    worker_of = _parent_of_program(pid, proc) if words[0].startswith(f"{title}:") else 0
    return start._replace(command=[file, *filter(None, arguments)], worker_of=worker_of)


def _argument_count(pid: int, proc: Path) -> int | None:
    """Return how many words the command of a process had when it became the program; None where
    that cannot be read.

    Linux puts this number at the start of the stack, as an int on little-endian computers."""
    start = procfs.stack_start(pid, proc)
    try:
        with (proc / str(pid) / "mem").open("rb", buffering=0) as memory:
            memory.seek(start or 0)
            return int.from_bytes(memory.read(4), "little") if start else None
    except (OSError, OverflowError):
        return None


def _command_line(folder: Path) -> list[str]:
    """Return the words of a process's command. They are empty for a moment while it becomes the
    program, and stay so if the program erased them."""
    for _ in range(50):
        if read := (folder / "cmdline").read_bytes():
            break
        time.sleep(0.01)
    return os.fsdecode(read).removesuffix("\0").split("\0")


def _as_user(folder: Path) -> tuple[str, ...]:
    """Return the words that let root start a command as the user of a process; () as this user."""
    owner = folder.stat()
    if os.geteuid() or owner.st_uid == os.geteuid():
        return ()
    return "setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--init-groups", "--"


def _input_file(folder: Path) -> str:
    """Return the stdin of a process if it is a regular file; else ""."""
    with contextlib.suppress(OSError):
        path = os.readlink(folder / "fd/0")
        return path if os.path.isfile(path) else ""
    return ""


def _parent_of_program(pid: int, proc: Path) -> int:
    """Return the parent of a process if it runs the same program; else 0."""
    with contextlib.suppress(OSError, Unavailable):
        parent = activity.parent(pid, proc)
        if os.path.samefile(proc / str(pid) / "exe", proc / str(parent) / "exe"):
            return parent
    return 0


def _named(name: str, cwd: str, file: Path) -> str:
    """Return the path of a program by the name that it was started with in a folder; "" if that is
    another file."""
    path = shutil.which(os.path.join(cwd, name.removeprefix("./")) if "/" in name else name)
    return path if path and os.path.samefile(path, file) else ""


@contextlib.contextmanager
def started_program(command: list[str]) -> Iterator[WatchedProgram]:
    """Start a command without a shell, with empty input, and drop its output. On exit, it and all
    that it started are ended. Raises Unavailable: not-linux, program-missing."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    with running_guard(), processes.adopting():
        before = set(processes.process_descendants(os.getpid()))

        def running() -> list[int]:
            return [pid for pid, runs in new_descendants(before).items() if runs]

        with children.started(command, {}, output=subprocess.DEVNULL) as child:

            def ended(wait_s: float) -> bool:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(wait_s)
                return child.returncode is not None

            try:
                start = ProcessStart(command)
                yield WatchedProgram(
                    child.pid, running, ended, start, lambda: child.returncode, was_started=True
                )
            finally:
                ended(0)  # before `processes.end` reaps it, which would lose its exit code
                processes.end(lambda: new_descendants(before), children.GRACE_S)


def ancestors(pid: int, proc: Path = activity.PROC) -> list[int]:
    """Return the processes that started a process, the nearest first."""
    found = list[int]()
    while (parent := _parent(pid, proc)) > 0:
        found.append(pid := parent)
    return found


def _parent(pid: int, proc: Path) -> int:
    """Return the number of the process that started another; 0 without one."""
    fields = procfs.text(proc / str(pid) / "stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0
