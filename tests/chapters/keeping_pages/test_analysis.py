"""The ladder's prices and the rates of faulting in: each the median of its processes; and
documents."""

import pytest
from support.keeping_pages import SPLIT, WHOLE, analysis, rows
from support.page_sizes import Paged, keeping_pages

from tlb.system.page_sizes import PAGES

pytestmark = pytest.mark.filterwarnings("error")
LADDER = [pages for pages in PAGES if pages not in ("2m", "1g")]


# --- the ladder


@pytest.mark.parametrize(
    ("machine", "truth"),
    [(WHOLE, lambda pages: WHOLE.price_ns(pages, 8192 * 4096)), (SPLIT, lambda _: 32.0)],
)
def test_the_ladder_of_a_known_machine_is_its_truth(machine, truth):
    for pages, price in analysis(rows(machine, repeats=9)).ladder.items():
        assert price.value == pytest.approx(truth(pages), abs=1.5), pages


# --- faulting in


@pytest.mark.parametrize(("ns", "rate"), [(819.2, 5.0), (4096 / 31, 31.0)])
def test_a_rate_is_4096_bytes_by_the_nanoseconds_that_they_took(ns, rate):
    """5 and 31 GB/s are the published rates of 4 TB touched on base pages and on transparent
    ones."""
    faults = analysis(
        Paged(faults_ns=(ns,) * 5, noise=0.0).frame(keeping_pages(cpus=1), 1)
    ).faults.query("mode == 'touch'")
    assert faults["gb_per_s"].to_numpy() == pytest.approx(rate)
