"""The verdicts about context switches where each sentence is true, is not, or cannot be tested."""

import pytest
from support.events import Events, analysis, rows
from support.synthetic import words_of

from experiments import context_switches
from tlb.report.claims import REGISTRY
from tlb.report.verdicts import judge


def told(machine: Events | None = None, **about: object) -> dict[str, str]:
    a = analysis(context_switches, rows(machine or Events()), **about)
    return words_of(context_switches.claims, a)


def test_where_nothing_is_kept_and_all_is_shared_they_hold():
    found = told(Events(kept=0.0, walks_kept=0.0))
    assert found.pop("warm-workers-win") == "cannot tell"  # a worker that loses all is as cold
    assert set(found.values()) == {"holds"}, found


def test_where_it_is_kept_they_do_not():
    assert set(told(Events(stream_ns=-0.05, cold_ns=1.0)).values()) == {"fails"}
    assert told()["warm-workers-win"] == "holds"


@pytest.mark.parametrize("pcid", [True, False, None])
def test_a_switch_that_times_cannot_decide_is_decided_by_nothing_else(pcid):
    assert told(Events(noise=0.3), pcid=pcid)["switch-flushes-walk-caches"] == "cannot tell"


@pytest.mark.parametrize(
    ("larger_ns", "verdict", "reason"),
    [(119.0, "cannot tell", "control-elsewhere"), (104.0, "holds", "")],
)
def test_a_neighbour_is_judged_only_where_the_control_lies_in_the_same_cache(
    larger_ns, verdict, reason
):
    """A hop takes 120 ns beside no stream, and its control 100; more lines alone take so long."""
    a = analysis(context_switches, rows(Events()), larger_ns=larger_ns)
    found = judge(REGISTRY["neighbours-evict-the-table"], a)
    assert (found.verdict, found.reason) == (verdict, reason)


def test_what_takes_two_cpus_is_not_testable_without():
    a = analysis(context_switches, rows(cpus=1), cpus=1)
    found = words_of(context_switches.claims, a)
    assert [id for id, verdict in found.items() if verdict == "not testable here"] == [
        "neighbours-evict-the-table"
    ]
