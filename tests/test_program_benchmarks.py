"""The programs that `make bench` judges `tlb try` by, at small sizes."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from support.common import LONG_S, needs_c

from experiments import program_benchmarks
from experiments.program_benchmarks import REFERENCE_PROGRAMS, compiled_c_program
from tlb.measure.record import Point
from tlb.programs.levers import LEVERS
from tlb.programs.runs import run_program
from tlb.programs.snapshots import at_peak
from tlb.system import procfs

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.measures
@needs_c
@pytest.mark.skipif(
    procfs.chosen(HUGE) != "madvise", reason="takes large pages on request and not otherwise"
)
def test_the_chase_asks_for_nothing_and_gets_what_a_lever_asks_for(tmp_path):
    program = compiled_c_program(
        REFERENCE_PROGRAMS / "unadvised.c", str(tmp_path), "-Wall", "-Wextra", "-Werror"
    )
    for name, least, most in (("none", 0, 0), ("advise", 56 << 20, 80 << 20)):
        done = run_program(
            [program, "chase", "64"],
            LEVERS[name],
            limit_s=LONG_S,
            share=0.3,
            conditions=program_benchmarks.PRINTS,
        )
        seen = at_peak(done.snapshots)
        assert (
            done.status == 0 and done.number.grouped > 0 and least <= seen.pages.huge_bytes <= most
        )
    arithmetic = run_program(
        [program, "sum", "1"],
        LEVERS["none"],
        limit_s=LONG_S,
        share=0.3,
        conditions=program_benchmarks.PRINTS,
    )
    assert arithmetic.status == 0 and 0 < arithmetic.number.grouped < 1e4
    assert [
        run_program([program, *words], LEVERS["none"], limit_s=LONG_S, share=0.3).status
        for words in ([], ["chase", "0"])
    ] == [2, 3]


def test_the_kernel_is_compared_in_pairs_as_a_trial_is(monkeypatch):
    class Rig:
        def take(self, point: Point, repeat: int) -> SimpleNamespace:
            slow = repeat % 2 + 1  # mappings come in two clusters, of which pairs see the same
            return SimpleNamespace(ns_per_access=slow * (60.0 if point.pages == "thp" else 100.0))

    monkeypatch.setattr(program_benchmarks, "replace", lambda rig, **changes: rig)
    monkeypatch.setattr(program_benchmarks.MeasuringSetup, "of", lambda *given, **how: Rig())
    for pairs in (0, 9):
        found = program_benchmarks.kernel_ratio(pairs).value_and_bounds
        assert found == pytest.approx((0.6, 0.6, 0.6))
