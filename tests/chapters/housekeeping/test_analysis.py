"""Collapses, forks and the kernel's other work on machines whose prices are known: each comes back."""

import pytest
from support.common import refusal
from support.events import Events, House, analysis, rows
from support.synthetic import GIB, scope

from experiments import housekeeping, shootdowns
from experiments.housekeeping import document, grid

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Events(noise=1e-9)


def test_a_collapse_pays_after_so_many_hops():
    a = analysis(housekeeping, rows(QUIET))
    assert (
        a.break_even_hops("random").value == pytest.approx(2e7 / QUIET.gain_ns)
        and len(a.collapses) == len(grid.COLLAPSED_AREAS) * 3 * 2
    )
    assert a.collapse_at("during", "p999").value == pytest.approx(200 * QUIET.walk_ns)
    assert (
        refusal(analysis(housekeeping, rows(Events(gain_ns=-1.0))).break_even_hops, "address")
        == "unstable"
    )
    a = analysis(housekeeping, rows(Events(seen=0.9)))
    assert a.flushes_per_collapse() == pytest.approx(0.9, abs=1e-3)
    assert (
        refusal(analysis(housekeeping, rows(Events(counted=False))).flushes_per_collapse)
        == "no-flush-count"
    )
    a = analysis(housekeeping, rows(cpus=1), cpus=1)
    assert refusal(a.flushes_per_collapse) == "one-cpu"
    assert refusal(a.break_even_hops, "address") == "one-cpu"


@pytest.mark.parametrize(("whole", "copied"), [(False, 4096), (True, 2 << 20)])
def test_forks_writes_and_arenas_by_page_size(whole, copied):
    a = analysis(housekeeping, rows(Events(copies_whole=whole)))
    assert a.single_write(grid.LARGE)[0].value == copied and a.single_write("4k")[0].value == 4096
    sizes = [mib << 8 for mib in grid.FORKED_MIB]
    assert a.fork_ns["4k"].xs == a.fork_ns[grid.LARGE].xs == sizes
    assert a.most(a.fork_ns, "4k").value == pytest.approx(1e5 + 100 * sizes[-1])
    assert a.waste().value == pytest.approx((2 << 20) / (100 << 10))


def test_housekeeping_comes_back_or_has_its_reason():
    a = analysis(housekeeping, house=House(splits=True))
    assert (
        a.longest_touch_ns("fragments", "always") == 3_000_000
        and a.touch_ns("free", "always", "p50").value == 100_000
    )
    assert (
        a.merging("large_after") == 0.0
        and a.merging("saved_bytes") == 7 / 8
        and a.merged_write_ns("own") == 80
    )
    assert a.swapped_in("thp")[0].value == 4096 and a.life_ratio("free", 64).value == pytest.approx(
        0.2
    )
    assert (
        refusal(lambda: analysis(housekeeping, house=None).housekeeping) == "housekeeping-not-asked"
    )
    left = analysis(housekeeping, house=House(lacking=("merged", "swapped", "idle", "pieces")))
    for make in (
        left.merged,
        lambda: left.swapped_in("4k"),
        left.idle,
        lambda: left.runs("fragments", "always"),
    ):
        assert refusal(make) == "memory-whole"


def test_the_document_is_lent_by_a_published_machine_only_where_it_is_lacking():
    own = analysis(housekeeping)
    assert own.or_lent() is own
    lent = analysis(housekeeping, house=None).or_lent()
    assert lent.about.machine == document.LENT and len(lent.runs("fragments", "always")) > 1


@pytest.mark.parametrize("cpus", [1, 2, 64])
def test_the_grid_asks_for_each_point_once_and_for_all_cpus_that_shootdowns_ask_for(cpus):
    asked = housekeeping.grid.points(scope(GIB, cpus=cpus))
    assert len(asked) == len(set(asked))
    most = max(dict(point.options).get("threads", 0) for point in asked)
    assert most == shootdowns.grid.other_cpu_counts(scope(GIB, cpus=cpus))[-1]
