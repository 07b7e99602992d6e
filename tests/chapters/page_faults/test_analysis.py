"""Page faults on kernels whose costs are known: they come back, and what lacks is a reason."""

import pytest
from support.common import refusal
from support.faults import NOTHING, Kernel, analysis, points, rows

from experiments.page_faults import TOUCHED_MEMORY_KINDS, add_touched_memory_names, grid
from experiments.page_faults.analysis import (
    FIRST_TOUCH_OF_BASE_PAGES,
    FIRST_TOUCH_OF_CACHED_FILE,
    FIRST_TOUCH_OF_HUGE_PAGES,
    FIRST_TOUCH_OF_LARGE_FOLIO_FILE,
    POPULATED_FILE_TOUCH,
)

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Kernel(noise=1e-9)


@pytest.mark.parametrize("around", [1, 16])
def test_a_page_and_a_fault_differ_by_the_pages_that_a_fault_maps(around):
    kernel = Kernel(noise=1e-9, around=around)
    a = analysis(rows(kernel))
    page = kernel.trap_ns / around + kernel.enter_ns + kernel.free_ns
    assert a.page_ns(FIRST_TOUCH_OF_CACHED_FILE).value == pytest.approx(page)
    assert [
        a.pages_per_fault(way)
        for way in (FIRST_TOUCH_OF_CACHED_FILE, FIRST_TOUCH_OF_LARGE_FOLIO_FILE)
    ] == pytest.approx([around, kernel.piece])
    assert a.page_ns(FIRST_TOUCH_OF_CACHED_FILE).value - a.page_ns(
        POPULATED_FILE_TOUCH
    ).value == pytest.approx(kernel.trap_ns / around)


def test_a_process_that_misread_the_clock_changes_no_time():
    frame = rows(QUIET)
    late = 200.0 * (frame["repeat"] == 0)
    read = {name: frame[name] - late for name in ("mean_ns", "p50_ns", "p95_ns")}
    found, plain = (
        analysis(one).touches[FIRST_TOUCH_OF_BASE_PAGES]
        for one in (frame.assign(clock_ns=frame["clock_ns"] + late, **read), frame)
    )
    assert found.tolist() == pytest.approx(plain.tolist(), nan_ok=True)


def test_large_pages_save_traps_and_no_zeroing():
    a = analysis(rows(QUIET))
    saved = a.page_ns(FIRST_TOUCH_OF_BASE_PAGES).value - a.page_ns(FIRST_TOUCH_OF_HUGE_PAGES).value
    assert saved == pytest.approx(QUIET.trap_ns * 511 / 512)
    assert a.page_ns(FIRST_TOUCH_OF_HUGE_PAGES).value > QUIET.zero_ns


def test_rows_are_named_by_what_they_touch_and_faults_are_known_of_each():
    frame = rows(QUIET)
    heap = frame["kernel"] == "prefault"
    frame = frame.assign(accesses=frame["lines"], minor_faults=1.0)
    frame.loc[heap & (frame["pages"] == "thp"), "minor_faults"] = frame["lines"] / 512
    frame.loc[heap & (frame["pages"] == "4k"), "minor_faults"] = frame["lines"]
    named = add_touched_memory_names(frame)
    faults = named.groupby("memory")["faults_per_access"].median()
    assert set(TOUCHED_MEMORY_KINDS) <= set(faults.index)
    assert faults[TOUCHED_MEMORY_KINDS].tolist() == pytest.approx(
        [1, 1 / 512, 1, 1 / 512, 1 / 16, 1 / 512]
    )
    assert not named.query("threads == 2").size and add_touched_memory_names(frame[:0]).empty


def test_records_are_those_of_the_published_chunk_and_threads_count_up_to_the_cpus():
    kernel = Kernel(noise=1e-9, cpus=4, shared=0.0)
    a = analysis(rows(kernel))
    kept = a.churn("keep")
    assert kept.at(4).value == pytest.approx(kept.at(1).value / 4)
    assert kept.at(1).value == pytest.approx(kernel.search_ns)
    assert a.churn("unmap").xs == [*range(1, 8)] and a.most_real_threads == 4


def test_a_charge_is_what_a_page_takes_more_in_a_group():
    assert analysis(rows(QUIET)).charge.value == pytest.approx(QUIET.charge - 1)


def test_a_profile_gives_the_share_of_its_samples_that_zero_pages():
    a = analysis(rows(QUIET))
    assert (a.zeroing_share("4k"), a.zeroing_share("thp")) == pytest.approx((0.1, 0.6))
    lacking = analysis(rows(QUIET), profiles={}, lacking={"profiles": "no-perf"})
    assert refusal(lambda: lacking.zeroing_share("4k")) == "no-perf"


def test_memory_that_was_left_alone_is_that_of_the_longest_wait_and_no_shorter_one():
    touched_at_once = rows(QUIET).query("kernel != 'touch_again' or idle_ms == 0")
    assert refusal(analysis(touched_at_once).left_alone) == "too-few-points"
    left = analysis(rows(QUIET)).left_alone()
    assert left.tolist() == pytest.approx(
        [QUIET.page_ns("anonymous", "thp", 0) + QUIET.host_ns] * 5
    )


def test_the_grid_has_a_control_for_each_number_of_threads():
    every = points()
    threads = {
        mode: [
            dict(p.options)["threads"]
            for p in every
            if (p.kernel, p.mode, p.lines)
            == ("map_churn", mode, grid.ARTICLE_CHUNK_COUNT * grid.ARTICLE_CHUNK_BYTES // 64)
        ]
        for mode in ("unmap", "keep")
    }
    assert threads["unmap"] == threads["keep"] == [*range(1, 8)]
    assert {p.lines * 4096 for p in every if p.kernel == "page_fault"} == {grid.ARTICLE_FILE_BYTES}
    assert not [
        p for p in points(cpus=1) if p.kernel == "prefault" and dict(p.options)["threads"] > 1
    ]


def test_one_cpu_is_the_reason_where_two_threads_lack():
    assert refusal(lambda: analysis(rows(Kernel(cpus=1)), cpus=1).prefaulted(2)) == "one-cpu"
    assert refusal(lambda: analysis(NOTHING).prefaulted(2)) == "too-few-points"


def test_giving_memory_back_is_timed_apart_from_filling_it():
    found = analysis(rows(QUIET)).given_back(1).value
    assert found == pytest.approx(QUIET.free_ns)
