"""What this computer's TLBs are known to reach, and by whom: its own rows, those published of it,
or what CPUID states."""

from types import SimpleNamespace

import pandas as pd
import pytest
from support.geometry import SHARP, inferred
from support.geometry import rows as surveyed
from support.synthetic import Truth, frame, scope

from tlb.machine import host as hosts
from tlb.machine.cpuid import Tlb
from tlb.machine.host import Host
from tlb.measure import survey
from tlb.programs import reach
from tlb.programs.reach import PRICES
from tlb.system.reasons import Unavailable

STATED = tuple(
    Tlb(level=level, kind="data", pages=pages, entries=entries, ways=4, source="CPUID")
    for level, pages, entries in ((1, ("4k",), 96), (1, ("2m",), 32), (2, ("4k", "2m"), 1024))
)


@pytest.fixture(scope="module")
def here() -> Host:
    return hosts.inspect().model_copy(update={"tlb": STATED, "hypervisor": "kvm"})


class Kept:
    """A store that holds these rows, by experiment."""

    def __init__(self, rows: dict[str, pd.DataFrame], own: dict[str, pd.DataFrame] | None = None):
        self._rows, self.own = (
            rows,
            Kept(own) if own is not None else SimpleNamespace(experiments=lambda machine: []),
        )

    def experiments(self, machine: str) -> list[str]:
        return [*self._rows]

    def load(self, machine: str, experiment: str) -> pd.DataFrame:
        if experiment not in self._rows:
            raise Unavailable("no-data")
        return self._rows[experiment]


def prices(large: Truth, state: str = "published") -> pd.DataFrame:
    sizes = [2**n for n in range(4, 19)]
    parts = [
        frame(
            truth,
            [point for lines in sizes for point in scope().chase("page_chase", kind, lines)],
            repeats=5,
        )
        for kind, truth in (("4k", Truth()), ("thp", large))
    ]
    return pd.concat(parts, ignore_index=True).assign(state=state)


WHOLE = Truth(entries=(2**40, 2**41))


def test_without_rows_cpuid_says_and_prices_have_a_reason(here):
    known = reach.read(here, Kept({}))
    assert known.entries == {"4k": (96, 1024), "2m": (32, 1024)} and set(known.source.values()) == {
        "CPUID"
    }
    assert (
        isinstance(known.prices, Unavailable)
        and known.prices.code == "no-data"
        and not known.is_splintered
    )
    silent = reach.read(here.model_copy(update={"tlb": ()}), Kept({}))
    assert silent.entries == {}


def test_the_survey_is_believed_before_cpuid(here):
    known = reach.read(here, Kept({survey.NAME: surveyed(SHARP, "4k", 1)}))
    assert (
        known.entries["4k"] == tuple(round(level.entries.value) for level in inferred(SHARP).levels)
        and known.source["4k"] != "CPUID"
    )
    assert known.entries["2m"] == (32, 1024)


@pytest.mark.parametrize(("own_state", "whose"), [("now", "own"), ("before", "published")])
def test_own_rows_count_in_the_state_that_they_are_of(own_state, whose, here):
    state = hosts.state_digest(here) if own_state == "now" else "before"
    published, own = prices(WHOLE), prices(Truth(), state)
    known = reach.read(here, Kept({PRICES: published}, {PRICES: own}))
    assert known.is_splintered is (whose == "own")


def test_a_host_that_splits_large_pages_is_seen(here):
    assert not reach.read(here, Kept({PRICES: prices(WHOLE)})).is_splintered
    assert reach.read(here, Kept({PRICES: prices(Truth())})).is_splintered
