"""Which points an experiment measures: a pure function of the profile and of what the machine states of itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.experiment import BASE_PAGE, SMALLEST_LINES, Profile, octaves
from experiments.record import Point

# Above this a point costs seconds to fault in, and curves there bend over octaves, not over points.
DENSE_BELOW_LINES = (64 << 20) // BASE_PAGE
RANDOM_UP_TO_LINES = (256 << 20) // BASE_PAGE  # 1 - C/M is within 5 % of 1 long before

PAGE_SIZES = ("4k", "64k", "thp", "2m", "1g")
# The published benchmark's sizes (data/literature/jmh_byte_array_touch.csv), and one past them.
TOUCH_BYTES = (1_000, 10_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
TOUCH_PAGES = ("4k", "thp", "2m")
PREFAULT_LINES = (256 << 20) // BASE_PAGE  # enough that the ends do not count, and a tenth of a second for base pages


def stlb_cliff(profile: Profile, engine: str, tlb_entries: Sequence[int], cpus: int = 1) -> list[Point]:
    """The points of the first chapter. Every spread point has its packed control: the same number of lines.

    tlb_entries: 4 KiB data entries of each TLB level as CPUID gives them; around each the grid is finer. Starting a
    numba process takes a second, so that engine gets a coarser grid. cpus: of no use to a chase.
    """
    most = profile.max_working_set // BASE_PAGE
    per_octave = 1 if engine == "numba" else profile.points_per_octave
    dense = octaves(SMALLEST_LINES, min(most, DENSE_BELOW_LINES), per_octave)
    sizes = dense + [n for n in octaves(DENSE_BELOW_LINES, most, max(per_octave // 2, 1)) if n > DENSE_BELOW_LINES]
    # The zoom: an octave each side of a knee is half a decade of pages, at steps of 9 % (19 % under numba).
    zoom = [n for entries in tlb_entries for n in octaves(entries / 2**0.75, entries * 2, 4 if engine == "numba" else 8)]
    chase = sorted(set(sizes) | ({n for n in zoom if n <= most} if profile.points_per_octave > 1 else set()))
    randomly = octaves(SMALLEST_LINES, min(most, RANDOM_UP_TO_LINES), per_octave)
    coarse = octaves(SMALLEST_LINES, most, 1)
    wanted = [("page_chase", "cycle", chase), ("page_chase", "random", randomly),
              ("page_chase", "sequential", [n for n in coarse[::2] if n <= RANDOM_UP_TO_LINES]),
              ("page_gather", "cycle", coarse)]
    return [
        Point(kernel=kernel, engine=engine, layout=layout, order=order, lines=lines, region_ms=profile.region_ms)
        for kernel, order, numbers in wanted
        for lines in numbers
        for layout in ("spread", "packed")
    ]


GRIDS: dict[str, Callable[[Profile, str, Sequence[int]], list[Point]]] = {"stlb_cliff": stlb_cliff}


def hugepages(profile: Profile, engine: str, tlb_entries: Sequence[int], cpus: int = 1) -> list[Point]:
    """The points of the chapter about page sizes: the same chase on each of them, random touches, and faulting in.

    cpus: how many threads fault memory in beside one alone.
    """
    most = profile.max_working_set // BASE_PAGE
    sizes = octaves(SMALLEST_LINES, most, 1)
    # Between octaves where base pages and 2 MiB pages are compared line by line: do entries span what was mapped?
    fine = octaves(SMALLEST_LINES, min(most, DENSE_BELOW_LINES), profile.points_per_octave if engine == "c" else 1)
    chase = [Point(kernel="page_chase", engine=engine, pages=pages, layout=layout, lines=lines, region_ms=profile.region_ms)
             for pages in PAGE_SIZES for lines in sorted({*sizes, *(fine if pages in ("4k", "2m") else ())})
             for layout in ("spread", "packed")]
    touch = [Point(kernel="random_touch", engine=engine, pages=pages, layout="packed", order="random", lines=-(-size // 64),
                   options=(("bytes", size),), region_ms=profile.region_ms)
             for pages in TOUCH_PAGES for size in TOUCH_BYTES if size <= profile.max_working_set]
    ways = [("touch", 1), ("populate", 1), ("memset", 1), *([("touch", cpus), ("populate", cpus)] if cpus > 1 else [])]
    prefault = [Point(kernel="prefault", engine=engine, pages=pages, order="sequential", lines=min(PREFAULT_LINES, most), mode=mode,
                      options=(("threads", threads),), region_ms=profile.region_ms)
                for pages in PAGE_SIZES for mode, threads in ways]
    return chase + touch + prefault


GRIDS: dict[str, Callable[[Profile, str, Sequence[int], int], list[Point]]] = {"stlb_cliff": stlb_cliff, "hugepages": hugepages}
