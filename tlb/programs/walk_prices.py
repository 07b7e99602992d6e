"""Time what page walks cost now, for a computer without rows: `tlb watch` prices a program by it.

Half a second of chases over as many pages as the program touches and fewer, each with its packed
control, which has the same lines without the walks: what huge pages could save at most."""

from __future__ import annotations

from collections import defaultdict

from tlb.measure.measuring_setup import Rig
from tlb.measure.record import Point
from tlb.programs.program_bounds import Prices
from tlb.stats.intervals import median_interval
from tlb.system.page_sizes import BASE
from tlb.system.reasons import Unavailable

REPEATS, REGION_MS = 3, 10
# Pages: from where the first level of the TLB ends to where any second one does; by what they hold,
# what takes a tenth of a second to fill.
_LEAST_PAGES, _STEP, MOST_BYTES = 256, 4, 256 << 20


def timed(rig: Rig, base_page_bytes: int, pages: int) -> Prices:
    """Return prices on base pages up to so many of them. Raises Unavailable as `Rig.measured`."""
    most = max(min(pages, MOST_BYTES // base_page_bytes), 2)
    sizes, size = [most], _LEAST_PAGES
    while size < most:
        sizes.insert(-1, size)
        size *= _STEP
    points = [
        Point(kernel="page_chase", pages=BASE, layout=layout, lines=lines, region_ms=REGION_MS)
        for lines in sizes
        for layout in ("spread", "packed")
    ]
    times = defaultdict[tuple[int, str], list[float]](list)
    for repeat in range(REPEATS):
        for point, result in rig.measured(points, repeat):
            if isinstance(result, Unavailable):
                raise result
            times[point.lines, point.layout].append(result.ns_per_access)
    both = {n: list(zip(times[n, "spread"], times[n, "packed"], strict=True)) for n in sizes}
    walks = [(n, median_interval([far - near for far, near in each])) for n, each in both.items()]
    ratios = [(n, median_interval([near / far for far, near in each])) for n, each in both.items()]
    return Prices({BASE: walks}, ratios, "thp")
