"""The pages about method and about doing it again: the rates that they promise, the rows that they
count, and no rows."""

import json
import re
from operator import attrgetter

import pandas as pd
import pytest
from support.chapter import DEFAULTS
from support.common import make_record
from support.rendered import written
from support.synthetic import Stated

from experiments.overview import method, reproducibility
from tlb.measure.record import Record
from tlb.measure.store import Store, data_root
from tlb.report.chapter import Chapter
from tlb.report.verdicts import WRONG_BY_CHANCE

MACHINE = "zen-9-00000000"
PARAMETERS = DEFAULTS | {"machine": MACHINE, "minutes": 0.0}


def stored(root, *records: Record, experiment: str = "strides") -> Chapter:
    store = Store(root)
    store.write_machine(MACHINE, Stated().host().model_dump(mode="json"))
    for record in records:
        store.append(MACHINE, record)
    store.ask(MACHINE, experiment, [record.point for record in records])
    return Chapter("method", PARAMETERS, store)


def test_the_rule_s_rates_are_those_that_the_page_promises():
    rates = method.Analysis.simulated_verdicts(1.05, 1.2, noises=(0.02, 0.10))
    assert (rates["decided on the line, %"] <= 100 * WRONG_BY_CHANCE).all()
    assert (rates["decided a fifth beyond it, %"] > rates["decided on the line, %"]).all()


@pytest.mark.parametrize(
    ("name", "module"), [("method", method), ("reproducibility", reproducibility)]
)
def test_a_page_without_rows_gives_reasons(name, module, tmp_path):
    chapter = stored(tmp_path)
    told = written(name, lambda names: module.Analysis(chapter, names))
    assert "Not on this machine" in told and not re.search(r"\bnan\b|\bNone\b", told)


def test_processes_of_two_chapters_are_counted_once(tmp_path):
    records = [make_record(kernel="page_chase", repeat=n, wall_ns=6e10) for n in range(3)]
    chapter = stored(tmp_path, *records)
    chapter.data.ask(MACHINE, "hugepages", [records[0].point])
    a = reproducibility.Analysis(chapter)
    assert list(a.by_chapter()["measurements"]) == [3, 3] and a.by_chapter()["rows"].nunique() == 1
    assert len(a.rows) == 3 and a.rows["wall_ns"].sum() == 1.8e11
    assert "hugepages" in a.by_kernel()["chapters"].iloc[0] and len(a.by_kernel()) == 1


def test_a_second_run_is_told_by_how_far_it_lies_from_the_first(tmp_path):
    def time(first: float, second: float, unit: str = "ns") -> dict[str, object]:
        sides = {"a": {"value": first}, "b": {"value": second}}
        return {"chapter": "strides", "unit": unit, "verdict": "differs"} | sides

    chapter = stored(tmp_path, make_record())
    times = [time(10.0, 11.0), time(10.0, 8.0), time(0.0, 1.0), time(1.0, 2.0, "walks")]
    for date, found in (("2026-01-02", times), ("2025-12-31", times[:1])):
        (folder := tmp_path / "second_run" / MACHINE / date).mkdir(parents=True)
        (folder / "compare.json").write_text(json.dumps({"quantities": found}))
    found = reproducibility.Analysis(chapter).second_run
    assert list(found["ratio"]) == [1.1, 0.8] and {*found["date"]} == {"2026-01-02"}
    assert list(reproducibility.apart(found["ratio"])) == pytest.approx([0.1, 0.25])


@pytest.mark.parametrize(
    "folder", sorted((data_root() / "second_run").glob("*")), ids=attrgetter("name")
)
def test_a_published_second_run_was_compared_with_the_published_rows(folder):
    """Its first side is what the rows of data/ give; newer rows need another comparison."""
    parameters = DEFAULTS | {"machine": folder.name, "minutes": 0.0}
    a = reproducibility.Analysis(Chapter("reproducibility", parameters, Store(data_root())))
    found = a.second_run[a.second_run["kernel"] == "stride_sum"]
    rows = Store(data_root()).load(folder.name, "strides")
    by = ["pages", "mode", "layout", "order", "lines", "bytes", "step_bytes"]
    medians = rows.groupby(by, dropna=False)["ns_per_access"].median().reset_index()
    both = pd.merge(found, medians, on=by)
    assert (
        len(both) == len(found) > 20
        and (both["a.value"] - both["ns_per_access"]).abs().max() < 1e-9
    )
