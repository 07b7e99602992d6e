"""The events of arm64 CPUs, by microarchitecture."""

from __future__ import annotations

from tlb.measure.event_rows import (
    FETCH_GROUP,
    LINUX_EVENTS_FOLDER,
    LOAD_GROUP,
    Event,
    derived_event,
    missing_event,
    raw_event_maker,
)


def _arm(linux: str, data: str = "", *, walks_per_cycle: bool = False) -> tuple[Event, ...]:
    """Return the rows of a core that counts walks by the architecture's common events.

    linux: its folder in Linux, data: its file in ARM-software/data; "" for none. stlb_hit is an
    upper bound: L1D_TLB_REFILL counts what hardware prefetches refill too, DTLB_WALK of V3 and N3
    does not. L2D_TLB_REFILL mixes data and fetches, so nothing derives from it."""
    source = _arm_source(linux, data)
    loads, fetches = raw_event_maker(LOAD_GROUP, source), raw_event_maker(FETCH_GROUP, source)
    if walks_per_cycle:
        cycles = loads("walk_cycles", 0x8128, 0, "DTLB_WALK_PERCYC")
        fetch_cycles = fetches("itlb_walk_cycles", 0x8129, 0, "ITLB_WALK_PERCYC")
    else:
        cycles = missing_event("walk_cycles", "no-walk-cycle-event", source)
        fetch_cycles = missing_event("itlb_walk_cycles", "no-walk-cycle-event", source)
    return (
        loads("walk", 0x34, 0, "DTLB_WALK"),
        loads("l1_dtlb_miss", 0x05, 0, "L1D_TLB_REFILL"),
        derived_event("stlb_hit", "l1_dtlb_miss", "-", "walk", source),
        fetches("itlb_walk", 0x35, 0, "ITLB_WALK"),
        fetches("l1_itlb_miss", 0x02, 0, "L1I_TLB_REFILL"),
        derived_event("itlb_stlb_hit", "l1_itlb_miss", "-", "itlb_walk", source),
        fetches("l2_tlb_refill", 0x2D, 0, "L2D_TLB_REFILL"),
        missing_event("nested_walk_cycles", "no-nested-walk-event", source),
        cycles,
        fetch_cycles,
    )


def _arm_refills(linux: str, data: str = "", *, second_level: bool = False) -> tuple[Event, ...]:
    """Return the rows of an Arm core whose files list no walks, only refills of its TLBs.

    second_level: whether its second level counts data and fetches apart, each refill a walk."""
    source = _arm_source(linux, data)
    loads, fetches = raw_event_maker(LOAD_GROUP, source), raw_event_maker(FETCH_GROUP, source)
    first = (
        loads("l1_dtlb_miss", 0x05, 0, "L1D_TLB_REFILL"),
        fetches("l1_itlb_miss", 0x02, 0, "L1I_TLB_REFILL"),
    )
    second: tuple[Event, ...]
    if second_level:
        second = (
            loads("walk", 0x2D, 0, "L2D_TLB_REFILL"),
            derived_event("stlb_hit", "l1_dtlb_miss", "-", "walk", source),
            fetches("itlb_walk", 0x2E, 0, "L2I_TLB_REFILL"),
            derived_event("itlb_stlb_hit", "l1_itlb_miss", "-", "itlb_walk", source),
        )
    else:
        names = ("walk", "stlb_hit", "itlb_walk", "itlb_stlb_hit")
        second = tuple(missing_event(name, "event-unknown", source) for name in names)
    return (
        *first,
        *second,
        missing_event("walk_cycles", "no-walk-cycle-event", source),
        missing_event("itlb_walk_cycles", "no-walk-cycle-event", source),
        missing_event("nested_walk_cycles", "no-nested-walk-event", source),
    )


def _arm_source(linux: str, data: str) -> str:
    files = [f"{LINUX_EVENTS_FOLDER}arm64/{linux}/"] if linux else []
    files += [f"github.com/ARM-software/data pmu/{data}.json"] if data else []
    return "; ".join(files)


ARM_CORES: dict[str, tuple[Event, ...]] = {
    "Neoverse E1": _arm("arm/cortex-a65-e1", "neoverse-e1"),
    "Neoverse N1": _arm("arm/neoverse-n1", "neoverse-n1"),
    "Neoverse V1": _arm("arm/neoverse-v1", "neoverse-v1"),
    "Neoverse N2": _arm("arm/neoverse-n2-v2", "neoverse-n2"),
    "Neoverse V2": _arm("arm/neoverse-n2-v2", "neoverse-v2"),
    "Neoverse V3AE": _arm("arm/neoverse-v3", "neoverse-v3ae", walks_per_cycle=True),
    "Neoverse V3": _arm("arm/neoverse-v3", "neoverse-v3", walks_per_cycle=True),
    "Neoverse N3": _arm("arm/neoverse-n3", "neoverse-n3", walks_per_cycle=True),
    "Cortex-A34": _arm_refills("arm/cortex-a34"),
    "Cortex-A35": _arm_refills("arm/cortex-a35"),
    "Cortex-A55": _arm("arm/cortex-a55", "cortex-a55"),
    "Cortex-A57": _arm_refills("arm/cortex-a57-a72", "cortex-a57"),
    "Cortex-A65": _arm("arm/cortex-a65-e1", "cortex-a65"),
    "Cortex-A72": _arm_refills("arm/cortex-a57-a72", "cortex-a72"),
    "Cortex-A73": _arm_refills("arm/cortex-a73", "cortex-a73"),
    "Cortex-A75": _arm("arm/cortex-a75", "cortex-a75"),
    "Cortex-A76": _arm("arm/cortex-a76", "cortex-a76"),
    "Cortex-A76AE": _arm("", "cortex-a76ae"),
    "Cortex-A77": _arm("arm/cortex-a77", "cortex-a77"),
    "Cortex-A78": _arm("arm/cortex-a78", "cortex-a78"),
    "Cortex-A78C": _arm("arm/cortex-a78", "cortex-a78c"),
    "Cortex-A510": _arm("arm/cortex-a510", "cortex-a510"),
    "Cortex-A520": _arm("", "cortex-a520", walks_per_cycle=True),
    "Cortex-A710": _arm("arm/cortex-a710", "cortex-a710"),
    "Cortex-A715": _arm("", "cortex-a715", walks_per_cycle=True),
    "Cortex-A720": _arm("", "cortex-a720", walks_per_cycle=True),
    "Cortex-X1": _arm("arm/cortex-x1", "cortex-x1"),
    "Cortex-X1C": _arm("arm/cortex-x1", "cortex-x1c"),
    "Cortex-X2": _arm("arm/cortex-x2", "cortex-x2"),
    "Cortex-X3": _arm("", "cortex-x3"),
    "Cortex-X4": _arm("", "cortex-x4", walks_per_cycle=True),
    "AmpereOne": _arm("ampere/ampereone"),
    "AmpereOneX": _arm("ampere/ampereonex"),
    "A64FX": _arm_refills("fujitsu/a64fx", second_level=True),
    "Olympus": _arm("nvidia/t410", walks_per_cycle=True),
}
