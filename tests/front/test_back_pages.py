"""The pages about method and about doing it again: what they say of rows made up, and of none."""

from __future__ import annotations

import re
from types import ModuleType

import pandas as pd
import pytest
from support.common import make_record
from support.synthetic import Stated

from experiments.article import page
from experiments.article.chapter import Chapter
from experiments.article.verdicts import WRONG_BY_CHANCE
from experiments.front import method, reproducibility
from experiments.lab import columns
from experiments.lab.record import Record
from experiments.lab.store import Store

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
    assert far.spreads()["between"].iloc[0] == pytest.approx(0.4) and far.spreads()["alone"].iloc[0] < 0.02
    assert near.spreads()["between"].iloc[0] < near.spreads()["alone"].iloc[0]


def test_the_rule_s_rates_are_those_that_the_page_promises():
    rates = method.Analysis.simulated_verdicts(1.05, 1.2, noises=(0.02, 0.10))
    assert (rates["decided on the line, %"] <= 100 * WRONG_BY_CHANCE).all()
    assert (rates["decided a fifth beyond it, %"] > rates["decided on the line, %"]).all()


@pytest.mark.parametrize(("name", "module"), [("method", method), ("reproducibility", reproducibility)])
def test_a_page_without_rows_gives_reasons(name: str, module: ModuleType, tmp_path):
    chapter = stored(tmp_path)
    told = page.written(name, lambda names: module.Analysis(chapter, names))
    assert "Not on this machine" in told and not re.search(r"\bnan\b|\bNone\b", told)


def test_processes_of_two_chapters_are_counted_once(tmp_path):
    records = [make_record(kernel="page_chase", repeat=n, wall_ns=6e10) for n in range(3)]
    chapter = stored(tmp_path, *records)
    chapter.data.ask(MACHINE, "hugepages", [records[0].point])
    a = reproducibility.Analysis(chapter)
    assert list(a.by_chapter()["processes"]) == [3, 3] and a.by_chapter()["rows"].nunique() == 1
    assert len(a.rows) == 3 and a.rows["wall_ns"].sum() == 1.8e11
    assert "hugepages" in a.by_kernel()["chapters"].iloc[0] and len(a.by_kernel()) == 1


def test_another_time_is_another_digest(tmp_path):
    chapters = [stored(tmp_path / str(ns), make_record(kernel="page_chase", ns_per_access=ns)) for ns in (6.5, 6.6)]
    assert len({reproducibility.Analysis(chapter).by_chapter()["rows"].iloc[0] for chapter in chapters}) == 2


def test_runs_an_hour_apart_are_compared_and_one_run_is_none(tmp_path):
    def chapter(hour: int) -> Chapter:
        runs = enumerate(((5.0, 8), (10.0, hour)))
        return stored(tmp_path / str(hour), *(make_record(
            kernel="page_chase", repeat=n, ns_per_access=ns, started_at=f"2025-01-31T{at:02}:00:00Z") for n, (ns, at) in runs))

    assert list(reproducibility.Analysis(chapter(12)).between_runs()) == [2.0]
    assert reproducibility.Analysis(chapter(8)).between_runs().empty


def test_the_libraries_that_numbers_pass_through_are_locked():
    assert set(reproducibility.locked()) == set(reproducibility.LIBRARIES)
