"""What an article says of virtual machines and containers, as predicates on the Analysis."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from experiments.virtualization.analysis import (
    GUEST_CHASE_KERNEL,
    PROCESS_CHASE_KERNEL,
    STLB_MULTIPLES_BEYOND_REACH,
    Analysis,
    guest_and_host_pages_in_words,
)
from experiments.virtualization.grid import MAX_QUICK_GUEST_BYTES, coarse_line_counts
from tlb.measure.grid import Scope
from tlb.measure.namespaces import FRESH_NAMESPACES_MODE as NAMESPACES
from tlb.measure.record import Point
from tlb.report.claims import Answer, Band, Fact, MeasuredAnswer, claim, points_where
from tlb.stats.effects import effect_inside_band
from tlb.stats.intervals import Interval
from tlb.system.page_sizes import BASE_PAGES, MAPPED_PAGE_SIZES, mapped_page_size
from tlb.system.reasons import Unavailable, require_nonempty
from tlb.system.units import format_size

MOST_REFERENCES = 24
# "Under 2-3x native": two is the stricter reading, three the wider.
STRICT, WIDE = 2.0, 3.0


# --- arithmetic: the entries that a nested walk loads


def _depth(page: str, levels: int) -> int:
    """Return how many tables are read to find a page."""
    return levels - MAPPED_PAGE_SIZES.index(mapped_page_size(page))


def references_at_most(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """Return the loads of page-table entries in a walk of two dimensions that no cache shortens: (g + 1)(h +
    1) - 1, as each of the g entries and the data take h loads to find, and the g are loaded too
    (Bhargava et al., 2008)."""
    return (_depth(guest, levels) + 1) * (_depth(host, host_levels) + 1) - 1


def cold_references(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """Return the same, counted one by one for a load with every cache of translations empty."""
    loads = 0
    for is_table in [True] * _depth(guest, levels) + [False]:  # at last the data
        loads += _depth(host, host_levels)  # of the host's, to find it
        loads += is_table  # its own entry
    return loads


# --- measured


def _on(guests: Analysis, a: Analysis, truth: MeasuredAnswer, sentence: str) -> Answer:
    """Return the answer, and say so if its rows are the reference machine's."""
    return truth, sentence if guests is a else f"Measured on the reference machine. {sentence}"


def _guest_and_process(point: Point, scope: Scope) -> bool:
    return (
        point.kernel in (GUEST_CHASE_KERNEL, PROCESS_CHASE_KERNEL)
        and point.mode != NAMESPACES
        and not point.options
    )


@claim("references-of-a-nested-walk")
def references_of_a_nested_walk(a: Analysis, most: int = MOST_REFERENCES) -> Answer:
    pairs = list(product(MAPPED_PAGE_SIZES, repeat=2))
    counts = {(guest, host): cold_references(guest, host) for guest, host in pairs}
    agree = all(counts[guest, host] == references_at_most(guest, host) for guest, host in pairs)
    return Fact(
        max(counts.values()) == most and agree,
        "Counted by the simulator, a load with every cache of translations empty takes "
        f"{max(counts.values())} references on base pages "
        f"over base pages, {min(counts.values())} on 1 GiB pages over 1 GiB pages, and "
        f"{cold_references(BASE_PAGES, BASE_PAGES, 5, 5)} with five "
        "levels on five; the formula (g+1)(h+1)-1 gives "
        f"{'the same for all nine pairs' if agree else 'others'}.",
        float(max(counts.values())),
    )


def _far(point: Point, scope: Scope) -> bool:
    return _guest_and_process(point, scope) and point.lines >= min(
        scope.most_lines, scope.lines(MAX_QUICK_GUEST_BYTES)
    )


@claim("a-guest-costs-under-three", points=_far)
def a_guest_costs_under_three(a: Analysis, strict: float = STRICT, wide: float = WIDE) -> Answer:
    guests = a.guests
    known = require_nonempty(
        guests.far.dropna(subset="over_alike"),
        "no page size was measured both in a guest and outside",
    )
    worst, highs = known.iloc[known["over_alike"].argmax()], known["over_alike_high"]
    return _on(
        guests,
        a,
        effect_inside_band(Interval.of(worst, "over_alike"), most=wide, among=len(known)),
        (
            f"At {format_size(worst['lines'] * guests.base_page_bytes)} a load in the guest takes "
            f"{known['over_alike'].min():.2f} to "
            f"{Interval.of(worst, 'over_alike'):rounded} times one outside on the same pages, the most "
            f"on {worst['cell']}; "
            f"{(highs < strict).sum()} of {len(known)} pairs of page sizes stay under {strict:g}."
        ),
    )


def _past(times: float) -> Callable[[Scope], float]:
    return lambda scope: times * scope.entries[-1] if scope.entries else 0


@claim(
    "only-huge-on-huge-helps",
    points=points_where(
        GUEST_CHASE_KERNEL,
        mode=("4k", "2m"),
        pages=(BASE_PAGES, "thp"),
        levels=None,
        low=_past(STLB_MULTIPLES_BEYOND_REACH[0]),
        high=_past(STLB_MULTIPLES_BEYOND_REACH[1]),
    ),
)
def only_huge_on_huge_helps(a: Analysis, band: Band) -> Answer:
    """On one side they save less than the band's end, and on both more; by this machine's own
    guests, since obstacles are its own."""
    pairs = ("2m", "4k"), ("4k", "thp"), ("2m", "thp")
    for guest, host in pairs:
        if (guest, host) not in a.walks:
            raise Unavailable(
                "too-few-points", f"no guest had {guest_and_host_pages_in_words(guest, host)}"
            )
    inside_alone, outside_alone, both = (a.walks[pair] for pair in pairs)
    effects = [
        effect_inside_band(inside_alone, *band, what="in the guest alone"),
        effect_inside_band(outside_alone, *band, what="on the host alone"),
    ]
    return [*effects, effect_inside_band(both, most=band[0], what="on both")], (
        f"Past the TLB, translation costs {inside_alone:rounded} times as much with 2 MiB pages in the "
        f"guest alone as without, {outside_alone:rounded} times with them on the host alone, and "
        f"{both:rounded} times with them on both."
    )


@claim(
    "containers-add-nothing",
    points=points_where(
        PROCESS_CHASE_KERNEL, pages=BASE_PAGES, lines=lambda scope: tuple(coarse_line_counts(scope))
    ),
)
def containers_add_nothing(a: Analysis, band: Band) -> Answer:
    ratio = a.container_ratio  # of this machine, also where the guests are another's
    return effect_inside_band(ratio, *band), (
        f"A load in fresh user, mount, pid and network namespaces takes {ratio:rounded} times a plain "
        "process's. Namespaces add no second set of page tables."
    )
