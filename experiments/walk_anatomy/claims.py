"""What articles say of walks and of what shortens them, as predicates on the chapter's Analysis."""

from __future__ import annotations

from experiments.walk_anatomy.analysis import Analysis
from experiments.walk_anatomy.grid import (
    ENTRIES_PER_LINE,
    ENTRY_BYTES,
    LEVELS,
    TABLES,
    pages_beyond_tlb,
    table_sweep,
)
from experiments.walk_anatomy.models import LEAST_RISE
from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.report.verdicts import Answer, Band, Compares, claim, decided, inside
from tlb.stats import curves
from tlb.stats.curves import select, why_not_counted
from tlb.stats.geometry_curves import Walk
from tlb.stats.intervals import Interval, interval_of_rows
from tlb.system.page_sizes import BASE, LARGE, words
from tlb.system.prose import in_words
from tlb.system.reasons import Undecided, required


def _ends(*levels: int) -> Compares:
    """The first and last point of the sweeps of these levels, and the pages that the TLB holds."""

    def compares(point: Point, scope: Scope) -> bool:
        pages, own = pages_beyond_tlb(scope), dict(point.options)
        sweeps = [
            table_sweep(level, pages, scope.base_page_bytes // ENTRY_BYTES) for level in levels
        ]
        ends = [end for tables in sweeps if tables for end in (tables[0], tables[-1])]
        return (
            point.kernel == "table_chase"
            and point.mode == "random"
            and (
                point.lines == pages // ENTRIES_PER_LINE
                or point.lines == pages
                and tuple(own.get(name, 1) for name in TABLES) in ends
            )
        )

    return compares


def _cycles(a: Analysis, ns: Interval) -> Interval:
    return ns * a.ghz


def _rise(a: Analysis, level: int) -> Interval:
    """How many times as much a miss costs at the end of a level's sweep as at its beginning. Raises
    Unavailable."""
    curve = required(a.prices.get(level, ()), "no tables of this level were swept")
    return curve.last / curve.intervals[0]


@claim("walk-caches-hold-upper-entries", points=_ends(1))
def upper_entries_are_kept(a: Analysis, band: Band) -> Answer:
    ratio = _rise(a, 1)
    return inside(ratio, *band), (
        f"With a table of its own for each page a miss costs {ratio:.2f} times what it costs with "
        f"{ENTRIES_PER_LINE**2} pages to a table."
    )


@claim("walk-caches-hold-three-levels", points=_ends(*LEVELS))
def three_levels_are_kept(a: Analysis) -> Answer:
    """A cache that ends within its sweep shows there as a rise; one that does not may be larger
    than its sweep."""
    required(a.prices, "no tables were swept")
    rises = [inside(_rise(a, level), LEAST_RISE) for level in LEVELS]
    shown = sum(bool(rise.decided()) for rise in rises)
    return Undecided("ambiguous") if decided(rises) is False else rises, (
        f"{in_words(shown).capitalize()} of the three sweeps show{'s' * (shown == 1)} a cache that "
        "ends. One that does not may be larger than its sweep."
    )


@claim("every-walk-visits-all-levels", points=_ends(*LEVELS))
def every_walk_visits_all(a: Analysis) -> Answer:
    required(a.prices, "no tables were swept")
    rise = inside(a.last_ns / a.first_ns, most=LEAST_RISE)
    return Undecided("ambiguous") if rise.decided() else rise, (
        f"A miss costs {a.first_ns:.1f} ns through few tables and {a.last_ns:.1f} through many, "
        "whose entries take as much room: a walk through few reads less."
    )


@claim("few-ranges-pay-30-cycles", points=_ends(1))
def few_ranges_are_cheap(a: Analysis, band: Band) -> Answer:
    cycles = _cycles(a, a.first_ns)
    return inside(cycles, *band), f"A miss inside few ranges costs {cycles:.0f} cycles."


@claim("scattered-ranges-pay-200-cycles", points=_ends(3))
def scattered_ranges_are_dear(a: Analysis, band: Band) -> Answer:
    cycles, tables = _cycles(a, a.last_ns), max(a.prices[max(a.prices)].xs)
    return inside(cycles, *band), (
        f"A miss among pages scattered over {tables:.0f} tables of the third level costs "
        f"{cycles:.0f} cycles."
    )


@claim("full-walks-would-hurt", points=_ends(3))
def full_walks_hurt(a: Analysis, band: Band) -> Answer:
    ratio = (required(a.times.get(3), "no tables of the third level were swept").last) / a.held_ns
    return inside(ratio, *band), (
        f"A visit that walks through many tables of each level takes {ratio:.1f} times as long as "
        "one that hits."
    )


# --- by the place of the lowest table


def _in_memory(a: Analysis) -> tuple[Walk, Interval]:
    """The walk whose lowest table is in memory, and a load that memory answers, in ns. Raises
    Unavailable."""
    found = [walk for walk in a.walks if walk.table_in == "memory"]
    loads = curves.packed(a.about.kept("stlb_cliff"), pages=BASE)
    largest = a.cache_bytes(3) or a.cache_bytes(2) or 0
    far = loads.between(4 * largest / 64, float("inf"))
    return required(found, "no walk to memory was measured")[0], required(
        far, "no load from memory was measured"
    ).last


def _trips(a: Analysis) -> Interval:
    walk, load = _in_memory(a)
    cost = required([walk.cost] if walk.cost else [], "no walk to memory was measured")[0].interval
    return (cost * (1 / a.ghz) if a.survey.unit == "cycles" else cost) / load


@claim("warm-walk-reads-one-line", points=None)
def a_warm_walk_reads_one_line(a: Analysis) -> Answer:
    trips = _trips(a)
    evidence = (
        f"A walk whose lowest table is in memory costs {trips:.2f} times a load that memory "
        "answers."
    )
    return inside(trips, 0.5, 1.5), evidence


@claim("upper-entries-stay-cached", points=None)
def upper_entries_stay(a: Analysis, band: Band) -> Answer:
    trips = _trips(a)
    share = Interval(2 - trips.value, 2 - trips.high, 2 - trips.low, trips.coverage, trips.modes)
    evidence = (
        f"A walk whose lowest table is in memory costs {trips:.2f} times a load that memory "
        "answers."
    )
    return inside(share, *band), evidence


@claim("only-larger-pages-raise-reach", points=None)
def only_pages_raise_reach(a: Analysis, band: Band) -> Answer:
    stated, last = a.two_stated_levels()[1], a.survey.levels[-1]
    reach = last.opinions.get("price", last.entries).interval * (1 / stated)
    return inside(reach, *band), (
        f"Chases past the last level's {stated:,} entries begin to miss at {reach:.2f} times as "
        "many pages."
    )


# --- what is shorter on larger pages


def _by_counters(a: Analysis, chapter: str, kernel: str) -> tuple[Interval, str]:
    """How many times as many cycles a walk takes on base pages as on large ones, in a source's own
    loop at its largest size; and on which large ones. Raises Unavailable."""
    rows = select(a.about.kept(chapter), kernel=kernel)
    counted = {"walk_per_access", "walk_cycles_per_access"} <= set(rows)
    walked = (
        rows.dropna(subset=["walk_per_access", "walk_cycles_per_access"])
        if counted
        else rows.iloc[:0]
    )
    required(
        walked, "cycles of a walk were not counted", why_not_counted(rows, "walk_cycles", a.host)
    )
    walked = walked.assign(cycles=walked["walk_cycles_per_access"] / walked["walk_per_access"])
    large = required(
        [pages for pages in LARGE if (walked["pages"] == pages).any()],
        "no large pages were measured",
        "pool-empty",
    )[0]
    of = [
        required(walked[walked["pages"] == pages], f"no walks on {words(pages)}")
        for pages in (BASE, large)
    ]
    most = min(one["working_set_bytes"].max() for one in of)
    times = [interval_of_rows(one[one["working_set_bytes"] == most], "cycles") for one in of]
    return times[0] / times[1], words(large)


@claim("smaller-tables-cheapen-walks", points=None)
def smaller_tables_cheapen(a: Analysis, band: Band) -> Answer:
    ratio, large = _by_counters(a, "hugepages", "random_touch")
    return inside(ratio, *band), (
        f"A walk of a random touch on base pages takes {ratio:.2f} times as many cycles as one on "
        f"{large}."
    )


@claim("large-pages-keep-tables-cached", points=None)
def large_pages_keep_tables(a: Analysis, band: Band) -> Answer:
    ratio, large = _by_counters(a, "graph_walk", "graph_walk")
    evidence = (
        f"A walk of a hop on base pages takes {ratio:.2f} times as many cycles as one on {large}."
    )
    return inside(ratio, *band), evidence


# --- five levels, in a guest whose tables have them


def _by_levels(a: Analysis) -> Interval:
    """A guest's load with five levels over one with four. Raises Unavailable."""
    rows = select(
        a.about.kept("virtualization"), kernel="guest_chase", layout="spread", mode="4k", pages=BASE
    )
    five = select(rows, levels=5)
    required(five, "no guest had five levels", "no-la57")
    four = select(rows, levels=4, lines=list(five["lines"].unique()))
    times = [interval_of_rows(one) for one in (five, required(four, "no guest had four levels"))]
    return times[0] / times[1]


@claim("walk-caches-hide-the-fifth-level", points=None)
def the_fifth_level_is_hidden(a: Analysis, band: Band) -> Answer:
    ratio = _by_levels(a)
    evidence = (
        f"In a guest with five levels a load takes {ratio:.2f} times as long as in one with four."
    )
    return inside(ratio, *band), evidence


@claim("extra-level-lengthens-a-walk", points=None)
def a_level_more_is_longer(a: Analysis, band: Band) -> Answer:
    ratio = _by_levels(a)
    evidence = (
        f"In a guest with five levels a load takes {ratio:.2f} times as long as in one with four."
    )
    return inside(ratio, *band), evidence
