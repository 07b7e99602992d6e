"""Walks taken apart on machines whose caches of upper entries are known: each comes back, and what
lacks is a reason."""

from functools import cache

import numpy as np
import pytest
from support.common import refusal
from support.synthetic import GIB, scope
from support.tables import MACHINES, NOTHING, Walker, analysis, points, rows

from experiments.page_walks import Analysis, grid

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Walker(noise=1e-9)


@cache
def quiet() -> Analysis:
    """Several tests read it, so none assigns to it."""
    return analysis(rows(QUIET))


# A page-directory cache of an Intel core's size, one in the TLB, and small ones of three levels.
WALKERS = {
    "thirty-two": Walker(entries=(64, 512), kept=((1, 32), (2, 4))),
    "shared with the TLB's pages": Walker(entries=(64, 2048), kept=((1, 700), (2, 60))),
    "three levels": QUIET,
}


@pytest.mark.parametrize("name", WALKERS)
def test_the_caches_of_a_machine_come_back_within_a_tenth(name):
    walker = WALKERS[name]
    a = analysis(walker.frame(points(entries=walker.entries)), entries=walker.entries)
    for level, entries in walker.kept:
        assert a.cached_entries(level).value == pytest.approx(entries, rel=0.1), level
    for level in {1, 2, 3} - {level for level, _ in walker.kept}:
        assert refusal(lambda level=level: a.cached_entries(level)) == "no-step"


def test_a_machine_without_upper_caches_has_no_step_and_so_has_one_whose_caches_hold_all():
    found = {}
    for machine in ("no upper caches", "huge upper caches"):
        a = analysis(MACHINES[machine]())
        assert set(a.miss_costs) == {1, 2, 3}
        assert refusal(lambda a=a: a.cached_entries(1)) == "no-step"
        found[machine] = a.first_ns.value
    assert found["no upper caches"] - found["huge upper caches"] == pytest.approx(
        18.0, rel=0.1
    )  # three reads more of every walk


def test_a_miss_is_priced_by_the_walks_that_were_counted_at_its_own_point():
    """Where upper entries take room in the TLB, more visits walk as tables grow, and that is no
    price of a walk."""
    frame = rows(QUIET)
    share = np.clip(0.5 + frame["tables_1"] / 8192, None, 1.0)
    priced, plain = analysis(frame.assign(walk_per_access=share)), quiet()
    for (tables, price), (_, visit) in zip(priced.miss_costs[1], priced.times[1], strict=True):
        assert price.value == pytest.approx(
            (visit.value - priced.held_ns.value) / min(0.5 + tables / 8192, 1.0)
        )
    assert plain.last_ns.value / priced.last_ns.value == pytest.approx(1.0 / plain.missed.value)


@pytest.mark.parametrize("entries", [(10, 512), (64, 1536), (96, 4096), (224, 32768)])
def test_every_point_goes_through_tables_that_there_can_be(entries):
    asked = points(entries=entries)
    assert len(asked) == len(set(asked))
    for point in (point for point in asked if point.kernel == "table_chase"):
        if point.order == "random":
            assert dict(point.options)["hot"] <= point.lines
        own = [point.lines, *(dict(point.options)[name] for name in grid.PAGE_TABLE_OPTION_NAMES)]
        assert all(
            below % above == 0 and below // above <= 512
            for below, above in zip(own, own[1:], strict=False)
        ), own


def test_a_coarse_grid_has_fewer_points_of_a_sweep():
    coarse, fine = (grid.table_chases(scope(GIB, per_octave=number)) for number in (1, 4))
    assert 0 < len(coarse) < len(fine)


def test_a_surveyed_walk_is_in_nanoseconds():
    a = analysis()
    (place, cycles), *_ = [(walk.table_in, walk.cost) for walk in a.surveyed_walks]
    _, ns = a.surveyed_walk(place)
    ghz = a.survey.core_ghz if a.survey.unit == "cycles" else 1.0
    assert ns.value * ghz == pytest.approx(cycles.value)
    assert refusal(lambda: analysis(NOTHING).surveyed_walk("nowhere")) == "too-few-points"
