"""Events: which event of which CPU counts which quantity; one table, each row with the file it was
read in.

A quantity has one meaning on every CPU, an event has not: `dTLB-load-misses` counts walks started
on Haswell, walks completed on Skylake and something else again on Zen. So no generic TLB event is
ever asked for.

    walk, itlb_walk                 page walks completed, of loads and of instruction fetches
    stlb_hit, itlb_stlb_hit         first-level misses that the second level answered
    l1_dtlb_miss, l1_itlb_miss      the two together
    walk_cycles, itlb_walk_cycles   cycles with a walk in progress; on Crestmont, Skymont, Neoverse
                                    V3 and N3, which count
                                    the walks in progress each cycle, their sum: the same while no
                                    two walks overlap
    walk_pending                    that sum where the CPU counts both: walk_pending / walk_cycles
                                    walks at once
    nested_walk_cycles              cycles of the second dimension of a guest's walk
    walker_l1 ... walker_memory     the walker's own loads, by what answered them
    l2_tlb_refill                   second-level refills of data and fetches together

Events of loads where the CPU tells loads from stores: the kernels only load. AMD and Arm count both
together.
"""

from __future__ import annotations

from dataclasses import dataclass

# What a plan speaks of on every CPU; other quantities exist only where the CPU has an event.
CANONICAL = (
    "walk",
    "walk_cycles",
    "stlb_hit",
    "l1_dtlb_miss",
    "core_cycles",
    "instructions",
    "itlb_walk",
    "itlb_walk_cycles",
    "itlb_stlb_hit",
    "l1_itlb_miss",
    "nested_walk_cycles",
)
# Intel's cores count at most four programmable events per thread with Hyper-Threading on; Zen and
# Neoverse have six counters, of which cycles and instructions take up to two. One fewer where the
# kernel's NMI watchdog has cycles counted.
PROGRAMMABLE = 4


@dataclass(frozen=True)
class Event:
    """A quantity with the event that counts it, or with two others that it derives from, or with
    the reason for neither.

    `group`: events of one group are counted in the same run; None is in every run and takes no
    programmable counter that the others could use.
    """

    quantity: str
    event: str | None
    reason: str | None = None
    source: str = ""
    derived: tuple[str, str, str] | None = None  # ("stlb_hit", "+", "walk")
    group: int | None = None


# Software events: on every Linux, counted in user mode, so that they need no privilege up to
# perf_event_paranoid 2.
SOFTWARE = (
    Event(
        "minor_faults", "minor-faults:u", source="perf_event_open(2), PERF_COUNT_SW_PAGE_FAULTS_MIN"
    ),
    Event("task_clock_ns", "task-clock:u", source="perf_event_open(2), PERF_COUNT_SW_TASK_CLOCK"),
)

_LOADS, _FETCHES, _WALKER = 0, 1, 2  # the groups
_INTEL = (
    "Linux tools/perf/pmu-events/arch/x86/{0}/virtual-memory.json; github.com/intel/perfmon {1}"
)


def _lack(quantity: str, reason: str, source: str) -> Event:
    return Event(quantity, None, reason, source)


def _derive(quantity: str, one: str, sign: str, other: str, source: str) -> Event:
    return Event(quantity, None, source=source, derived=(one, sign, other))


def _raw(group: int, source: str):
    """Makes events of one group from a code and an umask: "{pmu}" becomes the name of the CPU's
    PMU."""

    def event(quantity: str, code: int, umask: int, name: str, cmask: int = 0) -> Event:
        terms = (
            [f"event={code:#04x}"]
            + [f"umask={umask:#04x}"] * (umask > 0)
            + [f"cmask={cmask}"] * (cmask > 0)
        )
        return Event(
            quantity, f"{{pmu}}/{','.join(terms)}/u", source=f"{source}, {name}", group=group
        )

    return event


def _intel(
    load: int,
    fetch: int,
    files: tuple[str, str],
    *,
    nested: str = "",
    hits: tuple[int, int] | None = (0x20, 0x20),
    cycles: str = "WALK_ACTIVE",
    walker: str = "",
) -> tuple[Event, ...]:
    """The rows of an Intel core. `load`, `fetch`: the codes of DTLB_LOAD_MISSES and ITLB_MISSES;
    the umasks are common.

    hits: the umasks of both STLB_HIT. cycles: WALK_DURATION; WALK_ACTIVE, which comes with
    WALK_PENDING; WALK_PENDING alone; or "" where nothing counts them.
    """
    source = _INTEL.format(*files)
    rows = []
    for side, code, group, name in (
        ("", load, _LOADS, "DTLB_LOAD_MISSES"),
        ("itlb_", fetch, _FETCHES, "ITLB_MISSES"),
    ):
        event, first = _raw(group, source), "l1_itlb_miss" if side else "l1_dtlb_miss"
        rows.append(event(f"{side}walk", code, 0x0E, f"{name}.WALK_COMPLETED"))
        if cycles:
            rows.append(
                event(
                    f"{side}walk_cycles",
                    code,
                    0x10,
                    f"{name}.{cycles}",
                    cmask=int(cycles == "WALK_ACTIVE"),
                )
            )
        else:
            rows.append(_lack(f"{side}walk_cycles", "no-walk-cycle-event", source))
        if hits is not None:
            rows.append(event(f"{side}stlb_hit", code, hits[bool(side)], f"{name}.STLB_HIT"))
        else:
            rows.append(_lack(f"{side}stlb_hit", "event-unknown", source))
        rows.append(_derive(first, f"{side}stlb_hit", "+", f"{side}walk", source))
    if cycles == "WALK_ACTIVE":
        rows.append(
            _raw(_LOADS, source)("walk_pending", load, 0x10, "DTLB_LOAD_MISSES.WALK_PENDING")
        )
    if nested:
        rows.append(_raw(_FETCHES, source)("nested_walk_cycles", 0x4F, 0x10, nested))
    else:
        rows.append(_lack("nested_walk_cycles", "no-nested-walk-event", source))
    if walker:
        event = _raw(_WALKER, source)
        rows += [
            event("walker_l1", 0xBC, 0x11, "PAGE_WALKER_LOADS.DTLB_L1"),
            event("walker_l2", 0xBC, 0x12, "PAGE_WALKER_LOADS.DTLB_L2"),
            event("walker_l3", 0xBC, 0x14, f"PAGE_WALKER_LOADS.DTLB_L3 (errata {walker})"),
            event("walker_memory", 0xBC, 0x18, f"PAGE_WALKER_LOADS.DTLB_MEMORY (errata {walker})"),
        ]
    return tuple(rows)


def _core(*files: str) -> tuple[Event, ...]:
    """Golden Cove and its successors: other codes, the umasks of before."""
    return _intel(0x12, 0x11, (files[0], files[1]))


def _atom(*files: str) -> tuple[Event, ...]:
    return _intel(0x08, 0x85, (files[0], files[1]), cycles="WALK_PENDING")


_GRACEMONT = _intel(
    0x08, 0x85, ("alderlake", "ADL/events/alderlake_gracemont_core.json"), hits=None, cycles=""
)
_GOLDEN_COVE = _core("alderlake", "ADL/events/alderlake_goldencove_core.json")


def _lion_cove(*files: str) -> tuple[Event, ...]:
    """Its umasks have a second byte, which Linux passes on where the PMU's `format/umask` in sysfs
    names those bits."""
    return _intel(0x12, 0x11, (files[0], files[1]), hits=(0x320, 0x120))


def _zen(fetch_walk_umask: int, data: str, fetch: str) -> tuple[Event, ...]:
    folder = "Linux tools/perf/pmu-events/arch/x86/"
    loads, fetches = _raw(_LOADS, f"{folder}{data}"), _raw(_FETCHES, f"{folder}{fetch}")
    return (
        loads("walk", 0x45, 0xF0, "ls_l1_d_tlb_miss, all_l2_miss"),
        loads("stlb_hit", 0x45, 0x0F, "ls_l1_d_tlb_miss, the four tlb_reload_*_hit"),
        loads("l1_dtlb_miss", 0x45, 0xFF, "ls_l1_d_tlb_miss.all"),
        _lack("walk_cycles", "no-walk-cycle-event", f"{folder}{data}"),
        fetches("itlb_walk", 0x85, fetch_walk_umask, "bp_l1_tlb_miss_l2_tlb_miss"),
        fetches("itlb_stlb_hit", 0x84, 0, "bp_l1_tlb_miss_l2_tlb_hit"),
        _derive("l1_itlb_miss", "itlb_stlb_hit", "+", "itlb_walk", f"{folder}{fetch}"),
        _lack("itlb_walk_cycles", "no-walk-cycle-event", f"{folder}{fetch}"),
        _lack("nested_walk_cycles", "no-nested-walk-event", f"{folder}{data}"),
    )


def _neoverse(core: str, folder: str, *, walks_per_cycle: bool = False) -> tuple[Event, ...]:
    """stlb_hit is an upper bound: L1D_TLB_REFILL counts what hardware prefetches refill too,
    DTLB_WALK of V3 and N3 does not. L2D_TLB_REFILL mixes data and fetches, so nothing derives from
    it."""
    source = f"Linux tools/perf/pmu-events/arch/arm64/arm/{folder}/; github.com/ARM-software/data pmu/{core}.json"
    loads, fetches = _raw(_LOADS, source), _raw(_FETCHES, source)
    if walks_per_cycle:
        cycles = (
            loads("walk_cycles", 0x8128, 0, "DTLB_WALK_PERCYC"),
            fetches("itlb_walk_cycles", 0x8129, 0, "ITLB_WALK_PERCYC"),
        )
    else:
        cycles = tuple(
            _lack(name, "no-walk-cycle-event", source)
            for name in ("walk_cycles", "itlb_walk_cycles")
        )
    return (
        loads("walk", 0x34, 0, "DTLB_WALK"),
        loads("l1_dtlb_miss", 0x05, 0, "L1D_TLB_REFILL"),
        _derive("stlb_hit", "l1_dtlb_miss", "-", "walk", source),
        fetches("itlb_walk", 0x35, 0, "ITLB_WALK"),
        fetches("l1_itlb_miss", 0x02, 0, "L1I_TLB_REFILL"),
        _derive("itlb_stlb_hit", "l1_itlb_miss", "-", "itlb_walk", source),
        fetches("l2_tlb_refill", 0x2D, 0, "L2D_TLB_REFILL"),
        _lack("nested_walk_cycles", "no-nested-walk-event", source),
        *cycles,
    )


# By microarchitecture (the beginning of a name that tlb.machine.microarchitecture gives) and PMU;
# "" is whichever the CPU has.
TABLE: dict[tuple[str, str], tuple[Event, ...]] = {
    ("Haswell", ""): _intel(
        0x08,
        0x85,
        ("haswell", "HSW/events/haswell_core.json"),
        hits=(0x60, 0x60),
        cycles="WALK_DURATION",
        nested="EPT.WALK_CYCLES",
        walker="HSD25",
    ),
    ("Broadwell", ""): _intel(
        0x08,
        0x85,
        ("broadwell", "BDX/events/broadwellx_core.json"),
        hits=(0x60, 0x60),
        cycles="WALK_DURATION",
        nested="EPT.WALK_CYCLES",
        walker="BDM69, BDM98",
    ),
    ("Skylake client", ""): _intel(
        0x08, 0x85, ("skylake", "SKL/events/skylake_core.json"), nested="EPT.WALK_PENDING"
    ),
    ("Skylake server", ""): _intel(
        0x08, 0x85, ("skylakex", "SKX/events/skylakex_core.json"), nested="EPT.WALK_PENDING"
    ),
    ("Cascade Lake", ""): _intel(
        0x08, 0x85, ("cascadelakex", "CLX/events/cascadelakex_core.json"), nested="EPT.WALK_PENDING"
    ),
    ("Cooper Lake", ""): _intel(
        0x08, 0x85, ("cascadelakex", "CLX/events/cascadelakex_core.json"), nested="EPT.WALK_PENDING"
    ),
    ("Ice Lake client", ""): _intel(0x08, 0x85, ("icelake", "ICL/events/icelake_core.json")),
    ("Ice Lake server", ""): _intel(0x08, 0x85, ("icelakex", "ICX/events/icelakex_core.json")),
    ("Tiger Lake", ""): _intel(0x08, 0x85, ("tigerlake", "TGL/events/tigerlake_core.json")),
    ("Rocket Lake", ""): _intel(0x08, 0x85, ("rocketlake", "RKL/events/rocketlake_core.json")),
    ("Sapphire Rapids", ""): _core("sapphirerapids", "SPR/events/sapphirerapids_core.json"),
    ("Emerald Rapids", ""): _core("emeraldrapids", "EMR/events/emeraldrapids_core.json"),
    ("Granite Rapids", ""): _core("graniterapids", "GNR/events/graniterapids_core.json"),
    ("Gracemont", ""): _GRACEMONT,
    ("Alder Lake", "cpu_core"): _GOLDEN_COVE,
    ("Alder Lake", "cpu_atom"): _GRACEMONT,
    ("Raptor Lake", "cpu_core"): _GOLDEN_COVE,
    ("Raptor Lake", "cpu_atom"): _GRACEMONT,
    ("Meteor Lake", "cpu_core"): _core("meteorlake", "MTL/events/meteorlake_redwoodcove_core.json"),
    ("Meteor Lake", "cpu_atom"): _atom("meteorlake", "MTL/events/meteorlake_crestmont_core.json"),
    ("Arrow Lake", "cpu_core"): _lion_cove("arrowlake", "ARL/events/arrowlake_lioncove_core.json"),
    ("Arrow Lake", "cpu_atom"): _atom("arrowlake", "ARL/events/arrowlake_skymont_core.json"),
    ("Arrow Lake", "cpu_lowpower"): _atom("arrowlake", "ARL/events/arrowlake_crestmont_core.json"),
    ("Lunar Lake", "cpu_core"): _lion_cove("lunarlake", "LNL/events/lunarlake_lioncove_core.json"),
    ("Lunar Lake", "cpu_atom"): _atom("lunarlake", "LNL/events/lunarlake_skymont_core.json"),
    ("Zen 1", ""): _zen(0x00, "amdzen1/memory.json", "amdzen1/cache.json"),
    ("Zen 2", ""): _zen(0xFF, "amdzen2/memory.json", "amdzen2/cache.json"),
    ("Zen 3", ""): _zen(0xFF, "amdzen3/memory.json", "amdzen3/cache.json"),
    ("Zen 4", ""): _zen(0x0F, "amdzen4/memory.json", "amdzen4/memory.json"),
    ("Zen 5", ""): _zen(0x0F, "amdzen5/load-store.json", "amdzen5/branch-prediction.json"),
    ("Neoverse N1", ""): _neoverse("neoverse-n1", "neoverse-n1"),
    ("Neoverse V1", ""): _neoverse("neoverse-v1", "neoverse-v1"),
    ("Neoverse N2", ""): _neoverse("neoverse-n2", "neoverse-n2-v2"),
    ("Neoverse V2", ""): _neoverse("neoverse-v2", "neoverse-n2-v2"),
    ("Neoverse V3AE", ""): _neoverse("neoverse-v3ae", "neoverse-v3", walks_per_cycle=True),
    ("Neoverse V3", ""): _neoverse("neoverse-v3", "neoverse-v3", walks_per_cycle=True),
    ("Neoverse N3", ""): _neoverse("neoverse-n3", "neoverse-n3", walks_per_cycle=True),
}


def may_be_zero(quantity: str) -> bool:
    """Whether a process may live that misses in every TLB and has none of these: on bare metal
    there is no second dimension, and what answered the walker's loads is a matter of what the
    caches hold."""
    return quantity == "nested_walk_cycles" or quantity.startswith("walker_")


def quantities(microarchitecture: str, pmu: str = "cpu") -> tuple[Event, ...]:
    """The hardware events of a CPU: cycles and instructions, then the rows of its microarchitecture
    under `pmu`, the PMU that the measuring CPU belongs to (tlb.machine.pmu). Where the table has no
    row, each quantity has its reason."""
    # On a hybrid CPU a bare `cycles` becomes two events, and only the one of the CPU that ran
    # counts.
    named = (
        (f"{pmu}/cycles/u", f"{pmu}/instructions/u")
        if pmu.startswith("cpu_")
        else ("cycles:u", "instructions:u")
    )
    fixed = (
        Event("core_cycles", named[0], source="perf_event_open(2), PERF_COUNT_HW_CPU_CYCLES"),
        Event("instructions", named[1], source="perf_event_open(2), PERF_COUNT_HW_INSTRUCTIONS"),
    )
    for (name, unit), rows in TABLE.items():
        if microarchitecture.startswith(name) and unit in ("", pmu):
            return fixed + tuple(_on(row, pmu) for row in rows)
    return fixed + tuple(
        Event(q, None, "event-unknown")
        for q in CANONICAL
        if q not in ("core_cycles", "instructions")
    )


def _on(row: Event, pmu: str) -> Event:
    return (
        row
        if row.event is None
        else Event(row.quantity, row.event.format(pmu=pmu), source=row.source, group=row.group)
    )
