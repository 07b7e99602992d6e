"""The ladder's prices and the rates of faulting in: each the median of its processes; and
documents."""

import pytest
from support.common import refusal
from support.keeping_pages import SPLIT, WHOLE, analysis, asked, programs, rows
from support.page_sizes import Paged, keeping_pages

from experiments.keeping_pages.analysis import Analysis
from experiments.stlb_cliff import analysis as stlb_cliff
from tlb.report.chapter import chapter_of_published_machine

pytestmark = pytest.mark.filterwarnings("error")


# --- the ladder


@pytest.mark.parametrize(
    ("machine", "truth"),
    [(WHOLE, lambda pages: WHOLE.price_ns(pages, 8192 * 4096)), (SPLIT, lambda _: 32.0)],
)
def test_the_ladder_of_a_known_machine_is_its_truth(machine, truth):
    for pages, price in analysis(rows(machine, repeats=9)).ladder.items():
        assert price.value == pytest.approx(truth(pages), abs=1.5), pages


def test_the_price_on_base_pages_has_the_bounds_of_the_cliff_s():
    about = chapter_of_published_machine("stlb_cliff", "reference")
    cliff = stlb_cliff.Analysis(about.kept("stlb_cliff"), about).price
    a = Analysis.published("reference")
    assert a.ladder_lines in cliff.xs and a.price_on("4k") == cliff.get(a.ladder_lines)


# --- faulting in


@pytest.mark.parametrize(("ns", "rate"), [(819.2, 5.0), (4096 / 31, 31.0)])
def test_a_rate_is_4096_bytes_by_the_nanoseconds_that_they_took(ns, rate):
    """5 and 31 GB/s are the published rates of 4 TB touched on base pages and on transparent
    ones."""
    faults = analysis(
        Paged(faults_ns=(ns,) * 5, noise=0.0).frame(keeping_pages(cpus=1), 1)
    ).faults.query("mode == 'touch'")
    assert faults["gb_per_s"].to_numpy() == pytest.approx(rate)


def test_twenty_gigabytes_are_touched_at_one_thread_s_rate_and_no_rate_is_without_its_threads():
    frame = Paged(faults_ns=(819.2,) * 5, noise=0.0).frame(keeping_pages(cpus=1), 1)
    a = analysis(frame)
    assert (a.touched("4k").value, a.heap_s("4k", 20e9).value) == pytest.approx((5.0, 4.0))
    assert refusal(a.touched, "4k", True) == "too-few-points"
    a.about.host = a.host.model_copy(update={"usable_cpus": (0,)})
    assert refusal(a.touched, "4k", True) == "one-cpu"
    assert refusal(analysis(frame[:0]).touched, "4k") == "too-few-points"


# --- what programs got


def test_what_each_way_of_asking_got_leaves_out_those_that_use_a_part_of_it():
    got = analysis(ways=asked()).got_by_way.set_index("way")
    share = got["huge_bytes"] / got["resident_bytes"]
    assert not {"arena", "dropped"} & set(share.index)
    assert (share["advised"], share["pool"], share["anonymous"]) == (1, 1, 0)
    refused = asked() | {"lacking": {"pool": "pool-empty"}}
    assert analysis(ways=refused).refused_ways == ["pool"]
    assert analysis().got_by_way.empty and analysis().refused_ways == []


def test_programs_on_huge_pages_are_counted_by_variant_and_their_gain_is_of_median_reads():
    a = analysis(runtimes=programs())
    assert [a.programs_on_huge_pages(variant) for variant in ("plain", "huge")] == [0, 1]
    assert a.read_gains("huge").to_dict() == {"C": pytest.approx(20.1 / 10.1)}
    lacking = programs() | {"lacking": {"c pool": "pool-empty"}}
    assert refusal(analysis(runtimes=lacking).programs_on_huge_pages, "pool") == "pool-empty"
    assert refusal(analysis(runtimes=lacking).read_gains, "pool") == "pool-empty"
