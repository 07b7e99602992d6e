"""What is said of whole programs, on documents whose truth is known: what helps, what hurts, what
is no different, what was not there."""

import pytest
from support.common import refusal
from support.your_program import HELPS, HURTS, OPEN, WORDS, analysis, document

from experiments.your_program.cases import LOOK_UPS_ALONE, PROGRAM_CASES
from experiments.your_program.programs import is_document_complete
from tlb.report.claims import REGISTRY
from tlb.report.verdicts import judge

OF_PAGES = [name for name, case in PROGRAM_CASES.items() if case.changes_pages]
OTHERS = [
    name for name in OF_PAGES if not PROGRAM_CASES[name].ours and not PROGRAM_CASES[name].again
]


@pytest.mark.parametrize("gain", [HELPS, HURTS])
def test_a_gain_is_of_huge_pages_over_base_pages_whichever_of_them_the_lever_gives(gain):
    found = analysis(
        document(dict.fromkeys(PROGRAM_CASES, gain), dict.fromkeys(PROGRAM_CASES, 1.25))
    )
    for case, row in found.trials.set_index("case").iterrows():
        assert (
            found.gain(case).value == pytest.approx(gain)
            and found.gain(case).low < gain < found.gain(case).high
        )
        assert (row["memory"], row["large"], row["faults"]) == pytest.approx((1.25, 0.5, 0.1))
        assert row["verdict"] == WORDS[gain]


def test_page_tables_are_those_of_others_programs_on_base_pages():
    content = document()
    for row in content["told"]:
        row["without"]["table_bytes"], row["with_lever"]["table_bytes"] = 2 << 20, 1 << 20
    found = analysis(content).tables_of_others
    others = {name for name, case in PROGRAM_CASES.items() if not case.ours and not case.again}
    assert set(found) == others & {row["case"] for row in content["told"]}
    assert all(
        size == (1 if PROGRAM_CASES[name].takes else 2) << 20 for name, size in found.items()
    )


def test_faster_and_slower_are_those_whose_interval_excludes_one():
    paged = analysis(document({"sort": HURTS, "dict": OPEN})).paged.set_index("case")
    assert paged.index[paged["slower"]].tolist() == ["sort"] and set(
        paged.index[~paged["faster"]]
    ) == {"sort", "dict"}


def test_the_settings_count_pairs_of_runs_as_what_was_measured():
    found = analysis(document(dict.fromkeys(PROGRAM_CASES, HELPS)))
    pairs = found.trials["pairs"].sum()
    assert found.measured_besides.startswith(f"{pairs:,} pairs of runs of {len(PROGRAM_CASES)} ")
    assert not analysis(None).measured_besides


def test_look_ups_alone_keep_their_medians_and_are_widened_for_their_number():
    found = analysis(document())
    alone = found.look_ups_alone.set_index("case")
    tried_alone = found.trials.set_index("case").loc[alone.index]
    assert set(alone.index) == set(LOOK_UPS_ALONE)
    assert (alone["median"] == tried_alone["median"]).all()
    assert (alone["low"] < tried_alone["low"]).all()
    assert (alone["high"] > tried_alone["high"]).all()


def test_a_lever_that_moves_next_to_nothing_to_huge_pages_is_left_out():
    content = document()
    next(row for row in content["told"] if row["case"] == "go-vet")["with_lever"]["huge_bytes"] = 0
    assert "go-vet" not in set(analysis(content).of_pages()["case"])


def test_without_a_document_everything_has_that_reason():
    a = analysis()
    assert a.trials.empty and a.paged.empty
    for make in (lambda a: a.of_pages(), lambda a: a.gain("sort"), lambda a: a.elsewhere):
        assert refusal(make, a) == "no-data"


def test_of_an_older_document_the_programs_that_were_added_since_stand_as_not_measured():
    old = document(lacking={"redis": "no-toolchain"})
    old["told"] = [row for row in old["told"] if row["case"] != "go-map"]
    a = analysis(old)
    assert a.lacking == {"go-map": "no-data", "redis": "no-toolchain"}
    assert refusal(a.gain, "go-map") == "no-data"


def test_a_document_is_made_anew_where_programs_were_added_or_more_minutes_are_given():
    content = document(lacking={"sort": "no-time"})
    assert is_document_complete(content, content["minutes"]) and not is_document_complete(
        content, content["minutes"] + 1
    )
    old = content | {"told": content["told"][1:]}
    assert (
        not is_document_complete(old, 1.0)
        and is_document_complete(old, 0.0)
        and not is_document_complete({}, 1.0)
    )


def test_a_program_that_is_measured_at_several_sizes_counts_once():
    others = set(analysis(document()).of_pages(ours=False)["case"])
    assert (
        others == set(OTHERS)
        and len([name for name in others if name.startswith(("jvm-start", "redis"))]) == 2
    )


BOOST, SHARDING = "large-pages-boost-applications", "per-thread-sharding-gains"
FORK, PROFILE = "redis-latency-after-fork", "walks-hide-from-profilers"
H, F, C = "holds", "fails", "cannot tell"
VERDICTS = [
    (BOOST, document(), H),
    (BOOST, document({"sort": HURTS}), F),
    (BOOST, document(dict.fromkeys(set(PROGRAM_CASES) - set(OTHERS), HURTS)), H),
    (SHARDING, document({"sharded": HURTS}), F),
    (FORK, document({"redis-save": 0.5}), H),
    (FORK, document({"redis-save": HURTS}), F),
    (FORK, document({"redis-save": 0.67}), C),
    (PROFILE, document(most=20), F),
    (PROFILE, document(most=900), C),
]


@pytest.mark.parametrize(("id", "content", "word"), VERDICTS)
def test_each_claim_is_judged_by_its_own_programs(id, content, word):
    assert judge(REGISTRY[id], analysis(content)).verdict == word


def test_small_programs_decide_nothing_of_those_with_much_data():
    a = analysis(document({"sort": HURTS}))
    a.trials.loc[a.trials["case"] == "sort", "resident_bytes"] = 1 << 20
    assert judge(REGISTRY[BOOST], analysis(document({"sort": HURTS}))).verdict == F
    assert judge(REGISTRY[BOOST], a).verdict == H
