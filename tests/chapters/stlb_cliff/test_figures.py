"""The cliff's charts and tables: each for every kind of machine, or a reason; and the numbers of
the machine in them."""

from __future__ import annotations

import pytest
from support.stlb_cliff import (
    COUNTING,
    CYCLES_PER_WALK,
    GHZ,
    SIMULATED,
    analysis,
    kind,
    of,
    simulate,
)
from support.synthetic import MIB, Stated, Truth, frame, grid

from experiments.stlb_cliff import Analysis, figures
from tlb.lab.store import Store
from tlb.reasons import Unavailable
from tlb.report.chapter import literature
from tlb.report.render import Figure

pytestmark = pytest.mark.filterwarnings("error")

CHARTS = (
    figures.cliff,
    figures.price,
    figures.first_knee,
    figures.second_knee,
    figures.orders,
    figures.latency_throughput,
    figures.stores,
    figures.counted_walks,
    figures.counted_cycles,
)
TABLES = (figures.side_by_side, figures.walk_costs, figures.published_walks)
COUNTED = {
    figures.counted_walks,
    figures.counted_cycles,
}  # which want a counter: none of these machines has one
LACKING = {  # what has no second knee in its data, or no first
    "CPUID silent": {figures.first_knee, figures.second_knee},
    "one level stated": {figures.second_knee},
    "tiny sizes": {figures.first_knee, figures.second_knee, figures.stores},
    "small sizes": {figures.stores},
}


@pytest.mark.parametrize(
    "name", ["the textbook's", "CPUID silent", "one level stated", "tiny sizes", "small sizes"]
)
def test_every_kind_of_machine_has_its_charts_and_tables_or_a_reason(name: str):
    a, lacking = kind(name, 5), set()
    for make in CHARTS:
        try:
            figure = make(a)
        except Unavailable:
            lacking.add(make)
            continue
        assert isinstance(figure, Figure) and figure.svg() and figure.alt.endswith(".")
        assert not {"nan", "inf", "-0.0"} & set(figure.alt.replace(",", " ").split())
    assert lacking == LACKING.get(name, set()) | COUNTED
    assert all(len(make(a).text.splitlines()) > 1 for make in TABLES)


def test_the_numbers_drawn_are_those_of_the_machine():
    a = of(Truth(noise=0.001))
    data = figures.cliff(a).data
    assert (
        set(data["layout"]) == {"spread", "packed"}
        and (data["working_set_bytes"] == data["lines"] * 4096).all()
    )
    last = data[data["lines"] == data["lines"].max()].set_index("layout")["median"]
    assert (last["spread"], last["packed"]) == pytest.approx((12, 1), rel=0.02)
    assert figures.price(a).data["median"].iloc[-1] == pytest.approx(11, rel=0.02)
    knee = figures.second_knee(a).data
    assert knee["lines"].between(1536 * 0.57, 1536 * 2.05).all() and knee["series"].nunique() >= 3
    gather = figures.latency_throughput(a).data.groupby("series").last()
    assert gather.loc["dependent chase", "median"] == pytest.approx(
        5 * gather.loc["independent gather", "median"], rel=0.02
    )


# --- counters


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysis(simulate(Store(tmp_path_factory.mktemp("simulated"))), COUNTING, SIMULATED)


def test_each_series_says_of_what_kind_it_is(counted: Analysis):
    published = "misses per hop of a graph walk, published"
    assert list(counted.walks) == [
        "walks, simulated",
        "walks, predicted: fully associative, LRU",
        published,
    ]
    assert next(iter(analysis(counted.frame, COUNTING, "zen-4-0a1b2c3d").walks)) == "walks, counted"
    assert list(counted.cycles) == [
        "walk cycles, simulated",
        "price of translation, inferred from time",
    ]
    price = counted.cycles["price of translation, inferred from time"].set_index("lines")["median"]
    assert price[price.index > 3072].to_numpy() == pytest.approx((2 + 9) * GHZ, rel=0.02)
    theirs = literature("dtlb_misses_per_hop")
    theirs = theirs[(theirs["pages"] == "4k") & (theirs["working_set_from_bytes"] <= 64 * MIB)]
    assert (
        counted.walks[published]["median"].to_list()
        == theirs.sort_values("working_set_from_bytes")["misses_per_hop"].to_list()
    )


def test_cycles_per_walk_come_from_the_counters_of_the_repeats_that_have_them(counted: Analysis):
    table = counted.walk_costs.set_index("lines")["per_walk"]
    assert (
        table[table.index > 1536].to_numpy() == pytest.approx(CYCLES_PER_WALK)
        and table[table.index <= 1536].isna().all()
    )
    shown = figures.walk_costs(counted).text
    assert "\t1.00\t28.00\tcounters" in shown and "inferred from time" not in shown


@pytest.mark.parametrize("make", sorted(COUNTED, key=lambda make: make.__name__))
def test_what_was_not_counted_has_a_reason_in_the_place_of_the_figure(make):
    with pytest.raises(Unavailable) as refused:
        make(analysis(frame(Truth(), grid(16 * MIB))))
    assert refused.value.code in ("no-pmu", "no-data")


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
