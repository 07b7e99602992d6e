"""What address translation costs on this computer now: timed in two seconds, on base pages and on
huge ones, and kept for the boot.

A program is known by the distinct pages that it touches in a while. How many of its loads are far
ones is unknown, so these are the prices of a program of far loads alone: no other pays more.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tlb.system import files, procfs
from tlb.system.page_sizes import BASE_PAGES
from tlb.system.reasons import Unavailable

if TYPE_CHECKING:
    from tlb.machine.host import Host
    from tlb.measure.measuring_setup import MeasuringSetup
    from tlb.measure.store import Store

REPEATS, REGION_MS = 2, 10
# Pages of the chases, from where a first level of the TLB ends; and what fills in a tenth of a second.
SIZES = tuple(1 << bits for bits in (10, 12, 14, 16))
MOST_BYTES = 256 << 20
WITHIN_REACH = 0.75  # of the TLB's entries: so many pages it holds, with room for those of others
_FILL_BYTES = 32 << 20  # of memory whose first touch, second touch and collapse are timed
_MADV_COLLAPSE = 25  # asm-generic/mman-common.h
_THP = Path("/sys/kernel/mm/transparent_hugepage")
_FILE = "walk_price.json"


class PriceAtSize(NamedTuple):
    """Chases over so many pages. walk_ns: what translation adds to a load on base pages, at most.
    ratio: time on huge pages over time on base pages, the least of the repeats."""

    pages: int
    walk_ns: float
    ratio: float


class WalkPrices(NamedTuple):
    """tlb_entries: of its last level, for base pages; 0 if unknown. sizes: ascending by pages.
    fault_ns: of a page fault; retouch_ns: of the first touch of a page after its accessed bit was
    cleared; collapse_s: of one huge page, 0 if it is refused."""

    base_page_bytes: int
    huge_page_bytes: int
    tlb_entries: int
    sizes: tuple[PriceAtSize, ...]
    fault_ns: float = 0.0
    retouch_ns: float = 0.0
    collapse_s: float = 0.0

    def walk_ns(self, pages: float) -> float:
        """Return what a page walk costs at most, if so many base pages are touched."""
        return max(size.walk_ns for size in self._up_to(pages))

    def ratio(self, pages: float) -> float:
        """Return the least ratio of time on huge pages to time on base pages: a program that
        touches so many base pages also touches fewer of them again and again."""
        return min(1.0, *(size.ratio for size in self._up_to(pages)))

    def _up_to(self, pages: float) -> tuple[PriceAtSize, ...]:
        """Return the sizes up to the first that is as large, so that no price between two of them
        is missed."""
        smaller = sum(size.pages < pages for size in self.sizes)
        return self.sizes[: smaller + 1]


def _boot() -> str:
    """Return what prices hold for: this boot, and this setting of transparent huge pages."""
    boot = procfs.word(Path("/proc/sys/kernel/random/boot_id"))
    return f"{boot} {procfs.chosen(_THP / 'enabled')}"


def kept() -> WalkPrices | None:
    """Return the prices that were timed in this boot; None without any."""
    with suppress(OSError, ValueError, TypeError, KeyError, Unavailable):
        document = json.loads((files.build_root() / _FILE).read_bytes())
        if document.pop("boot") == _boot():
            sizes = tuple(PriceAtSize(*size) for size in document.pop("sizes"))
            return WalkPrices(sizes=sizes, **document)
    return None


def _keep(prices: WalkPrices) -> None:
    document = json.dumps(prices._asdict() | {"boot": _boot()}, indent=1)
    with suppress(OSError, Unavailable):  # the next command times them again
        folder = files.build_root()
        folder.mkdir(parents=True, exist_ok=True)
        files.replace_file(folder / _FILE, document.encode())


def kept_or_timed(stage: Callable[[str], None]) -> WalkPrices:
    """Return this boot's prices. Without any, call `stage` with what is done, time them under the
    lock of measurements, and keep them. Raises Unavailable."""
    if prices := kept():
        return prices
    from tlb.machine import host as hosts
    from tlb.measure.measuring_setup import MeasuringSetup
    from tlb.measure.store import Store, data_root

    stage("Timing page walks on this computer, once in a boot.")
    host, store = hosts.inspect_machine(), Store(data_root())
    with files.measuring_lock():
        rig = MeasuringSetup.of(host, store.own, counters=False)
        prices = timed(rig, host)
    _keep(prices)
    return prices


def timed(rig: MeasuringSetup, host: Host) -> WalkPrices:
    """Time the prices; the TLB's entries are those of CPUID. Raises Unavailable as
    `MeasuringSetup.measured`."""
    from tlb.machine.host import data_tlbs

    entries = [tlb.entries for tlb in data_tlbs(host, BASE_PAGES)]
    huge_bytes = host.thp.page_bytes or 0
    most = min(rig.usable_bytes, MOST_BYTES) // host.base_page_bytes
    reach = int(WITHIN_REACH * max(entries, default=0))
    pages = sorted(size for size in {*SIZES, reach} if 1 < size <= most) or [max(most, 2)]
    return WalkPrices(
        host.base_page_bytes,
        huge_bytes,
        max(entries, default=0),
        _sizes(rig, pages, host.thp.enabled not in ("never", "absent")),
        first_touch_ns(),
        retouch_ns(),
        collapse_s(huge_bytes),
    )


def _sizes(rig: MeasuringSetup, pages: list[int], has_thp: bool) -> tuple[PriceAtSize, ...]:
    """Return the prices of chases: one line a page on base pages, the same lines packed, and one
    line a base page on huge pages. Without huge pages, the packed lines take their place: those
    cost no walk at all."""
    times: dict[tuple[str, str, int], list[float]] = {}
    kinds = [
        (BASE_PAGES, "spread"),
        (BASE_PAGES, "packed"),
        *([("thp", "spread")] if has_thp else []),
    ]
    for repeat in range(REPEATS):
        for kind in dict.fromkeys(page for page, _ in kinds):
            for point, result in rig.measured(_points(kinds, kind, pages), repeat):
                if not isinstance(result, Unavailable):
                    key = point.pages, point.layout, point.lines
                    times.setdefault(key, []).append(result.ns_per_access)
                elif kind == BASE_PAGES:
                    raise result  # of huge pages there may be none

    def at(size: int) -> PriceAtSize:
        spread, packed = times[BASE_PAGES, "spread", size], times[BASE_PAGES, "packed", size]
        huge = times.get(("thp", "spread", size)) or packed
        walk_ns = max(far - near for far, near in zip(spread, packed, strict=True))
        return PriceAtSize(size, max(walk_ns, 0.0), min(huge) / max(spread))

    return tuple(map(at, pages))


def _points(kinds: list[tuple[str, str]], page: str, sizes: list[int]) -> list:
    from tlb.measure.record import Point

    how = {"kernel": "page_chase", "pages": page, "region_ms": REGION_MS}
    layouts = [layout for kind, layout in kinds if kind == page]
    return [
        Point(**how, layout=layout, lines=size)  # type: ignore[arg-type]
        for size in sizes
        for layout in layouts
    ]


def _fresh_memory(size_bytes: int) -> mmap.mmap:
    """Return memory that is not there yet, and will be on base pages."""
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


def _touch_s(memory: mmap.mmap, *, write: bool) -> float:
    """Return the CPU time in s that touching each page takes."""
    pages = bytes(len(memory) // mmap.PAGESIZE)
    begin = time.process_time()
    if write:
        memory[:: mmap.PAGESIZE] = pages
    else:
        memory[:: mmap.PAGESIZE]
    return time.process_time() - begin


def first_touch_ns(rounds: int = 5) -> float:
    """Return what a page fault costs, in ns, at most: in the slowest of some rounds."""
    size_bytes = _FILL_BYTES // 4
    slowest_s = 0.0
    for _ in range(rounds):
        with _fresh_memory(size_bytes) as memory:
            slowest_s = max(slowest_s, _touch_s(memory, write=True))
    return slowest_s * 1e9 / (size_bytes // mmap.PAGESIZE)


def retouch_ns() -> float:
    """Return what the first touch of a page costs after its accessed bit was cleared, in ns. Under
    shadow page tables the hypervisor takes part, and it is no small price."""
    with _fresh_memory(_FILL_BYTES) as memory:
        _touch_s(memory, write=True)
        plain_s = _touch_s(memory, write=False)
        with suppress(OSError):  # a sandbox may refuse it
            Path("/proc/self/clear_refs").write_bytes(b"1")
        cleared_s = _touch_s(memory, write=False)
    return max(cleared_s - plain_s, 0.0) * 1e9 / (_FILL_BYTES // mmap.PAGESIZE)


def collapse_s(huge_bytes: int) -> float:
    """Return the time in s that MADV_COLLAPSE takes for one huge page; 0 if Linux refuses."""
    if not 0 < huge_bytes <= _FILL_BYTES:
        return 0.0
    with _fresh_memory(_FILL_BYTES + huge_bytes) as memory:
        _touch_s(memory, write=True)
        begin = time.monotonic()
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)  # takes the refusal back
            memory.madvise(_MADV_COLLAPSE)
        except OSError:
            return 0.0
        return (time.monotonic() - begin) * huge_bytes / _FILL_BYTES


# --- entries that a survey found, for whoever simulates the TLB


def surveyed_tlb_entries(host: Host, store: Store) -> tuple[int, ...]:
    """Return the entries for base pages that this computer's own rows, else its published rows, of
    `tlb geometry` show; () without any, or if they show a single level, which may be either."""
    from tlb.machine import host as hosts
    from tlb.system.reasons import none_if_unavailable

    machine = none_if_unavailable(
        hosts.machine_id, host
    )  # of an unknown computer there are no rows
    for source in (store.own, store) if machine else ():
        if machine in source.machines() and _SURVEY in (
            none_if_unavailable(source.experiments, machine) or ()
        ):
            return none_if_unavailable(_entries_of, source, machine, host) or ()
    return ()


_SURVEY = "geometry"  # measure.survey.NAME


def _entries_of(source: Store, machine: str, host: Host) -> tuple[int, ...]:
    from concurrent.futures.process import BrokenProcessPool

    from tlb.system import processes

    try:  # in a process of its own: pandas and SciPy take 200 MB
        with processes.workers(1, "fork") as pool:
            return pool.submit(_inferred_apart, source, machine, host).result()
    except BrokenProcessPool:  # memory has run out
        return ()


def _inferred_apart(source: Store, machine: str, host: Host) -> tuple[int, ...]:
    from tlb.machine.host import data_caches
    from tlb.measure import kernels, row_tables
    from tlb.stats import geometry
    from tlb.system import processes

    processes.end_first(os.getpid())
    frame = source.load(machine, _SURVEY)
    rows = kernels.with_defaults(
        row_tables.rows_of_one_profile(row_tables.rows_of_last_campaign(frame))
    )
    levels = geometry.infer_tlb_geometry(rows, (), data_caches(host)).levels
    if any(level.is_alone for level in levels):
        return ()
    return tuple(round(level.entries.value) for level in levels)
