"""The table of events: encodings against the vendors' own codes, and the arithmetic from counts to
quantities."""

import re

import pytest

from tlb.machine import microarchitecture
from tlb.measure.events import TABLE, PerfEvent, hardware_events
from tlb.measure.perf_stat import derive
from tlb.measure.record import CounterReading

NAMES = [f"{name} {unit}".strip() for name, unit in TABLE]


def rows(cpu: tuple[str, str]) -> tuple[PerfEvent, ...]:
    return hardware_events(*cpu)


def raw(event: str) -> int:
    """The value of perf_event_attr.config for "pmu/event=..,umask=..,cmask=../u", by the layout of
    the PMU's format/ in sysfs."""
    terms = {name: int(value, 0) for name, value in re.findall(r"(\w+)=(\w+)", event)}
    assert terms.keys() <= {"event", "umask", "cmask"}, event
    if event.startswith("armv"):
        assert terms.keys() == {"event"}, event  # config:0-15
        return terms["event"]
    umask = terms.get("umask", 0)  # config:8-15,40-47
    return terms["event"] | (umask & 0xFF) << 8 | (umask >> 8) << 40 | terms.get("cmask", 0) << 24


# --- the codes, as literal values of config: the kernel's and Intel's JSON files give EventCode,
# UMask, UMaskExt, CounterMask

SANDY_BRIDGE = {
    "walk": 0x0208,
    "walk_cycles": 0x0408,
    "stlb_hit": 0x1008,
    "itlb_walk": 0x0285,
    "itlb_walk_cycles": 0x0485,
    "itlb_stlb_hit": 0x1085,
    "nested_walk_cycles": 0x104F,
}
IVY_BRIDGE = SANDY_BRIDGE | {"walk": 0x8208, "walk_cycles": 0x8408, "stlb_hit": 0x045F}
HASWELL = {
    "walk": 0x0E08,
    "walk_cycles": 0x1008,
    "stlb_hit": 0x6008,
    "itlb_walk": 0x0E85,
    "itlb_walk_cycles": 0x1085,
    "itlb_stlb_hit": 0x6085,
    "nested_walk_cycles": 0x104F,
    "walker_l1": 0x11BC,
    "walker_l2": 0x12BC,
    "walker_l3": 0x14BC,
    "walker_memory": 0x18BC,
}
ICE_LAKE = {
    "walk": 0x0E08,
    "walk_cycles": 0x1001008,
    "walk_pending": 0x1008,
    "stlb_hit": 0x2008,
    "itlb_walk": 0x0E85,
    "itlb_walk_cycles": 0x1001085,
    "itlb_stlb_hit": 0x2085,
}
SKYLAKE = ICE_LAKE | {"nested_walk_cycles": 0x104F}
GOLDEN_COVE = {
    "walk": 0x0E12,
    "walk_cycles": 0x1001012,
    "walk_pending": 0x1012,
    "stlb_hit": 0x2012,
    "itlb_walk": 0x0E11,
    "itlb_walk_cycles": 0x1001011,
    "itlb_stlb_hit": 0x2011,
}
LION_COVE = GOLDEN_COVE | {"stlb_hit": 0x030000002012, "itlb_stlb_hit": 0x010000002011}
GRACEMONT = {"walk": 0x0E08, "itlb_walk": 0x0E85}
CRESTMONT = {
    "walk": 0x0E08,
    "walk_cycles": 0x1008,
    "stlb_hit": 0x2008,
    "itlb_walk": 0x0E85,
    "itlb_walk_cycles": 0x1085,
    "itlb_stlb_hit": 0x2085,
}
TREMONT = CRESTMONT | {"nested_walk_cycles": 0x104F}
DARKMONT = {name: code for name, code in CRESTMONT.items() if name != "walk_cycles"}
ZEN = {"walk": 0xF045, "stlb_hit": 0x0F45, "l1_dtlb_miss": 0xFF45, "itlb_stlb_hit": 0x84}
NEOVERSE = {
    "walk": 0x34,
    "l1_dtlb_miss": 0x05,
    "itlb_walk": 0x35,
    "l1_itlb_miss": 0x02,
    "l2_tlb_refill": 0x2D,
}
NEOVERSE_V3 = NEOVERSE | {"walk_cycles": 0x8128, "itlb_walk_cycles": 0x8129}
ARM_REFILLS = {"l1_dtlb_miss": 0x05, "l1_itlb_miss": 0x02}
CODES = {
    "Sandy Bridge": SANDY_BRIDGE,
    "Sandy Bridge server": SANDY_BRIDGE,
    "Ivy Bridge": IVY_BRIDGE,
    "Ivy Bridge server": IVY_BRIDGE,
    "Haswell": HASWELL,
    "Haswell server": HASWELL,
    "Broadwell": HASWELL,
    "Broadwell server": HASWELL,
    "Skylake client": SKYLAKE,
    "Skylake server": SKYLAKE,
    "Cascade Lake": SKYLAKE,
    "Cooper Lake": SKYLAKE,
    "Ice Lake client": ICE_LAKE,
    "Ice Lake server": ICE_LAKE,
    "Tiger Lake": ICE_LAKE,
    "Rocket Lake": ICE_LAKE,
    "Sapphire Rapids": GOLDEN_COVE,
    "Emerald Rapids": GOLDEN_COVE,
    "Granite Rapids": GOLDEN_COVE,
    "Tremont": TREMONT,
    "Gracemont": GRACEMONT,
    "Crestmont": CRESTMONT,
    "Darkmont": DARKMONT,
    "Alder Lake cpu_core": GOLDEN_COVE,
    "Alder Lake cpu_atom": GRACEMONT,
    "Raptor Lake cpu_core": GOLDEN_COVE,
    "Raptor Lake cpu_atom": GRACEMONT,
    "Meteor Lake cpu_core": GOLDEN_COVE,
    "Meteor Lake cpu_atom": CRESTMONT,
    "Arrow Lake cpu_core": LION_COVE,
    "Arrow Lake cpu_atom": CRESTMONT,
    "Arrow Lake cpu_lowpower": CRESTMONT,
    "Lunar Lake cpu_core": LION_COVE,
    "Lunar Lake cpu_atom": CRESTMONT,
    "Panther Lake cpu_core": LION_COVE,
    "Panther Lake cpu_atom": DARKMONT,
    "Zen 1": ZEN | {"itlb_walk": 0x85},
    "Zen 2": ZEN | {"itlb_walk": 0xFF85},
    "Zen 3": ZEN | {"itlb_walk": 0xFF85},
    "Zen 4": ZEN | {"itlb_walk": 0x0F85},
    "Zen 5": ZEN | {"itlb_walk": 0x0F85},
    "Dhyana": ZEN | {"itlb_walk": 0x85},
    "Neoverse E1": NEOVERSE,
    "Neoverse N1": NEOVERSE,
    "Neoverse V1": NEOVERSE,
    "Neoverse N2": NEOVERSE,
    "Neoverse V2": NEOVERSE,
    "Neoverse V3AE": NEOVERSE_V3,
    "Neoverse V3": NEOVERSE_V3,
    "Neoverse N3": NEOVERSE_V3,
    **dict.fromkeys(("Cortex-A34", "Cortex-A35", "Cortex-A57", "Cortex-A72"), ARM_REFILLS),
    "Cortex-A73": ARM_REFILLS,
    **dict.fromkeys(("Cortex-A55", "Cortex-A65", "Cortex-A75", "Cortex-A76"), NEOVERSE),
    **dict.fromkeys(("Cortex-A76AE", "Cortex-A77", "Cortex-A78", "Cortex-A78C"), NEOVERSE),
    **dict.fromkeys(("Cortex-A510", "Cortex-A710"), NEOVERSE),
    **dict.fromkeys(("Cortex-X1", "Cortex-X1C", "Cortex-X2", "Cortex-X3"), NEOVERSE),
    **dict.fromkeys(("Cortex-A520", "Cortex-A715", "Cortex-A720", "Cortex-X4"), NEOVERSE_V3),
    "AmpereOne": NEOVERSE,
    "AmpereOneX": NEOVERSE,
    "A64FX": ARM_REFILLS | {"walk": 0x2D, "itlb_walk": 0x2E},
    "Olympus": NEOVERSE_V3,
}


def encoded(cpu: tuple[str, str]) -> dict[str, int]:
    return {
        row.quantity: raw(row.event) for row in rows(cpu) if row.event and row.group is not None
    }


@pytest.mark.parametrize("cpu", TABLE, ids=NAMES)
def test_every_event_has_the_code_that_its_vendor_gives_it(cpu):
    assert encoded(cpu) == CODES[" ".join(cpu).strip()]


# --- CPUs that this book has no events for


def test_every_name_of_the_table_is_one_that_a_cpu_can_have():
    assert {name for name, _ in TABLE} <= microarchitecture.names()


@pytest.mark.parametrize("name", ["Cortex-X925", "C1-Ultra", "Firestorm", "Bonnell", "unknown", ""])
def test_the_cpu_is_not_blamed_for_what_the_table_lacks(name):
    lacking = {row.quantity: row.reason for row in hardware_events(name) if not row.event}
    assert lacking.keys() >= {"walk", "walk_cycles", "itlb_walk", "nested_walk_cycles"}
    assert {*lacking.values()} == {"no-events"}


def test_a_longer_name_is_not_its_beginnings_cpu():
    # Sandy Bridge's codes are not Ivy Bridge's, nor Cortex-A7's Cortex-A73's.
    assert {row.reason for row in hardware_events("Cortex-A7")[2:]} == {"no-events"}


@pytest.mark.parametrize(
    ("pmu", "cycles"),
    [
        ("armv8_cortex_a72", "armv8_cortex_a72/event=0x11/u"),
        ("cpu_core", "cpu_core/cycles/u"),
        ("apple_firestorm_pmu", "apple_firestorm_pmu/cycles/u"),
        ("cpu", "cycles:u"),
    ],
)
def test_where_cores_differ_cycles_are_asked_of_one_kind(pmu, cycles):
    assert hardware_events("unknown", pmu)[0].event == cycles


# --- the arithmetic: a run of 1,000,000 loads of which 250,000 walked and 500,000 were answered by
# the second level, with 100 fetches that missed, 30 of which walked. By hand: 250,000 + 500,000 =
# 750,000 and 70 + 30 = 100.


DIFFERENCE = PerfEvent("stlb_hit", None, derived=("l1_dtlb_miss", "-", "walk"))


def test_a_part_larger_than_its_whole_is_a_contradiction_and_no_negative_count():
    counted = {
        "l1_dtlb_miss": CounterReading(value=10, running_percent=100),
        "walk": CounterReading(value=11, running_percent=100),
    }
    assert derive(counted, [DIFFERENCE])["stlb_hit"].reason == "not-counted"
    counted["walk"] = CounterReading(value=10, running_percent=100)
    assert derive(counted, [DIFFERENCE])["stlb_hit"].value == 0
