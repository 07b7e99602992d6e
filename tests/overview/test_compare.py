"""`tlb compare`: on machines whose truth is known, how often it is wrong and what it finds; and
what cannot be compared."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from support.campaigns import put
from support.common import ROOT, ended, make_record
from support.resampled import drawn_again
from support.synthetic import HOLE, Stated, Truth, frame, grid

from experiments.overview import compare_output, profile_comparison
from experiments.overview.compare import (
    CANNOT_TELL,
    DIFFERS,
    NO_DIFFERENCE,
    Compared,
    Comparison,
    compare,
    compared,
)
from experiments.overview.machine_pairs import Pair
from tlb.cli import terminal
from tlb.machine import host as hosts
from tlb.measure import states
from tlb.measure.last_campaign import last_campaign
from tlb.measure.record import Record
from tlb.measure.store import Store
from tlb.stats.intervals import Interval, median_interval
from tlb.system.reasons import Unavailable

A, B = "zen-3-aaaaaaaa", "zen-5-bbbbbbbb"
POINTS = grid(64 << 20)
NOISY = Truth(noise=0.02)
PROCESS = itertools.count()  # no two have all fields the same


# --- how often it is wrong, and what it finds


def sided(rows: pd.DataFrame, run: int | pd.Series = 0) -> pd.DataFrame:
    return rows.assign(chapter="stlb_cliff", run=run)


def words(a: pd.DataFrame, b: pd.DataFrame) -> Counter[str]:
    found = compared(a, b, ["stlb_cliff"])
    assert len(found) == len(POINTS)
    return Counter(quantity.verdict for quantity in found)


@pytest.mark.parametrize(
    ("noise", "processes"),
    [
        (0.02, 5),
        (0.1, 9),
        *(
            pytest.param(*rare, marks=pytest.mark.endurance)
            for rare in ((0.005, 5), (0.005, 9), (0.02, 9), (0.1, 5))
        ),
    ],
)
def test_a_machine_seldom_differs_from_itself(noise, processes):
    truth = replace(NOISY, noise=noise)
    told = sum(
        (
            words(*(sided(frame(truth, POINTS, processes, seed)) for seed in (2 * k, 2 * k + 1)))
            for k in range(3)
        ),
        Counter(),
    )
    assert told[DIFFERS] <= 0.05 * told.total()
    assert (
        noise > 0.05 or told[NO_DIFFERENCE] >= 0.9 * told.total()
    )  # and it says so, where noise lets it


@pytest.mark.endurance
@pytest.mark.parametrize("machine", ["zen-3-a9ae1af8", "zen-5-b15e0e32"])
def test_measured_rows_drawn_again_seldom_differ_from_themselves(machine):
    rows = last_campaign(Store(ROOT / "data").load(machine, "stlb_cliff"))
    again = drawn_again(rows[rows["kernel"] == "page_chase"], ["layout", "order", "lines", "pages"])
    random, told = np.random.default_rng(1), Counter()
    for _ in range(3):
        times = pd.Series(
            [NOISY.time_ns(point) * ns for point in POINTS for ns in again(random, 14)]
        )
        both = frame(NOISY, POINTS, 14).assign(ns_per_access=times)
        told += words(sided(both[both["repeat"] < 7]), sided(both[both["repeat"] >= 7]))
    assert told[DIFFERS] <= 0.05 * told.total()


@pytest.mark.parametrize("factor", [1.2, 1 / 1.2])
def test_a_fifth_is_found_where_it_is_and_nowhere_else(factor):
    slower = frame(NOISY, POINTS, 5, seed=2)
    is_slow = slower["layout"] == "spread"
    slower["ns_per_access"] *= np.where(is_slow, factor, 1.0)
    found = compared(sided(frame(NOISY, POINTS, 5, seed=1)), sided(slower), ["stlb_cliff"])
    by_layout = {
        layout: [q for q in found if q.point["layout"] == layout] for layout in ("spread", "packed")
    }
    assert sum(q.verdict == DIFFERS for q in by_layout["spread"]) >= 0.9 * len(by_layout["spread"])
    assert sum(q.verdict == DIFFERS for q in by_layout["packed"]) <= 0.05 * len(by_layout["packed"])
    assert all(
        (q.pair.logs.value > 0) == (factor > 1) for q in by_layout["spread"] if q.verdict == DIFFERS
    )


def test_of_fewer_than_five_processes_nothing_is_told_however_far_apart():
    a, b = (sided(frame(NOISY, POINTS, 4, seed)) for seed in (1, 2))
    assert words(a, b.assign(ns_per_access=9 * b["ns_per_access"])) == {CANNOT_TELL: len(POINTS)}


def in_runs(by: float, seed: int) -> pd.DataFrame:
    """Nine processes a point in three runs, in each of which a point is this much, relatively, off
    what it is."""
    rows, random = frame(replace(NOISY, noise=0.005), POINTS, 9, seed), np.random.default_rng(seed)
    offsets = random.normal(scale=by, size=(len(POINTS), 3))
    each = offsets[np.repeat(np.arange(len(POINTS)), 9), rows["repeat"] % 3]
    return rows.assign(
        ns_per_access=rows["ns_per_access"] * np.exp(each),
        run=rows["repeat"] % 3,
        chapter="stlb_cliff",
    )


def test_what_a_machine_s_own_runs_differ_by_is_no_difference_between_two():
    told = sum((words(in_runs(0.05, 2 * k), in_runs(0.05, 2 * k + 1)) for k in range(3)), Counter())
    assert told[DIFFERS] <= 0.05 * told.total()


def test_more_comparisons_hold_each_to_more():
    a, b = (sided(frame(NOISY, POINTS, 5, seed)) for seed in (1, 2))
    (few, *_), many = (
        compared(*(side[side["lines"] == 16] for side in (a, b)), ["stlb_cliff"]),
        compared(a, b, ["stlb_cliff"]),
    )
    (same,) = [quantity for quantity in many if quantity.point == few.point]
    assert few.among < same.among == len(POINTS) and few.pair == same.pair
    assert same.ratio.low < few.ratio.low and few.ratio.high < same.ratio.high
    barely = few._replace(pair=few.pair._replace(ratio=Interval(1.1, 1.001, 1.2)))
    assert barely._replace(among=1).verdict == DIFFERS != barely._replace(among=1000).verdict


def test_the_other_way_round_it_says_the_same():
    a, b = in_runs(0.02, 1), sided(frame(replace(NOISY, walk_ns=12.0), POINTS, 5))
    there, back = (
        {str(q.point): q.verdict for q in compared(*sides, ["stlb_cliff"])}
        for sides in ((a, b), (b, a))
    )
    assert there == back and len({*there.values()}) > 1


def test_a_point_of_two_modes_is_never_the_same():
    one = Interval(1.0, 1.0, 1.0)
    pair = Pair(one, one, one, (9, 9), (1, 1), 1.0, 0.0)
    alike = Compared("stlb_cliff", {}, "ns_per_access", pair)
    split = alike._replace(pair=pair._replace(ratio=replace(one, modes=2)))
    assert (alike.verdict, split.verdict) == (NO_DIFFERENCE, CANNOT_TELL)


# --- two folders


def host(**changes: object) -> hosts.Host:
    return Stated(changes=changes).host()


OTHER = host(cpu_model="Imagined", microcode="0x2", hypervisor="kvm")


def records(ns: float, lines=(64, 4096), processes=5, day="2025-01-31", **fields) -> list[Record]:
    """Processes a thousandth apart."""
    return [
        make_record(
            lines=n,
            repeat=k,
            ns_per_access=ns * (1 + k * 2 % 5 / 1000),
            started_at=f"{day}T12:{k:02}:00Z",
            elapsed_ns=1e7 + next(PROCESS),
            **fields,
        )
        for n in lines
        for k in range(processes)
    ]


@pytest.fixture
def data(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("TLB_DATA", str(tmp_path))
    return Store(tmp_path)


@pytest.fixture
def two(data) -> Store:
    """B takes twice as long on each point, and knows a counter."""
    for machine, ns, described in ((A, 5.0, host()), (B, 10.0, OTHER)):
        states.write_description(data, machine, described)
        put(data, machine, "stlb_cliff", *records(ns, state=hosts.state(described)))
    return data


def test_each_point_has_both_medians_their_ratio_and_a_verdict(two):
    comparison = compare(A, B)
    found = [(q.chapter, q.point["lines"], q.verdict) for q in comparison.quantities]
    assert found == [("stlb_cliff", lines, DIFFERS) for lines in (64, 4096)]
    pair = comparison.quantities[0].pair
    assert pair.a == median_interval([5.0 * (1 + k / 1000) for k in range(5)])
    assert pair.ratio.value == pytest.approx(2.0)
    assert comparison.computers == [
        ("CPU", "Imaginary Processor 9000 (Ice Lake server)", "Imagined (Ice Lake server)"),
        ("microcode", "0x1", "0x2"),
        ("hypervisor", "none", "kvm"),
    ]


def test_a_chapter_is_compared_alone_and_a_point_of_two_chapters_once(two):
    for machine, described in ((A, host()), (B, OTHER)):
        rows = records(7.0, lines=(128,), state=hosts.state(described))
        put(two, machine, "hugepages", *rows)
        two.ask(machine, "hugepages", [make_record(lines=64).point])
    every, alone = compare(A, B).quantities, compare(A, B, "hugepages").quantities
    assert sorted((q.chapter, q.point["lines"]) for q in every) == [
        ("hugepages", 128),
        ("stlb_cliff", 64),
        ("stlb_cliff", 4096),
    ]
    assert sorted(q.point["lines"] for q in alone) == [64, 128]


def test_rows_of_two_versions_of_a_kernel_are_not_compared_and_neither_are_profiles_of_them(
    two, monkeypatch
):
    both = [object()]
    monkeypatch.setattr(profile_comparison, "of_machines", lambda *sides: both)
    assert compare(A, B).profiles == both
    put(two, A, "hugepages", *records(7.0, lines=(128,), measures=2))
    put(two, B, "hugepages", *records(7.0, lines=(128,)))
    comparison = compare(A, B)
    assert {q.chapter for q in comparison.quantities} == {"stlb_cliff"}
    assert comparison.profiles == [] and any("page_chase" in note for note in comparison.notes)


def test_a_copy_of_rows_is_no_second_measurement(two):
    (copy,) = records(7.0, lines=(128,), processes=1)
    for machine in (A, B):
        put(two, machine, "hugepages", copy)
    assert len(compare(A, B, "stlb_cliff").quantities) == 2
    with pytest.raises(Unavailable, match="rows in common"):
        compare(A, B)


def test_this_is_the_computer_in_its_present_state(data, monkeypatch):
    now, before = host(), host(microcode="0x0")
    machine, states_of = hosts.machine_id(now), [hosts.state(each) for each in (now, before)]
    monkeypatch.setattr(hosts, "inspect", lambda: now)
    for described, day in ((now, "2025-02-01"), (before, "2025-02-02")):  # the last rows are older
        rows = records(5.0, state=hosts.state(described), day=day)
        put(data.own, machine, "stlb_cliff", *rows)
        states.write_description(data.own, machine, described)
    comparison = compare("this", f"this@{states_of[1]}")
    assert [comparison.a.state, comparison.b.state] == states_of
    monkeypatch.setattr(hosts, "inspect", lambda: host(microcode="0x9"))
    with pytest.raises(Unavailable, match=states_of[0]):
        compare("this", f"this@{states_of[1]}")


# --- what is none


def remeasured(data: Store, **fields: Any) -> None:
    """Put other rows in the place of A's."""
    emptied(data)
    put(Store(data.root), A, "stlb_cliff", *records(5.0, **fields))


def emptied(data: Store) -> None:
    for path in (data.root / A).glob("rows.*"):
        path.unlink()


@pytest.mark.parametrize(
    ("change", "arguments", "status", "code"),
    [
        (lambda data: None, [A, "../x"], 2, "bad-parameter"),
        (lambda data: None, [A, A], 2, "bad-parameter"),
        (emptied, [A, B], 1, "no-data"),
        (lambda data: remeasured(data, lines=(17,)), [A, B], 1, "nothing-common"),
        (lambda data: remeasured(data, measures=2), [A, B], 1, "measured-differently"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(
    change, arguments, status, code, two, monkeypatch, capsys
):
    change(two)
    with pytest.raises(Unavailable) as refused:
        compare(*arguments)
    assert refused.value.code == code
    ended_with, out, err = run(monkeypatch, capsys, *arguments)
    assert (ended_with, out, err.count("\n")) == (status, "", 1) and refused.value.detail in err


# --- what is shown


def run(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(terminal, "out", Console(soft_wrap=True, width=300))
    return ended(monkeypatch, "compare", *arguments), *capsys.readouterr()


def checked(comparison: Comparison) -> dict:
    """What a program reads, which has all, and what a person does, which has no hole."""
    shown = list(compare_output.told(comparison))
    tables = [part for part in shown if not isinstance(part, str)]
    cells = [table.to_numpy().ravel() for table in tables[bool(comparison.computers) :]]
    text = [*(part for part in shown if isinstance(part, str)), *map(str, np.concatenate(cells))]
    assert [words for words in text if HOLE.search(words)] == []
    assert sum(map(len, tables)) <= 80
    document = json.loads(json.dumps(compare_output.as_json(comparison), allow_nan=False))
    assert len(document["quantities"]) == len(comparison.quantities)
    return document


def test_a_table_for_a_person_and_all_of_it_for_a_program(two, monkeypatch, capsys):
    status, told, error = run(monkeypatch, capsys, A, B)
    assert (status, error) == (0, "") and A in told and "Imagined" in told
    assert told.count("2.00 (1.99 to 2.01)") == 2
    status, told, error = run(monkeypatch, capsys, A, B, "stlb_cliff", "--json")
    document = json.loads(told)
    assert (status, error, document) == (0, "", checked(compare(A, B, "stlb_cliff")))
    found = [(q["lines"], q["verdict"], q["processes"]) for q in document["quantities"]]
    assert found == [(lines, DIFFERS, [5, 5]) for lines in (64, 4096)]
