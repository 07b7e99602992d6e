"""Walks taken apart on machines whose caches of upper entries are known: each comes back, and what
lacks is a reason."""

from functools import cache

import numpy as np
import pytest
from support.tables import MACHINES, NOTHING, Walker, analysis, points, rows
from support.your_machine import geometry

from experiments.walk_anatomy import Analysis, grid, models
from tlb.system.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Walker(noise=1e-9)


@cache
def quiet() -> Analysis:
    """Several tests read it, so none assigns to it."""
    return analysis(rows(QUIET))


# by which a price may be over: tables with two pages each come by in no order, but never again at
# once, so LRU keeps fewer
LRU = 0.25
# A page-directory cache of an Intel core's size, one in the TLB, and small ones of three levels.
WALKERS = {
    "thirty-two": Walker(entries=(64, 512), ways=8, kept=((1, 32), (2, 4))),
    "shared with the TLB's pages": Walker(entries=(64, 2048), ways=8, kept=((1, 700), (2, 60))),
    "three levels": QUIET,
}


@pytest.mark.parametrize("name", WALKERS)
def test_the_caches_of_a_machine_come_back_within_a_tenth(name):
    walker = WALKERS[name]
    a = analysis(walker.frame(points(entries=walker.entries)), entries=walker.entries)
    found = {cache.level: cache for cache in a.caches}
    for level, entries in walker.kept:
        assert found[level].entries.value == pytest.approx(entries, rel=0.1), level
        next_kept = min((upper for upper, _ in walker.kept if upper > level), default=4)
        assert found[level].ns.value == pytest.approx(
            sum(walker.read_ns[level - 1 : next_kept - 1]), rel=LRU
        ), level
    assert len(found) == len(walker.kept)


def test_the_closed_form_is_what_the_simulator_counts():
    a = quiet()
    for level, curve in a.prices.items():
        for tables in grid.table_sweep(level, a.pages, a.fanout):
            said = models.predicted_miss_ns(a.first_ns.value, a.caches, dict(enumerate(tables, 1)))
            assert said == pytest.approx(curve.at(tables[level - 1]).value, rel=0.06), tables


def test_a_machine_without_upper_caches_has_no_step_and_so_has_one_whose_caches_hold_all():
    found = {}
    for machine in ("no upper caches", "huge upper caches"):
        a = analysis(MACHINES[machine]())
        assert a.caches == [] and a.predictions.empty and set(a.prices) == {1, 2, 3}
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
    for (tables, price), (_, visit) in zip(priced.prices[1], priced.times[1], strict=True):
        assert price.value == pytest.approx(
            (visit.value - priced.held_ns.value) / min(0.5 + tables / 8192, 1.0)
        )
    assert plain.last_ns.value / priced.last_ns.value == pytest.approx(1.0 / plain.missed.value)


@pytest.mark.parametrize("policy", ["lru", "random", "srrip"])
def test_what_the_last_level_replaces_is_found(policy):
    a = analysis(rows(Walker(replacement=policy)))
    left = {one.name for one in models.fitting_policies(a.policies)}
    assert len(a.misses) == 3 and policy in left
    unlike = {
        "lru": ("random", "fifo"),
        "random": ("lru", "fifo", "srrip"),
        "srrip": ("random", "fifo"),
    }[policy]
    assert not left & set(unlike)


@pytest.mark.parametrize(("entries", "widest"), [((64, 1536), 4), ((72, 3072), 8), ((64, 2048), 8)])
def test_pages_a_stride_apart_fit_as_many_entries_as_their_sets_have(entries, widest):
    assert analysis(rows(QUIET), entries=entries).widest == widest


def test_what_an_aliased_line_costs_is_what_the_survey_found_in_nanoseconds():
    for changes, ns in (
        ({"unit": "cycles", "core_ghz": 4.0, "alias_penalty": 17.0}, 4.25),
        ({"unit": "ns", "core_ghz": None, "alias_penalty": 4.6}, 4.6),
        ({"alias_penalty": 0.3}, 0.0),
        ({"alias_penalty": None}, 0.0),
    ):
        a = analysis()
        a.__dict__["survey"] = geometry(**changes)
        assert a.alias_ns == ns, changes


@pytest.mark.parametrize("entries", [(10, 512), (64, 1536), (96, 4096), (224, 32768)])
def test_every_point_goes_through_tables_that_there_can_be(entries):
    asked = points(entries=entries)
    assert len(asked) == len(set(asked))
    for point in (point for point in asked if point.kernel == "table_chase"):
        if point.order == "random":
            assert dict(point.options)["hot"] <= point.lines
        own = [point.lines, *(dict(point.options)[name] for name in grid.TABLES)]
        assert all(
            below % above == 0 and below // above <= 512
            for below, above in zip(own, own[1:], strict=False)
        ), own


def test_pages_that_collide_lie_as_far_apart_as_an_entry_of_their_level_maps():
    found = quiet().collisions
    assert dict(zip(found["level"], found["apart"], strict=True)) == {
        1: "4 KiB",
        2: "2 MiB",
        3: "1 GiB",
    }


def test_what_was_not_measured_is_empty_or_a_reason():
    a = analysis(NOTHING)
    assert (
        a.times == a.prices == {}
        and a.caches == []
        and a.predictions.empty
        and a.collisions.empty
        and a.pages == 0
    )
    for what in ("held_ns", "first_ns", "last_ns", "ghz"):
        with pytest.raises(Unavailable):
            getattr(a, what)


def test_what_was_found_along_the_sweeps_says_what_was_held_out():
    a = quiet()
    assert a.predictions["ratio"].to_numpy() == pytest.approx(np.ones(4), abs=0.05)
