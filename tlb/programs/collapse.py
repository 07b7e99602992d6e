"""Move the memory of running processes to huge pages from outside, with MADV_COLLAPSE."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import NamedTuple

from tlb.programs import children
from tlb.system import procfs
from tlb.system.processes import collapse_range, error_name, refused_calls
from tlb.system.reasons import Unavailable
from tlb.system.smaps import mappings_of_process

_PROC = Path("/proc")
_HUGE = Path("/sys/kernel/mm/transparent_hugepage")
_CHUNK_BYTES = 64 << 20  # per call, a fifth of a second: afterwards `stop` is looked at again


Processes = Callable[[], dict[int, bool]]  # a program's, by PID, and whether each runs


class Collapsed(NamedTuple):
    """What one collapse did. bytes: growth of AnonHugePages; errors: names, such as EINVAL, or why
    the process's memory could not be read."""

    at_s: float
    took_s: float
    bytes: int
    errors: tuple[str, ...]


def not_permitted() -> Unavailable:
    """Return why another process's memory is not collapsed."""
    return Unavailable(
        "not-permitted",
        "to move another process's memory to large pages by process_madvise",
        "Run the same command as root or with the capabilities CAP_SYS_NICE and CAP_SYS_PTRACE, "
        "where a container's seccomp profile allows process_madvise; or use --lever advise.",
    )


def check() -> None:
    """Raise Unavailable unless a process's memory can be collapsed: linux-lacks without transparent
    huge pages or pidfd_open, no-collapse without process_madvise, not-permitted."""
    if procfs.number(_HUGE / "hpage_pmd_size") is None:
        raise Unavailable("linux-lacks", f"there is no {_HUGE}")
    refused = refused_calls()
    if "pidfd_open" in refused:
        raise children.no_pidfd(refused["pidfd_open"])
    if (why := refused.get("process_madvise")) == "ENOSYS":
        raise Unavailable("no-collapse", "process_madvise: ENOSYS")
    if why:
        raise not_permitted()


def collapse_all(processes: Processes, start_s: float, after_s: float, stop: Event) -> Collapsed:
    """Collapse the memory of all processes that run after_s after start_s (monotonic clock)."""
    stop.wait(max(start_s + after_s - time.monotonic(), 0))
    begin, size_bytes, errors = time.monotonic(), 0, set[str]()
    huge_bytes = procfs.number(_HUGE / "hpage_pmd_size")
    for pid, runs in processes().items():
        if runs and huge_bytes and not stop.is_set():
            more, failed = collapse(pid, huge_bytes, stop)
            size_bytes, errors = size_bytes + more, errors | failed
    return Collapsed(begin - start_s, time.monotonic() - begin, size_bytes, tuple(sorted(errors)))


def collapse(pid: int, huge_bytes: int, stop: Event) -> tuple[int, set[str]]:
    """Collapse the private anonymous memory of a process, where a whole huge page fits.

    Return the growth of its AnonHugePages in bytes, and errors as in `Collapsed`."""
    errors = set[str]()
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0, errors
    before = _anonymous_huge_bytes(pid)
    try:
        for mapping in mappings_of_process(pid, _PROC):
            if not mapping.private_anonymous or mapping.resident_bytes <= mapping.huge_bytes:
                continue
            first = -(-mapping.start // huge_bytes) * huge_bytes
            end = mapping.end // huge_bytes * huge_bytes
            for start in range(first, end, _CHUNK_BYTES):
                chunk_end = min(start + _CHUNK_BYTES, end)
                errors |= _collapse_range(pidfd, start, chunk_end, huge_bytes, stop)
    except Unavailable as why:
        if why.code != "process-gone":
            errors.add(f"{why.code}, {why.detail}")
    finally:
        os.close(pidfd)
    errors.discard("ESRCH")  # it ended meanwhile
    return max(_anonymous_huge_bytes(pid) - before, 0), errors


def _collapse_range(pidfd: int, start: int, end: int, huge_bytes: int, stop: Event) -> set[str]:
    """Collapse a range in one call. If that fails, go page by page, because Linux stops at the
    first huge page in which nothing is mapped. Return the names of errors."""
    if stop.is_set() or not collapse_range(pidfd, start, end - start):
        return set()
    pages = range(start, end, huge_bytes)
    return {collapse_range(pidfd, page, huge_bytes) for page in pages if not stop.is_set()} - {""}


def _anonymous_huge_bytes(pid: int) -> int:
    """Return the AnonHugePages of a process; 0 if it has ended."""
    fields = procfs.fields(procfs.text(_PROC / str(pid) / "smaps_rollup"))
    return procfs.kib(fields.get("AnonHugePages", "")) or 0


def refusal(pid: int) -> str:
    """Return the name of the error that keeps this user from collapsing a process' memory, "" if
    it is allowed. Nothing is collapsed."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        return error_name(error)
    try:
        return collapse_range(pidfd, 0, 0)
    finally:
        os.close(pidfd)
