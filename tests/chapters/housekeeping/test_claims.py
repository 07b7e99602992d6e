"""The verdicts about housekeeping where each sentence is true, is not, or cannot be tested."""

from support.events import Events, House, analysis, rows
from support.synthetic import words_of

from experiments import housekeeping


def told(machine: Events | None = None, **about: object) -> dict[str, str]:
    a = analysis(housekeeping, rows(machine or Events()), **about)
    return words_of(housekeeping.claims, a)


def test_forks_and_arenas_are_judged_by_what_they_cost():
    assert set(told(Events(copies_whole=True)).values()) == {"holds"}
    found = told()
    assert found["cow-copies-2-mib"] == "fails"
    assert found["sparse-small-allocations-hurt"] == "holds"


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
