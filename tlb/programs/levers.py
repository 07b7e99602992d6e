"""The levers: each a way of giving a program other pages without changing it, and how to see from
outside that it reached the program."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import NamedTuple

from tlb.lab.build import library
from tlb.machine import pools
from tlb.reasons import Unavailable
from tlb.system import procfs
from tlb.system.processes import without_thp
from tlb.system.smaps import mappings

SHIM = Path(__file__).parent / "shim" / "advise.c"
_PROC = Path("/proc")
_HUGE = Path("/sys/kernel/mm/transparent_hugepage")
_PROCESS_MADVISE, _MADV_COLLAPSE = 440, 25  # asm-generic/unistd.h, asm-generic/mman-common.h
_AT_ONCE_BYTES = (
    64 << 20
)  # collapsed by one call: a fifth of a second, after which one may be told to stop
_SMAPS_BYTES = 1 << 26  # 65,530 mappings, which is vm.max_map_count, of 800 bytes each, and some


class Joined(NamedTuple):
    """What was done to a program from outside. bytes: how much more of its memory lies on huge
    pages afterwards, by AnonHugePages; errors: by name."""

    at_s: float
    took_s: float
    bytes: int
    errors: tuple[str, ...]


Around = Callable[[], AbstractContextManager[Mapping[str, str]]]
Processes = Callable[[], dict[int, bool]]


@dataclass(frozen=True)
class Lever:
    """does: what it does, in words that follow "with". around: holds while the program runs and
    gives what is added to its environment. starting: holds while it is started, and is inherited.
    reached: whether it can be seen in a process; seen: whether that can be told at all. acts: what
    it does to a running program, given its processes, when that was started, when to act, and when
    to stop. check: raises Unavailable where this computer lacks what it takes."""

    name: str
    does: str
    around: Around
    reached: Callable[[int], bool] = lambda pid: False
    seen: bool = True
    acts: Callable[[Processes, float, float, Event], Joined] | None = None
    check: Callable[[], object] = lambda: None
    starting: Callable[[], AbstractContextManager[object]] = nullcontext


def added(name: str, value: str, between: str) -> dict[str, str]:
    """A variable with a value after what the environment has of it already."""
    return {name: f"{os.environ[name]}{between}{value}" if os.environ.get(name) else value}


def _with(name: str = "", value: str = "", between: str = "") -> Around:
    """A variable in the environment: after what is there, or in its place where nothing may stand
    between; or none at all."""

    @contextmanager
    def around() -> Iterator[Mapping[str, str]]:
        yield added(name, value, between) if between else {name: value} if name else {}

    return around


# Large pages for what malloc takes from the kernel (glibc 2.35). A thread's heap, and one of many
# blocks, grow by less than a large page at a time unless told; and what may be mapped by itself is
# set to where glibc's own adapting ends, which setting the pad would stop.
_GROWTH = ":".join(
    f"glibc.malloc.{setting}"
    for setting in ("top_pad=0x4000000", "mmap_threshold=0x2000000", "trim_threshold=0x4000000")
)
_MALLOC = "glibc.malloc.hugetlb=1"


@contextmanager
def _advised() -> Iterator[Mapping[str, str]]:
    """Preloads the shim. The loader takes spaces and colons for the end of a path, so a checkout
    under such a path is reached by a link."""
    shim = library(SHIM)
    with tempfile.TemporaryDirectory(prefix="tlb-try-") as folder:
        if set(" :") & set(str(shim)):
            link = Path(folder) / shim.name
            link.symlink_to(shim)
            shim = link
        before = os.environ.get("LD_PRELOAD")
        yield {"LD_PRELOAD": f"{shim}:{before}" if before else str(shim)} | added(
            "GLIBC_TUNABLES", f"{_MALLOC}:{_GROWTH}", ":"
        )


def _maps_shim(pid: int) -> bool:
    return bool(
        re.search(
            rf"/{SHIM.stem}-[0-9a-f]{{16}}$", procfs.text(_PROC / str(pid) / "maps"), re.MULTILINE
        )
    )


def _has_no_thp(pid: int) -> bool:
    return procfs.fields(procfs.text(_PROC / str(pid) / "status")).get("THP_enabled") == "0"


class _Range(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def collapse(pid: int, huge_bytes: int, stop: Event) -> tuple[int, set[str]]:
    """Put a process' private anonymous memory on huge pages, where a whole one fits. Return by how
    many bytes its AnonHugePages grew, and the names of errors."""
    errors = set[str]()
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0, errors
    before = _anonymous_huge_bytes(pid)
    try:
        whole = mappings(procfs.text(_PROC / str(pid) / "smaps", _SMAPS_BYTES))
        for mapping in (
            m for m in whole if m.private_anonymous and m.resident_bytes > m.huge_bytes
        ):
            end = mapping.end // huge_bytes * huge_bytes
            for start in range(-(-mapping.start // huge_bytes) * huge_bytes, end, _AT_ONCE_BYTES):
                errors |= _collapse_range(
                    process, start, min(start + _AT_ONCE_BYTES, end), huge_bytes, stop
                )
    except ValueError:  # it ended meanwhile, and its smaps is empty
        pass
    finally:
        os.close(process)
    return max(_anonymous_huge_bytes(pid) - before, 0), errors


def _collapse_range(process: int, start: int, end: int, huge_bytes: int, stop: Event) -> set[str]:
    """Collapse a range in one call; where that fails, huge page by huge page, because Linux stops
    at the first one of which nothing is mapped. Return the names of errors."""
    if stop.is_set() or not _collapse(process, start, end - start):
        return set()
    return {
        _collapse(process, page, huge_bytes)
        for page in range(start, end, huge_bytes)
        if not stop.is_set()
    } - {""}


def _collapse(process: int, start: int, size_bytes: int) -> str:
    """Advise MADV_COLLAPSE of a range of another process, given by its pidfd. Return the name of
    the error, "" without one."""
    libc, part = ctypes.CDLL(None, use_errno=True), _Range(start, size_bytes)
    done = libc.syscall(
        _PROCESS_MADVISE, process, ctypes.byref(part), ctypes.c_size_t(1), _MADV_COLLAPSE, 0
    )
    return errno.errorcode[ctypes.get_errno()] if done < 0 else ""


def _anonymous_huge_bytes(pid: int) -> int:
    """Return a process' AnonHugePages; 0 for one that has ended."""
    return (
        procfs.kib(
            procfs.fields(procfs.text(_PROC / str(pid) / "smaps_rollup")).get("AnonHugePages", "")
        )
        or 0
    )


def refusal(pid: int) -> str:
    """The name of the error by which this user may not join a process' memory; "" where that is
    allowed. Nothing is joined."""
    try:
        process = os.pidfd_open(pid)
    except OSError as why:
        return errno.errorcode[why.errno]
    try:
        return _collapse(process, 0, 0)
    finally:
        os.close(process)


def collapse_all(processes: Processes, start_s: float, after_s: float, stop: Event) -> Joined:
    """Puts the memory of all processes that run then on large pages, after_s after start_s of the
    clock, until `stop`."""
    stop.wait(max(start_s + after_s - time.monotonic(), 0))
    begin, joined, errors = time.monotonic(), 0, set[str]()
    huge_bytes = procfs.number(_HUGE / "hpage_pmd_size")
    for pid in [
        pid for pid, runs in processes().items() if runs and not stop.is_set() and huge_bytes
    ]:
        more, wrong = collapse(pid, huge_bytes, stop)
        joined, errors = joined + more, errors | wrong
    return Joined(begin - start_s, time.monotonic() - begin, joined, tuple(sorted(errors)))


def _thp_allowed() -> None:
    if (setting := procfs.chosen(_HUGE / "enabled")) not in ("always", "madvise"):
        raise Unavailable("thp-never", f"{_HUGE}/enabled: {setting}")


def _pool_filled() -> None:
    if not any(pool.free for pool in pools.look().values()):
        raise Unavailable("pool-empty")


def _can_join() -> None:
    if procfs.number(_HUGE / "hpage_pmd_size") is None:
        raise Unavailable("no-collapse", f"there is no {_HUGE}")


LEVERS = {
    lever.name: lever
    for lever in (
        Lever("none", "nothing changed", _with(), seen=False),
        Lever(
            "advise",
            "large pages asked for as memory is mapped, by a preloaded library and glibc's malloc",
            _advised,
            _maps_shim,
            check=_thp_allowed,
        ),
        Lever(
            "advise-control",
            "glibc's malloc growing as with advise, on the pages it has",
            _with("GLIBC_TUNABLES", _GROWTH, ":"),
            seen=False,
        ),
        Lever(
            "collapse",
            "memory put on large pages from outside while it runs",
            _with(),
            seen=False,
            acts=collapse_all,
            check=_can_join,
        ),
        Lever(
            "malloc",
            "large pages asked for by glibc's malloc",
            _with("GLIBC_TUNABLES", _MALLOC, ":"),
            seen=False,
            check=_thp_allowed,
        ),
        Lever(
            "malloc-pool",
            "glibc's malloc on the pool of huge pages",
            _with("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2", ":"),
            seen=False,
            check=_pool_filled,
        ),
        Lever(
            "no-thp",
            "transparent huge pages switched off for it",
            _with(),
            _has_no_thp,
            starting=without_thp,
        ),
        Lever(
            "jvm",
            "a JVM's heap on transparent huge pages",
            _with("JAVA_TOOL_OPTIONS", "-XX:+UseTransparentHugePages", " "),
            seen=False,
            check=_thp_allowed,
        ),
        Lever(
            "jvm-pool",
            "a JVM's heap on the pool of huge pages",
            _with("JAVA_TOOL_OPTIONS", "-XX:+UseLargePages", " "),
            seen=False,
            check=_pool_filled,
        ),
        Lever(
            "jemalloc",
            "large pages asked for by jemalloc",
            _with("MALLOC_CONF", "thp:always", ","),
            seen=False,
            check=_thp_allowed,
        ),
        Lever(
            "node-text",
            "Node's own code on large pages",
            _with("NODE_OPTIONS", "--use-largepages=silent", " "),
            seen=False,
            check=_thp_allowed,
        ),
        Lever(
            "numpy-off",
            "NumPy not asking for large pages",
            _with("NUMPY_MADVISE_HUGEPAGE", "0"),
            seen=False,
        ),
    )
}


def lever(name: str, settings: list[str]) -> Lever:
    """A lever by its name; or, under the name "env", variables of the environment as NAME=VALUE.
    Raises Unavailable("bad-parameter")."""
    if settings:
        pairs = [setting.partition("=") for setting in settings]
        if wrong := [
            setting
            for setting, (variable, sign, _) in zip(settings, pairs, strict=True)
            if not variable or not sign
        ]:
            raise Unavailable("bad-parameter", f"--env takes NAME=VALUE, not '{wrong[0]}'")

        @contextmanager
        def around() -> Iterator[Mapping[str, str]]:
            yield {variable: value for variable, _, value in pairs}

        return Lever("env", " ".join(settings), around, seen=False)
    if name not in LEVERS:
        raise Unavailable(
            "bad-parameter", f"there is no lever '{name}'; there are {', '.join(LEVERS)}"
        )
    LEVERS[name].check()
    return LEVERS[name]
