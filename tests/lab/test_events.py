"""The table of events: encodings against the vendors' own codes, and the arithmetic from counts to quantities."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import fake_perf

from experiments.lab import perf
from experiments.lab.events import CANONICAL, PROGRAMMABLE, SOFTWARE, TABLE, Event, quantities
from experiments.lab.perf import Plan, derive, parse
from experiments.lab.record import Quantity
from experiments.machine import microarchitecture, pmu
from experiments.words.reasons import REASONS

CPUS = [*TABLE, ("never heard of", "cpu"), ("", "cpu")]
NAMES = [f"{name} {unit}".strip() or "nothing" for name, unit in CPUS]


def rows(cpu: tuple[str, str]) -> tuple[Event, ...]:
    name, unit = cpu
    return quantities(name, unit or ("armv8_pmuv3_0" if name.startswith("Neoverse") else "cpu"))


def raw(event: str) -> int:
    """The value of perf_event_attr.config for "pmu/event=..,umask=..,cmask=../u", by the layout of the PMU's format/ in sysfs."""
    terms = {name: int(value, 0) for name, value in re.findall(r"(\w+)=(\w+)", event)}
    assert terms.keys() <= {"event", "umask", "cmask"}, event
    if event.startswith("armv"):
        assert terms.keys() == {"event"}, event  # config:0-15
        return terms["event"]
    umask = terms.get("umask", 0)  # config:8-15,40-47
    return terms["event"] | (umask & 0xFF) << 8 | (umask >> 8) << 40 | terms.get("cmask", 0) << 24


# --- the codes, as literal values of config: the kernel's and Intel's JSON files give EventCode, UMask, UMaskExt, CounterMask

HASWELL = {"walk": 0x0E08, "walk_cycles": 0x1008, "stlb_hit": 0x6008, "itlb_walk": 0x0E85, "itlb_walk_cycles": 0x1085,
           "itlb_stlb_hit": 0x6085, "nested_walk_cycles": 0x104F, "walker_l1": 0x11BC, "walker_l2": 0x12BC, "walker_l3": 0x14BC,
           "walker_memory": 0x18BC}
ICE_LAKE = {"walk": 0x0E08, "walk_cycles": 0x1001008, "walk_pending": 0x1008, "stlb_hit": 0x2008,
            "itlb_walk": 0x0E85, "itlb_walk_cycles": 0x1001085, "itlb_stlb_hit": 0x2085}
SKYLAKE = ICE_LAKE | {"nested_walk_cycles": 0x104F}
GOLDEN_COVE = {"walk": 0x0E12, "walk_cycles": 0x1001012, "walk_pending": 0x1012, "stlb_hit": 0x2012,
               "itlb_walk": 0x0E11, "itlb_walk_cycles": 0x1001011, "itlb_stlb_hit": 0x2011}
LION_COVE = GOLDEN_COVE | {"stlb_hit": 0x030000002012, "itlb_stlb_hit": 0x010000002011}
GRACEMONT = {"walk": 0x0E08, "itlb_walk": 0x0E85}
CRESTMONT = {"walk": 0x0E08, "walk_cycles": 0x1008, "stlb_hit": 0x2008,
             "itlb_walk": 0x0E85, "itlb_walk_cycles": 0x1085, "itlb_stlb_hit": 0x2085}
ZEN = {"walk": 0xF045, "stlb_hit": 0x0F45, "l1_dtlb_miss": 0xFF45, "itlb_stlb_hit": 0x84}
NEOVERSE = {"walk": 0x34, "l1_dtlb_miss": 0x05, "itlb_walk": 0x35, "l1_itlb_miss": 0x02, "l2_tlb_refill": 0x2D}
NEOVERSE_V3 = NEOVERSE | {"walk_cycles": 0x8128, "itlb_walk_cycles": 0x8129}
CODES = {
    "Haswell": HASWELL, "Broadwell": HASWELL, "Skylake client": SKYLAKE, "Skylake server": SKYLAKE, "Cascade Lake": SKYLAKE,
    "Cooper Lake": SKYLAKE, "Ice Lake client": ICE_LAKE, "Ice Lake server": ICE_LAKE, "Tiger Lake": ICE_LAKE,
    "Rocket Lake": ICE_LAKE, "Sapphire Rapids": GOLDEN_COVE, "Emerald Rapids": GOLDEN_COVE, "Granite Rapids": GOLDEN_COVE,
    "Gracemont": GRACEMONT, "Alder Lake cpu_core": GOLDEN_COVE, "Alder Lake cpu_atom": GRACEMONT,
    "Raptor Lake cpu_core": GOLDEN_COVE, "Raptor Lake cpu_atom": GRACEMONT, "Meteor Lake cpu_core": GOLDEN_COVE,
    "Meteor Lake cpu_atom": CRESTMONT, "Arrow Lake cpu_core": LION_COVE, "Arrow Lake cpu_atom": CRESTMONT,
    "Arrow Lake cpu_lowpower": CRESTMONT, "Lunar Lake cpu_core": LION_COVE, "Lunar Lake cpu_atom": CRESTMONT,
    "Zen 1": ZEN | {"itlb_walk": 0x85}, "Zen 2": ZEN | {"itlb_walk": 0xFF85}, "Zen 3": ZEN | {"itlb_walk": 0xFF85},
    "Zen 4": ZEN | {"itlb_walk": 0x0F85}, "Zen 5": ZEN | {"itlb_walk": 0x0F85},
    "Neoverse N1": NEOVERSE, "Neoverse V1": NEOVERSE, "Neoverse N2": NEOVERSE, "Neoverse V2": NEOVERSE,
    "Neoverse V3AE": NEOVERSE_V3, "Neoverse V3": NEOVERSE_V3, "Neoverse N3": NEOVERSE_V3,
}


def encoded(cpu: tuple[str, str]) -> dict[str, int]:
    return {row.quantity: raw(row.event) for row in rows(cpu) if row.event and row.group is not None}


@pytest.mark.parametrize("cpu", TABLE, ids=NAMES[:-2])
def test_every_event_has_the_code_that_its_vendor_gives_it(cpu: tuple[str, str]):
    assert encoded(cpu) == CODES[" ".join(cpu).strip()]


def test_walks_have_the_codes_that_perf_itself_gives_to_the_misses_that_walk():
    generic = {("Skylake client", ""): 0xE08, ("Alder Lake", "cpu_core"): 0xE12, ("Zen 4", ""): 0xF045}  # perf list --details
    assert {cpu: encoded(cpu)["walk"] for cpu in generic} == generic


# --- the arithmetic: a run of 1,000,000 loads of which 250,000 walked and 500,000 were answered by the second level, with
# 100 fetches that missed, 30 of which walked. By hand: 250,000 + 500,000 = 750,000 and 70 + 30 = 100.

TRUTH = {"walk": 250_000, "stlb_hit": 500_000, "l1_dtlb_miss": 750_000, "walk_cycles": 9_000_000, "walk_pending": 11_000_000,
         "itlb_walk": 30, "itlb_stlb_hit": 70, "l1_itlb_miss": 100, "itlb_walk_cycles": 900, "nested_walk_cycles": 4_000_000,
         "core_cycles": 20_000_000, "instructions": 1_100_000, "l2_tlb_refill": 250_030,
         "walker_l1": 200_000, "walker_l2": 40_000, "walker_l3": 9_000, "walker_memory": 1_000}
LACKING = {
    "Zen": {"walk_cycles": "no-walk-cycle-event", "itlb_walk_cycles": "no-walk-cycle-event",
            "nested_walk_cycles": "no-nested-walk-event"},
    "Neoverse": {"walk_cycles": "no-walk-cycle-event", "itlb_walk_cycles": "no-walk-cycle-event",
                 "nested_walk_cycles": "no-nested-walk-event"},
    "Neoverse V3": {"nested_walk_cycles": "no-nested-walk-event"}, "Neoverse N3": {"nested_walk_cycles": "no-nested-walk-event"},
    "Gracemont": {"walk_cycles": "no-walk-cycle-event", "itlb_walk_cycles": "no-walk-cycle-event", "stlb_hit": "event-unknown",
                  "itlb_stlb_hit": "event-unknown", "l1_dtlb_miss": "event-unknown", "l1_itlb_miss": "event-unknown",
                  "nested_walk_cycles": "no-nested-walk-event"},
    "Haswell": {}, "Broadwell": {}, "Skylake": {}, "Cascade Lake": {}, "Cooper Lake": {},
    "": {"nested_walk_cycles": "no-nested-walk-event"},
}
LACKING |= {"Alder Lake cpu_atom": LACKING["Gracemont"], "Raptor Lake cpu_atom": LACKING["Gracemont"]}


def line(count: float, running: float = 100.0) -> str:
    return json.dumps({"counter-value": f"{count:f}", "unit": "", "event": "altered", "event-runtime": 10**7, "pcnt-running": running})


@pytest.mark.parametrize("cpu", TABLE, ids=NAMES[:-2])
def test_replayed_counts_become_the_quantities_that_are_true(cpu: tuple[str, str]):
    name = " ".join(cpu).strip()
    by_code = {code: TRUTH[quantity] for quantity, code in CODES[name].items()}
    table = rows(cpu)
    asked = [row for row in table if row.event]
    counts = [by_code[raw(row.event)] if row.group is not None else TRUTH[row.quantity] for row in asked]
    counted = parse("\n".join(line(count) for count in counts), asked)
    counted |= {row.quantity: Quantity(reason=row.reason) for row in table if row.reason}
    counted |= derive(counted, [row for row in table if row.derived])
    lacking = LACKING[max((prefix for prefix in LACKING if name.startswith(prefix)), key=len)]
    assert {quantity: q.reason for quantity, q in counted.items() if q.reason} == lacking
    values = {quantity: q.value for quantity, q in counted.items() if q.value is not None}
    assert values == {quantity: TRUTH[quantity] for quantity in values}
    assert set(CANONICAL) <= counted.keys()


SUM = Event("l1_dtlb_miss", None, derived=("stlb_hit", "+", "walk"))
DIFFERENCE = Event("stlb_hit", None, derived=("l1_dtlb_miss", "-", "walk"))


def test_what_derives_says_so_and_ran_as_little_as_its_least_part():
    counted = {"stlb_hit": Quantity(value=5, running_percent=99), "walk": Quantity(value=2, running_percent=60)}
    assert derive(counted, [SUM])["l1_dtlb_miss"] == Quantity(value=7, event="derived: stlb_hit + walk", running_percent=60)


@pytest.mark.parametrize("reason", ["no-pmu", "multiplexed", "other-repeat"])
def test_what_derives_from_something_lacking_has_its_reason(reason: str):
    for parts in ({"stlb_hit": Quantity(reason=reason), "walk": Quantity(value=2, running_percent=100)},
                  {"stlb_hit": Quantity(value=2, running_percent=100), "walk": Quantity(reason=reason)}):
        assert derive(parts, [SUM])["l1_dtlb_miss"].reason == reason


def test_a_part_larger_than_its_whole_is_a_contradiction_and_no_negative_count():
    counted = {"l1_dtlb_miss": Quantity(value=10, running_percent=100), "walk": Quantity(value=11, running_percent=100)}
    assert derive(counted, [DIFFERENCE])["stlb_hit"].reason == "counts-disagree"
    counted["walk"] = Quantity(value=10, running_percent=100)
    assert derive(counted, [DIFFERENCE])["stlb_hit"].value == 0


# --- the table as a whole


@pytest.mark.parametrize("cpu", CPUS, ids=NAMES)
def test_every_cpu_has_each_quantity_once_with_an_event_a_sum_or_a_reason(cpu: tuple[str, str]):
    table = rows(cpu)
    names = [row.quantity for row in table]
    assert len(set(names)) == len(names) and set(CANONICAL) <= set(names)
    for row in SOFTWARE + table:
        assert [row.event is not None, row.reason is not None, row.derived is not None].count(True) == 1, row
        assert row.reason is None or row.reason in REASONS
        assert row.source or row.reason == "event-unknown"
        if row.derived:
            assert {row.derived[0], row.derived[2]} <= set(names) and row.derived[1] in "+-"


@pytest.mark.parametrize("cpu", CPUS, ids=NAMES)
def test_no_generic_tlb_event_is_asked_for_and_every_event_is_counted_in_user_mode(cpu: tuple[str, str]):
    fixed = {"cycles:u", "instructions:u", "minor-faults:u", "task-clock:u"}
    for row in SOFTWARE + rows(cpu):
        if row.event not in fixed and row.event is not None:
            assert re.fullmatch(r"(cpu|cpu_core|cpu_atom|cpu_lowpower|armv8_pmuv3_0)/(event=0x[0-9a-f]+(,\w+=\w+)*|cycles|instructions)/u",
                                row.event), row.event
            assert "tlb" not in row.event.lower()


@pytest.mark.parametrize("cpu", CPUS, ids=NAMES)
def test_a_run_asks_for_four_programmable_events_at_most_and_for_all_parts_of_a_sum(cpu: tuple[str, str]):
    table = rows(cpu)
    plan = Plan("perf", SOFTWARE + tuple(row for row in table if row.event), {}, tuple(row for row in table if row.derived))
    groups = plan.groups()
    asked = {row.quantity for group in groups for row in group}
    assert asked == {row.quantity for row in SOFTWARE + table if row.event}
    for group in groups:
        names = {row.quantity for row in group}
        assert {"minor_faults", "task_clock_ns", "core_cycles", "instructions"} <= names
        assert sum(row.group is not None for row in group) <= PROGRAMMABLE
    for parts in ({row.derived[0], row.derived[2]} for row in plan.derived):
        assert not parts <= asked or any(parts <= {row.quantity for row in group} for group in groups)
    first = {row.quantity for row in groups[0]}
    assert {"walk", "walk_cycles", "stlb_hit"} & asked <= first


def test_the_tables_names_are_names_that_the_inspection_gives():
    intel = {microarchitecture.x86_name("GenuineIntel", 6, model, stepping) for model in range(256) for stepping in (3, 7, 11)}
    amd = {microarchitecture.x86_name("AuthenticAMD", family, model, 0) for family in (0x17, 0x19, 0x1A) for model in range(256)}
    arm = {microarchitecture.arm_name(0x41, part) for part in range(0x1000)}
    for name, _ in TABLE:
        assert any(found.startswith(name) for found in intel | amd | arm), name


def test_a_server_part_finds_the_row_of_its_core_and_v3ae_its_own():
    assert encoded(("Haswell server", "")) == HASWELL and encoded(("Broadwell server", "")) == HASWELL
    assert all("neoverse-v3ae" in row.source for row in quantities("Neoverse V3AE")[2:])


# --- hybrid parts: which PMU

HYBRID = {"cpu_atom": (16, 17, 18, 19), "cpu_core": tuple(range(16))}


@pytest.mark.parametrize(("cpu", "pmus", "name"), [
    (0, HYBRID, "cpu_core"), (15, HYBRID, "cpu_core"), (16, HYBRID, "cpu_atom"), (20, HYBRID, None),
    (0, {"cpu": ()}, "cpu"), (0, {}, None), (3, {"armv8_pmuv3_0": (0, 1, 2, 3)}, "armv8_pmuv3_0"),
    (5, {"armv8_cortex_a53": (0, 1, 2, 3), "armv8_cortex_a72": (4, 5)}, "armv8_cortex_a72"),
    (0, {"cpu_core": (), "cpu_atom": ()}, None),
])
def test_the_pmu_is_that_of_the_cpu_that_measures(cpu: int, pmus: dict[str, tuple[int, ...]], name: str | None):
    assert pmu.of_cpu(cpu, pmus) == name


def hybrid(root: Path) -> Path:
    for name, cpus in (("cpu_core", "0-15"), ("cpu_atom", "16-19"), ("power", None)):
        folder = root / "sys/bus/event_source/devices" / name
        folder.mkdir(parents=True)
        if cpus:
            (folder / "cpus").write_text(cpus + "\n")
    return root


@pytest.mark.parametrize(("cpu", "name", "walk"), [(0, "cpu_core", "event=0x12,umask=0x0e"), (16, "cpu_atom", "event=0x08,umask=0x0e")])
def test_on_a_hybrid_part_each_event_names_the_pmu_of_the_measuring_cpu(tmp_path: Path, monkeypatch, cpu: int, name: str, walk: str):
    monkeypatch.setattr(perf.shutil, "which", lambda name: None)  # no taskset: this computer has no CPU 16
    asked = [row.event for row in SOFTWARE + quantities("Meteor Lake", name) if row.event]
    program = fake_perf.install(tmp_path / "bin", dict.fromkeys(asked, 12))
    plan = perf.plan("Meteor Lake", program, cpu=cpu, root=hybrid(tmp_path))
    found = {event.quantity: event.event for event in plan.events}
    assert found["walk"] == f"{name}/{walk}/u" and found["core_cycles"] == f"{name}/cycles/u"
    assert plan.lacking == {"nested_walk_cycles": "no-nested-walk-event"}


def test_the_pmus_of_sysfs_come_with_their_cpus(tmp_path: Path):
    assert pmu.listed(hybrid(tmp_path)) == {"cpu_atom": (16, 17, 18, 19), "cpu_core": tuple(range(16))}
    assert pmu.listed(tmp_path / "nothing") == {}


def test_of_a_hybrid_part_the_line_of_the_core_that_ran_decides_the_tier():
    said = [{"counter-value": "<not counted>", "event": "cpu_atom/cycles/u"}, {"counter-value": "123456.0", "event": "cpu_core/cycles/u"}]
    assert pmu.classify(0, "\n".join(map(json.dumps, said))) == ("counters", None)


@pytest.mark.parametrize("said", [fake_perf.PARANOID.format(level=3), fake_perf.PARANOID.format(level=4),
                                  fake_perf.SECCOMP, "perf_event_open(...): Function not implemented"])
def test_what_perf_says_when_it_may_not_count_is_known(said: str):
    assert pmu.denied(said) and pmu.classify(255, said) == ("timing", "perf-denied")
