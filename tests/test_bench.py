"""`make bench` is not run here; what its tables are made of is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.common import refusal

from experiments import bench
from tlb.lab.record import Point
from tlb.reasons import Unavailable
from tlb.system import files


def test_rows_by_page_size_are_of_medians_and_a_size_that_is_lacking_has_its_reason_s_code():
    def rounds(pages: str, i: int) -> list[float]:
        if pages == "2m":
            raise Unavailable("pool-empty")
        return [float(i), 2.0]

    rows = bench.by_pages(("2m", "thp"), rounds, lambda a, b: (f"{a:g}", f"{b:g}"))
    assert list(rows) == [("2m", "pool-empty"), ("thp", "3", "2")]  # of the rounds 0 to 6


def test_rows_by_size_pair_fresh_processes_and_end_with_the_median_difference(
    monkeypatch: pytest.MonkeyPatch,
):
    seen: list[tuple[str, int, int]] = []

    def take(point: Point, repeat: int):
        seen.append(("ours", point.lines, repeat))
        return SimpleNamespace(ns_per_access={16: 11.0, 32: 10.0, 64: 8.0}[point.lines])

    def other(point: Point, i: int) -> float:
        seen.append(("other", point.lines, i))
        return 10.0

    monkeypatch.setattr(bench, "_rig", lambda: SimpleNamespace(take=take))
    points = {n << 12: Point(kernel="page_chase", lines=n) for n in (16, 32, 64)}
    assert list(bench.by_size(points, other)) == [
        ("64 KiB", "11.00", "10.00", "+10.0%"),
        ("128 KiB", "10.00", "10.00", "+0.0%"),
        ("256 KiB", "8.00", "10.00", "-20.0%"),
        ("median of |difference|", "", "", "10.0%"),
    ]
    assert (
        seen[:4] == [("ours", 16, 0), ("other", 16, 0), ("ours", 16, 1), ("other", 16, 1)]
        and len(seen) == 3 * 2 * bench.PAIRS
    )


def test_tables_are_chosen_by_name_and_what_takes_the_lock_itself_is_run_without_it(
    monkeypatch: pytest.MonkeyPatch, own_lock: Path
):
    held: dict[str, bool] = {}

    def note(tables: Iterable[Callable]) -> None:
        for rows in tables:
            try:
                with files.measuring_lock(path=own_lock):
                    held[rows.__name__] = False
            except Unavailable:
                held[rows.__name__] = True

    monkeypatch.setattr(bench, "_print", note)
    monkeypatch.setattr(bench, "measuring_lock", lambda: files.measuring_lock(path=own_lock))
    bench.main(["mean_hop"])
    assert held == {"mean_hop": True}
    bench.main()
    assert {*held} == {rows.__name__ for rows in bench.TABLES} and len(held) == len(bench.TABLES)
    assert refusal(bench.main, ["nope"]) == "bad-parameter"


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
def test_a_table_is_measured(monkeypatch: pytest.MonkeyPatch):
    """One process a program, of the shortest table."""
    monkeypatch.setattr(bench, "PAIRS", 1)
    ((ours, theirs, _, cycles, _),) = bench.first_level_cache()
    assert min(map(float, (ours, theirs, cycles))) > 0


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
def test_the_engines_take_turns_over_one_mapping(tmp_path):
    library = bench.engine_library(str(tmp_path))
    numba, c, ratio = bench.program("engines_in_turn")(library, "spread", 64)
    assert min(numba, c, ratio) > 0
