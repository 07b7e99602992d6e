"""mapping: memory requested in one of Linux's ways and written; then it waits, so that its smaps
can be read.

    mapping.py WAY BYTES FOLDER

Prints one JSON line: address and bytes of the requested part, and bytes of the mapping. Exit 2: bad
arguments; 3: Linux refuses the memory; 4: this process may not mount a file system. Mounts are in a
namespace of their own; files in FOLDER are already unlinked.
"""

import ctypes
import json
import mmap
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

HUGE_PAGE, ARENA, BASE_PAGE = 2 << 20, 100 << 10, mmap.PAGESIZE
PRIVATE, SHARED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
POOL_2MB = 0x40000 | 21 << 26  # MAP_HUGETLB and the size's logarithm, linux/mman.h
CLONE_NEWNS, CLONE_NEWUSER, MS_PRIVATE_RECURSIVE = 0x20000, 0x10000000, 1 << 18 | 1 << 14


class Region:
    """A mapping, aligned to huge pages from `start` on if it has spare room; advised, written:
    bytes from there."""

    def __init__(
        self,
        size: int,
        flags: int = PRIVATE,
        file: int = -1,
        advised: int = 0,
        written: int | None = None,
        spare: int = HUGE_PAGE,
    ):
        self.size = size
        self.map = mmap.mmap(file, size + spare, flags=flags)
        whole = ctypes.c_char.from_buffer(self.map)
        self.start = -ctypes.addressof(whole) % HUGE_PAGE if spare else 0
        self.address = ctypes.addressof(whole) + self.start
        if advised:
            self.map.madvise(mmap.MADV_HUGEPAGE, self.start, advised)
        for at in range(self.start, self.start + (size if written is None else written), BASE_PAGE):
            self.map[at] = 1


def _sized(file: int, size: int, advised: int = 0) -> Region:
    """The file's first bytes, mapped shared; where the kernel puts it is where programs get it."""
    os.ftruncate(file, size)
    return Region(size, mmap.MAP_SHARED, file, advised, spare=0)


def _mounted(folder: Path, kind: str, options: str) -> Path:
    """The folder with a file system of this process alone on it."""
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if user else 0)):
        _refuse(4, os.strerror(ctypes.get_errno()))
    if user:  # as root of a namespace of users, which not every kernel lets one be
        for name, text in (
            ("uid_map", f"0 {user} 1"),
            ("setgroups", "deny"),
            ("gid_map", f"0 {group} 1"),
        ):
            try:
                Path("/proc/self", name).write_text(text)
            except OSError as error:
                _refuse(4, os.strerror(error.errno or 0))
    if libc.mount(b"none", b"/", None, MS_PRIVATE_RECURSIVE, None) or libc.mount(
        b"none", bytes(folder), kind.encode(), 0, options.encode()
    ):
        _refuse(4, os.strerror(ctypes.get_errno()))
    return folder


def _refuse(status: int, why: str) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(status)


def _dropped(size: int) -> Region:
    """Advised, and one base page in its second half given back."""
    region = Region(size, advised=size)
    region.map.madvise(mmap.MADV_DONTNEED, region.start + size * 3 // 4, BASE_PAGE)
    return region


def _file(size: int, folder: Path, written: bool = True, advised: int = 0) -> Region:
    """A file's pages; written: they are in the page cache before they are mapped."""
    with tempfile.TemporaryFile(dir=folder) as there:
        there.write(b"1" * (size * written))
        there.flush()
        return _sized(os.dup(there.fileno()), size, advised)


def _tmpfs(size: int, folder: Path, huge: str = "") -> Region:
    return _file(size, _mounted(folder, "tmpfs", f"{huge}size={2 * size + 4 * HUGE_PAGE}"))


def _memfd(size: int, *flags: int, advised: int = 0) -> Region:
    return _sized(os.memfd_create("region", *flags), size, advised)


WAYS: dict[str, Callable[[int, Path], Region]] = {
    "anonymous": lambda size, _: Region(size),
    "advised": lambda size, _: Region(size, advised=size),
    "half": lambda size, _: Region(size, advised=size // 2),
    "arena": lambda _, __: Region(HUGE_PAGE, advised=HUGE_PAGE, written=ARENA),
    "dropped": lambda size, _: _dropped(size),
    "shared": lambda size, _: Region(size, SHARED, advised=size),
    "memfd": lambda size, _: _memfd(size, advised=size),
    "memfd-pool": lambda size, _: _memfd(size, os.MFD_HUGETLB | os.MFD_HUGE_2MB),
    "pool": lambda size, _: Region(size, PRIVATE | POOL_2MB, spare=0),
    "file": _file,
    "file-advised": lambda size, folder: _file(size, folder, False, advised=size),
    "tmpfs": _tmpfs,
    "tmpfs-huge": lambda size, folder: _tmpfs(size, folder, "huge=always,"),
    "hugetlbfs": lambda size, folder: _file(
        size, _mounted(folder, "hugetlbfs", "pagesize=2M"), False
    ),
}

ASKED = {
    "half": lambda size: size // 2,
    "dropped": lambda size: size // 2,
    "arena": lambda _: ARENA,
}  # less than is mapped


def main() -> None:
    if (
        len(sys.argv) != 4
        or sys.argv[1] not in WAYS
        or not sys.argv[2].isdecimal()
        or int(sys.argv[2]) % (4 * HUGE_PAGE)
    ):
        sys.exit(2)
    way, size = sys.argv[1], int(sys.argv[2])
    try:
        region = WAYS[way](size, Path(sys.argv[3]))
    except OSError as error:
        _refuse(3, os.strerror(error.errno or 0))
    print(
        json.dumps(
            {
                "way": way,
                "address": region.address,
                "array_bytes": ASKED.get(way, lambda size: size)(region.size),
                "mapped_bytes": region.size,
            }
        ),
        flush=True,
    )
    sys.stdin.readline()


if __name__ == "__main__":
    main()
