"""What differs about two computers and what that can touch: on hosts with known differences, and as
JSON."""

import json
from itertools import product
from typing import Any

import pandas as pd
import pytest
from support.campaigns import put
from support.common import make_record
from support.page_sizes import Paged, hugepages
from support.synthetic import Stated, tlbs

from experiments.overview import compare_output, profile
from experiments.overview.compare import (
    DIFFERS,
    NO_DIFFERENCE,
    Compared,
    Comparison,
    Fact,
    compare,
    facts,
    touches_of,
)
from experiments.overview.machine_pairs import Pair
from experiments.overview.profile import Profile, Quantity
from tlb.machine import doctor
from tlb.machine import host as hosts
from tlb.machine.background import NUMA, TASKS
from tlb.machine.host import Host
from tlb.measure import states
from tlb.measure.store import Store
from tlb.stats.intervals import Interval

A, B = "zen-3-aaaaaaaa", "zen-5-bbbbbbbb"
HOSTILE = (
    "</style></script><img src=x onerror=alert(1)><a href='https://example.com'>\"&\u202e\x1b[2J\n"
)
EMPTY = pd.DataFrame({"chapter": []})
CACHES = [
    {"level": 1, "kind": kind, "size_bytes": 49152, "line_bytes": 64, "ways": 12, "sets": 64}
    for kind in ("data", "instruction")
]


def host(**changes: Any) -> Host:
    tlb = changes.pop("tlb", tlbs())
    return Stated(tlb=tlb, hypervisor=changes.pop("hypervisor", "none"), changes=changes).host()


def measured(differs: bool = True, **point: Any) -> Compared:
    """A quantity whose sides differ threefold, or not at all."""
    value = 3.0 if differs else 1.0
    one, other = Interval(1, 1, 1), Interval(value, value, value)
    pair = Pair(one, other, other, (9, 9), (1, 1), 1.0, 0.0)
    point = make_record(**point).point.model_dump(exclude={"options"})
    made = Compared("stlb_cliff", point, "ns_per_access", pair)
    assert made.verdict == (DIFFERS if differs else NO_DIFFERENCE)
    return made


SMALL, LARGE = {"lines": 16}, {"lines": 1 << 20}
QUANTITIES = {
    "small": measured(**SMALL),
    "large": measured(**LARGE),
    "packed": measured(**LARGE, layout="packed"),
    "thp": measured(**LARGE, pages="thp"),
    "64k": measured(**SMALL, pages="64k"),
    "2m": measured(**SMALL, pages="2m"),
    "fault": measured(**SMALL, kernel="page_fault"),
    "guest": measured(**SMALL, kernel="guest_chase", mode="4k"),
    "flush": measured(**SMALL, kernel="shootdown"),
    "code": measured(**SMALL, kernel="code_chase", layout="packed"),
    "switch": measured(**SMALL, kernel="switch_chase"),
}
WALKS = {"small", "large", "thp", "64k", "2m", "fault", "guest", "flush", "switch", "code"}


def told(
    a: Host, b: Host, quantities: dict[str, Compared] | None = None
) -> tuple[dict[str, Fact], list[str]]:
    lines = [dict(doctor.describe(each)) for each in (a, b)]
    computers = [
        (label, *(side.get(label, "not stated") for side in lines))
        for label in {**lines[0], **lines[1]}
        if label
        not in ("memory", "memory limit", "counters", "family, model, stepping", "load, one minute")
    ]
    differing = [line for line in computers if line[1] != line[2]]
    found, follows = facts(
        (a, b),
        (EMPTY, EMPTY),
        differing,
        [*(QUANTITIES if quantities is None else quantities).values()],
    )
    return {fact.what: fact for fact in found}, follows


LARGE_MEMORY = {"total_bytes": 1 << 40, "available_bytes": 1, "usable_bytes": 1}
LARGE_MEMORY["limit_source"] = "x"


# --- which facts, and what they can touch


def touched(label: str, a: Host, b: Host) -> set[str]:
    touches = touches_of(label, (a, b))
    return {name for name, quantity in QUANTITIES.items() if touches(quantity)}


@pytest.mark.parametrize(
    ("label", "changes", "names"),
    [
        ("CPU", {"cpu_model": "B"}, {*QUANTITIES}),
        ("microcode", {"microcode": "0x9"}, {"fault", "flush", "switch"}),
        ("hypervisor", {"hypervisor": "kvm"}, WALKS),
        ("TLB level 2, unified", {"tlb": tlbs((64, 3072))}, {"large", "thp"}),
        ("L1 data", {"caches": CACHES}, {"large", "packed", "thp"}),
        ("THP", {"thp": {"enabled": "always", "defrag": "always"}}, {"thp"}),
        ("booted with", {"boot": ("nopti",)}, WALKS),
        ("memory", {"memory": LARGE_MEMORY}, set()),
    ],
)
def test_a_known_difference_is_told_with_what_it_can_touch(label, changes, names):
    a, b = host(), host(**changes)
    found, _ = told(a, b)
    assert label in found and touched(label, a, b) == names
    assert (found[label].compared, found[label].differ) == (len(names), len(names)) and found[
        label
    ].a != found[label].b


def test_whatever_runs_beside_a_measurement_can_differ_without_a_crash():
    a, b = (host(background=dict.fromkeys([task.name for task in TASKS], word)) for word in "xy")
    found, _ = told(a, b)
    assert {task.name for task in TASKS} - {NUMA} <= set(found)


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        ((True, False), ("splintered by the host", "not splintered")),
        pytest.param((True, True), None, marks=pytest.mark.endurance),
    ],
)
def test_what_the_hosts_make_of_large_pages_is_read_off_rows(sides, words):
    rows = tuple(
        Paged(splintered=cut, noise=0.004).frame(hugepages()).assign(chapter="hugepages")
        for cut in sides
    )
    guest = host(hypervisor="kvm")
    found, _ = facts((guest, guest), rows, [], [*QUANTITIES.values()])
    assert [(fact.a, fact.b) for fact in found] == ([words] if words else [])
    assert not found or found[0].compared == 2  # of thp and of 2m


# --- what is not compared


def a_profile(machine: str, **values: float | None) -> Profile:
    made = []
    for name, value in values.items():
        known = {"reason": "pool-empty"}
        if value:
            known = {"value": value, "low": value * 0.99, "high": value * 1.01, "coverage": 0.96}
        words = f"words of {name}"
        made.append(Quantity(name=name, part="levels", words=words, unit="ns", **known))
    return Profile(machine=machine, quantities=tuple(made))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Store:
    """B is slower by a factor of two, describes itself in HTML, and its profile lacks a
    quantity."""
    store = Store(tmp_path_factory.mktemp("data"))
    odd = {"size_bytes": 1, "line_bytes": 64, "ways": None, "sets": 1, "kind": "data"}
    bad = {
        "cpu_model": HOSTILE,
        "kernel_release": HOSTILE,
        "mitigations": {HOSTILE: HOSTILE},
        "caches": [{**odd, "level": level} for level in (-1, 12)],
        "tlb": [tlb.model_copy(update={"level": -7}) for tlb in tlbs()],
    }
    for machine, ns, described in ((A, 5.0, host()), (B, 10.0, host(**bad))):
        states.write_description(store, machine, described)
        for n, k in product((64, 4096), range(5)):
            times = {"ns_per_access": ns * (1 + k / 1000), "elapsed_ns": 1e7 + ns * 100 + n + k}
            row = make_record(lines=n, repeat=k, state=hosts.state(described), **times)
            put(store, machine, "stlb_cliff", row)
        pool = None if machine == B else 1.0
        profile.write_if_possible(store, a_profile(machine, walk=ns, hit=2.0, pool=pool))
    return store


@pytest.fixture(scope="module")
def comparison(made) -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TLB_DATA", str(made.root))
        return compare(A, B)


def test_a_machine_s_words_are_shown_without_control_characters_and_profiles_side_by_side(
    comparison,
):
    words = [word for fact in comparison.facts for word in (fact.what, fact.a, fact.b)]
    assert not {*"\u202e\x1b\n"} & {*"".join(words)} and HOSTILE[:12] in "".join(words)
    assert {"L-1", "L12"} <= {fact.what[:3].strip() for fact in comparison.facts}
    document = compare_output.as_json(comparison)
    assert json.loads(json.dumps(document, allow_nan=False)) == json.loads(json.dumps(document))
    verdicts = {each["name"]: each["verdict"] for each in document["profile"]}
    assert verdicts == {"walk": DIFFERS, "hit": NO_DIFFERENCE}
    assert len(document["quantities"]) == 2 and len([*compare_output.told(comparison)]) > 5
