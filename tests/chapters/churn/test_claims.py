"""The verdicts about churn on machines where each sentence is true, or is not, or cannot be
tested."""

from __future__ import annotations

import pytest
from support.churn import Churn, House, analysis, rows

from experiments.churn import claims
from tlb.report.verdicts import verdicts


def told(machine: Churn | None = None, **about: object) -> dict[str, str]:
    return {
        one.claim.id: one.verdict
        for one in verdicts(claims, analysis(rows(machine or Churn()), **about))
    }


def test_where_nothing_is_kept_and_all_is_shared_they_hold():
    found = told(Churn(kept=0.0, walks_kept=0.0, copies_whole=True))
    assert {found.pop("warm-workers-win")} == {"cannot tell"}  # a worker that loses all is as cold
    assert set(found.values()) == {"holds"}, found


def test_where_it_is_kept_they_do_not():
    found = told(Churn(stream_ns=-0.05, taken=0.8, interrupted=1.5, cold_ns=1.0))
    assert {id for id, verdict in found.items() if verdict == "fails"} == {
        "switch-flushes-walk-caches",
        "cold-starts-pay-a-tax",
        "warm-workers-win",
        "neighbours-evict-the-table",
        "page-management-slows-a-loop",
        "cow-copies-2-mib",
    }
    assert told()["warm-workers-win"] == told()["sparse-small-allocations-hurt"] == "holds"


@pytest.mark.parametrize(
    ("pcid", "verdict"), [(True, "fails"), (False, "cannot tell"), (None, "cannot tell")]
)
def test_a_switch_that_times_cannot_decide_is_decided_by_pcid(pcid: bool | None, verdict: str):
    assert told(Churn(noise=0.3), pcid=pcid)["switch-flushes-walk-caches"] == verdict


def test_what_takes_two_cpus_is_not_testable_without():
    found = {one.claim.id: one.verdict for one in verdicts(claims, analysis(rows(cpus=1), cpus=1))}
    assert {id for id, verdict in found.items() if verdict == "not testable here"} == {
        "neighbours-evict-the-table",
        "page-management-slows-a-loop",
        "promotion-disturbs-random-access",
    }


HOUSEKEEPING = {
    "defrag-costs-time",
    "defrag-spikes-latency",
    "short-lived-programs-regress",
    "defrag-is-paid-at-first-access",
    "thp-promotes-in-background",
    "pool-is-lost-to-others",
    "pool-needs-application-changes",
}


def of_house(house: House | None) -> dict[str, str]:
    return {id: verdict for id, verdict in told(house=house).items() if id in HOUSEKEEPING}


def test_housekeeping_is_judged_by_what_it_costs():
    assert of_house(House()) == dict.fromkeys(HOUSEKEEPING, "holds")
    cheap = House(pieces_ns=1000, short_in_pieces=0.5, joined=0.0, taken=0.5, plain=1.0)
    assert of_house(cheap) == dict.fromkeys(HOUSEKEEPING, "fails")


def test_what_nobody_asked_for_or_memory_did_not_allow_is_left_open():
    assert of_house(None) == dict.fromkeys(HOUSEKEEPING, "cannot tell")
    left = of_house(House(lacking=("pieces",)))
    assert {id for id, verdict in left.items() if verdict == "holds"} == {
        "thp-promotes-in-background",
        "pool-is-lost-to-others",
        "pool-needs-application-changes",
    }
