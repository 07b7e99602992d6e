"""`tlb compare`: on quantities whose truth is known, how often it is wrong and what it finds; what it
prints of published machines, and what cannot be compared."""

import json
from collections import Counter
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import pytest
from support.common import ROOT, ended, refusal
from support.synthetic import Stated

from tlb.machine import host as hosts
from tlb.measure import machine_states
from tlb.measure.store import Store
from tlb.report import comparison, publish, quantities
from tlb.report.comparison import (
    CANNOT_TELL_VERDICT,
    DIFFERS_VERDICT,
    NO_DIFFERENCE_VERDICT,
    compare_quantities,
)
from tlb.report.quantities import QuantityDeclaration
from tlb.stats.intervals import Interval, median_interval
from tlb.system.reasons import Unavailable

A, B = "zen-4-b312e3a0", "zen-5-b15e0e32"
NUMBER = 20


class Twenty(quantities.Quantities):
    """Twenty quantities of one unit."""


class Three(quantities.Quantities):
    time_ns = QuantityDeclaration("a time", "ns")
    entries = QuantityDeclaration("a stated number", "pages")
    gain = QuantityDeclaration("a change that may be negative", "share")


for place in range(NUMBER):
    measured = QuantityDeclaration(f"the time number {place}")
    measured.__set_name__(Twenty, f"q_{place}")
    Twenty.declared = {**Twenty.declared, measured.name: measured}


def drawn(
    random: np.random.Generator, factor: float = 1.0, mappings: int = 9, noise: float = 0.02
) -> dict[str, quantities.Quantities]:
    """A machine, measured once more."""
    found = Twenty()
    rows = pd.DataFrame({"repeat": range(mappings)})
    for place, name in enumerate(Twenty.declared):
        times = (1 + place) * factor * np.exp(noise * random.standard_normal(mappings))
        found.record(rows, **{name: median_interval(times)})
    return {"chapter": found}


def verdicts(factor: float, machines: int = 2, **how: Any) -> Counter[str]:
    random, counts = np.random.default_rng(7), Counter()
    for _ in range(20):
        drawn_machines = {"first": drawn(random, **how)}
        drawn_machines |= {str(one): drawn(random, factor, **how) for one in range(1, machines)}
        compared, _ = compare_quantities(drawn_machines, ["chapter"])
        assert len(compared) == NUMBER * (machines - 1)
        counts.update(one.verdict for one in compared)
    return counts


@pytest.mark.parametrize("machines", [2, 4])
def test_a_machine_seldom_differs_from_itself_and_a_fifth_is_found(machines):
    total = 20 * NUMBER * (machines - 1)
    alike = verdicts(1.0, machines)
    assert alike[DIFFERS_VERDICT] <= 0.05 * 20 * (machines - 1)  # of twenty tables one may err
    assert alike[NO_DIFFERENCE_VERDICT] > 0.9 * total
    for factor in (1.2, 1 / 1.2):
        assert verdicts(factor, machines)[DIFFERS_VERDICT] >= 0.9 * total


def test_few_mappings_and_wide_intervals_decide_nothing():
    assert verdicts(1.2, mappings=4) == {CANNOT_TELL_VERDICT: 20 * NUMBER}
    assert verdicts(1.0, noise=0.3)[NO_DIFFERENCE_VERDICT] == 0


def three(
    time: Interval | None, entries: float, gain: Interval
) -> dict[str, quantities.Quantities]:
    found, rows = Three(), pd.DataFrame({"repeat": range(9)})
    if time is not None:
        found.record(rows, time_ns=time)
    found.record(rows, entries=entries, gain=gain)
    return {"chapter": found}


def test_stated_numbers_are_exact_and_a_ratio_of_negative_numbers_decides_nothing():
    gain = Interval(-0.1, -0.2, 0.1, 0.96)
    time, entries = Interval(1, 0.9, 1.1, 0.96), {"a": 1536.0, "b": 2048.0, "c": 1536.0}
    machines = {name: three(time, number, gain) for name, number in entries.items()}
    compared, among = compare_quantities(machines | {"d": three(None, 64.0, gain)}, ["chapter"])
    found = {(one.name, one.machine): one.verdict for one in compared}
    assert [found["entries", name] for name in "bcd"] == [
        DIFFERS_VERDICT,
        NO_DIFFERENCE_VERDICT,
        DIFFERS_VERDICT,
    ]
    assert [found["gain", name] for name in "bcd"] == [CANNOT_TELL_VERDICT] * 3
    assert found["time_ns", "d"] == "" and among == 2


def test_a_ratio_is_decided_alike_from_either_side():
    for among in (1, 5, 300):
        wide = comparison.widened_ratio(Interval(2.0, 1.6, 2.6, 0.96), among)
        back = comparison.widened_ratio(Interval(1 / 2.0, 1 / 2.6, 1 / 1.6, 0.96), among)
        assert (1 / back.high, 1 / back.low) == pytest.approx((wide.low, wide.high))


# --- published machines


def test_published_quantities_are_compared_as_they_are_kept(monkeypatch, capsys):
    assert ended(monkeypatch, "compare", A, B, "stlb_cliff", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    kept = [
        json.loads((ROOT / "data" / name / "quantities.json").read_text())["stlb_cliff"]
        for name in (A, B)
    ]
    assert found["machines"] == {A: A, B: B} and found["differences"]
    for one in found["differences"]:
        assert (one["chapter"], one["machine"]) == ("stlb_cliff", B)
        values = [side[one["name"]]["value"] for side in kept]
        assert [one[which]["value"] for which in ("first", "other")] == values
        assert one["ratio"] is None or one["ratio"]["value"] == pytest.approx(values[1] / values[0])


def test_the_table_has_a_row_a_quantity_and_two_columns_a_machine():
    found = comparison.compare([A, B], ["hugepages"])
    descriptions, sentence, table = comparison.tables(found)
    assert list(table.columns[2:]) == [A, B, f"{B} over {A}"]
    assert len(table) == len(found.differences) and f"{found.among:,}" in sentence
    assert "CPU" in set(descriptions["description"])


def test_this_computer_is_compared_by_the_quantities_of_its_own_book(tmp_path, monkeypatch):
    monkeypatch.setenv("TLB_DATA", str(tmp_path))
    published = Store(ROOT / "data")
    this = hosts.machine_id(hosts.inspect_machine())
    own, data = Store(tmp_path).own, Store(tmp_path)
    for store, name, source in ((own, this, B), (data, A, A)):
        for document in ("machine", "quantities"):
            store.write_document(name, document, published.read_document(source, document))
    found = comparison.compare([A, "this"])
    assert [one.identity for one in found.machines.values()] == [A, this]
    assert {one.chapter for one in found.differences} >= {"stlb_cliff", "hugepages"}


@pytest.mark.endurance
@pytest.mark.parametrize("chapter", ["hugepages", "flushes"])
def test_a_chapter_has_the_quantities_of_the_machine_beside(chapter, tmp_path):
    made = tmp_path / "out.ipynb"
    publish.execute(chapter, made, {"machine": A, "beside": B, "minutes": 0.0})
    kept = Store(ROOT / "data").read_document(B, "quantities")[chapter]
    declared = comparison._declared()[chapter](kept)
    tables = [
        "".join(output["data"]["text/plain"]).splitlines()
        for cell in nbformat.read(made, 4).cells
        for output in cell.get("outputs", ())
        if "Mappings" in "".join(output.get("data", {}).get("text/plain", ""))
    ]
    (table,) = tables
    beside = {label: cell for label, cell, *_ in (line.split("\t") for line in table[1:])}
    assert beside == {one.label: one.cell for _, one in declared}


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ((A,), "bad-parameter"),
        ((A, A), "bad-parameter"),
        ((A, "reference"), "bad-parameter"),
        (("own/reference", A), "bad-parameter"),
        ((A, "zen-9-00000000"), "no-data"),
        ((A, "../data"), "bad-parameter"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(names, code):
    assert refusal(comparison.compare, names) == code


def test_a_chapter_without_quantities_is_named():
    with pytest.raises(Unavailable, match="no chapter 'method'"):
        comparison.compare([A, B], ["method"])


def test_two_states_of_this_computer_are_compared_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("TLB_DATA", str(tmp_path))
    own, published = Store(tmp_path).own, Store(ROOT / "data")
    four_levels = Stated(changes={"boot": ("no5lvl",)}).host()
    this = hosts.machine_id(four_levels)
    for host, source in ((Stated().host(), A), (four_levels, B)):
        machine_states.write_description(own, this, host)
        kept = published.read_document(source, "quantities")
        for name in ("quantities", f"quantities-{hosts.state_digest(host)}"):
            own.write_document(this, name, kept)
    plain = hosts.state_digest(Stated().host())
    found = comparison.compare([f"own/{this}@{plain[:6]}", f"{this}@no5lvl"], ["stlb_cliff"])
    assert any(one.verdict == DIFFERS_VERDICT for one in found.differences)
    assert refusal(comparison.compare, [this, f"{this}@pti=off"]) == "no-data"
