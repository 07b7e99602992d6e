"""A rig: made once of a host, it hands each point to its `measure` with all that follows from the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.common import make_record
from support.lab import GIB, a_rig, run
from support.synthetic import Stated

from experiments.lab import measure, perf, rig
from experiments.lab.build import Kernel
from experiments.lab.record import Point, Record
from experiments.lab.rig import Rig
from experiments.lab.store import Store
from experiments.machine import host as hosts
from experiments.words.reasons import Unavailable

POINT = Point(kernel="page_chase", lines=64)


def test_a_rig_is_what_follows_from_its_host(store: Store, monkeypatch: pytest.MonkeyPatch):
    probed: list[tuple] = []
    monkeypatch.setattr(perf, "plan", lambda name, cpu: probed.append((name, cpu)) or perf.NO_COUNTERS)
    monkeypatch.setattr(rig, "performance_cpu", lambda usable: max(usable))
    host = Stated().host()
    host = host.model_copy(update={"usable_cpus": (2, 5), "memory": host.memory.model_copy(update={"usable_bytes": 3 * GIB})})
    made = Rig.of(host, store)
    assert (made.machine, made.state) == (hosts.machine_id(host), hosts.state(host))
    assert (made.usable_bytes, made.cpu, made.measure) == (3 * GIB // 2, 5, measure.measure)  # half of what is free
    assert probed == [(host.microarchitecture, 5)]
    named = Rig.of(host, store, "another", counters=False, cpu=2)
    assert (named.machine, named.cpu, named.plan) == ("another", 2, perf.NO_COUNTERS) and len(probed) == 1


def test_a_replaced_measure_gets_the_point_and_all_of_the_rig(store: Store):
    asked: list[tuple] = []

    def fake(point: Point, repeat: int, **how: object) -> Record:
        asked.append((point, repeat, how))
        return make_record(**point.model_dump(), repeat=repeat)

    plan = perf.Plan("perf")
    record = a_rig(store, measure=fake, cpu=3, plan=plan, usable_bytes=7).take(POINT, 4)
    assert (record.point, record.repeat) == (POINT, 4)
    assert asked == [(POINT, 4, {"state": "00112233aabb", "usable_bytes": 7, "plan": plan, "cpu": 3})]


def test_a_campaign_measures_with_the_rig_s_own_measure_and_stores_under_its_machine(store: Store, own_lock: Path, monkeypatch):
    monkeypatch.setattr("experiments.lab.build.kernel", lambda name, engine: Kernel(name, engine, ("true",), "a" * 16))

    def fake(point: Point, repeat: int, *, state: str, **_: object) -> Record:
        if point.lines == 128:
            raise Unavailable("memory-short")
        return make_record(**point.model_dump(), repeat=repeat, state=state, ns_per_access=4.5)

    outcome = run(store, [POINT, POINT.model_copy(update={"lines": 128})], measure=fake, machine="elsewhere", name="x")
    assert outcome.measured == 1 and [point.lines for point in outcome.lacking] == [128]
    assert store.load("elsewhere", "x")["ns_per_access"].tolist() == [4.5]


def test_two_rigs_of_one_store_are_apart(store: Store):
    assert replace(a_rig(store), machine="b") != a_rig(store) == a_rig(store)
