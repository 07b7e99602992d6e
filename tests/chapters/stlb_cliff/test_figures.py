"""The cliff's charts and tables: each for every kind of machine, or a reason; and the numbers of the machine in them."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from support.stlb_cliff import COUNTING, CYCLES_PER_WALK, GHZ, MACHINES, REPEATS, SIMULATED, analysis, kind, of, simulate
from support.synthetic import MIB, Stated, Truth, frame, grid

from experiments.article.chapter import literature
from experiments.article.render import PALETTE, Figure
from experiments.chapters.stlb_cliff import Analysis, figures
from experiments.inference import counts
from experiments.lab import events
from experiments.lab.store import Store
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

CHARTS = (figures.cliff, figures.price, figures.first_knee, figures.second_knee, figures.orders, figures.latency_throughput, figures.stores,
          figures.counted_walks, figures.counted_cycles)
TABLES = (figures.side_by_side, figures.walk_costs, figures.published_walks)
COUNTED = {figures.counted_walks, figures.counted_cycles}  # which want a counter: none of these machines has one
LACKING = {  # what has no second knee in its data, or no first
    "CPUID silent": {figures.first_knee, figures.second_knee}, "one level stated": {figures.second_knee},
    "tiny sizes": {figures.first_knee, figures.second_knee, figures.stores}, "small sizes": {figures.stores}}


@pytest.mark.parametrize("name", MACHINES)
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
    assert set(data["layout"]) == {"spread", "packed"} and (data["working_set_bytes"] == data["lines"] * 4096).all()
    last = data[data["lines"] == data["lines"].max()].set_index("layout")["median"]
    assert (last["spread"], last["packed"]) == pytest.approx((12, 1), rel=0.02)
    assert figures.price(a).data["median"].iloc[-1] == pytest.approx(11, rel=0.02)
    knee = figures.second_knee(a).data
    assert knee["lines"].between(1536 * 0.57, 1536 * 2.05).all() and knee["series"].nunique() >= 3
    gather = figures.latency_throughput(a).data.groupby("series").last()
    assert gather.loc["dependent chase", "median"] == pytest.approx(5 * gather.loc["independent gather", "median"], rel=0.02)


def test_a_figure_shows_the_price_as_the_page_defines_it():
    a = analysis()
    a.price = a.spread / a.packed
    assert figures.price(a).data["median"].iloc[0] == pytest.approx(1, rel=0.05)
    assert figures.orders(a).data.set_index("order").loc["cycle", "median"].iloc[0] == pytest.approx(1, rel=0.05)


def test_a_random_curve_lies_on_the_model_or_is_not_drawn():
    data = figures.orders(of(Truth(noise=0.001))).data
    fitted = data[data["order"].str.contains("fitted")]
    expected = [2 * max(0, 1 - 64 / n) + 9 * max(0, 1 - 1536 / n) for n in fitted["lines"]]
    assert len(fitted) > 20 and fitted["median"].to_numpy() == pytest.approx(expected, abs=0.05)
    for name in ("CPUID silent", "tiny sizes"):
        assert set(figures.orders(kind(name)).data["order"]) <= {"cycle", "random", "sequential"}


def test_without_one_of_the_loops_there_is_no_figure_of_both():
    rows = frame(Truth())
    with pytest.raises(Unavailable) as refused:
        figures.latency_throughput(analysis(rows[rows["kernel"] != "page_gather"]))
    assert refused.value.code == "too-few-points"
    with pytest.raises(Unavailable):
        figures.price(analysis(rows[rows["layout"] == "spread"]))


# --- counters


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysis(simulate(Store(tmp_path_factory.mktemp("simulated"))), COUNTING, SIMULATED)


def test_medians_are_over_the_repeats_that_counted(counted: Analysis):
    walks, fetches = counted.counted("walk"), counted.counted("itlb_walk")
    assert set(walks.table["n"]) == set(fetches.table["n"]) == {REPEATS // 2}
    for quantity, entries in (("walk", 1536), ("l1_dtlb_miss", 64)):
        by_lines = counted.counted(quantity).medians
        assert (by_lines[by_lines.index > entries] == 1).all() and (by_lines[by_lines.index <= entries] == 0).all()


def test_each_series_says_of_what_kind_it_is(counted: Analysis):
    published = "misses per hop of a graph walk, published"
    assert list(counted.walks) == ["walks, simulated", "walks, predicted: fully associative, LRU", published]
    assert next(iter(analysis(counted.frame, COUNTING, "zen-4-0a1b2c3d").walks)) == "walks, counted"
    assert list(counted.cycles) == ["walk cycles, simulated", "price of translation, inferred from time"]
    price = counted.cycles["price of translation, inferred from time"].set_index("lines")["median"]
    assert price[price.index > 3072].to_numpy() == pytest.approx((2 + 9) * GHZ, rel=0.02)
    theirs = literature("dtlb_misses_per_hop")
    theirs = theirs[(theirs["pages"] == "4k") & (theirs["working_set_from_bytes"] <= 64 * MIB)]
    assert counted.walks[published]["median"].to_list() == theirs.sort_values("working_set_from_bytes")["misses_per_hop"].to_list()


def test_cycles_per_walk_come_from_the_counters_of_the_repeats_that_have_them(counted: Analysis):
    table = counted.walk_costs.set_index("lines")["per_walk"]
    assert table[table.index > 1536].to_numpy() == pytest.approx(CYCLES_PER_WALK) and table[table.index <= 1536].isna().all()
    shown = figures.walk_costs(counted).text
    assert "\t1.00\t28.00\tcounters" in shown and "inferred from time" not in shown


def test_the_figure_of_counts_has_a_line_for_each_kind_and_points_for_what_is_not_predicted(counted: Analysis):
    figure = figures.counted_walks(counted)
    assert set(figure.data["series"]) == set(counted.walks)
    for label in counted.walks:
        assert label in figure.svg() and f"{label[0].upper()}{label[1:]}: " in figure.alt
    drawn, predicted = (sum(path.count("h0") for path in re.findall(rf'<path d="([^"]+)" stroke="{colour}"', figure.svg()))
                        for colour in PALETTE[:2])
    assert predicted == 0 < len(counted.walks["walks, simulated"]) == drawn


@pytest.mark.parametrize("make", sorted(COUNTED, key=lambda make: make.__name__))
def test_what_was_not_counted_has_a_reason_in_the_place_of_the_figure(make):
    with pytest.raises(Unavailable) as refused:
        make(analysis(frame(Truth(), grid(16 * MIB))))
    assert refused.value.code in ("no-pmu", "no-data")


def test_where_walks_are_counted_and_their_cycles_are_not_these_are_inferred(tmp_path: Path):
    zen = analysis(simulate(Store(tmp_path), "simulated-zen-4", "Zen 4", grid(16 * MIB)), COUNTING)
    assert zen.counts_are == "counted" and list(zen.cycles) == ["price of translation, inferred from time"]
    costs = zen.walk_costs.set_index("lines").loc[4096]
    assert costs["walks"] == 1 and costs["per_walk"] == pytest.approx((2 + 9) * GHZ, rel=0.02)
    assert "inferred from time" in figures.walk_costs(zen).text and "counters" not in figures.walk_costs(zen).text.splitlines()[-1]


def test_without_counters_a_model_and_what_was_published_stand_in_and_are_labelled():
    timed = frame(Truth(), grid(16 * MIB)).assign(walk_per_access=float("nan"), walk_reason="no-pmu")
    predicted, published = "walks, predicted: fully associative, LRU", "misses per hop of a graph walk, published"
    assert analysis(timed).counts_are == "predicted" and list(analysis(timed).walks) == [predicted, published]
    assert list(analysis(timed, Stated(tlb=(), changes={"tlb_reason": "no-cpuid"})).walks) == [published]
    assert list(analysis(frame(Truth(), grid(64 << 10))).walks) == [predicted]


def test_the_table_of_counters_has_a_number_or_a_reason_for_each(counted: Analysis):
    table = counted.counters.set_index("counter")
    assert table.equals(counts.table(counted.counted_rows, counted.host).set_index("counter"))
    assert (table["per access"].isna() == (table["why not"] != "")).all() and ((table["processes"] > 0) == (table["why not"] == "")).all()
    assert table.loc["walk cycles", "per access"] == pytest.approx(CYCLES_PER_WALK)
    assert table.loc["nested walk cycles", "why not"].startswith("This CPU has no event that counts the second dimension")
    assert set(events.CANONICAL) <= {name.replace(" ", "_") for name in table.index}


def test_a_counter_without_a_column_has_no_value_and_the_machines_reason():
    rows = pd.DataFrame({"lines": [1, 2], "walk_reason": ["no-data", "other-repeat"], "stlb_hit_reason": ["multiplexed", ""]})
    assert len(counts.counted(rows, "walk")) == 0
    host = Stated().host()
    assert [counts.why_not_counted(rows, name, host) for name in ("walk", "stlb_hit", "never_asked")] == ["no-pmu", "multiplexed", "no-pmu"]
    assert counts.why_not_counted(rows, "walk", COUNTING.host()) == "no-data"
