"""Which points an experiment measures: a pure function of the profile and of what the machine states of itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.lab.campaign import BASE_PAGE, SMALLEST_LINES, Profile, octaves
from experiments.lab.measure import shape
from experiments.lab.record import PAGE_BYTES, Option, Point

# Above this a point costs seconds to fault in, and curves there bend over octaves, not over points.
DENSE_BELOW_LINES = (64 << 20) // BASE_PAGE
RANDOM_UP_TO_LINES = (256 << 20) // BASE_PAGE  # 1 - C/M is within 5 % of 1 long before

# The published benchmark's sizes (data/literature/jmh_byte_array_touch.csv), and one past them.
TOUCH_BYTES = (1_000, 10_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
TOUCH_PAGES = ("4k", "thp", "2m")
PREFAULT_LINES = (256 << 20) // BASE_PAGE  # enough that the ends do not count, and a tenth of a second for base pages


def _own(profile: Profile, kernel: str, engine: str, pages: str, mode: str = "", **own: int) -> Point:
    """A point of a kernel whose own options say how many lines there are."""
    return Point(kernel=kernel, engine=engine, pages=pages, **shape(kernel, own), mode=mode, options=own, region_ms=profile.region_ms)


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


def hugepages(profile: Profile, engine: str, tlb_entries: Sequence[int], cpus: int = 1) -> list[Point]:
    """The points of the chapter about page sizes: the same chase on each of them, random touches, and faulting in.

    cpus: how many threads fault memory in beside one alone.
    """
    most = profile.max_working_set // BASE_PAGE
    sizes = octaves(SMALLEST_LINES, most, 1)
    # Between octaves where base pages and 2 MiB pages are compared line by line: do entries span what was mapped?
    fine = octaves(SMALLEST_LINES, min(most, DENSE_BELOW_LINES), profile.points_per_octave if engine == "c" else 1)
    chase = [Point(kernel="page_chase", engine=engine, pages=pages, layout=layout, lines=lines, region_ms=profile.region_ms)
             for pages in PAGE_BYTES for lines in sorted({*sizes, *(fine if pages in ("4k", "2m") else ())})
             for layout in ("spread", "packed")]
    touch = [_own(profile, "random_touch", engine, pages, bytes=size, **spare)
             for pages in TOUCH_PAGES for size in TOUCH_BYTES if size <= profile.max_working_set
             for spare in ({}, {"spare_draws": 1}) if not spare or size <= TOUCH_BYTES[-2]]
    ways = [("touch", 1), ("populate", 1), ("memset", 1), *([("touch", cpus), ("populate", cpus)] if cpus > 1 else [])]
    prefault = [Point(kernel="prefault", engine=engine, pages=pages, order="sequential", lines=min(PREFAULT_LINES, most), mode=mode,
                      options=(("threads", threads),), region_ms=profile.region_ms)
                for pages in PAGE_BYTES for mode, threads in ways
                if threads == 1 or threads * PAGE_BYTES[pages] // BASE_PAGE <= min(PREFAULT_LINES, most)]  # a page cannot be shared out
    return chase + touch + prefault


LARGE_PAGES = ("4k", "thp", "2m", "1g")
WALKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MANY_VERTICES = 1 << 24  # 1 GiB: past every cache, and a graph of it is ready in a second
BLOCK_STEPS = (1 << 10, 1 << 14, 1 << 18)  # hops in a block: fewer than it has pages, some to a page, many
DISTANCES = (0, 1, 4, 16)
MORE_DISTANCES = (2, 8, 32, 64)
FAN_OUT_BITS = (2, 4, 5, 6, 7, 8, 10, 12)
JOIN_BITS = (6, 8, 10)


def _walk(profile: Profile, engine: str, pages: str, vertices: int, mode: str = "plain", **own: int) -> Point:
    return _own(profile, "graph_walk", engine, pages, mode, vertices=vertices, **own)


def _most_vertices(profile: Profile) -> int:
    return 1 << (profile.max_working_set // 64).bit_length() - 1


def graph_walk(profile: Profile, engine: str, tlb_entries: Sequence[int], cpus: int = 1) -> list[Point]:
    """The points of the chapter about the graph: each size on each page size, timed per hop and per batch; and many walks at once.

    Past the caches a process takes seconds to visit four million lines, most of all at 256 MiB, of whose 4.2 million vertices that
    takes 20 million hops. So a coarse profile goes from 64 MiB on in steps of four octaves and then two, and has means per batch
    on page sizes that need no pool.
    """
    most, fine = _most_vertices(profile), profile.points_per_octave > 2
    sizes = [2**k for k in range(12, most.bit_length()) if fine or 2**k == most or k <= 20 or k % 2 == 0 and k > 22]  # from 256 KiB
    both = [_walk(profile, engine, pages, n, per_hop=1) for pages in LARGE_PAGES for n in sizes]
    both += [_walk(profile, engine, pages, n) for pages in LARGE_PAGES[: 4 if fine else 2] for n in sizes]
    many = [_walk(profile, engine, pages, min(most, MANY_VERTICES), walkers=k) for pages in LARGE_PAGES[: 3 if fine else 2]
            for k in (WALKERS if fine else (1, 2, 4, 6, 8, 12, 16, 32))]
    return both + many


def tlb_blocking(profile: Profile, engine: str, tlb_entries: Sequence[int], cpus: int = 1) -> list[Point]:
    """The points of the chapter about blocking: walks in blocks and prefetched ones, the remedies side by side, and a join."""
    most, fine = _most_vertices(profile), profile.points_per_octave > 2
    many = min(most, MANY_VERTICES if fine else MANY_VERTICES // 2)
    # From 128 KiB, half of what 64 entries reach, to 64 or 128 MiB.
    blocks = [2**k for k in range(11, min(22, many.bit_length() - 1), 2 if fine else 3)]
    walks = [_walk(profile, engine, "4k", many)]
    walks += [_walk(profile, engine, "4k", many, "blocked", block_vertices=b, block_steps=steps)
              for b in blocks for steps in BLOCK_STEPS[: 3 if fine else 2]]
    walks += [_walk(profile, engine, pages, many, "prefetch", distance=d)
              for pages in LARGE_PAGES[: 3 if fine else 2] for d in DISTANCES + MORE_DISTANCES * fine]
    walks += [_walk(profile, engine, pages, most, per_hop=1) for pages in LARGE_PAGES]
    inside = 1 << (tlb_entries[-1] * BASE_PAGE // 64).bit_length() - 1 if tlb_entries else 0  # vertices that the last level reaches
    walks += [_walk(profile, engine, "4k", most, "blocked", block_vertices=b, block_steps=BLOCK_STEPS[1], per_hop=1)
              for b in (inside, inside // 4)[: 2 if fine else 1] if 4 <= b < most]
    rows = max(1 << 10, min(1 << 21, profile.max_working_set // 2048))  # 4 GiB: 32 MiB a table of rows, 192 MiB in all
    # Starting numba takes a second a process, so a coarse profile has the numbers that are compared, on page sizes that need no pool,
    # and the coarsest every other one of them.
    each = 1 if profile.points_per_octave > 1 else 2
    modes = [("partition", {"bits": b}) for b in (FAN_OUT_BITS if fine else FAN_OUT_BITS[1::2][::each])]
    modes += [("partition", {"bits": b, "passes": 2}) for b in FAN_OUT_BITS[-2 if fine else -1:]]
    modes += [("naive", {})] + [("partitioned", {"bits": b}) for b in JOIN_BITS[::each]]
    join = [_own(profile, "radix_partition", "numba", pages, mode, tuples=rows, **own)
            for pages in LARGE_PAGES[: 3 if fine else 2] for mode, own in modes]
    return walks + join


# Host pages under each of the guest's, and what a process of the host itself would have.
GUEST_PAGES, HOST_PAGES = ("4k", "2m", "1g"), ("4k", "thp", "2m", "1g")
# Where the steps are looked for, guest's page on host's: of 2 MiB pages the transparent kind, which takes no pool.
STEPS_OF = (("4k", "4k"), ("4k", "thp"), ("2m", "4k"), ("2m", "thp"))
MOST_QUICK_LINES = (1 << 30) // BASE_PAGE  # above, a process takes ten seconds, most of them a guest's first faults
NODES = ("local-local", "remote-local", "local-remote", "remote-remote")  # memory, then page tables


def virtualization(profile: Profile, engine: str, tlb_entries: Sequence[int], cpus: int = 1) -> list[Point]:
    """The points of the chapter about guests: each guest page size on each host page size and the same chase outside, at sizes from
    inside the STLB on; finer where the steps are; a guest with five levels; the chase in fresh namespaces; and on near and far memory.

    Three times as many processes as in other chapters, so each times for half as long: more than half of its life all the same.
    """
    full = profile.points_per_octave > 2
    most = profile.max_working_set // BASE_PAGE
    top = most if full else min(most, MOST_QUICK_LINES)
    inside = 1 << (max(tlb_entries[-1], 2 * SMALLEST_LINES) // 2).bit_length() - 1 if tlb_entries else DENSE_BELOW_LINES // SMALLEST_LINES
    sizes = sorted({min(inside, top), *octaves(DENSE_BELOW_LINES, top, 1)[:: 2 if full else 4], top})
    fine = octaves(SMALLEST_LINES, min(most, DENSE_BELOW_LINES), profile.points_per_octave) if engine == "c" else []

    def chase(kernel: str, pages: str, mode: str, lines: int) -> list[Point]:
        return [Point(kernel=kernel, engine=engine, pages=pages, mode=mode, layout=layout, lines=lines,
                      region_ms=max(profile.region_ms // 2, 1)) for layout in ("spread", "packed")]

    wanted = [("guest_chase", host, guest, sizes) for guest in GUEST_PAGES for host in HOST_PAGES]
    wanted += [("page_chase", pages, "", sizes) for pages in HOST_PAGES]
    wanted += [("guest_chase", host, guest, fine) for guest, host in STEPS_OF]
    wanted += [("page_chase", pages, "", fine) for pages in dict.fromkeys(host for _, host in STEPS_OF)]
    wanted += [("page_chase", "4k", "namespaces", sizes)]
    wanted += [("numa_chase", "4k", mode, [min(top, RANDOM_UP_TO_LINES)]) for mode in NODES]
    points = [point for kernel, pages, mode, numbers in wanted for lines in numbers for point in chase(kernel, pages, mode, lines)]
    points += [point.model_copy(update={"options": (Option("levels", 5),)}) for point in chase("guest_chase", "4k", "4k", top)]
    return list(dict.fromkeys(points))


GRIDS: dict[str, Callable[[Profile, str, Sequence[int], int], list[Point]]] = {
    "stlb_cliff": stlb_cliff, "hugepages": hugepages, "graph_walk": graph_walk, "tlb_blocking": tlb_blocking,
    "virtualization": virtualization}
