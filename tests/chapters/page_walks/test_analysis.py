"""What the rows of a walk say: quantiles, regimes, walks under way, misses and the model, of
machines whose truth is known."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from support.common import refusal
from support.synthetic import GIB, MIB
from support.walk import Walk, analysis, only, rows

from experiments.page_walks.analysis import REGIMES, Analysis
from tlb.stats.curves import Curve
from tlb.stats.hops import share_below

pytestmark = pytest.mark.filterwarnings("error")


@cache
def plain() -> Analysis:
    """Several tests read it, so none assigns to it."""
    return analysis()


def test_quantiles_over_processes_are_those_of_the_hops_that_were_drawn():
    a, draw = plain(), np.random.default_rng(9)
    for pages, size in (("4k", 16 * GIB), ("2m", GIB), ("1g", 256 << 10)):
        hops = Walk().hops(pages, size, draw, 100_000)
        assert a.p50[pages].get(size).value == pytest.approx(np.quantile(hops, 0.5), abs=4)
        assert a.p95[pages].get(size).value == pytest.approx(np.quantile(hops, 0.95), abs=8)


def test_a_process_that_misread_the_clock_changes_no_quantile():
    frame = rows()
    late = frame["clock_ns"] + 200 * (frame["repeat"] == 0)
    assert analysis(frame.assign(clock_ns=late)).hops.equals(analysis(frame).hops)


def test_a_peak_is_known_to_a_tick_of_the_clock_or_to_the_spread_of_processes():
    a = plain()
    ends = [
        abs(end - peak.value) for peak in a.peaks["4k"].peaks_ns for end in (peak.low, peak.high)
    ]
    assert a.peak_error_ns == max(*ends, a.walks(1)["clock_step_ns"].median())
    assert analysis(rows().assign(clock_step_ns=40.0)).peak_error_ns >= 40.0


def test_the_gain_of_several_walkers_is_one_walkers_time_over_theirs():
    walkers = plain().walkers
    assert list(dict.fromkeys(walkers["pages"])) == ["4k", "thp", "2m"] and set(
        walkers["vertices"]
    ) == {1 << 24}
    for row in walkers.itertuples():
        assert row.gain == pytest.approx(
            Walk().mean(row.pages, GIB) / Walk().mean(row.pages, GIB, row.walkers), rel=0.05
        )


@pytest.mark.parametrize("walkers", [2, 4, 6])
def test_walks_under_way_at_once_are_as_many_as_the_machine_has_page_walkers(walkers):
    _, _, busy = analysis(
        rows(Walk(walkers=walkers, in_flight=64, noise=0.002, far_ns=300.0))
    ).under_way
    assert busy.value == pytest.approx(walkers, rel=0.1) and busy.low <= busy.value <= busy.high


def test_regimes_are_those_that_the_machine_was_made_with():
    a = plain()
    assert a.p50["4k"].medians.iloc[0] == pytest.approx(
        5, abs=3
    ) and a.regimes.memory_ns == pytest.approx(70, abs=6)
    names = a.regimes.answers.map(lambda place: REGIMES[place])
    assert names[MIB] == names[4 * MIB] == "cache"
    assert names[64 * MIB] == names[512 * MIB] == "memory"
    assert names[8 * GIB] == names[16 * GIB] == "memory and walk"
    shares = share_below(a.distributions("4k")[16 * GIB], a.regimes.cut_ns)
    assert 1 - shares[1] == pytest.approx(1 - 1 / 32, abs=0.02)


def test_a_load_from_memory_is_what_large_pages_take_two_octaves_past_half_of_their_rise():
    p50 = {
        pages: Curve(
            pd.DataFrame({"working_set_bytes": [2**k * MIB for k in range(8)], "median": medians}),
            "working_set_bytes",
        )
        for pages, medians in (
            ("4k", [5.0, 5, 20, 60, 90, 130, 200, 300]),
            ("2m", [5.0, 5, 20, 55, 70, 80, 95, 105]),
        )
    }
    a = analysis()
    a.__dict__["p50"] = p50
    assert a.regimes.memory_ns == 80 and a.regimes.cut_ns == pytest.approx(
        (20, 120)
    )  # half of the rise to 105 is done at 8 MiB
    assert a.regimes.answers.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (lambda: only("4k"), "pool-empty"),
        (lambda: only("2m", "1g"), "too-few-points"),
        (lambda: rows(most=4 * MIB), "no-step"),
    ],
)
def test_regimes_that_cannot_be_told_have_a_reason(frame, code):
    assert refusal(lambda: analysis(frame()).regimes) == code


def test_peaks_are_numbered_where_all_of_them_show():
    """At the largest size the hops with one access are gone; they are still the first peak."""
    a = plain()
    whole = a.peaks["4k"].peaks_ns
    assert [peak.value for peak in whole] == pytest.approx([70, 150], abs=15)


def test_an_entry_from_memory_adds_what_lies_between_the_first_two_peaks():
    a = plain()
    assert a.peak_ns("4k") == pytest.approx([70, 150], abs=15)
    assert a.entry_ns.value == pytest.approx(75, abs=15)
    assert a.entry_ns.low < 75 < a.entry_ns.high
    assert refusal(lambda: a.peak("4k", 2)) == "no-step"
    assert a.has_peaks("4k") and not analysis(rows()[:0]).has_peaks("4k")


def test_hops_that_wait_twice_are_those_whose_table_has_left_the_caches():
    a = plain()
    assert a.waiting_share("4k", 2) == pytest.approx(1 - 1 / 32, abs=0.02)
    assert refusal(lambda: a.waiting_share("4k", 5)) == "too-few-points"


def test_a_hop_counts_as_two_accesses_from_half_way_between_the_peaks():
    a = plain()
    assert a.accesses_from_ns(2) == pytest.approx(110, abs=10)
    of_graph = a.distributions("4k")[int(a.peaks_graph_bytes)]
    beyond = 1 - share_below(of_graph, [a.accesses_from_ns(2)])[0]
    assert a.waiting_share("4k", 2, of_peaks=True) == pytest.approx(beyond, abs=0.02)
    assert refusal(lambda: a.accesses_from_ns(3)) == "no-step"


def test_walks_per_hop_are_those_counted_in_the_largest_graph():
    a = analysis(rows(Walk(counted=True)))
    assert a.walks_per_hop("4k").value == pytest.approx(Walk().misses("4k", 16 * GIB))
    assert refusal(lambda: plain().walks_per_hop("4k")) == "no-pmu"
