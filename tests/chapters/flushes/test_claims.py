"""The verdicts about flushes, switches and Linux's own work where each sentence is true, is not, or
cannot be tested."""

import pytest
from support.events import Events, analysis, housekeeping, rows
from support.synthetic import words_of

from experiments import flushes

SWITCHED = {"switch-flushes-walk-caches", "warm-workers-win"}
COPIED = {"cow-copies-2-mib", "sparse-small-allocations-hurt"}
DOCUMENTED = {
    "defrag-costs-time",
    "defrag-spikes-latency",
    "defrag-is-paid-at-first-access",
    "thp-promotes-in-background",
    "pool-is-lost-to-others",
    "pool-needs-application-changes",
}


def verdicts(machine: Events | None = None, **about: object) -> dict[str, str]:
    given = {"house": housekeeping()} | about
    return words_of(flushes.claims, analysis(rows(machine or Events()), **given))


def verdicts_of(ids: set[str], machine: Events | None = None, **about: object) -> dict[str, str]:
    return {id: verdict for id, verdict in verdicts(machine, **about).items() if id in ids}


def test_each_claim_of_the_chapter_is_in_one_of_these_tests():
    assert {*verdicts()} == {"page-management-slows-a-loop"} | SWITCHED | COPIED | DOCUMENTED


def test_entries_lost_decide_and_interrupts_do_not():
    assert verdicts()["page-management-slows-a-loop"] == "holds"
    lost = Events(taken=0.8, interrupted=1.5)
    assert verdicts(lost)["page-management-slows-a-loop"] == "fails"


def test_where_nothing_is_kept_and_all_is_shared_they_hold():
    found = verdicts_of(SWITCHED, Events(kept=0.0, walks_kept=0.0))
    assert set(found.values()) == {"holds"}, found


def test_where_it_is_kept_they_do_not():
    cheap = verdicts_of(SWITCHED, Events(stream_ns=-0.05, cold_ns=1.0, exec_ns=4000.0))
    assert set(cheap.values()) == {"fails"}


def test_workers_win_by_the_start_that_they_save_however_warm_their_tlb_is():
    for events in (Events(), Events(kept=0.0, walks_kept=0.0), Events(cold_ns=1.0)):
        assert verdicts(events)["warm-workers-win"] == "holds"


@pytest.mark.parametrize("pcid", [True, False, None])
def test_a_switch_that_times_cannot_decide_is_decided_by_nothing_else(pcid):
    found = verdicts(Events(noise=0.3), pcid=pcid)
    assert found["switch-flushes-walk-caches"] == "cannot tell"


def test_what_takes_two_cpus_is_not_testable_without():
    found = words_of(flushes.claims, analysis(rows(cpus=1), cpus=1))
    assert {id for id, verdict in found.items() if verdict == "not testable here"} == {
        "page-management-slows-a-loop"
    }


def test_forks_and_arenas_are_judged_by_what_they_cost():
    copied = verdicts_of(COPIED, Events(copies_whole=True))
    assert set(copied.values()) == {"holds"}
    found = verdicts()
    assert found["cow-copies-2-mib"] == "fails"
    assert found["sparse-small-allocations-hurt"] == "holds"


def test_linux_s_own_work_is_judged_by_what_it_costs():
    assert verdicts_of(DOCUMENTED) == dict.fromkeys(DOCUMENTED, "holds")
    cheap = housekeeping(is_cheap=True)
    assert verdicts_of(DOCUMENTED, house=cheap) == dict.fromkeys(DOCUMENTED, "fails")


def test_what_was_not_measured_or_memory_did_not_allow_is_left_open():
    assert verdicts_of(DOCUMENTED, house=None) == dict.fromkeys(DOCUMENTED, "cannot tell")
    left = verdicts_of(DOCUMENTED, house=housekeeping("pieces"))
    assert {id for id, verdict in left.items() if verdict == "holds"} == {
        "thp-promotes-in-background",
        "pool-is-lost-to-others",
        "pool-needs-application-changes",
    }
