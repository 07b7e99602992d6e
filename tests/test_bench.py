"""`make bench` is not run here; what its tables are made of is."""

from collections.abc import Callable, Iterable

import pytest
from support.common import refusal

from experiments import bench
from tlb.system import files
from tlb.system.reasons import Unavailable


def test_tables_are_chosen_by_name_and_what_takes_the_lock_itself_is_run_without_it(
    monkeypatch, own_lock
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
def test_a_table_is_measured(monkeypatch):
    """One process a program, of the shortest table."""
    monkeypatch.setattr(bench, "PAIRS", 1)
    ((ours, theirs, _, cycles, _),) = bench.first_level_cache()
    assert min(map(float, (ours, theirs, cycles))) > 0
