"""Find in which folios the base pages of processes lie: draw some pages, and look them up in
/proc/PID/pagemap and /proc/kpageflags.

smaps tells base pages from huge pages and nothing between. Linux maps a folio of 16 KiB to 1 MiB
with as many entries as it has base pages; a TLB that coalesces neighbours holds them in fewer.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tlb.system.page_sizes import BASE, PAGES
from tlb.system.reasons import Unavailable
from tlb.system.smaps import Mapping

DRAWN = 256  # pages, by which a share is known to 3 points (standard error); they take 10 ms
_TRIES = 16  # for each: some are left out where little of a mapping is resident
SEED = 17
_ROOT_REMEDY = (
    "Run the same command as root, on the host for a container's process; if root is refused too, "
    "the kernel lacks /proc/kpageflags (CONFIG_PROC_PAGE_MONITOR)."
)
_TABLE = 512  # entries read at once: those of one page table (x86-64, base pages of 4 KiB)
# Documentation/admin-guide/mm/pagemap.rst: bit 63 of an entry, the page is in memory; bits 0 to 54,
# its frame, which is 0 for all but root.
_PRESENT, _FRAME = 1 << 63, (1 << 55) - 1
_HEAD, _TAIL = 1 << 15, 1 << 16  # in /proc/kpageflags: the first page of a folio, and the others


def shares(
    read: Sequence[tuple[int, Sequence[Mapping]]], base_page_bytes: int, proc: Path = Path("/proc")
) -> dict[str, float]:
    """Return which part of the base pages of processes lies in folios of which size, by keys of
    PAGES; {} without base pages. read: PIDs with their mappings; processes that ended are left out.
    Raises Unavailable("not-permitted")."""
    holding = [
        (pid, mapping)
        for pid, mapped in read
        for mapping in mapped
        if mapping.resident_bytes > mapping.huge_bytes
    ]
    if not holding:
        return {}
    draw = random.Random(SEED)
    base_bytes = [mapping.resident_bytes - mapping.huge_bytes for _, mapping in holding]
    chosen = draw.choices(holding, base_bytes, k=DRAWN)
    try:
        frames = [*_frames(chosen, base_page_bytes, draw, proc)]
        with (proc / "kpageflags").open("rb", buffering=0) as flags:
            sizes = [
                folio_pages(_entries(flags, frame // _TABLE * _TABLE, _TABLE), frame % _TABLE)
                for frame in frames
            ]
    except OSError:  # not root, or a kernel without kpageflags
        raise Unavailable(
            "not-permitted", "to see which folios hold base pages", _ROOT_REMEDY
        ) from None
    # Where base pages are of 16 or 64 KiB, the smaller sizes of the table are no folios.
    larger = {
        (size.size_bytes or 0) // base_page_bytes: name
        for name, size in PAGES.items()
        if size.source == "mthp"
    }
    names = larger | {0: BASE, 1: BASE}
    # smaps has counted huge pages; a size without a name is of a folio that begins outside.
    known = Counter(names.get(size, BASE) for size in sizes if size < _TABLE)
    return {name: known[name] / known.total() for name in PAGES if name in known}


def folio_pages(flags: Sequence[int], at: int) -> int:
    """Return the base pages of the folio of page `at`, from the flags of an aligned range that
    holds it whole; 1 if the page is in no folio."""
    if at >= len(flags) or not flags[at] & (_HEAD | _TAIL):
        return 1
    head = next((n for n in range(at, -1, -1) if flags[n] & _HEAD), 0)
    after = range(max(head, at) + 1, len(flags))
    return next((n for n in after if not flags[n] & _TAIL), len(flags)) - head


def _frames(
    chosen: list[tuple[int, Mapping]], base_page_bytes: int, draw: random.Random, proc: Path
) -> Iterator[int]:
    """Yield the frame of a page of each chosen mapping, any page in memory as likely as another.
    Raises Unavailable("not-permitted")."""
    for pid, mapping in chosen:
        first, end = mapping.start // base_page_bytes, mapping.end // base_page_bytes
        with (
            suppress(FileNotFoundError, ProcessLookupError),  # it has ended
            (proc / str(pid) / "pagemap").open("rb", buffering=0) as pages,
        ):
            for _ in range(_TRIES):
                entry = next(iter(_entries(pages, draw.randrange(first, end), 1)), 0)
                if entry & _PRESENT:
                    if not entry & _FRAME:
                        raise Unavailable(
                            "not-permitted", "to see which folios hold base pages", _ROOT_REMEDY
                        )
                    yield entry & _FRAME
                    break


def _entries(file: BinaryIO, first: int, count: int) -> tuple[int, ...]:
    """Return 64-bit numbers from index `first` on; fewer at the end of the file."""
    file.seek(8 * first)
    data = file.read(8 * count)
    return struct.unpack(f"={len(data) // 8}Q", data[: len(data) // 8 * 8])
