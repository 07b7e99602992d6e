"""What is measured beyond the rounds: the widest intervals, never the wished-for ones."""

import random
from collections import Counter
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
from support.campaigns import NAME, Scripted, a_rig, one_by_one
from support.common import fake_kernel

from tlb.measure import campaign
from tlb.measure.campaign import NARROW, half_width
from tlb.measure.mapping import group_points_by_process
from tlb.measure.record import Point

POINTS = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 104)]


class Noisy:
    """Stands for plan.measure: each point has a median and a noise of its own, and process
    number r always measures the same."""

    def __init__(self, noise: dict[Point, float], scale: float = 1.0):
        self.noise, self.scale, self.asked = noise, scale, list[tuple[Point, int]]()

    def ns(self, point: Point, repeat: int) -> float:
        return (
            self.scale
            * point.lines
            * np.exp(self.noise.get(point, 0.0) * random.Random(f"{point} {repeat}").gauss())
        )

    def __call__(self, point: Point, repeat: int, *, state: str, **how: object):
        self.asked.append((point, repeat))
        return Scripted(("", self.ns(point, repeat)))(point, repeat, state=state)


@pytest.fixture
def go(store, own_lock, monkeypatch):
    """A campaign of POINTS: five mappings each, nine at most."""
    monkeypatch.setattr("tlb.measure.build.kernel", fake_kernel())
    monkeypatch.setattr("tlb.measure.build.has_session", lambda point: False)
    return lambda measure, repeats=5, store=store, **how: campaign.run(
        a_rig(store, measure=one_by_one(measure)),
        {NAME: POINTS},
        repeats,
        **{"most": campaign.most_mappings(repeats), "quiet": True} | how,
    )


@pytest.fixture
def all_the_time(monkeypatch) -> None:
    """What follows the rounds may take as long as it likes."""
    monkeypatch.setattr(campaign, "EXTRA_SHARE", inf)


@pytest.mark.usefixtures("all_the_time")
def test_a_wide_point_gets_nine_mappings_and_a_narrow_one_five_and_then_nothing_is_to_do(go, store):
    noise = dict.fromkeys(POINTS[::2], 0.05) | dict.fromkeys(POINTS[1::2], 0.001)
    first = go(measure := Noisy(noise))
    assert Counter(point for point, _ in measure.asked) == {
        point: 9 if noise[point] > 0.01 else 5 for point in POINTS
    }
    assert [repeat for _, repeat in measure.asked] == sorted(
        repeat for _, repeat in measure.asked
    )  # mapping by mapping
    measure.asked.clear()
    again = go(measure)
    assert (again.measured, again.cached, again.skipped, measure.asked) == (
        0,
        first.measured,
        0,
        [],
    )
    for point in POINTS:
        values = [measure.ns(point, repeat) for repeat in range(5)]
        assert (half_width(tuple(values)) > NARROW) == (noise[point] > 0.01)


@pytest.mark.parametrize(("mappings", "is_chosen"), [(3.9, False), (4.1, True)])
def test_a_wide_point_is_chosen_only_if_there_is_time_for_all_its_mappings(mappings, is_chosen):
    """From five to nine are four more."""
    point = POINTS[0]
    (group,) = group_points_by_process([point], random.Random(0))
    takes_s = mappings * (group.start[1] + group.cost_s(point))
    bar = SimpleNamespace(time_left_s=inf, extra_s=takes_s, pace=lambda kind: 1.0)
    missing, values = {point: [5, 6, 7, 8]}, {point: [1.0, 2.0, 3.0, 4.0, 5.0]}
    todo = campaign._Missing({point: 5}, 9, lambda point: True, {}, missing, values)
    assert todo.widest(bar) == ([point] if is_chosen else [])
