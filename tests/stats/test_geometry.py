"""The geometry of machines that never were: a survey of each finds what it was made of."""

import numpy as np
import pandas as pd
import pytest
from support.common import refusal
from support.geometry import CACHES, SHARP, Made, at_random, inferred, lru, rows

from tlb.measure import survey
from tlb.stats import geometry, geometry_curves
from tlb.stats.fits import CurveKnee
from tlb.stats.geometry_curves import base_pages_per_page, base_stride


def test_sharp_steps_are_found_to_the_page_or_within_a_percent():
    first, second = inferred(SHARP).levels
    assert first.entries.value == 64
    assert second.entries.value == pytest.approx(1536, rel=0.01)
    assert second.entries.low <= 1536 <= second.entries.high
    assert (
        first.opinions.keys() == {"price", "alias"}
        and {"price", "alias", "draws"} == second.opinions.keys()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("ways", "entries"), [(6, 96), (8, 64)])
def test_a_first_level_of_sets_rises_over_a_way_and_the_draws_find_its_entries(ways, entries):
    """In sets chosen by the page's number, page 65 crowds one set of sixteen, page 80 the last."""
    level = inferred(Made(lru(entries, ways), lru(1536))).levels[0]
    assert level.entries.value == pytest.approx(entries, rel=0.03)
    assert level.rise[1] > entries * (1 + 0.5 / ways)


@pytest.mark.slow
@pytest.mark.parametrize("ways", [8, 16, 32])
def test_entries_in_sets_under_lru_lie_within_the_bounds_stated(ways):
    """Sixteen sets and more are full at 1,536 pages, and overflow one after another."""
    for noise in (0.003, 0.02):
        second = inferred(Made(lru(64), lru(1536, ways), noise=noise)).levels[1]
        assert second.entries.low <= 1536 <= second.entries.high
        assert second.entries.value == pytest.approx(1536, rel=0.01)
        assert second.entries.high < 1.1 * second.entries.low


@pytest.mark.slow
@pytest.mark.parametrize("entries", [(48, 1280), (72, 3072), (128, 1024)])
def test_the_sizes_that_are_built_are_found_in_noise_of_two_percent(entries):
    made = Made(lru(entries[0]), lru(entries[1]), noise=0.02)
    assert [
        level.entries.value for level in inferred(made, seed=entries[1]).levels
    ] == pytest.approx(entries, rel=0.03)


def test_where_replacement_is_random_the_draws_decide_and_are_right_within_three_percent():
    level = inferred(Made(lru(64), at_random(1536))).levels[1]
    assert level.entries.method.startswith("draws")
    assert level.entries.value == pytest.approx(1536, rel=0.03)
    assert level.opinions["alias"].value > 1.2 * 1536  # half of the rise would have been wrong
    assert "random draws" in level.verdict.lower() and "believe those" in level.verdict


@pytest.mark.endurance
@pytest.mark.parametrize(("joined", "entries"), [(4, (72, 3072)), (8, (64, 1536))])
def test_where_neighbours_share_entries_alias_rules_and_price_is_named_a_multiple(joined, entries):
    found = inferred(Made(lru(entries[0]), lru(entries[1]), joined=joined))
    assert [level.entries.value for level in found.levels] == pytest.approx(entries, rel=0.03)
    assert all(level.entries.method.startswith("alias") for level in found.levels)
    assert f"about {joined} of them" in found.levels[0].verdict and found.levels[
        1
    ].hit_cost.value == pytest.approx(7, abs=0.5)


@pytest.mark.parametrize("stated", [(), (10, 512)])
def test_of_one_level_that_shows_nobody_says_which_it_is_nor_what_a_walk_costs(stated):
    """The first level of a small core is below what a chase can show: its price is in that of the
    other."""
    found = inferred(Made(lru(10), lru(512)), stated=stated)
    (level,) = found.levels
    assert (
        level.entries.value == pytest.approx(512, rel=0.03) and level.is_alone and found.walks == []
    )
    assert any("One level shows" in note for note in found.notes)


@pytest.mark.slow
@pytest.mark.parametrize(("ways", "entries"), [(4, 64), (12, 48)])
def test_pages_that_collide_show_the_ways_of_the_first_level(ways, entries):
    assert inferred(Made(lru(entries, ways), lru(1536))).levels[0].ways == ways


def test_ways_that_do_not_divide_the_entries_into_a_power_of_two_of_sets_are_not_stated():
    def odd(order: str, pages: int, stride: int) -> float:
        return float(pages > (64 if stride == 1 else 7))

    level = inferred(Made(odd, lru(1536))).levels[0]
    assert level.ways is None and "power of two" in level.ways_reason


def test_a_walk_that_was_not_measured_keeps_its_place_with_a_reason():
    frame = rows(SHARP, "4k", 1)
    *others, memory = geometry.infer_tlb_geometry(frame[frame["lines"] < 2**19], (), CACHES).walks
    assert all(walk.cost for walk in others)
    assert (memory.table_in, memory.cost) == (
        "memory",
        None,
    ) and "this chase was left out" in memory.reason


def test_where_the_two_opinions_disagree_the_verdict_says_which_to_believe():
    first = inferred(Made(lru(64), lru(1536), misplaced=1.2)).levels[0]
    assert first.opinions["price"].value == 64 and first.opinions["alias"].value == pytest.approx(
        77, abs=1
    )
    assert (
        "Price puts the step at 64 pages, alias at 7" in first.verdict
        and "believe 7" in first.verdict
    )
    assert first.entries == first.opinions["alias"]
    early = inferred(Made(lru(64), lru(1536), misplaced=0.8)).levels[0]  # as in a noisy minute
    assert (
        early.entries == early.opinions["price"]
        and early.entries.value == 64
        and "believe 64" in early.verdict
    )


def test_a_process_that_is_disturbed_moves_no_level():
    """A third of all processes is dearer, by up to double: the median of three falls for it, the
    least does not."""
    frame = survey.survey(Made(lru(72), at_random(3072), noise=0.003).run(), "4k", CACHES)
    rng = np.random.default_rng(3)
    frame["ns_per_access"] *= np.where(
        rng.random(len(frame)) < 0.33, rng.uniform(1.1, 2, len(frame)), 1.0
    )
    assert [
        level.entries.value for level in geometry.infer_tlb_geometry(frame).levels
    ] == pytest.approx([72, 3072], rel=0.03)


def test_a_machine_without_a_step_says_no_step():
    assert refusal(lambda: inferred(Made(lambda *_: 0.0, lambda *_: 0.0))) == "no-step"


def test_a_change_of_the_clock_between_processes_is_no_step():
    """Half of the processes run at half the clock: in ns they fall apart, in cycles they do not."""
    frame = survey.survey(Made(lru(64), lru(1536), noise=0.005).run(), "4k", CACHES)
    slow = np.random.default_rng(2).random(len(frame)) < 0.5
    frame.loc[slow, "ns_per_access"] *= 2
    frame.loc[slow, "core_ghz"] /= 2
    assert [
        level.entries.value for level in geometry.infer_tlb_geometry(frame).levels
    ] == pytest.approx([64, 1536], rel=0.01)


@pytest.mark.parametrize(
    ("caches", "places"),
    [
        (CACHES, ["L2", "L3", "memory"]),
        ({1: 32 << 10, 2: 256 << 10, 3: 8 << 20}, ["L2", "L3", "memory"]),
        ({1: 32 << 10, 2: 1 << 20}, ["L2", "memory"]),
        ({1: 64 << 10}, ["memory"]),
        ({}, []),
    ],
)
def test_a_place_that_no_chase_can_have_is_left_out(caches, places):
    points = geometry_curves.walk_points(1536, 1, caches)
    assert [where for where, _, _ in points] == places
    assert all(lines >= 5 * 1536 for _, lines, _ in points)


# --- curves


def test_a_curve_has_the_median_of_its_processes_and_the_least_disturbed_one():
    frame = pd.DataFrame(
        {
            "layout": "alias",
            "order": "cycle",
            "stride_pages": [1, 1, 1, 1, 2],
            "lines": [32, 32, 32, 8, 32],
            "ns_per_access": [3.0, 1.0, 2.0, 5.0, 9.0],
            "core_ghz": [2.0, 2.0, 2.0, 2.0, 2.0],
        }
    )
    assert geometry_curves.cost_by_page_count(frame, "alias").values.tolist() == [
        [8, 10, 10, 10, 0, 1, 10],
        [32, 4, 2, 6, 0.75, 3, 2],
    ]
    assert geometry_curves.aliased_chase_curve(frame)["lines"].tolist() == [32]
    assert geometry_curves.cost_by_page_count(frame.assign(core_ghz=[2.0, 0, 2, 2, 2]), "alias")[
        "cost"
    ].tolist() == [5, 2]  # one without a clock: all in ns


@pytest.mark.parametrize(
    ("pages", "base", "stride"),
    [
        ("4k", 4096, 1),
        ("2m", 4096, 512),
        ("thp", 4096, 512),
        ("2m", 16 << 10, 128),
        ("2m", 64 << 10, 32),
    ],
)
def test_the_stride_of_a_page_size_is_counted_in_base_pages_of_the_machine(pages, base, stride):
    assert base_stride(pages, base) == stride
    of_two = pd.DataFrame({"pages": [pages], "stride_bytes": [base * 8], "stride_pages": [8]})
    assert base_pages_per_page(of_two) == stride


# --- intervals over mappings

HITS, MISSES = [16, 24, 32, 48, 60], [96, 128, 192, 256, 384, 512, 768, 1024]  # pages
FIRST, LAST = CurveKnee(4, 11, 64, 65, 64, 65), CurveKnee(11, 41, 1536, 1537, 1536, 1537)
FAR = 1 << 20  # pages whose table is in memory


def surveyed(random: np.random.Generator, mappings: int, shared: float) -> pd.DataFrame:
    """Rows of pages that hit (5 cycles), miss the first level (12) and walk (400), with noise of 2
    %, of which the points of a mapping have the share `shared` of the variance in common."""
    lines = np.array([*HITS, *MISSES, FAR])
    cycles = np.where(lines < 64, 5.0, np.where(lines < FAR, 12.0, 400.0))
    noise = shared**0.5 * random.standard_normal((mappings, 1))
    noise = noise + (1 - shared) ** 0.5 * random.standard_normal((mappings, lines.size))
    return pd.DataFrame(
        {
            "layout": "alias",
            "order": "cycle",
            "measures": 2,
            "repeat": np.repeat(np.arange(mappings), lines.size),
            "lines": np.tile(lines, mappings),
            "stride_pages": np.tile(np.where(lines < FAR, 1, 8), mappings),
            "core_ghz": 1.0,
            "ns_per_access": (cycles * np.exp(0.02 * noise)).ravel(),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0.0, 0.9])
@pytest.mark.parametrize("mappings", [3, 5])
def test_the_costs_of_a_hit_and_of_a_walk_are_held_as_often_as_stated(mappings, shared):
    """Over the points as if they were independent, a hit's cost is held in 71 % of surveys of three
    mappings at a share of 0.9, for a stated 93.8 %. The plateau that a walk is compared with still
    takes them so: the noise of the walk is far above its own."""
    random, trials = np.random.default_rng(7), 150
    hits = walks = 0
    for _ in range(trials):
        frame = surveyed(random, mappings, shared)
        near = frame[frame["lines"] < FAR]
        curve = geometry_curves.cost_by_page_count(near, "alias")
        by_mapping = geometry_curves.costs_by_mapping(near, "alias")
        hit = geometry.level_hit_cost(curve, by_mapping, FIRST, LAST)
        plateau = curve.loc[curve["lines"].isin(MISSES), "cost"]
        (walk,) = geometry_curves.walk_prices(frame, plateau, 1536, 1, {1: FAR * 32})
        hits += hit.low <= 7.0 <= hit.high
        walks += walk.cost.low <= 388.0 <= walk.cost.high
    for held, coverage in ((hits, hit.coverage), (walks, walk.cost.coverage)):
        error = (coverage * (1 - coverage) / trials) ** 0.5
        assert held / trials >= coverage - 3 * error


def test_processes_of_one_point_each_are_independent_points_of_a_plateau():
    frame = surveyed(np.random.default_rng(7), 3, 0.0).assign(measures=1)
    by_mapping = geometry_curves.costs_by_mapping(frame, "alias")
    hit = geometry.level_hit_cost(
        geometry_curves.cost_by_page_count(frame, "alias"), by_mapping, FIRST, LAST
    )
    assert by_mapping.empty and hit.coverage > 0.9 and hit.low <= 7.0 <= hit.high


# --- walks


def test_a_walk_has_the_interval_of_three_processes_or_that_of_the_batches_of_fewer():
    frame = pd.DataFrame(
        {
            "layout": "alias",
            "order": "cycle",
            "lines": 1 << 20,
            "stride_pages": 8,
            "ns_per_access": [40.0, 41.0, 45.0],
            "core_ghz": 1.0,
            "batch_ns_per_access": [[30.0, 50.0], [41.0], [44.0, 46.0]],
        }
    )
    tread = pd.Series([10.0, 10.0, 10.0])
    three, two = (
        geometry_curves.walk_prices(frame[:n], tread, 64, 1, {1: 32 << 20})[0] for n in (3, 2)
    )
    assert (three.cost.value, three.cost.low, three.cost.high) == (31, 30, 35)
    assert (two.cost.value, two.cost.low, two.cost.high) == (30.5, 20, 40)
    assert three.table_bytes == (1 << 20) * 64 and three.reason is None
    (none,) = geometry_curves.walk_prices(frame, tread[:0], 64, 1, {1: 32 << 20})
    assert none.cost is None and "left out" in none.reason
