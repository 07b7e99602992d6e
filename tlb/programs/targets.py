"""The programs that are watched: a process that runs already, or a command that is started."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tlb.programs import activity, children
from tlb.programs.guard import guarded
from tlb.programs.snapshots import own_processes
from tlb.system import processes
from tlb.system.reasons import Unavailable


@dataclass
class Target:
    """The program. pids: its processes now. ended: waits so many seconds for its end, and returns
    whether it has ended. command: starts it again, in the folder `cwd`; [] if none is known.
    status: its exit code if it was started here and has ended."""

    pid: int
    pids: Callable[[], list[int]]
    ended: Callable[[float], bool]
    command: list[str]
    status: Callable[[], int | None] = lambda: None
    cwd: str = "."
    was_started: bool = False


@contextlib.contextmanager
def attached(pid: int, proc: Path = activity.PROC) -> Iterator[Target]:
    """Yield a process that runs already, and is left running. Raises Unavailable: not-linux, and
    what `activity.check` raises."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    try:
        fd = os.pidfd_open(pid)  # so that no later process with the same PID is taken for it
    except OSError as error:
        activity.check(pid, proc)  # says more, except of a thread's number
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise Unavailable("no-pidfd", str(error.strerror)) from None
        raise Unavailable("process-gone", f"process {pid}") from None
    try:
        activity.check(pid, proc)
        command, cwd = command_again(pid, proc)

        def ended(wait_s: float) -> bool:
            return bool(select.select([fd], [], [], wait_s)[0])

        yield Target(pid, lambda: [pid], ended, command, cwd=cwd)
    finally:
        os.close(fd)


def command_again(pid: int, proc: Path = activity.PROC) -> tuple[list[str], str]:
    """Return a command that starts a process's program again, and the folder to start it in; [] if
    that is not known, as of another container's.

    A program may have overwritten its command line (setproctitle): then its file takes the place of
    the first word, and words without a character are left out."""
    folder = proc / str(pid)
    try:
        words = os.fsdecode((folder / "cmdline").read_bytes()).removesuffix("\0").split("\0")
        file, cwd = os.readlink(folder / "exe"), os.readlink(folder / "cwd")
    except OSError:
        return [], "."
    # A link to the file may have another name, which tells the program what to do (busybox).
    named = shutil.which(os.path.join(cwd, words[0]) if "/" in words[0] else words[0])
    if named and os.path.samefile(named, folder / "exe"):
        while words[-1:] == [""]:
            words.pop()
        return [named if "/" in words[0] else words[0], *words[1:]], cwd
    return [file, *filter(None, words[1:])] if os.path.exists(file) else [], cwd


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[Target]:
    """Start a command without a shell, with empty input, and drop its output. On exit, it and all
    that it started are ended. Raises Unavailable: not-linux, program-missing."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    with guarded(), processes.adopting():
        before = set(processes.descendants(os.getpid()))

        def running() -> list[int]:
            return [pid for pid, runs in own_processes(before).items() if runs]

        with children.started(command, {}, output=subprocess.DEVNULL) as child:

            def ended(wait_s: float) -> bool:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(wait_s)
                return child.returncode is not None

            try:
                yield Target(
                    child.pid, running, ended, command, lambda: child.returncode, was_started=True
                )
            finally:
                ended(0)  # before `processes.end` reaps it, which would lose its exit code
                processes.end(lambda: own_processes(before), children.GRACE_S)
