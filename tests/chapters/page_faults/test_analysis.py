"""Page faults on kernels whose costs are known: they come back, and what lacks is a reason."""

import pytest
from support.common import refusal
from support.faults import NOTHING, Kernel, analysis, points, rows

from experiments.page_faults import grid
from experiments.page_faults.analysis import (
    FILE_PAGES,
    FILE_PAGES_AT_ONCE,
    FRESH_LARGE_MEMORY,
    FRESH_MEMORY,
    NAMED_TOUCHES,
    PREPARED_FILE_PAGES,
)
from tlb.system.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Kernel(noise=1e-9)


@pytest.mark.parametrize("around", [1, 16])
def test_a_page_and_a_fault_differ_by_the_pages_that_a_fault_maps(around):
    kernel = Kernel(noise=1e-9, around=around)
    a = analysis(rows(kernel))
    page = kernel.trap_ns / around + kernel.enter_ns + kernel.free_ns
    assert a.page_ns(FILE_PAGES).value == pytest.approx(page) and a.per_fault[
        FILE_PAGES
    ].value == pytest.approx(around * page)
    assert [a.pages_per_fault[way] for way in (FILE_PAGES, FILE_PAGES_AT_ONCE)] == pytest.approx(
        [around, kernel.piece]
    )
    assert a.page_ns(FILE_PAGES).value - a.page_ns(PREPARED_FILE_PAGES).value == pytest.approx(
        kernel.trap_ns / around
    )


def test_a_process_that_misread_the_clock_changes_no_time():
    frame = rows(QUIET)
    late = 200.0 * (frame["repeat"] == 0)
    read = {name: frame[name] - late for name in ("mean_ns", "p50_ns", "p95_ns")}
    found, plain = (
        analysis(one).touches[FRESH_MEMORY]
        for one in (frame.assign(clock_ns=frame["clock_ns"] + late, **read), frame)
    )
    assert found.tolist() == pytest.approx(plain.tolist(), nan_ok=True)


def test_large_pages_save_traps_and_no_zeroing():
    a = analysis(rows(QUIET))
    saved = a.page_ns(FRESH_MEMORY).value - a.page_ns(FRESH_LARGE_MEMORY).value
    assert saved == pytest.approx(QUIET.trap_ns * 511 / 512)
    assert a.page_ns(FRESH_LARGE_MEMORY).value > QUIET.zero_ns


def test_the_histogram_of_a_file_has_a_mode_for_those_that_fault_and_one_for_those_that_do_not():
    data = analysis(rows(QUIET)).histograms.set_index("way")
    file = data.loc[NAMED_TOUCHES[FILE_PAGES]]
    assert file["share"].sum() == pytest.approx(1.0) and len(file) == 2
    assert file.sort_values("ns")["share"].tolist() == pytest.approx([15 / 16, 1 / 16], abs=0.01)
    fresh = data.loc[[NAMED_TOUCHES[FRESH_MEMORY]]]
    assert (
        len(fresh) == 1
        and fresh["low_ns"].iloc[0] < QUIET.page_ns("anonymous", "4k", 0) < fresh["high_ns"].iloc[0]
    )


def test_rates_are_those_of_all_threads_and_their_faults_are_counted():
    kernel = Kernel(noise=1e-9, cpus=4, shared=0.0)
    a = analysis(rows(kernel))
    by = a.rates.set_index(["mode", "threads"])
    assert by.loc[("keep", 4), "rate"] == pytest.approx(4 * by.loc[("keep", 1), "rate"])
    assert by.loc[("keep", 1), "rate"] == pytest.approx(1e9 / kernel.search_ns)
    assert (by.loc["keep", "faults"] == 0).all() and (
        by.loc["unmap", "faults"] == grid.CHUNK_BYTES // 4096
    ).all()
    assert (
        by.loc["unmap", "is_beyond"].tolist() == [False] * 4 + [True] * 3
        and a.most_real_threads == 4
    )
    assert (a.churned("4k") / a.churned("thp")).value > 1


def test_memory_that_was_left_alone_is_that_of_the_longest_wait():
    left = analysis(rows(QUIET)).left_alone()
    assert left.tolist() == pytest.approx(
        [QUIET.page_ns("anonymous", "thp", 0) + QUIET.host_ns] * 5
    )


def test_the_grid_has_each_point_once_and_a_control_for_each_number_of_threads():
    every = points()
    assert len(every) == len(set(every))
    threads = {
        mode: [
            dict(p.options)["threads"]
            for p in every
            if (p.kernel, p.mode, p.lines)
            == ("map_churn", mode, grid.CHUNKS * grid.CHUNK_BYTES // 64)
        ]
        for mode in ("unmap", "keep")
    }
    assert threads["unmap"] == threads["keep"] == [*range(1, 8)]
    assert {p.lines * 4096 for p in every if p.kernel == "page_fault"} == {grid.FILE_BYTES}
    assert not [
        p for p in points(cpus=1) if p.kernel == "prefault" and dict(p.options)["threads"] > 1
    ]


def test_what_was_not_measured_is_empty_or_a_reason():
    a = analysis(NOTHING)
    assert a.touches == a.per_fault == {} and a.histograms.empty and a.rates.empty
    for ask in (
        lambda: a.page_ns(FILE_PAGES),
        lambda: a.known(a.per_fault, FILE_PAGES),
        lambda: a.churned("4k"),
        lambda: a.most_real_threads,
        a.left_alone,
    ):
        with pytest.raises(Unavailable):
            ask()


def test_one_cpu_is_the_reason_where_two_threads_lack():
    assert refusal(lambda: analysis(rows(Kernel(cpus=1)), cpus=1).prefaulted(2)) == "one-cpu"
    assert refusal(lambda: analysis(NOTHING).prefaulted(2)) == "too-few-points"
