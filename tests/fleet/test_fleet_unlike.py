"""Which computer of a kind is the odd one: on made-up computers of which it is known."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose

import numpy as np
import pandas as pd
import pytest
from support import fleet
from support.common import make_record
from support.fuzzing import ENDURANCE, sampled
from support.synthetic import Stated

from experiments.fleet import unlike
from experiments.fleet.collected import Collected
from experiments.lab import columns, states
from experiments.lab.store import Store
from experiments.machine import host as hosts

SIZES = [64 << step for step in range(8)]


def rows(slower: Mapping[str, float], n: int = 8, processes: int = 5, scatter: float = 0.01, noise: float = 0.003, seed: int = 0,
         sizes: list[int] = SIZES) -> pd.DataFrame:
    """n computers "c0"..., each off by its own scatter at each point, and `slower` by a factor beside that."""
    rng = np.random.default_rng(seed)
    frames = []
    for number in range(n):
        name = f"c{number}"
        times = {lines: 5 * slower.get(name, 1.0) * np.exp(rng.normal(0, scatter) + rng.normal(0, noise, processes)) for lines in sizes}
        records = [make_record(lines=lines, repeat=repeat, ns_per_access=float(ns)) for lines, each in times.items()
                   for repeat, ns in enumerate(each)]
        frames.append(columns.frame(records, ["a" * 16] * len(records)).assign(machine=name))
    return pd.concat(frames, ignore_index=True)


def of(frame: pd.DataFrame) -> unlike.Kind:
    return unlike.of_rows("a kind", sorted(set(frame["machine"])), frame)


def test_the_one_that_is_slower_is_named_with_how_much_and_no_other():
    kind = of(rows({"c3": 1.5}))
    assert {one.machine for one in kind.unlike} == {"c3"} and len(kind.unlike) == len(SIZES) == kind.points
    assert kind.among == 8 * len(SIZES)
    assert all(one.ratio.low < 1.5 * 1.03 and one.ratio.high > 1.5 * 0.97 for one in kind.unlike)


def test_faster_is_as_odd_as_slower():
    down = of(rows({"c3": 1 / 1.5}))
    assert {one.machine for one in down.unlike} == {"c3"} and all(isclose(one.ratio.value, 1 / 1.5, rel_tol=0.05) for one in down.unlike)


@sampled
def test_what_scatters_as_its_kind_does_is_not_odd():
    """Of kinds of which none is odd at most one in twenty names one."""
    seeds = range(200 if ENDURANCE else 10)
    kinds = [of(rows({}, n=6, scatter=scatter, sizes=SIZES[:2], seed=seed)) for scatter in (0.0, 0.02) for seed in seeds]
    assert sum(bool(kind.unlike) for kind in kinds) <= 0.05 * len(kinds)


def test_two_odd_ones_do_not_hide_each_other():
    assert {one.machine for one in of(rows({"c1": 2.0, "c2": 2.0})).unlike} == {"c1", "c2"}


def test_fewer_than_five_processes_name_nobody():
    kind = of(rows({"c3": 3.0}, processes=4))
    assert (kind.unlike, kind.among, kind.points) == ([], 0, len(SIZES))


def test_a_point_that_two_have_is_none_and_kernels_of_two_digests_are_two_points():
    frame = rows({"c3": 2.0}, n=4)
    frame.loc[frame["machine"].isin(["c2", "c3"]), "kernel_digest"] = "b" * 16
    assert of(frame).points == 0


@pytest.fixture
def store(tmp_path) -> Store:
    """Five computers of one kind, of which the last is twice as slow, and one of another; a point that two chapters ask for."""
    store = Store(tmp_path)
    for number, release in enumerate(["6.1.0"] * 5 + ["6.9.0"]):
        host = Stated(changes={"installation": f"{number:016x}", "kernel_release": release}).host()
        machine, state = hosts.machine_id(host), hosts.state(host)
        states.describe(store, machine, host)
        for experiment in ("stlb_cliff", "strides"):
            store.ask(machine, experiment, fleet.POINTS[:1])
        for repeat in range(5):
            ns = 5 * (2 if number == 4 else 1) * (1 + 0.001 * repeat)
            store.append(machine, make_record(**fleet.POINTS[0].model_dump(), repeat=repeat, state=state, ns_per_access=ns), "a" * 16)
        store.append(machine, make_record(**fleet.POINTS[0].model_dump(), repeat=7, state="0" * 12, ns_per_access=50.0), "a" * 16)
    return store


def test_kinds_are_of_one_cpu_and_linux_and_rows_of_the_present_state_count_once(store):
    many, alone = unlike.kinds(store, store.machines())
    assert (len(many.machines), many.points, many.among, len(many.unlike)) == (5, 1, 5, 1)
    assert isclose(many.unlike[0].ratio.value, 2.0, rel_tol=0.01)
    assert (len(alone.machines), alone.points, alone.unlike) == (1, 0, [])


def test_what_is_told_names_the_computer_by_its_name_in_the_fleet(store):
    pytest.importorskip("distributed", reason="`make fleet` adds it")
    from experiments.fleet.courier import Visited
    from experiments.words.reasons import Unavailable

    (odd,) = unlike.kinds(store, store.machines())[0].unlike
    fleet_of = [Visited(f"node-{number}", machine, over=True) for number, machine in enumerate(store.machines())]
    fleet_of.append(Visited("node-x", over=True, why=Unavailable("fleet-version", "kernels/ is 1 there and 2 here")))
    told = list(unlike.told(Collected(store), fleet_of))
    tables = [part for part in told if isinstance(part, pd.DataFrame)]
    assert tables[1]["computer"].tolist() == [next(one.name for one in fleet_of if one.machine == odd.machine)]
    assert tables[0]["computer"][0] == "node-x" and any("kernels/ is 1 there" in part for part in told if isinstance(part, str))
