"""Memory of this process in blocks of one large page each, and what smaps says of it."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tlb.system import procfs
from tlb.system.reasons import Unavailable

# asm-generic/mman-common.h; the last since Linux 5.4
HUGE, NO_HUGE, MERGEABLE, PAGEOUT = 14, 15, 12, 21
MAP_HUGETLB = 0x40000


class Rooms:
    """`count` aligned blocks of `room_bytes`; from the pool, of whole large pages.

    Raises Unavailable: memory-short, pool-empty.
    """

    def __init__(self, count: int, room_bytes: int, *, pool: bool = False) -> None:
        self.count, self.room_bytes = count, room_bytes
        self.bytes = count * room_bytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (MAP_HUGETLB if pool else 0)
        try:
            self._memory = mmap.mmap(-1, self.bytes + (0 if pool else room_bytes), flags=flags)
        except OSError as error:
            raise Unavailable(
                "pool-empty" if pool else "memory-short", error.strerror or ""
            ) from error
        self._view = (ctypes.c_char * len(self._memory)).from_buffer(self._memory)
        begin = ctypes.addressof(self._view)
        self._skip = -begin % room_bytes
        self.address = begin + self._skip

    def advise(self, advice: int) -> None:
        """Call madvise(2) for all blocks. Raises OSError."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if libc.madvise(self.address, self.bytes, advice):
            raise OSError(ctypes.get_errno(), "madvise")

    def fill(self, content: bytes) -> None:
        """Write the same content to each base page, which it is as long as."""
        for at in range(self._skip, self._skip + self.bytes, len(content)):
            self._memory[at : at + len(content)] = content

    def write_ns(self, at: int) -> int:
        """Return ns of writing one byte, with tens of ns of Python's own."""
        begin = time.perf_counter_ns()
        self._memory[self._skip + at] = 7
        return time.perf_counter_ns() - begin

    def read_ns(self, at: int) -> int:
        """Return ns of reading one byte."""
        begin = time.perf_counter_ns()
        self._memory[self._skip + at]
        return time.perf_counter_ns() - begin

    def kept(self, field: str, smaps: Path = Path("/proc/self/smaps")) -> int:
        """Return the blocks' bytes by a field of smaps: Rss, AnonHugePages, Swap."""
        return sum(
            procfs.kib(fields.get(field, "")) or 0 for fields in self._mappings(procfs.lines(smaps))
        )

    def _mappings(self, smaps: Iterable[str]) -> Iterator[dict[str, str]]:
        head, fields = (0, 0), {}
        for line in (*smaps, "0-0 "):
            name, _, rest = line.partition(" ")
            if name.endswith(":"):
                fields[name[:-1]] = rest.strip()
            elif "-" in name:
                if self.address < head[1] and head[0] < self.address + self.bytes:
                    yield fields
                head, fields = tuple(int(part, 16) for part in name.split("-")), {}

    def close(self) -> None:
        """Give all of it back."""
        del self._view
        self._memory.close()


@contextmanager
def rooms(count: int, room_bytes: int, *, pool: bool = False) -> Iterator[Rooms]:
    """Yield blocks; give them back at the end."""
    made = Rooms(count, room_bytes, pool=pool)
    try:
        yield made
    finally:
        made.close()
