"""Claims that a survey, the literature or the machine's own words decide: each way they can come
out."""

import pytest
from support.surveys import (
    ARM,
    IN_NS,
    SURVEYS,
    estimate,
    geometry,
    host,
    level,
    measured,
    stating,
    surveyed,
)
from support.synthetic import fit, tlbs

from experiments.stlb_cliff import Analysis
from tlb.report.claims import REGISTRY
from tlb.report.verdicts import judge
from tlb.stats.geometry_curves import WalkPrice

H, F, C, N = "holds", "fails", "cannot tell", "not testable here"


def verdict(a: Analysis, name: str, **bands: object) -> str:
    return judge(REGISTRY[name], a, **bands).verdict


@pytest.mark.parametrize(
    ("ways", "truth"),
    [((0, 12), "holds"), ((0, None), "holds"), ((4, 0), "fails"), ((None, 4), "cannot tell")],
)
def test_full_associativity_is_judged_by_what_the_first_level_states(ways, truth):
    assert verdict(stating(host(tlb=tlbs(ways=ways))), "fully-associative") == truth


def test_a_range_of_ways_is_not_full_associativity_and_silence_is_nothing():
    first, second = tlbs(ways=(0, None))
    some = {"ways": None, "ways_between": (8, 15)}
    of = host(tlb=(first.model_copy(update=some), second))
    found = judge(REGISTRY["fully-associative"], stating(of))
    assert found.verdict == "fails" and "8 to 15 ways" in found.evidence
    assert verdict(stating(host(**ARM)), "fully-associative") == "cannot tell"


def test_entries_cover_what_they_are_multiplied_by():
    found = judge(REGISTRY["entries-cover-a-pool"], stating(host()))
    assert found.verdict == "fails" and "64 MiB" in found.evidence and "2,200" in found.evidence
    assert verdict(stating(host()), "entries-cover-a-pool", entries=2200) == "holds"


# --- the survey: entries, and what a walk costs by where its table lies

# Entries with which it holds, with which it fails, and between which it cannot be told.
ENTRIES: dict[str, tuple[int, tuple, tuple, tuple]] = {
    "second-level-1024-to-2048": (2, (1536, 1500, 1600), (3072, 3000, 3200), (2048, 2000, 2200))
}
COSTS = {"L2": (30, 29, 31), "L3": (100, 95, 105), "memory": (250, 240, 260)}
# Where its table lies: cycles with which it holds, fails and cannot be told.
WALKS: dict[str, tuple[str, tuple, tuple, tuple]] = {
    "walk-30-cycles-in-l2": ("L2", (30, 29, 31), (60, 58, 62), (37, 36, 39)),
    "upper-entries-cost-20-to-30-ns": (
        "L3",
        (50, 46, 54),
        (100, 95, 105),
        (60, 55, 65),
    ),  # at 2 GHz
    "tables-go-through-the-caches": ("L3", (100, 95, 105), (20, 19, 21), (30, 28, 32)),
}


def walking(
    coverage: float = 0.9375, clock: dict | None = None, hypervisor: str = "none", **costs: tuple
) -> Analysis:
    """A survey that finds these costs, in cycles, of walks by the place of their table."""
    given = {"pages": 2**17, "stride_pages": 1, "table_bytes": 2**20}
    found = {place: estimate(*bounds) for place, bounds in (COSTS | costs).items()}
    walks = [
        WalkPrice(table_in=place, cost=cost.model_copy(update={"coverage": coverage}), **given)
        for place, cost in found.items()
    ]
    a = surveyed(measured(), geometry(walks=walks, **clock or {}))
    a.about.host = host(hypervisor=hypervisor)
    return a


def having(
    number: int, bounds: tuple, coverage: float = 1.0, stated: int | None = None
) -> Analysis:
    entries = estimate(*bounds).model_copy(update={"coverage": coverage})
    others = {1: estimate(64), 2: estimate(1536)} | {number: entries}
    levels = [level(1, others[1]), level(2, others[2], stated=stated)]
    return surveyed(measured(), geometry(levels=levels))


@pytest.mark.parametrize(
    ("stated", "found", "truth"),
    [
        (2048, (2112, 2060, 2200), H),  # as many as both levels are stated to have
        (2048, (2048, 2000, 2060), H),  # or as the second one is
        (2048, (2500, 2400, 2600), F),  # which its statement contradicts
        (3072, (3149, 2954, 3358), F),
        (2048, (2048, 1652, 16384), H),  # a range that agrees with everything: CPUID is left
    ],
)
def test_a_second_level_has_the_entries_that_are_stated_where_the_chases_agree(
    stated, found, truth
):
    a = having(2, found, stated=stated)
    assert verdict(a, "second-level-1024-to-2048") == truth


@pytest.mark.parametrize("id", ENTRIES)
def test_entries_are_those_that_the_survey_finds(id):
    number, *bounds = ENTRIES[id]
    assert [fit(judge(REGISTRY[id], having(number, some))).verdict for some in bounds] == [H, F, C]
    assert verdict(having(number, bounds[0], coverage=0.875), id) == C


@pytest.mark.parametrize("id", WALKS)
def test_a_walk_costs_what_the_survey_finds_by_where_its_table_lies(id):
    place, *bounds = WALKS[id]
    assert [fit(judge(REGISTRY[id], walking(**{place: some}))).verdict for some in bounds] == [
        H,
        F,
        C,
    ]
    assert verdict(walking(coverage=0.875, **{place: bounds[0]}), id) == C
    without_clock = fit(judge(REGISTRY[id], walking(clock=IN_NS, **{place: bounds[0]})))
    assert without_clock.verdict == C and not without_clock.effects
    in_a_guest = verdict(walking(hypervisor="kvm", **{place: bounds[0]}), id)
    assert in_a_guest == (N if id == "upper-entries-cost-20-to-30-ns" else H)


def test_a_survey_without_a_second_level_or_a_walk_cannot_tell_of_them():
    one, none = surveyed(*SURVEYS["one level"]), surveyed(*SURVEYS["next to nothing"])
    none.about.host = host(hypervisor="none")
    assert {verdict(one, id) for id, (number, *_) in ENTRIES.items() if number == 2} == {C}
    assert {verdict(none, id) for id in WALKS} == {C}


@pytest.mark.parametrize(("cycles", "expected"), [(10, F), (50, N), (100, N)])  # at 2 GHz
def test_in_a_guest_the_cost_of_a_walk_refutes_what_is_above_it_and_nothing_else(cycles, expected):
    a = walking(L3=(cycles, cycles - 1, cycles + 1), hypervisor="kvm")
    assert verdict(a, "upper-entries-cost-20-to-30-ns") == expected


def test_without_a_walk_from_memory_l3_is_not_told_from_it():
    a = walking()
    walks = [walk for walk in a.survey.walks if walk.table_in != "memory"]
    a.survey.__dict__["walks"] = walks
    assert verdict(a, "walk-100-cycles-in-l3") == C


def test_what_is_typical_is_the_same_on_every_machine():
    words = {verdict(having(1, (n, n - 1, n + 1)), "first-level-64-to-128") for n in (16, 96)}
    assert words == {H}
