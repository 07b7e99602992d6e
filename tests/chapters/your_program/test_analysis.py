"""What is said of whole programs, on documents whose truth is known: what helps, what hurts, what
is no different, what was not there."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import binomtest
from support.your_program import HELPS, HURTS, OPEN, SAME, analysis, document

from experiments.your_program import claims, figures, tables
from experiments.your_program.cases import CASES
from experiments.your_program.programs import is_whole
from tlb.reasons import REASONS, Unavailable
from tlb.report.verdicts import REGISTRY, judge

OF_PAGES = [name for name, case in CASES.items() if case.changes_pages]
OTHERS = [name for name in OF_PAGES if not CASES[name].ours and not CASES[name].again]


def verdict(id: str, content: dict[str, Any] | None) -> str:
    return judge(REGISTRY[id], analysis(content)).verdict


@pytest.mark.parametrize("gain", [HELPS, HURTS])
def test_a_gain_is_of_huge_pages_over_base_pages_whichever_of_them_the_lever_gives(gain: float):
    found = analysis(document(dict.fromkeys(CASES, gain), dict.fromkeys(CASES, 1.25)))
    for case, row in found.trials.set_index("case").iterrows():
        assert (
            found.gain(case).value == pytest.approx(gain)
            and found.gain(case).low < gain < found.gain(case).high
        )
        assert (row["memory"], row["large"], row["faults"]) == pytest.approx((1.25, 0.5, 0.1))


def test_faster_and_slower_are_those_whose_interval_excludes_one():
    paged = analysis(document({"sort": HURTS, "dict": OPEN})).paged.set_index("case")
    assert paged.index[paged["slower"]].tolist() == ["sort"] and set(
        paged.index[~paged["faster"]]
    ) == {"sort", "dict"}


def test_a_lever_that_moves_next_to_nothing_to_huge_pages_is_left_out():
    content = document()
    next(row for row in content["told"] if row["case"] == "go-vet")["with_lever"]["huge_bytes"] = 0
    a = analysis(content)
    assert a.unreached()["case"].tolist() == ["go-vet"] and "go-vet" not in set(
        a.of_pages()["case"]
    )


def test_without_a_document_everything_has_that_reason():
    a = analysis()
    assert a.trials.empty and a.paged.empty
    for make in (
        figures.gains,
        tables.guide_to_data,
        lambda a: a.of_pages(),
        lambda a: a.unreached(),
        lambda a: a.gain("sort"),
    ):
        with pytest.raises(Unavailable) as why:
            make(a)
        assert why.value.code == "no-data"


def test_of_an_older_document_the_programs_that_were_added_since_stand_as_not_measured():
    old = document(lacking={"redis": "no-toolchain"})
    old["told"] = [row for row in old["told"] if row["case"] != "go-map"]
    a = analysis(old)
    assert a.lacking == {"go-map": "no-data", "redis": "no-toolchain"}
    lines = tables.results(a).text.splitlines()
    assert REASONS["no-data"].sentence in next(
        line for line in lines if line.startswith(CASES["go-map"].title)
    )
    assert "apt install redis-server" in next(
        line for line in lines if line.startswith(CASES["redis"].title)
    )
    with pytest.raises(Unavailable) as why:
        a.gain("go-map")
    assert why.value.code == "no-data"


def test_a_document_is_made_anew_where_programs_were_added_or_more_minutes_are_given():
    content = document(lacking={"sort": "no-time"})
    assert is_whole(content, content["minutes"]) and not is_whole(content, content["minutes"] + 1)
    old = content | {"told": content["told"][1:]}
    assert not is_whole(old, 1.0) and is_whole(old, 0.0) and not is_whole({}, 1.0)


def test_beside_this_computer_stands_the_reference():
    a = analysis(document(dict.fromkeys(CASES, SAME)), reference=document())
    assert a.theirs is not None and set(figures.gains(a).data["machine"]) == {
        "this machine",
        "the reference",
    }
    assert "the reference" in tables.results(a).text.splitlines()[0].split("\t")
    assert set(figures.gains(analysis(document())).data["machine"]) == {"this machine"}


def test_the_figures_go_from_the_largest_gain_to_the_least_and_both_have_the_same_programs():
    a = analysis(document({"sort": 1.0, "dict": 0.8}, {"xz": 2.0}))
    gains, costs = figures.gains(a), figures.costs(a)
    assert list(gains.data["title"]) == list(costs.data["title"]) and len(gains.data) == len(
        OF_PAGES
    )
    assert costs.data.set_index("title").loc["xz", "memory"] == pytest.approx(2.0)
    assert "xz" in costs.alt.lower() and CASES["dict"].title in gains.alt


@pytest.mark.parametrize(
    ("gains", "word"),
    [
        ({}, "holds"),
        (dict.fromkeys(OTHERS, HURTS), "fails"),
        ({"sort": HURTS}, "fails"),
        ({"sort": OPEN}, "cannot tell"),
        (dict.fromkeys(set(CASES) - set(OTHERS), HURTS), "holds"),
    ],
)
def test_large_pages_boost_applications_where_they_boost_all_that_others_wrote(
    gains: dict[str, float], word: str
):
    assert verdict("large-pages-boost-applications", document(gains)) == word


def test_a_program_that_is_measured_at_several_sizes_counts_once():
    others = set(analysis(document()).of_pages(ours=False)["case"])
    assert (
        others == set(OTHERS)
        and len([name for name in others if name.startswith(("jvm-start", "redis"))]) == 2
    )


def test_small_programs_decide_nothing_of_those_with_much_data():
    a = analysis(document({"sort": HURTS}))
    a.trials = a.trials.assign(
        resident_bytes=a.trials["resident_bytes"].where(a.trials["case"] != "sort", 1 << 20)
    )
    assert judge(REGISTRY["large-pages-boost-applications"], a).verdict == "holds"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (document(), "holds"),
        (document({"sharded": HURTS}), "fails"),
        (document({"sharded": OPEN}), "cannot tell"),
        (document(lacking={"sharded": "no-compiler"}), "cannot tell"),
        (None, "cannot tell"),
    ],
)
def test_sharding_is_judged_by_its_own_program(content: dict[str, Any] | None, word: str):
    assert verdict("per-thread-sharding-gains", content) == word


@pytest.mark.parametrize(
    ("gain", "word"), [(0.5, "holds"), (HURTS, "fails"), (HELPS, "fails"), (0.67, "cannot tell")]
)
def test_redis_waits_after_a_fork_where_its_slowest_writes_take_half_as_long_again(
    gain: float, word: str
):
    assert verdict("redis-latency-after-fork", document({"redis-save": gain})) == word


@pytest.mark.parametrize(
    ("gain", "word"), [(1.05, "holds"), (1.5, "fails"), (HURTS, "fails"), (OPEN, "cannot tell")]
)
def test_a_large_heap_of_go_s_gains_up_to_a_tenth(gain: float, word: str):
    assert verdict("go-big-heaps-gain", document({"go-map": gain})) == word


@pytest.mark.parametrize(("most", "word"), [(990, "holds"), (20, "fails"), (900, "cannot tell")])
def test_walks_hide_where_a_tenth_of_the_samples_at_most_is_at_anything_but_the_load(
    most: int, word: str
):
    assert verdict("walks-hide-from-profilers", document(most=most)) == word


@pytest.mark.parametrize(("hits", "of"), [(0, 50), (3, 40), (40, 40), (501, 1000)])
def test_a_share_has_the_interval_that_scipy_s_test_gives(hits: int, of: int):
    expected = binomtest(hits, of).proportion_ci(claims.COVERAGE, "exact")
    assert claims._share(hits, of)[1:3] == pytest.approx((expected.low, expected.high))
