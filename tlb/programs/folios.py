"""In which folios the base pages of a process lie: some of them drawn, and looked up in
/proc/PID/pagemap and /proc/kpageflags.

smaps tells base pages from whole large ones and nothing between. The kernel maps a folio of 16 KiB
to 1 MiB by as many entries as it has base pages; a processor that joins neighbours holds them in
fewer.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tlb.page_sizes import BASE, PAGES
from tlb.reasons import Unavailable
from tlb.system.smaps import Mapping

DRAWN = (
    256  # pages a look, by which a share is known to 3 points (a standard error); they take 10 ms
)
_TRIES = 16  # a page: where a mapping is hardly resident, some are left out
SEED = 17
# entries read at once: those of one table, and the base pages of the largest folio (x86-64 with
# base pages of 4 KiB)
_WINDOW = 512
# Documentation/admin-guide/mm/pagemap.rst: bit 63 of an entry, its page is in memory; bits 0 to 54,
# its frame, 0 for all but root.
_PRESENT, _FRAME = 1 << 63, (1 << 55) - 1
_HEAD, _TAIL = 1 << 15, 1 << 16  # of /proc/kpageflags: the first page of a folio, and the others


def shares(
    read: Sequence[tuple[int, Sequence[Mapping]]], base_page_bytes: int, proc: Path = Path("/proc")
) -> dict[str, float]:
    """Which part of the base pages of some processes lies in folios of which size, by the names of
    words.pages.PAGES, from pages that are drawn; {} where there is none. read: the mappings of
    each, by its number. A process that has ended counts for nothing. Raises
    Unavailable("frames-denied")."""
    holding = [
        (pid, mapping)
        for pid, mapped in read
        for mapping in mapped
        if mapping.resident_bytes > mapping.huge_bytes
    ]
    if not holding:
        return {}
    draw = random.Random(SEED)
    chosen = draw.choices(
        holding, [mapping.resident_bytes - mapping.huge_bytes for _, mapping in holding], k=DRAWN
    )
    frames = list[int]()
    for pid in {pid for pid, _ in chosen}:
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            _opened(proc / str(pid) / "pagemap") as pages,
        ):
            frames += [
                frame
                for whose, mapping in chosen
                if whose == pid
                if (frame := _drawn(pages, mapping, base_page_bytes, draw)) is not None
            ]
    with _opened(proc / "kpageflags") as flags:
        sizes = [
            folio_pages(_entries(flags, frame // _WINDOW * _WINDOW, _WINDOW), frame % _WINDOW)
            for frame in frames
        ]
    names = {
        (size.size_bytes or base_page_bytes) // base_page_bytes: name
        for name, size in PAGES.items()
        if size.source in ("base", "mthp")
    }
    # A whole large page is for smaps to tell; a size without a name, as of a folio that begins
    # outside, is taken for single pages.
    known = [names.get(size, BASE) for size in sizes if size < _WINDOW]
    return {name: known.count(name) / len(known) for name in names.values() if name in known}


def folio_pages(flags: Sequence[int], at: int) -> int:
    """The base pages of the folio to which page `at` belongs, from the flags of an aligned stretch
    that holds it whole; 1 of a page that is in none."""
    if at >= len(flags) or not flags[at] & (_HEAD | _TAIL):
        return 1
    head = next((n for n in range(at, -1, -1) if flags[n] & _HEAD), 0)
    end = next(
        (n for n in range(max(head, at) + 1, len(flags)) if not flags[n] & _TAIL), len(flags)
    )
    return end - head


def _drawn(pages: int, mapping: Mapping, base_page_bytes: int, draw: random.Random) -> int | None:
    """The frame of one page of a mapping, each that is in memory as likely as any other; None where
    none was met. Raises Unavailable("frames-denied")."""
    first, last = mapping.start // base_page_bytes, mapping.end // base_page_bytes
    for _ in range(_TRIES):
        entry = next(iter(_entries(pages, draw.randrange(first, last), 1)), 0)
        if entry & _PRESENT:
            if not entry & _FRAME:
                raise Unavailable("frames-denied")
            return entry & _FRAME
    return None


def _entries(fd: int, first: int, count: int) -> tuple[int, ...]:
    """So many numbers of 64 bits, the first at a place counted in them; fewer at the end."""
    data = os.pread(fd, 8 * count, 8 * first)
    return struct.unpack(f"={len(data) // 8}Q", data[: len(data) // 8 * 8])


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A file of /proc. Raises Unavailable("frames-denied"), and the OSErrors of a process that has
    ended."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except PermissionError:
        raise Unavailable("frames-denied") from None
    except FileNotFoundError:
        if path.name == "kpageflags":  # a kernel that is built without
            raise Unavailable("frames-denied") from None
        raise
    try:
        yield fd
    finally:
        os.close(fd)
