"""Whether a point on the beginning of a large mapping takes as long as in a mapping of its own
size, by size (`make bench`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tlb.machine import host
from tlb.measure.grid import Scope, load_profile
from tlb.measure.independent import TableCells, temporary_build_folder
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.plan import KernelProcess
from tlb.measure.record import Point
from tlb.measure.store import Store
from tlb.system.page_sizes import BASE
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size

TITLE = "The beginning of a large mapping over a mapping of the point's size"
COLUMNS = (
    "pages",
    "working set",
    "layout",
    "in the large one ns",
    "in its own ns",
    "median ratio",
    "range",
)
LARGE = 4 << 30
SIZES = tuple(1 << bits for bits in (18, 20, 21, 22, 23, 24, 25, 28, 30))
ROUNDS = 9


def prefixes() -> Iterator[TableCells]:
    """A row a page size, working set and layout, of nine pairs of mappings; which of a pair is
    first alternates."""
    rig = MeasuringSetup.of(
        host.inspect(), Store(Path(temporary_build_folder().name)), counters=False
    )
    base = host.base_page_bytes()
    ask = Scope(load_profile("full"), base_page_bytes=base).point
    kinds = [
        (size, layout, size // apart)
        for size in SIZES
        for layout, apart in (("spread", base), ("packed", 64))
    ]
    for pages in (BASE, "thp"):
        points = [
            ask("page_chase", pages, layout=layout, lines=lines, region_ms=20)
            for _, layout, lines in kinds
        ]
        rounds = []
        for pair in range(ROUNDS):
            both = {
                shared: times(rig, points, shared, pair)
                for shared in (LARGE, 0)[:: 1 if pair % 2 else -1]
            }
            rounds.append((both[LARGE], both[0]))
        for number, (size, layout, _) in enumerate(kinds):
            large, own = ([one[side][number] for one in rounds] for side in (0, 1))
            ratios = sorted(a / b for a, b in zip(large, own, strict=True))
            times_ns = f"{median(large):.2f}", f"{median(own):.2f}", f"{median(ratios):.3f}"
            range_words = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            yield pages, format_size(size), layout, *times_ns, range_words


def times(rig: MeasuringSetup, points: list[Point], shared_bytes: int, repeat: int) -> list[float]:
    """ns per access of each point in one mapping of so many bytes; of 0 each has its own. Raises
    Unavailable where one cannot be had."""
    taken = []
    with KernelProcess(points[0], shared_bytes, repeat, rig.setting) as session:
        for point in points:
            result, _ = session.ask(point)
            if isinstance(result, Unavailable):
                raise result
            taken.append(result.ns_per_access)
        session.end()
    return taken
