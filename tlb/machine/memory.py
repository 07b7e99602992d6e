"""How much memory a measurement may take: the smallest of what is free, cgroup limits and
RLIMITs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tlb.machine import FrozenModel
from tlb.system import procfs


class ResourceLimits(NamedTuple):
    """The soft limits of this process in bytes; None is unlimited, or a system without them."""

    address_space_bytes: int | None = None
    data_bytes: int | None = None
    memlock_bytes: int | None = None

    @classmethod
    def here(cls) -> ResourceLimits:
        try:
            import resource
        except ImportError:  # Windows reads the site; it has no such limits
            return cls()
        kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_MEMLOCK)
        soft = (resource.getrlimit(kind)[0] for kind in kinds)
        return cls(*(None if limit == resource.RLIM_INFINITY else limit for limit in soft))


# Every kernel sets aside that much address space beside its arena, to align it (kernels/arena.h,
# reserve_addresses()).
_ALIGNMENT_BYTES = 1 << 30


class Memory(FrozenModel):
    """What memory there is. A measurement takes half of `usable_bytes` at most, so nothing swaps or
    dies.

    available_bytes: the kernel's own estimate (MemAvailable of /proc/meminfo). usable_bytes: the
    smallest of it and every limit; limit_source names which. Both are 0 where nothing states them.
    A pool's pages are in neither: what limits them beside the pool itself is address_space_bytes,
    of which None is no limit.
    """

    total_bytes: int
    available_bytes: int
    usable_bytes: int
    limit_source: str
    memlock_bytes: int | None = None
    address_space_bytes: int | None = None  # what RLIMIT_AS and RLIMIT_DATA leave for an arena


def usable_memory(root: Path = Path("/"), rlimits: ResourceLimits | None = None) -> Memory:
    """The memory that /proc and /sys under `root` show, limited by cgroups and `rlimits` (default:
    ours)."""
    rlimits = rlimits or ResourceLimits.here()
    meminfo = procfs.fields(procfs.text(root / "proc/meminfo"))
    available, source = procfs.kib(meminfo.get("MemAvailable", "")), "MemAvailable"
    if available is None:  # Linux before 3.14 has no estimate; what is free errs on the safe side
        available, source = procfs.kib(meminfo.get("MemFree", "")), "MemFree"
    known = [(available, source)] if available is not None else []
    known += _rooms(root)
    own = []
    if rlimits.address_space_bytes is not None:
        own.append((max(rlimits.address_space_bytes - _ALIGNMENT_BYTES, 0), "RLIMIT_AS"))
    if rlimits.data_bytes is not None:
        own.append((rlimits.data_bytes, "RLIMIT_DATA"))
    usable, limit_source = min([*known, *own], default=(0, "unknown"))
    return Memory(
        total_bytes=procfs.kib(meminfo.get("MemTotal", "")) or _total_bytes(root),
        available_bytes=available or 0,
        usable_bytes=usable,
        limit_source=limit_source,
        memlock_bytes=rlimits.memlock_bytes,
        address_space_bytes=min(own)[0] if own else None,
    )


def _total_bytes(root: Path) -> int:
    """Return the memory of this computer by sysinfo(2), which is MemTotal too; 0 elsewhere."""
    is_here = root == Path("/") and sys.platform == "linux"
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if is_here else 0


_DEEPEST = 64  # levels of nesting; real trees have fewer than ten
# Version 1 has no word for "no limit" and states nearly 2^63 (PAGE_COUNTER_MAX,
# linux/page_counter.h).
_UNLIMITED_BYTES = 1 << 62
# Of pages in use, and of pages that a mapping reserves
_HUGETLB = re.compile(r"hugetlb\.[0-9]+[KMG]B\.(rsvd\.)?(max|limit_in_bytes)")


class _Version(NamedTuple):
    """The files of one version of the memory cgroup (Linux,
    Documentation/admin-guide/cgroup-v{1,2})."""

    name: str
    limits: tuple[str, ...]
    usage: str
    page_cache: tuple[str, ...]  # lines of memory.stat, reclaimed when the limit presses


# memory.high is no hard limit, but beyond it the kernel throttles, which no measurement survives.
# v1 counts usage with the children's, so the total_ lines belong to it.
_V2 = _Version(
    "cgroup v2", ("memory.max", "memory.high"), "memory.current", ("active_file", "inactive_file")
)
_V1 = _Version(
    "cgroup v1",
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)


def cgroup_limits(root: Path, controller: str) -> dict[str, int]:
    """File -> the smallest limit in bytes that it states, from this process's cgroup up to the
    root. Unlimited files are left out.

    controller: "memory", or "hugetlb", whose files name a page size: {"hugetlb.2MB.max":
    1073741824}.
    """
    limits: dict[str, int] = {}
    for version, folder in cgroup_folders(root, controller):
        names = sorted(version.limits)
        if controller == "hugetlb":
            names = [name for name in procfs.names(folder) if _HUGETLB.fullmatch(name)]
        for name in names:
            if (limit := _limit(folder / name)) is not None:
                limits[name] = min(limit, limits.get(name, limit))
    return limits


def _limit(path: Path) -> int | None:
    """A limit in bytes; None for "max", and without the file."""
    limit = procfs.number(path)
    return limit if limit is not None and limit < _UNLIMITED_BYTES else None


def cgroup_folders(
    root: Path, controller: str, process: str = "self"
) -> Iterator[tuple[_Version, Path]]:
    """The folder of a process's cgroup and those of its ancestors, in each version's tree that
    has the controller."""
    mounts = _cgroup_mounts(root, controller)
    for line in procfs.text(root / "proc" / process / "cgroup").split("\n"):
        hierarchy, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        version = _V2 if hierarchy == "0" else _V1 if controller in controllers.split(",") else None
        if version and colon and version in mounts:
            for folder in _upwards(*mounts[version], PurePosixPath(path)):
                yield version, folder


def _rooms(root: Path) -> Iterator[tuple[int, str]]:
    """(bytes left, "cgroup v2 memory.max") for each limit from this process's cgroup up to the
    root."""
    for version, folder in cgroup_folders(root, "memory"):
        # the root cgroup of v2 has neither usage nor limit
        usage = procfs.number(folder / version.usage) or 0
        stat = procfs.text(folder / "memory.stat").split("\n")
        lines = dict(line.partition(" ")[::2] for line in stat)
        cache = sum(procfs.leading_number(lines.get(n, "")) or 0 for n in version.page_cache)
        for name in version.limits:
            if (limit := _limit(folder / name)) is not None:
                yield max(limit - max(usage - cache, 0), 0), f"{version.name} {name}"


def _upwards(mount: Path, mount_root: PurePosixPath, path: PurePosixPath) -> Iterator[Path]:
    """The folders of a cgroup and of all its ancestors that this mount shows. The path is seen from
    the cgroup namespace: in a container the mount may show less, or the path lie outside ("/../x");
    then the mount's own top is the nearest ancestor."""
    try:
        inside = path.relative_to(mount_root)
    except ValueError:
        inside = PurePosixPath()
    parts = () if ".." in inside.parts else inside.parts[:_DEEPEST]
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])


def _cgroup_mounts(root: Path, controller: str) -> dict[_Version, tuple[Path, PurePosixPath]]:
    """Where each version is mounted, and which cgroup the mount shows as its top (mountinfo in
    proc(5))."""
    mounts: dict[_Version, tuple[Path, PurePosixPath]] = {}
    for line in procfs.text(root / "proc/self/mountinfo").split("\n"):
        before, _, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if len(left) < 5 or len(right) < 3:
            continue
        is_v1 = right[0] == "cgroup" and controller in right[2].split(",")
        version = _V2 if right[0] == "cgroup2" else _V1 if is_v1 else None
        top, mount = procfs.unescape(left[3]), procfs.unescape(left[4])
        if version and ".." not in PurePosixPath(mount).parts:
            mounts.setdefault(version, (root / mount.lstrip("/"), PurePosixPath(top)))
    return mounts
