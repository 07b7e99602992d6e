"""The pages about method and about doing it again: what they say of rows made up, and of none."""

from __future__ import annotations

import pandas as pd
import pytest
from support.common import make_record
from support.synthetic import GIB, HOLE, Stated, Truth, frame, grid

from experiments.article.chapter import Chapter
from experiments.article.verdicts import WRONG_BY_CHANCE
from experiments.front import method, reproducibility
from experiments.lab import columns
from experiments.lab.record import Record
from experiments.lab.store import Store
from experiments.words.reasons import Unavailable

PARAMETERS = {"machine": "zen-9-00000000", "profile": "quick", "max_working_set": "profile", "repeats": 0, "minutes": 0.0, "engine": "c"}
MACHINE = PARAMETERS["machine"]


def stored(root, *records: Record, experiment: str = "strides") -> Chapter:
    store = Store(root)
    store.write_machine(MACHINE, Stated().host().model_dump(mode="json"))
    for record in records:
        store.append(MACHINE, record, "0" * 16)
    store.ask(MACHINE, experiment, [record.point for record in records])
    return Chapter("method", PARAMETERS, store)


def of(rows: pd.DataFrame, root) -> method.Analysis:
    a = method.Analysis(stored(root))
    a.cliff = method.stlb_cliff.Analysis(rows, a.about)
    return a


def test_what_processes_differ_by_is_told_from_what_their_own_noise_explains(tmp_path):
    def rows(between: float, within: float) -> pd.DataFrame:
        times = [10 * (1 + between * step) for step in (-2, -1, 0, 1, 2)]
        records = [make_record(repeat=n, ns_per_access=ns, batch_ns_per_access=[ns * (1 + within * step) for step in (-2, -1, 0, 1, 2)])
                   for n, ns in enumerate(times)]
        return columns.frame(records, ["0" * 16] * len(records))

    far, near = (of(rows(*given), tmp_path) for given in ((0.2, 0.01), (0.001, 0.2)))
    assert far.spreads["between"].iloc[0] == pytest.approx(0.4) and far.spreads["alone"].iloc[0] < 0.02
    assert "No longer loop" in method.mapping_said(far) and "explains most" in method.mapping_said(near)


def test_the_control_leaves_what_translation_costs(tmp_path):
    truth = Truth(entries=(64, 1536), hit_ns=2.0, walk_ns=9.0)
    a = of(frame(truth, grid(GIB)), tmp_path)
    size = max(a.cliff.price.xs)
    told = method.control_said(a)
    assert f"{a.cliff.packed.get(size).value:.0f} ns" in told and not HOLE.search(told)


def test_the_rule_s_rates_are_those_that_the_page_promises(tmp_path):
    a = method.Analysis(stored(tmp_path))
    assert (a.rates["decided on the line, %"] <= 100 * WRONG_BY_CHANCE).all()
    assert not HOLE.search(method.rule_said(a)) and not HOLE.search(method.order_said(a))
    with pytest.raises(Unavailable):
        method.mapping_said(a)


def test_processes_of_two_chapters_are_counted_once(tmp_path):
    records = [make_record(kernel="page_chase", repeat=n, wall_ns=6e10) for n in range(3)]
    chapter = stored(tmp_path, *records)
    chapter.data.ask(MACHINE, "hugepages", [records[0].point])
    a = reproducibility.Analysis(chapter)
    assert list(a.chapters["processes"]) == [3, 3] and a.chapters["rows"].nunique() == 1
    told = reproducibility.chapters_said(a)
    assert told.startswith("3 processes on one machine") and "3 minutes" in told
    assert "hugepages" in a.kernels["chapters"].iloc[0] and len(a.kernels) == 1


def test_another_time_is_another_digest(tmp_path):
    chapters = [stored(tmp_path / str(ns), make_record(kernel="page_chase", ns_per_access=ns)) for ns in (6.5, 6.6)]
    assert len({reproducibility.Analysis(chapter).chapters["rows"].iloc[0] for chapter in chapters}) == 2


def test_runs_an_hour_apart_are_compared_and_one_run_is_none(tmp_path):
    def chapter(hour: int) -> Chapter:
        runs = enumerate(((5.0, 8), (10.0, hour)))
        return stored(tmp_path / str(hour), *(make_record(
            kernel="page_chase", repeat=n, ns_per_access=ns, started_at=f"2025-01-31T{at:02}:00:00Z") for n, (ns, at) in runs))

    assert "factor of 2.00" in reproducibility.again_said(reproducibility.Analysis(chapter(12)))
    assert "one run" in reproducibility.again_said(reproducibility.Analysis(chapter(8)))


def test_without_rows_there_is_a_reason(tmp_path):
    a = reproducibility.Analysis(stored(tmp_path))
    for made in (reproducibility.chapters_said, reproducibility.again_said, reproducibility.book_chapters, reproducibility.book_kernels):
        with pytest.raises(Unavailable):
            made(a)


def test_the_libraries_that_numbers_pass_through_are_locked():
    assert set(reproducibility.LIBRARIES) <= set(reproducibility._locked())
