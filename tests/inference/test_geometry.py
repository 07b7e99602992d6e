"""The geometry of machines that never were: a survey of each finds what it was made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import pytest
from support.common import make_record

from experiments.inference import geometry
from experiments.inference.geometry import Geometry
from experiments.lab import survey
from experiments.lab.record import Point
from experiments.words.reasons import Unavailable

CACHES = {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}
Missed = Callable[[str, int, int], float]  # order, pages, stride -> the share of visits that a level misses


@cache
def lru(entries: int, ways: int = 0) -> Missed:
    """LRU of contiguous sets; ways 0 is fully associative. By playing the chase, not by a formula."""
    def missed(order: str, pages: int, stride: int) -> float:
        sets = 1 if ways == 0 else entries // ways
        size = entries if ways == 0 else ways
        if order == "random":
            return max(0.0, 1 - entries / pages)
        held = np.bincount(np.arange(pages) * stride % sets, minlength=sets)
        return float(held[held > size].sum() / pages)
    return missed


@cache
def at_random(entries: int) -> Missed:
    """Any page is replaced: in a cycle the root of x = 1 - exp(-x M/C), by iteration."""
    def missed(order: str, pages: int, stride: int) -> float:
        if order == "random":
            return max(0.0, 1 - entries / pages)
        x = 1.0
        for _ in range(3000):
            x = 1 - np.exp(-x * pages / entries)
        return x
    return missed


@dataclass(frozen=True)
class Made:
    """A machine of two TLB levels, in core cycles."""

    first: Missed
    second: Missed
    load: float = 4.0
    hit: float = 7.0
    walk: float = 30.0
    l3: float = 60.0  # what a walk adds with its table in L3, and in memory
    memory: float = 400.0
    penalty: float = 17.0
    noise: float = 0.01
    ghz: float = 3.0
    spread: bool = True  # False: a machine without pages for the spread layout
    misplaced: float = 1.0  # the alias layout sees a first level so many times as large

    def cycles(self, point: Point) -> float:
        stride = point.stride_pages // (512 if point.pages == "2m" else 1)
        if point.layout == "packed":
            return self.load + (10 if point.lines > 512 else 0)
        pages = point.lines if point.layout == "spread" else max(1, round(point.lines / self.misplaced))
        table = point.lines * min(8 * stride, 64)
        walk = self.walk + (self.l3 if table > CACHES[2] else 0) + (self.memory if table > CACHES[3] else 0)
        price = self.first(point.order, pages, stride) * self.hit + self.second(point.order, point.lines, stride) * walk
        if point.layout == "alias":
            return self.load + 1 + (self.penalty if point.lines > 8 else 0) + price
        return self.load + (10 if point.lines > 512 else 0) + price

    def run(self, seed: int = 1) -> Callable[[list[Point]], pd.DataFrame]:
        """What survey() measures with: rows of all points asked for so far."""
        rng, rows, seen = np.random.default_rng(seed), [], set()

        def run(points: list[Point]) -> pd.DataFrame:
            for point in points:
                if point in seen or (point.layout == "spread" and not self.spread):
                    continue
                seen.add(point)
                for repeat in range(survey.repeats_of(point)):
                    ns = self.cycles(point) / (self.ghz or 1) * float(np.exp(self.noise * rng.standard_normal()))
                    record = make_record(**point.model_dump(), stride_bytes=4096 * point.stride_pages, repeat=repeat,
                                         ns_per_access=ns, batch_ns_per_access=[ns * 0.9, ns, ns * 1.1], core_ghz=self.ghz)
                    rows.append(record.model_dump(exclude={"counters"}))
            return pd.DataFrame(rows)

        return run


@cache
def rows(made: Made, pages: str, seed: int) -> pd.DataFrame:
    return survey.survey(made.run(seed), pages, CACHES)


def found(made: Made, pages: str = "4k", stated: tuple[int, ...] = (), seed: int = 1) -> Geometry:
    return geometry.infer(rows(made, pages, seed), stated, CACHES)


SHARP = Made(lru(64), lru(1536))


def test_sharp_steps_are_found_to_the_page_or_within_a_percent():
    first, second = found(SHARP).levels
    assert first.entries.value == 64
    assert second.entries.value == pytest.approx(1536, rel=0.01)
    assert second.entries.low <= 1536 <= second.entries.high
    assert first.opinions.keys() == {"price", "alias"} and {"price", "alias", "draws"} == second.opinions.keys()


@pytest.mark.parametrize(("ways", "entries"), [(4, 64), (6, 96), (8, 64)])
def test_a_first_level_of_sets_rises_over_a_way_and_the_draws_find_its_entries(ways: int, entries: int):
    """In sets chosen by the page's number, page 65 crowds one set of sixteen, page 80 the last."""
    level = found(Made(lru(entries, ways), lru(1536))).levels[0]
    assert level.entries.value == pytest.approx(entries, rel=0.03)
    assert level.rise[1] > entries * (1 + 0.5 / ways)


@pytest.mark.parametrize("entries", [(48, 1280), (64, 2048), (72, 3072), (96, 2048), (128, 1024), (64, 512)])
def test_the_sizes_that_are_built_are_found_in_noise_of_two_percent(entries: tuple[int, int]):
    made = Made(lru(entries[0]), lru(entries[1]), noise=0.02)
    assert [one.entries.value for one in found(made, seed=entries[1]).levels] == pytest.approx(entries, rel=0.03)


@pytest.mark.parametrize("entries", [1536, 2048, 3072])
def test_where_replacement_is_random_the_draws_decide_and_are_right_within_three_percent(entries: int):
    level = found(Made(lru(64), at_random(entries))).levels[1]
    assert level.entries.method.startswith("draws")
    assert level.entries.value == pytest.approx(entries, rel=0.03)
    assert level.opinions["alias"].value > 1.2 * entries  # half of the rise would have been wrong
    assert "random draws" in level.verdict.lower() and "believe those" in level.verdict


def test_what_a_second_level_hit_adds_is_the_height_of_its_tread():
    first, second = found(SHARP).levels
    assert first.hit_cost is None
    assert second.hit_cost.value == pytest.approx(7, abs=0.3)
    assert second.hit_cost.low <= 7 <= second.hit_cost.high


def test_the_first_tread_is_a_load_that_hits_everywhere():
    assert found(SHARP).first_tread == pytest.approx(4, rel=0.03)


@pytest.mark.parametrize(("ways", "entries"), [(4, 64), (6, 96), (8, 64), (12, 48), (3, 48)])
def test_pages_that_collide_show_the_ways_of_the_first_level(ways: int, entries: int):
    assert found(Made(lru(entries, ways), lru(1536))).levels[0].ways == ways


def test_a_first_level_without_sets_has_zero_ways():
    level = found(Made(lru(72), lru(1536))).levels[0]
    assert (level.ways, level.ways_reason) == (0, None)


def test_ways_that_do_not_divide_the_entries_into_a_power_of_two_of_sets_are_not_stated():
    def odd(order: str, pages: int, stride: int) -> float:
        return float(pages > (64 if stride == 1 else 7))

    level = found(Made(odd, lru(1536))).levels[0]
    assert level.ways is None and "power of two" in level.ways_reason


def test_pages_that_never_collide_leave_the_ways_unknown_with_the_reason():
    def apart_is_free(order: str, pages: int, stride: int) -> float:
        return float(pages > 64 and stride < 64)

    made = Made(apart_is_free, lru(1536))
    level, apart = found(made).levels[0], rows(made, "4k", 1)
    most = apart.loc[(apart["stride_pages"] == 64) & (apart["layout"] == "spread"), "lines"].max()
    assert level.ways is None
    assert "no step" in level.ways_reason and f"{most} pages at a stride of 64 cost no more than two" in level.ways_reason


def test_ways_are_asked_of_the_first_level_alone():
    second = found(SHARP).levels[1]
    assert (second.ways, second.ways_reason) == (None, None)


def test_without_noise_walks_and_hits_are_exact():
    """From 645 pages on the data of the spread chase are in another cache than those of 64: the tread of alias knows nothing of it."""
    made = found(Made(lru(64), lru(1536), noise=0.0))
    assert made.levels[1].hit_cost.value == pytest.approx(7)
    assert [walk.cost.value for walk in made.walks] == pytest.approx([30, 90, 490])
    assert made.first_tread == pytest.approx(4) and made.alias_penalty == pytest.approx(17)


def test_a_walk_that_was_not_measured_keeps_its_place_with_a_reason():
    frame = rows(SHARP, "4k", 1)
    *others, memory = geometry.infer(frame[frame["lines"] < 2**19], (), CACHES).walks
    assert all(walk.cost for walk in others)
    assert (memory.table_in, memory.cost) == ("memory", None) and "this chase was left out" in memory.reason


def test_where_price_alone_shows_a_level_the_verdict_says_so():
    frame = rows(SHARP, "4k", 1)
    first, second = geometry.infer(frame[frame["layout"] != "alias"]).levels
    assert "Only price shows this level, at 64 pages" in first.verdict
    assert first.opinions.keys() == {"price"} and first.entries == first.opinions["price"]


def test_a_step_between_two_points_is_bounded_by_what_lies_between_them():
    frame = rows(SHARP, "4k", 1)
    near = geometry.infer(frame[~frame["lines"].isin([65, 66])]).levels[0].entries
    assert (near.value, near.low) == (64, 64)
    assert near.high == min(frame.loc[frame["lines"] > 66, "lines"]) - 1


def test_walks_are_dearer_the_further_away_their_table_is():
    walks = {walk.table_in: walk for walk in found(SHARP).walks}
    assert list(walks) == ["L2", "L3", "memory"]
    assert walks["L2"].cost.value == pytest.approx(30, rel=0.1)
    assert walks["L3"].cost.value == pytest.approx(90, rel=0.1)
    assert walks["memory"].cost.value == pytest.approx(490, rel=0.1)
    assert CACHES[1] < walks["L2"].table_bytes <= CACHES[2] / 2
    assert CACHES[2] < walks["L3"].table_bytes < CACHES[3] <= walks["memory"].table_bytes


def test_a_single_process_is_bounded_by_its_batches():
    memory = found(SHARP).walks[-1].cost
    assert memory.low < 0.95 * memory.value and memory.high > 1.05 * memory.value


def test_the_price_of_aliasing_is_named_apart_and_moves_no_step():
    plain, dear = found(Made(lru(64), lru(1536), penalty=0)), found(Made(lru(64), lru(1536), penalty=17))
    assert plain.alias_penalty == pytest.approx(0, abs=0.3) and dear.alias_penalty == pytest.approx(17, abs=1)
    assert [one.entries.value for one in plain.levels] == pytest.approx([one.entries.value for one in dear.levels], rel=0.01)


def test_where_cpuid_agrees_the_verdict_says_so():
    first, second = found(SHARP, stated=(64, 1536)).levels
    assert "CPUID states 64 and agrees" in first.verdict and "CPUID states 1,536 and agrees" in second.verdict
    assert (first.stated, second.stated) == (64, 1536)


def test_where_cpuid_disagrees_the_verdict_says_what_to_believe_for_what():
    """Golden Cove: 2,048 stated, a bend near 1,600 (data/literature/microarchitectures.csv)."""
    second = found(Made(lru(96, 6), lru(1600)), stated=(96, 2048)).levels[1]
    assert second.entries.value == pytest.approx(1600, rel=0.01)
    assert "CPUID states 2,048: believe the measurement for what a program pays" in second.verdict


def test_where_cpuid_is_silent_nothing_is_compared():
    assert all("CPUID states nothing" in one.verdict and one.stated is None for one in found(SHARP).levels)


def test_a_level_more_in_cpuid_than_was_found_is_matched_by_size():
    assert [one.stated for one in found(SHARP, stated=(16, 64, 1536)).levels] == [64, 1536]
    assert [one.stated for one in found(SHARP, stated=(1536,)).levels] == [None, 1536]


def test_where_the_two_opinions_disagree_the_verdict_says_which_to_believe():
    first = found(Made(lru(64), lru(1536), misplaced=1.2)).levels[0]
    assert first.opinions["price"].value == 64 and first.opinions["alias"].value == pytest.approx(77, abs=1)
    assert "Price puts the step at 64 pages, alias at 7" in first.verdict and "believe 7" in first.verdict
    assert first.entries == first.opinions["alias"]
    early = found(Made(lru(64), lru(1536), misplaced=0.8)).levels[0]  # as in a noisy minute
    assert early.entries == early.opinions["price"] and early.entries.value == 64 and "believe 64" in early.verdict


def test_a_process_that_is_disturbed_moves_no_level():
    """A third of all processes is dearer, by up to double: the median of three falls for it, the least does not."""
    frame = survey.survey(Made(lru(72), at_random(3072), noise=0.003).run(), "4k", CACHES)
    rng = np.random.default_rng(3)
    frame["ns_per_access"] *= np.where(rng.random(len(frame)) < 0.33, rng.uniform(1.1, 2, len(frame)), 1.0)
    assert [one.entries.value for one in geometry.infer(frame).levels] == pytest.approx([72, 3072], rel=0.03)


def test_a_level_that_cpuid_states_and_no_chase_shows_is_named():
    made = found(Made(lru(72), lambda order, pages, stride: 0.0), stated=(72, 3072))
    assert [one.stated for one in made.levels] == [72]
    assert [note for note in made.notes if "CPUID states a level of 3,072 entries that no chase shows" in note]
    assert found(SHARP, stated=(64, 1536)).notes == []


def test_without_pages_to_spread_alias_alone_decides_and_says_so():
    first, second = found(Made(lru(64), lru(1536), spread=False)).levels
    assert (first.entries.value, second.entries.value) == (64, pytest.approx(1536, rel=0.01))
    assert "Only alias shows this level" in first.verdict
    assert first.ways is None and first.ways_reason


def test_a_machine_of_one_level_has_one():
    (level,) = found(Made(lru(64), lambda order, pages, stride: 0.0)).levels
    assert level.entries.value == 64


def test_a_machine_without_a_step_says_no_step():
    with pytest.raises(Unavailable) as why:
        found(Made(lambda *_: 0.0, lambda *_: 0.0))
    assert why.value.code == "no-step"


def test_no_rows_are_no_data():
    with pytest.raises(Unavailable) as why:
        geometry.infer(pd.DataFrame())
    assert why.value.code == "no-data"


def test_a_change_of_the_clock_between_processes_is_no_step():
    """Half of the processes run at half the clock: in ns they fall apart, in cycles they do not."""
    frame = survey.survey(Made(lru(64), lru(1536), noise=0.005).run(), "4k", CACHES)
    slow = np.random.default_rng(2).random(len(frame)) < 0.5
    frame.loc[slow, "ns_per_access"] *= 2
    frame.loc[slow, "core_ghz"] /= 2
    assert [one.entries.value for one in geometry.infer(frame).levels] == pytest.approx([64, 1536], rel=0.01)


def test_without_a_core_clock_costs_are_in_ns():
    made = found(Made(lru(64), lru(1536), ghz=0.0))
    assert made.unit == "ns" and made.core_ghz is None and made.first_tread == pytest.approx(4, rel=0.03)


def test_with_2_mib_pages_lines_stand_one_to_a_page_of_2_mib():
    made = found(Made(lru(32), lru(1024)), pages="2m")
    assert made.pages == "2m" and [one.entries.value for one in made.levels] == pytest.approx([32, 1024], rel=0.02)
    beyond = [walk for walk in made.walks if walk.cost is None]
    assert beyond and all("address space" in walk.reason for walk in beyond)


def test_a_rise_where_the_page_table_fills_a_cache_is_said_to_be_that():
    knee = geometry.Knee(70, 100, 4000, 4200, 3990, 4210)
    first, second = (knee._replace(last_low=n, first_high=n + 1) for n in (64.0, 512.0))
    tlb, others = geometry._tlb_steps([first, second, knee], CACHES)
    assert len(tlb) == 2 and others == [(knee, "there the page table fills the L1 cache")]
    assert "no TLB or cache" in geometry._tlb_steps([knee, knee, knee._replace(last_low=9e4, first_high=1e5)], CACHES)[1][0][1]


@pytest.mark.parametrize(("caches", "places"), [
    (CACHES, ["L2", "L3", "memory"]), ({1: 32 << 10, 2: 256 << 10, 3: 8 << 20}, ["L2", "L3", "memory"]),
    ({1: 32 << 10, 2: 1 << 20}, ["L2", "memory"]), ({1: 64 << 10}, ["memory"]), ({}, []),
])
def test_a_place_that_no_chase_can_have_is_left_out(caches: dict[int, int], places: list[str]):
    points = geometry.walk_points(1536, 1, caches)
    assert [where for where, _, _ in points] == places
    assert all(lines >= 5 * 1536 for _, lines, _ in points)
