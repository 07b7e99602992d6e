"""The cliff's charts and tables: each for every kind of machine, or a reason; and the numbers of
the machine in them."""

from __future__ import annotations

import pytest
from support.stlb_cliff import COUNTING, CYCLES_PER_WALK, SIMULATED, analysis, simulate
from support.synthetic import MIB, Stated, Truth, frame, grid

from experiments.stlb_cliff import Analysis, tables
from tlb.lab.store import Store

pytestmark = pytest.mark.filterwarnings("error")

# --- counters


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysis(simulate(Store(tmp_path_factory.mktemp("simulated"))), COUNTING, SIMULATED)


def test_cycles_per_walk_come_from_the_counters_of_the_repeats_that_have_them(counted: Analysis):
    table = counted.walk_costs.set_index("lines")["per_walk"]
    assert (
        table[table.index > 1536].to_numpy() == pytest.approx(CYCLES_PER_WALK)
        and table[table.index <= 1536].isna().all()
    )
    shown = tables.walk_costs(counted).text
    assert "\t1.00\t28.00\tcounters" in shown and "inferred from time" not in shown


def test_without_counters_a_model_and_what_was_published_stand_in_and_are_labelled():
    timed = frame(Truth(), grid(16 * MIB)).assign(
        walk_per_access=float("nan"), walk_reason="no-pmu"
    )
    predicted, published = (
        "walks, predicted: fully associative, LRU",
        "misses per hop of a graph walk, published",
    )
    assert analysis(timed).counts_are == "predicted" and list(analysis(timed).walks) == [
        predicted,
        published,
    ]
    assert list(analysis(timed, Stated(tlb=(), changes={"tlb_reason": "no-cpuid"})).walks) == [
        published
    ]
    assert list(analysis(frame(Truth(), grid(64 << 10))).walks) == [predicted]
