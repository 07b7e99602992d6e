"""The pools of huge pages: list them, let one grow, put them back (see `machine.changed_settings`)."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from tlb.machine import background, changed_settings, memory, settings
from tlb.machine.changed_settings import SettingChange
from tlb.machine.settings import HugePagePool
from tlb.system import procfs
from tlb.system.reasons import Unavailable, explain_reason
from tlb.system.units import format_size, page_size_name, parse_size

_POOLS = "sys/kernel/mm/hugepages"
_SHORT_REMEDY = (
    "Reserve fewer, or free memory (end programs, `echo 1 | sudo tee "
    "/proc/sys/vm/compact_memory`) and try again; 1g pages are certain only at boot "
    "(hugepagesz=1G hugepages=4)."
)


class Reserved(NamedTuple):
    """What `reserve` found or made: `wanted` pages were to be free, `free` are. `why` says what is
    missing and the remedy, or ""."""

    page: str
    wanted: int
    free: int
    total: int
    added: int
    why: str


class RestoredPool(NamedTuple):
    """A pool's pages before and after `restore`. why: what is not as it was, and the remedy, or
    ""."""

    page: str
    found: int
    total: int
    why: str


def look(root: Path = Path("/")) -> dict[str, HugePagePool]:
    """Return the pools by page size ("2m", "1g"), the smallest first."""
    return {pool.page: pool for pool in settings.pools(root)}


def changes(root: Path = Path("/")) -> dict[str, SettingChange]:
    """Return what `reserve` changed, by page size. Raises Unavailable("file-damaged")."""
    return {_page(name): change for name, change in changed_settings.changes(root, "pool").items()}


def check(page: str, root: Path = Path("/")) -> None:
    """Raise Unavailable unless a pool of `page` has a free page: page-size-unsupported,
    pool-empty."""
    if not _pool(root, page).left:
        raise Unavailable("pool-empty", page)


def reserve(page: str, size_bytes: int, root: Path = Path("/")) -> Reserved:
    """Let the pool of `page` grow until `size_bytes` of it are free; it never shrinks.

    Linux may give fewer pages: see `why`. Raises Unavailable: page-size-unsupported without such a
    pool, setting-refused with the command for sudo, pool-empty if memory is too small, file-damaged.
    """
    wanted = -(-size_bytes // _page_bytes(page))
    pool = _pool(root, page)
    if pool.left >= wanted:  # which takes no root
        return Reserved(page, wanted, pool.left, pool.total, 0, _limited(root, page, size_bytes))
    size = f"{wanted * int(page[:-1])}{page[-1].upper()}iB"  # in the page's own unit, so exact
    _may_write(root, _name(page), "reserve", "--pages", page, "--size", size)
    why = ""
    with changed_settings.alone(root):
        total = _pool(root, page).total
        missing = wanted - _pool(root, page).left
        if missing > 0:
            _fits(root, missing * _page_bytes(page))
            # Linux turns surplus pages, which are in use, into persistent ones before it makes
            # free ones.
            refused = changed_settings.change(root, "pool", _name(page), str(total + missing))
            free = _pool(root, page).left
            if free < wanted:
                got = [f"{free} of {wanted} pages of {page} are free", refused]
                why = explain_reason("pool-empty", "; ".join(filter(None, got)), _SHORT_REMEDY)
        pool = _pool(root, page)
    why = why or _limited(root, page, size_bytes)
    return Reserved(page, wanted, pool.left, pool.total, pool.total - total, why)


def _limited(root: Path, page: str, size_bytes: int) -> str:
    """Why this process's cgroup may not use so much of a pool, and the remedy, or ""."""
    limits = cgroup_limits_below(page, size_bytes, root)
    return str(limited(limits)) if limits else ""


def limited(limits: str) -> Unavailable:
    """Return why a process gets no page, or not so many, of a pool: its cgroup's limits, in words."""
    return Unavailable(
        "pool-empty",
        f"to this process, whose cgroup limits it: {limits}",
        "Raise the hugetlb limit in the settings of this container or service.",
    )


def cgroup_limits_below(page: str, size_bytes: float, root: Path = Path("/")) -> str:
    """Return in words the limits of this process's cgroup on the pages of one size that are under
    so many bytes; "" for none."""
    limits = memory.cgroup_limits(root, "hugetlb").items()  # such as hugetlb.2MB.max
    return ", ".join(
        f"{name} is {format_size(most)}"
        for name, most in limits
        if name.split(".")[1].lower() == f"{page}b" and most < size_bytes
    )


def default_page(root: Path = Path("/")) -> str:
    """Return the size of the pages that a program gets from a pool if it names none, "" without
    pools: 2m, unless Linux was booted with default_hugepagesz."""
    meminfo = procfs.fields(procfs.text(root / "proc/meminfo"))
    size_bytes = procfs.kib(meminfo.get("Hugepagesize", ""))
    return page_size_name(size_bytes) if size_bytes else ""


def available(page: str, root: Path = Path("/")) -> int:
    """Return the pages of one size that a new mapping can get: those left in the pool, and those
    that Linux may add to it (vm.nr_overcommit_hugepages)."""
    if (pool := look(root).get(page)) is None:
        return 0
    most = procfs.number((root / _name(page)).with_name("nr_overcommit_hugepages")) or 0
    return pool.left + max(0, most - pool.surplus)


def restore(root: Path = Path("/")) -> list[RestoredPool]:
    """Put every pool back that `reserve` changed, if its size is still ours; [] if none was."""
    before = look(root)
    for name in changed_settings.changes(root, "pool"):
        _may_write(root, name, "restore")
    done, after = changed_settings.restore(root, "pool"), look(root)
    pages = [(_page(one.name), one.why) for one in reversed(done)]
    return [RestoredPool(page, before[page].total, after[page].total, why) for page, why in pages]


def _page_bytes(page: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,5}[kmg]", page):
        shown = procfs.label(page)
        raise Unavailable("bad-parameter", f"--pages is a size such as 2m or 1g, not {shown!r}")
    return parse_size(page)


def _name(page: str) -> str:
    return f"{_POOLS}/hugepages-{_page_bytes(page) // 1024}kB/nr_hugepages"


def _page(name: str) -> str:
    found = re.search(r"hugepages-([0-9]+)kB", name)
    assert found, name
    return page_size_name(int(found[1]) * 1024)


def _pool(root: Path, page: str) -> HugePagePool:
    cpu = procfs.fields(procfs.text(root / "proc/cpuinfo"))
    flags = cpu.get("flags", "").split()  # arm64 has none of that name
    if page == "1g" and flags and "pdpe1gb" not in flags:
        raise Unavailable("page-size-unsupported", "1g, and this CPU lacks pdpe1gb")
    pools = look(root)
    if page not in pools:
        sizes = ", ".join(pools) or "no size"
        raise Unavailable("page-size-unsupported", f"{page}; there are pools of {sizes}")
    return pools[page]


def _fits(root: Path, size_bytes: int) -> None:
    """Refuse more than there is: on the way to it, Linux would take all memory from everybody."""
    meminfo = procfs.fields(procfs.text(root / "proc/meminfo"))
    available = procfs.kib(meminfo.get("MemAvailable", ""))
    if available is not None and size_bytes > available:
        short = f"{format_size(size_bytes)} more asked, {format_size(available)} available"
        raise Unavailable(
            "pool-empty",
            f"Linux cannot provide that many: {short}; nothing was changed",
            _SHORT_REMEDY,
        )


def _may_write(root: Path, name: str, *arguments: str) -> None:
    try:
        changed_settings.may_write(root, name)
    except Unavailable as denied:
        if background.user_namespace(root).startswith("on"):
            raise
        # sudo has a PATH of its own: the program is named in full.
        program = Path(sys.executable).with_name("tlb")
        if not program.exists():
            program = Path(sys.argv[0]).absolute()
        command = shlex.join(["sudo", str(program), "pool", *arguments])
        raise Unavailable(
            "setting-refused",
            f"only root may change a pool: {denied.detail}: `{command}`",
            "Run the command in brackets; if a container's /sys is read-only, run it on the host.",
        ) from denied
