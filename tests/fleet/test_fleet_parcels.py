"""What a client believes of what arrives, and what a worker sends: without a network."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import fleet
from support.common import make_record
from support.fuzzing import ENDURANCE, SEED, mutated
from support.lab import failing, one_by_one

from experiments.fleet import parcel, slot
from experiments.fleet.collected import Collected, collecting
from experiments.fleet.parcel import Sender, Task, check_sender, open_parcel
from experiments.lab import lines, measure, session
from experiments.lab.record import Quantity
from experiments.lab.store import Store
from experiments.machine import host as hosts
from experiments.words.reasons import Unavailable

TASK = Task(grids={"stlb_cliff": tuple(fleet.POINTS[:3])}, repeats=2, most=2, seconds=60.0)
PROGRAM = parcel.program(fleet.POINTS[0])
SENDER = Sender(version=parcel.version(), host=fleet.host_of("a"), identities={PROGRAM: (1, fleet.KERNEL)})


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_lock: Path) -> Any:
    monkeypatch.setattr(fleet.build, "kernel", lambda name, engine="c": fleet.Kernel(name, engine, ("true",), fleet.KERNEL))
    monkeypatch.setattr(fleet, "PROCESS_S", 0.0)
    return fleet.a_rig("a", tmp_path / "there")


@pytest.fixture
def sent(rig: Any) -> dict[str, Any]:
    return slot.measured(rig, TASK)


def refused(what: object, code: str = "fleet-garbage", task: Task = TASK) -> None:
    with pytest.raises(Unavailable) as why:
        open_parcel(what, task, SENDER)
    assert why.value.code == code


def resigned(sent: dict[str, Any], **changes: object) -> dict[str, Any]:
    """A parcel whose first row says something else, with the key and the digests that go with it."""
    content = json.loads(sent["lines"][0])
    record = lines.Record.model_validate(content["record"] | changes)
    line = lines.write(record, content["kernel_digest"])[1]
    return sent | {"lines": [line, *sent["lines"][1:]], "sha256": [hashlib.sha256(line).hexdigest(), *sent["sha256"][1:]]}


def test_what_is_sent_is_the_ledger_s_own_lines_and_comes_whole(rig, sent):
    ledger = (rig.store.root / rig.machine / "page_chase.jsonl").read_bytes().splitlines(keepends=True)
    opened = open_parcel(sent, TASK, SENDER)
    assert sorted(sent["lines"]) == sorted(ledger) and len(opened.rows) == 6 == len({row.key for row in opened.rows})
    assert (opened.sender.machine, opened.lacking, opened.stopped) == (rig.machine, {}, None)


def test_a_task_that_was_done_measures_nothing_and_sends_what_the_client_lacks(rig, sent):
    keys = [json.loads(line)["key"] for line in sent["lines"]]
    fake = rig.measure
    asked: list[object] = []
    object.__setattr__(rig, "measure", lambda *given, **how: asked.append(given) or fake(*given, **how))
    again = slot.measured(rig, TASK.model_copy(update={"have": dict.fromkeys(keys[:4], 0)}))
    assert asked == [] and sorted(again["lines"]) == sorted(sent["lines"][4:])


def test_of_a_ledger_that_is_further_the_task_s_own_rows_are_sent(rig, sent):
    first = TASK.model_copy(update={"repeats": 1, "most": 1})
    assert {row.record.repeat for row in open_parcel(slot.measured(rig, first), first, SENDER).rows} == {0}


def test_a_full_disk_stops_a_task_and_what_was_finished_is_sent(rig, monkeypatch):
    slot.measured(rig, TASK.model_copy(update={"repeats": 1, "most": 1}))
    monkeypatch.setattr(os, "write", failing(os.write, errno.ENOSPC, after=2))
    sent = slot.measured(rig, TASK)
    monkeypatch.undo()
    opened = open_parcel(sent, TASK, SENDER)
    assert opened.stopped.code == "disk-full" and len(opened.rows) == 5


def test_a_point_that_cannot_be_had_comes_with_its_reason_and_the_others_come(rig):
    fake, victim = rig.measure, fleet.POINTS[1]

    def lacks_one(points, repeat, *setting, **how):
        for point, result in fake(points, repeat, *setting, **how):
            yield point, Unavailable("pool-empty", "0 of 4") if point == victim else result

    object.__setattr__(rig, "measure", lacks_one)
    opened = open_parcel(slot.measured(rig, TASK), TASK, SENDER)
    assert {point: str(why) for point, why in opened.lacking.items()} == {victim: str(Unavailable("pool-empty", "0 of 4"))}
    assert {row.record.point for row in opened.rows} == {*fleet.POINTS[:3]} - {victim}


# --- what is refused

SHAPES: list[Callable[[dict], object]] = [
    lambda sent: None, lambda sent: b"rows", lambda sent: [*sent.values()], lambda sent: sent | {"more": 1},
    lambda sent: {name: value for name, value in sent.items() if name != "sha256"}, lambda sent: sent | {"lines": tuple(sent["lines"])},
    lambda sent: sent | {"lines": sent["lines"][:-1]}, lambda sent: sent | {"lines": [line.decode() for line in sent["lines"]]},
    lambda sent: sent | {"sha256": sent["sha256"][::-1]}, lambda sent: sent | {"lines": [line[:-1] for line in sent["lines"]]},
    lambda sent: sent | {"lines": sent["lines"] * 2, "sha256": sent["sha256"] * 2}, lambda sent: sent | {"lacks": "[]"},
    lambda sent: sent | {"lacks": json.dumps({"points": [{"code": "no such reason", "point": fleet.POINTS[0].model_dump()}]})},
    lambda sent: sent | {"lacks": "[" * 100_000}, lambda sent: sent | {"sender": "{}"}, lambda sent: sent | {"sender": 7},
    lambda sent: sent | {"sender": Sender(version=parcel.version(), host=fleet.host_of("b")).model_dump_json()}]
CHANGES = [{"repeat": 7}, {"measures": 2}, {"lines": 512}, {"kernel": "page_gather"}, {"state": "0" * 12}, {"seed": 1}, {"mode": "other"}]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_parcel_of_another_shape_is_refused_whole(sent, shape):
    refused(shape(sent))


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_row_that_was_not_asked_for_is_refused_though_its_digests_are_right(sent, changes):
    open_parcel(resigned(sent), TASK, SENDER)  # as it was
    refused(resigned(sent, **changes))


def test_a_row_of_a_kernel_that_the_sender_did_not_name_is_refused(sent):
    for identity in ((1, "0" * 16), (2, fleet.KERNEL)):
        other = Sender.model_validate_json(sent["sender"]).model_copy(update={"identities": {PROGRAM: identity}})
        refused(sent | {"sender": other.model_dump_json()})


@pytest.mark.parametrize("changes", [{"digest": "0" * 16}, {"measures": 2}], ids=str)
def test_rows_of_another_version_of_the_kernel_are_not_sent_and_do_not_count_as_there(rig, tmp_path, monkeypatch, changes):
    before = slot.measured(rig, TASK)
    now = fleet.Kernel("page_chase", "c", ("true",), changes.get("digest", fleet.KERNEL), measures=changes.get("measures", 1))
    monkeypatch.setattr(fleet.build, "kernel", lambda name, engine="c": now)
    made = fleet.made_up("a")
    object.__setattr__(rig, "measure", one_by_one(lambda *given, **how: made(*given, **how).model_copy(
        update={"measures": now.measures, "elapsed_ns": 1.5e7})))
    first = TASK.model_copy(update={"repeats": 1, "most": 1})
    sent = slot.measured(rig, first)
    assert len(sent["lines"]) == 3 and not {*sent["lines"]} & {*before["lines"]}
    with collecting(tmp_path / "here") as collected:
        collected.add(open_parcel(before, TASK, SENDER))
        assert collected.left(SENDER, TASK.grids, [("page_chase", 2, 0)], ()) == 0
        collected.add(opened := open_parcel(sent, first, SENDER))
        assert collected.left(opened.sender, TASK.grids, [("page_chase", 2, 0)], ()) == 3


def test_a_computer_that_changed_its_state_is_asked_who_it_is(sent):
    host = fleet.host_of("a").model_copy(update={"kernel_release": "6.2.0"})
    refused(sent | {"sender": Sender(version=parcel.version(), host=host).model_dump_json()}, "state-changed")


def test_no_broken_parcel_gives_a_row_that_was_not_measured(sent):
    """Lines broken by a generator, half of them with a digest that fits."""
    rng, whole, counts = random.Random(SEED), {*sent["lines"]}, {"refused": 0, "taken": 0}
    for _ in range(5000 if ENDURANCE else 300):
        line = mutated(rng, sent["lines"][:3])
        digest = hashlib.sha256(line if rng.random() < 0.5 else sent["lines"][0]).hexdigest()
        try:
            opened = open_parcel(sent | {"lines": [line], "sha256": [digest]}, TASK, SENDER)
        except Unavailable as why:
            counts["refused"] += why.code == "fleet-garbage"
        else:
            assert line in whole and len(opened.rows) == 1
            counts["taken"] += 1
    assert counts["refused"] > 10 * counts["taken"]


# --- another version


@pytest.mark.parametrize("folder", parcel.SOURCES)
def test_another_version_is_refused_with_what_differs(folder):
    other = Sender(version=parcel.version() | {folder: "0" * 12}, host=SENDER.host)
    with pytest.raises(Unavailable) as why:
        check_sender(other.model_dump_json())
    assert why.value.code == "fleet-version" and why.value.detail == f"{folder}/ is {'0' * 12} there and {parcel.version()[folder]} here"


def test_the_version_is_another_where_a_source_is(tmp_path, monkeypatch):
    for folder in parcel.SOURCES:
        (tmp_path / folder / "sub").mkdir(parents=True)
    monkeypatch.setattr(parcel, "ROOT", tmp_path)
    seen = {parcel.version.__wrapped__()["kernels"]}
    source = tmp_path / "kernels/sub/a.c"
    for act in (lambda: source.write_text("int x;"), lambda: source.write_text("int y;"), lambda: source.rename(source.with_stem("b"))):
        act()
        seen.add(parcel.version.__wrapped__()["kernels"])
    assert len(seen) == 4
    (tmp_path / "kernels/sub/notes.txt").write_text("no source")
    assert parcel.version.__wrapped__()["kernels"] in seen


# --- the store of what was collected


def test_what_is_collected_is_to_the_byte_what_was_measured_and_comes_once(rig, sent, tmp_path):
    opened = open_parcel(sent, TASK, SENDER)
    with collecting(tmp_path / "here") as collected:
        collected.describe(opened.sender, TASK.grids)
        assert [collected.add(opened), collected.add(opened)] == [6, 0]
        assert Collected(collected.store).add(opened) == 0  # a client that was started again
    ours, theirs = tmp_path / "here" / rig.machine, rig.store.root / rig.machine
    assert fleet.lines_of(ours) == fleet.lines_of(theirs) and (ours / "grids.json").read_bytes() == (theirs / "grids.json").read_bytes()
    assert json.loads((ours / "machine.json").read_bytes()) == SENDER.host.model_dump(mode="json")
    assert len(Store(tmp_path / "here").load(rig.machine, "stlb_cliff")) == 6


def test_a_row_that_counted_more_is_sent_and_taken_beside_the_one_that_counted_nothing(tmp_path):
    point = fleet.POINTS[0]

    def row(**counters: Quantity) -> Any:
        return make_record(**point.model_dump(), state=hosts.state(SENDER.host), seed=measure.seed_of(point, 0), counters=counters)

    less, more = row(walk=Quantity(reason="no-perf")), row(walk=Quantity(value=1.0, event="w"))
    with collecting(tmp_path) as collected:
        for record, added in ((less, 1), (less, 0), (more, 1), (more, 0), (less, 0)):
            task = TASK.model_copy(update={"have": collected.have(SENDER.machine, "page_chase")})
            sent = parcel.pack(SENDER, task, {lines.key_of(record, fleet.KERNEL): record}, {})
            assert collected.add(open_parcel(sent, task, SENDER)) == added
        assert Store(tmp_path).records(SENDER.machine, ["page_chase"]).popitem()[1] == more


def test_two_clients_do_not_collect_into_one_folder(tmp_path):
    with collecting(tmp_path), pytest.raises(Unavailable) as why, collecting(tmp_path):
        pass
    assert why.value.code == "fleet-already"
    with collecting(tmp_path):
        pass


def test_what_is_left_is_counted_without_what_cannot_be_had(rig, sent, tmp_path):
    opened, rounds = open_parcel(sent, TASK, SENDER), [("page_chase", number, number) for number in (1, 2, 3)]
    with collecting(tmp_path / "here") as collected:
        collected.add(opened)
        assert collected.left(opened.sender, TASK.grids, rounds, []) == 3 * 3 - 6
        assert collected.left(opened.sender, TASK.grids, rounds, [fleet.POINTS[0]]) == 2 * 3 - 4


def test_a_thread_that_measures_may_run_wherever_the_process_could(monkeypatch):
    seen: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda *given: seen.append(given), raising=False)
    slot.unpinned()
    assert seen == [(0, session.CPUS_AT_START)]
