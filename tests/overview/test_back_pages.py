"""The page about method and reproducibility: the rates that it promises, the rows that it counts, and
no rows."""

import pandas as pd
import pytest
from support.chapter import DEFAULTS
from support.common import make_record
from support.synthetic import Stated

from experiments.overview import method
from tlb.measure.record import Record
from tlb.measure.store import Store
from tlb.report.chapter import Chapter

MACHINE = "zen-9-00000000"
PARAMETERS = DEFAULTS | {"machine": MACHINE, "minutes": 0.0}


def stored(root, *records: Record, experiment: str = "tlb_blocking") -> Chapter:
    store = Store(root)
    store.write_machine(MACHINE, Stated().host().model_dump(mode="json"))
    for record in records:
        store.append(MACHINE, record)
    store.ask(MACHINE, experiment, [record.point for record in records])
    return Chapter("method", PARAMETERS, store)


def test_without_rows_there_are_no_numbers(tmp_path):
    a = method.Analysis(stored(tmp_path))
    tables = (a.spreads(), a.by_chapter(), a.by_machine(), a.by_kernel())
    assert all(table.empty for table in tables)


def test_processes_of_two_chapters_are_counted_once(tmp_path):
    records = [make_record(kernel="page_chase", repeat=n, wall_ns=6e10) for n in range(3)]
    chapter = stored(tmp_path, *records)
    chapter.data.ask(MACHINE, "hugepages", [records[0].point])
    a = method.Analysis(chapter)
    assert (
        list(a.by_chapter()["measurements"]) == [3, 3]
        and a.by_chapter()["digest of the rows"].nunique() == 1
    )
    assert len(a.rows) == 3 and a.rows["wall_ns"].sum() == 1.8e11
    assert "[Huge pages](hugepages.ipynb)" in method.linked_table(a.by_chapter())
    assert "Huge pages" in a.by_kernel()["chapters"].iloc[0] and len(a.by_kernel()) == 1


def test_a_second_run_is_told_by_how_far_it_lies_from_the_first(tmp_path):
    chapter = stored(tmp_path, make_record())
    times = [{"chapter": "tlb_blocking", "ratio": ratio, "claim": None} for ratio in (1.1, 0.8)]
    claim = {"claim": "a", "first_verdict": "holds", "second_verdict": "fails"}
    (tmp_path / "second_run").mkdir()
    pd.DataFrame([*times, claim]).to_parquet(tmp_path / "second_run" / f"{MACHINE}.parquet")
    a = method.Analysis(chapter)
    assert list(method.relative_excess(a.second_run["ratio"])) == pytest.approx([0.1, 0.25])
    assert a.judged_again()[["first", "second"]].to_numpy().tolist() == [["holds", "fails"]]


@pytest.mark.parametrize(("high", "changed"), [(1.1, 0), (1.2, 1), (1.3, 1)])
def test_a_verdict_that_another_width_of_band_changes_is_counted(tmp_path, high, changed):
    """1.2 lies in a quarter's band and not in that of 15%; 1.3 in that of a half alone."""
    chapter = stored(tmp_path, make_record())
    effect = {"value": 1.0, "low": 0.9, "high": high, "coverage": 0.96, "least": 0.75, "most": 1.25}
    open_ended = effect | {"most": None}
    answers = {"a": {"effects": [effect]}, "b": {"effects": [open_ended]}}
    chapter.data.write_document(MACHINE, method.ANSWERS_DOCUMENT, {"tlb_blocking": answers})
    found = {name: made() for name, made in method.Analysis(chapter).band_widths().items()}
    assert found["quarter_bands"] == 1
    assert found["changed_by_narrower"] + found["changed_by_wider"] == changed
