"""Processes that end with what they started or with who started them, and a thread that runs on one
CPU."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

from tlb.system import procfs

# signals that a child ignores if its parent does; not all systems have all
_PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM")


def restore_signals_for_children() -> None:
    """Give every program that this process starts from now on the default action for signals that
    this process was told to ignore, and none that is blocked.

    `nohup` ignores SIGHUP, and a shell that is not interactive ignores SIGINT and SIGQUIT for what
    it starts with `&`. An ignored signal stays ignored in a child, a caught one does not
    (execve(2)); so they are caught here, to no effect. Call it in the main thread.
    """
    for name in _PASSED_ON:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):  # Windows has none
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


def run_in_own_session(
    command: Sequence[str], *, timeout: float | None, **how: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with its output captured, in a session of its own: on a time limit
    (subprocess.TimeoutExpired), Ctrl-C or any other end of the wait everything that the command
    started is killed, which `subprocess.run` leaves alive.

    Raises OSError where the command does not start. `how` are arguments of subprocess.Popen.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
        **how,
    ) as child:
        try:
            stdout, stderr = child.communicate(timeout=timeout)
        except BaseException:
            _kill_session(child.pid)
            raise
    return subprocess.CompletedProcess(command, child.returncode, stdout, stderr)


def wait_or_kill(child: subprocess.Popen, seconds: float) -> int:
    """Wait for the child to end and return its exit status; after so long it is killed with all
    that it started.

    The child has a session of its own (start_new_session).
    """
    try:
        return child.wait(seconds)
    except BaseException as error:
        _kill_session(child.pid)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
    return child.wait()


def _kill_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def end_first(pid: int) -> None:
    """Let a process end before all others if memory runs out, with what it starts
    (proc_pid_oom_score_adj(5))."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def workers(number: int | None = None, method: str = "spawn") -> ProcessPoolExecutor:
    """A pool of fresh processes of this Python, by default one a CPU, which end with this process
    however it ends: after a kill -9, those of the library wait for work for ever, and hold what
    this process wrote to. method "fork": of copies, which need no imports again."""
    return ProcessPoolExecutor(
        number or os.cpu_count(), get_context(method), initializer=_end_with_parent
    )


def _end_with_parent() -> None:
    if parent := parent_process():
        threading.Thread(
            target=lambda: connection.wait([parent.sentinel]) and os._exit(1), daemon=True
        ).start()


@contextlib.contextmanager
def pinned_to_cpu(cpu: int) -> Iterator[None]:
    """This thread runs on one CPU alone meanwhile; a system that pins no threads leaves it where it
    is. Raises OSError where the thread may not run there."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h
_PR_SET_THP_DISABLE, _PR_GET_THP_DISABLE = 41, 42
_ENDED = frozenset("ZX")  # states of a process in /proc
# A program that answers in hundredths of a second has hung after so long, on a busy machine too.
PROBE_TIMEOUT_S = 120.0
_KILLED_S = 10.0  # for SIGKILL to act; what hangs in the kernel outlives it


def _prctl(option: int, value: object = 0, flags: int = 0) -> int:
    """prctl(2) of this process. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.prctl(option, value, flags, 0, 0)
    if result < 0:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return result


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """What a child of this process starts and leaves becomes a child of this process meanwhile, and
    not of init: so it can be found."""
    before = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, before.value)


@contextlib.contextmanager
def without_thp() -> Iterator[None]:
    """What is started meanwhile has no transparent huge pages, nor has what that starts: the switch
    is inherited by fork and kept by exec. This process is put back.

    The switch is the lowest bit, and the others are its flags, such as
    PR_THP_DISABLE_EXCEPT_ADVISED."""
    before = _prctl(_PR_GET_THP_DISABLE)
    _prctl(_PR_SET_THP_DISABLE, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_THP_DISABLE, before & 1, before & ~1)


def thp_flags() -> int:
    """Return how prctl has disabled transparent huge pages for this process; 0 if it has not, 3 if
    only where memory is not advised (PR_THP_DISABLE_EXCEPT_ADVISED, Linux 6.18)."""
    try:
        return _prctl(_PR_GET_THP_DISABLE)
    except OSError:
        return 0


_PROCESS_MADVISE, _MADV_COLLAPSE = 440, 25  # asm-generic/unistd.h, asm-generic/mman-common.h
_CAP_SYS_NICE = 23  # which process_madvise takes (linux/capability.h)


class _Range(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def collapse_range_of_process(pidfd: int, start: int, size_bytes: int) -> str:
    """Advise MADV_COLLAPSE of a range of another process. Return the error's name, "" if none."""
    libc, part = ctypes.CDLL(None, use_errno=True), _Range(start, size_bytes)
    one = ctypes.c_size_t(1)
    status = libc.syscall(_PROCESS_MADVISE, pidfd, ctypes.byref(part), one, _MADV_COLLAPSE, 0)
    return errno.errorcode[ctypes.get_errno()] if status < 0 else ""


def errno_name(error: OSError) -> str:
    """Return the name of a system call's error, such as EPERM; "" if it has none."""
    return errno.errorcode.get(error.errno or 0, "")


def refused_system_calls() -> dict[str, str]:
    """Return the system calls about another process that this one may not make, with the names of
    the errors. Lack of privilege is no refusal, nor is a kernel older than MADV_COLLAPSE."""
    try:
        pidfd = os.pidfd_open(os.getpid())
    except AttributeError:  # Python was built for a Linux without it
        return {"pidfd_open": "ENOSYS"}
    except OSError as error:
        return {"pidfd_open": errno_name(error)}
    try:
        refused = collapse_range_of_process(pidfd, 0, 0)
    finally:
        os.close(pidfd)
    capabilities = procfs.fields(procfs.text(Path("/proc/self/status"))).get("CapEff", "0")
    may = int(capabilities, 16) >> _CAP_SYS_NICE & 1
    is_refused = refused == "ENOSYS" or (refused == "EPERM" and may)
    return {"process_madvise": refused} if is_refused else {}


def process_descendants(pid: int, proc: Path = Path("/proc")) -> dict[int, bool]:
    """The processes that a process has started, and those that these have, the parents first; and
    whether each still runs, or has ended and waits for its parent to notice."""
    children: dict[int, list[tuple[int, bool]]] = {}
    for child, folder in procfs.numbered(proc, "([0-9]+)"):
        # "12 (a name, of any characters) S 1 ...": the state and the parent follow the last
        # bracket.
        state, parent, *_ = [*procfs.text(folder / "stat").rpartition(")")[2].split()[:2], "", ""]
        if parent.isdigit():
            children.setdefault(int(parent), []).append((child, state not in _ENDED))
    runs: dict[int, bool] = {}
    found = [pid]
    for ancestor in found:  # which grows meanwhile
        for child, running in children.get(ancestor, []):
            found.append(child)
            runs[child] = running
    return runs


def end(processes: Callable[[], dict[int, bool]], grace_s: float) -> int:
    """Ends all processes that `processes` gives at that time, as `process_descendants` does: asked first
    (SIGTERM), killed after `grace_s`; and takes notice of those that are children of this process.
    Returns how many ran."""
    ran: int | None = None
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILLED_S)):
        limit, asked = time.monotonic() + wait_s, set[int]()
        while left := processes():
            ran = sum(left.values()) if ran is None else ran
            for pid, running in left.items():
                if running and pid not in asked:
                    asked.add(pid)
                    # PermissionError: another user's, by setuid
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if time.monotonic() >= limit:
                break
            time.sleep(0.002)
        else:  # none is left
            break
    return ran or 0
