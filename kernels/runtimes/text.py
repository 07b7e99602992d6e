"""text: code made executable in one of Linux's ways and called on each page; then it waits, so that
its smaps can be read.

    text.py WAY BYTES FOLDER

Prints one JSON line: the code's address and bytes, and the mapping's. Exit 2: bad arguments; 3:
Linux refuses the memory; 4: written memory may not be executed; 5: pages of this kind are not
collapsed on request. No page is writable and executable at once.
"""

import ctypes
import errno
import json
import mmap
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

HUGE_PAGE, BASE_PAGE = 2 << 20, mmap.PAGESIZE
RETURN = {
    "x86_64": b"\xc3",
    "aarch64": b"\xc0\x03\x5f\xd6",
}  # an instruction that goes back to where it was called from
FIXED, COLLAPSE = 0x10, 25  # MAP_FIXED; MADV_COLLAPSE, Linux 6.1
PRIVATE, SHARED, ANONYMOUS = mmap.MAP_PRIVATE, mmap.MAP_SHARED, mmap.MAP_ANONYMOUS
READ, WRITE, EXECUTE = mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_EXEC
NO_MEMORY, NO_CODE, NO_JOINING = 3, 4, 5  # exit statuses

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def _refuse(status: int, why: str) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(status)


def _checked(result: int | None, status: int = NO_MEMORY) -> int:
    """Return a libc call's result, or end the program if it failed."""
    if result is None or result in (-1, ctypes.c_void_p(-1).value):
        _refuse(status, os.strerror(ctypes.get_errno()))
    return result


def _aligned(size: int) -> int:
    """Addresses of whole huge pages, not yet memory."""
    room = _checked(libc.mmap(None, size + HUGE_PAGE, 0, PRIVATE | ANONYMOUS, -1, 0))
    return -(-room // HUGE_PAGE) * HUGE_PAGE


def _advise(address: int, size: int, advice: int, status: int = NO_JOINING) -> None:
    _checked(libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), advice), status)


def _anonymous(size: int, advice: int | None = None) -> int:
    address = _checked(
        libc.mmap(_aligned(size), size, READ | WRITE, PRIVATE | ANONYMOUS | FIXED, -1, 0)
    )
    if advice is not None:
        _advise(address, size, advice)
    ctypes.memmove(address, _code(size), size)
    _checked(
        libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), READ | EXECUTE), NO_CODE
    )
    return address


def _code(size: int) -> bytes:
    """A page after another, each of which returns at once."""
    returns = RETURN[platform.machine()]
    return (returns * (BASE_PAGE // len(returns))) * (size // BASE_PAGE)


def _mapped(file: int, size: int, flags: int, collapse: bool = False) -> int:
    address = _checked(
        libc.mmap(_aligned(size), size, READ | EXECUTE, flags | FIXED, file, 0), NO_CODE
    )
    if collapse:
        _advise(address, size, COLLAPSE)
    return address


def _memfd(size: int, collapse: bool = False) -> int:
    file = os.memfd_create("text")
    os.write(file, _code(size))
    return _mapped(file, size, SHARED, collapse)


def _file(size: int, folder: Path, collapse: bool = False) -> int:
    with tempfile.NamedTemporaryFile(dir=folder) as there:
        there.write(_code(size))
        there.flush()
        os.fsync(there.fileno())
        return _mapped(os.open(there.name, os.O_RDONLY), size, PRIVATE, collapse)


def _memfd_pool(size: int) -> int:
    file = os.memfd_create("text", os.MFD_HUGETLB | os.MFD_HUGE_2MB)
    os.ftruncate(file, size)
    with mmap.mmap(file, size) as written:
        written[:] = _code(size)
    return _mapped(file, size, SHARED)


WAYS: dict[str, Callable[[int, Path], int]] = {
    "anonymous": lambda size, _: _anonymous(size),
    "advised": lambda size, _: _anonymous(size, mmap.MADV_HUGEPAGE),
    "memfd": lambda size, _: _memfd(size),
    "memfd-collapsed": lambda size, _: _memfd(size, collapse=True),
    "memfd-pool": lambda size, _: _memfd_pool(size),
    "file": _file,
    "file-collapsed": lambda size, folder: _file(size, folder, collapse=True),
}


def main() -> None:
    if (
        len(sys.argv) != 4
        or sys.argv[1] not in WAYS
        or not sys.argv[2].isdecimal()
        or int(sys.argv[2]) % HUGE_PAGE
    ):
        sys.exit(2)
    if platform.machine() not in RETURN:
        _refuse(NO_CODE, f"no code is written here for {platform.machine()}")
    way, size = sys.argv[1], int(sys.argv[2])
    try:
        address = WAYS[way](size, Path(sys.argv[3]))
    except OSError as error:
        _refuse(
            NO_CODE if error.errno in (errno.EACCES, errno.EPERM) else NO_MEMORY,
            os.strerror(error.errno or 0),
        )
    for at in range(address, address + size, BASE_PAGE):
        ctypes.CFUNCTYPE(None)(at)()
    print(
        json.dumps({"way": way, "address": address, "array_bytes": size, "mapped_bytes": size}),
        flush=True,
    )
    sys.stdin.readline()


if __name__ == "__main__":
    main()
