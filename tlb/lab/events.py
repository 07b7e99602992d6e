"""Events: which event of which CPU counts which quantity, with the file that each was read in.

A quantity has one meaning on every CPU. An event has not: `dTLB-load-misses` counts walks started
on Haswell, walks completed on Skylake and something else again on Zen, so no generic TLB event is
used.

    walk, itlb_walk                 page walks completed, of loads and of instruction fetches
    stlb_hit, itlb_stlb_hit         first-level misses that the second level answered
    l1_dtlb_miss, l1_itlb_miss      the two together
    walk_cycles, itlb_walk_cycles   cycles with a walk in progress; on Crestmont, Skymont, Neoverse
                                    V3 and N3 the walks in progress summed over cycles: the
                                    same while no two walks overlap
    walk_pending                    that sum where the CPU counts both: walk_pending / walk_cycles
                                    walks at once
    nested_walk_cycles              cycles of the second dimension of a guest's walk
    walker_l1 ... walker_memory     the walker's own loads, by what answered them
    l2_tlb_refill                   second-level refills of data and fetches together

Where the CPU tells loads from stores, the events are of loads: the kernels only load. AMD and Arm
count both together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

# What a plan covers on every CPU; other quantities exist only where the CPU has an event.
CANONICAL = (
    *("walk", "walk_cycles", "stlb_hit", "l1_dtlb_miss", "core_cycles", "instructions"),
    *("itlb_walk", "itlb_walk_cycles", "itlb_stlb_hit", "l1_itlb_miss", "nested_walk_cycles"),
)
# Intel's cores count at most four programmable events per thread with Hyper-Threading on; Zen and
# Neoverse have six counters, of which cycles and instructions take up to two. One fewer where the
# kernel's NMI watchdog has cycles counted.
PROGRAMMABLE = 4


@dataclass(frozen=True)
class Event:
    """A quantity with the event that counts it, or the two quantities that it derives from, or the
    reason for neither.

    Events of one `group` are counted in the same run. None: in every run, without a programmable
    counter that others could use.
    """

    quantity: str
    event: str | None
    reason: str | None = None
    source: str = ""
    derived: tuple[str, str, str] | None = None  # ("stlb_hit", "+", "walk")
    group: int | None = None


_SYSCALL = "perf_event_open(2), PERF_COUNT_"
# On every Linux, in user mode: no privilege up to perf_event_paranoid 2.
SOFTWARE = (
    Event("minor_faults", "minor-faults:u", source=f"{_SYSCALL}SW_PAGE_FAULTS_MIN"),
    Event("task_clock_ns", "task-clock:u", source=f"{_SYSCALL}SW_TASK_CLOCK"),
)
_LOADS, _FETCHES, _WALKER = 0, 1, 2  # groups
_FOLDER = "Linux tools/perf/pmu-events/arch/"
# What answered a walker's load, by umask. Intel's errata concern the last two.
_WALKER_LOADS = {"l1": 0x11, "l2": 0x12, "l3": 0x14, "memory": 0x18}


def _lack(quantity: str, reason: str, source: str) -> Event:
    return Event(quantity, None, reason, source)


def _derive(quantity: str, one: str, sign: str, other: str, source: str) -> Event:
    return Event(quantity, None, source=source, derived=(one, sign, other))


def _raw(group: int, source: str) -> Callable[..., Event]:
    """Make events of one group by code and umask; "{pmu}" becomes the name of the CPU's PMU."""

    def event(quantity: str, code: int, umask: int, name: str, cmask: int = 0) -> Event:
        terms = [f"event={code:#04x}"]
        terms += [f"umask={umask:#04x}"] if umask else []
        terms += [f"cmask={cmask}"] if cmask else []
        config = f"{{pmu}}/{','.join(terms)}/u"
        return Event(quantity, config, source=f"{source}, {name}", group=group)

    return event


def _intel(
    files: str,
    load: int = 0x08,
    fetch: int = 0x85,
    *,
    nested: str = "",
    hits: tuple[int, int] | None = (0x20, 0x20),
    cycles: str = "WALK_ACTIVE",
    errata: str = "",
) -> tuple[Event, ...]:
    """Return the rows of an Intel core.

    files: its folder in Linux, a blank, its file in perfmon. load, fetch: codes of DTLB_LOAD_MISSES
    and ITLB_MISSES; their umasks are common. hits: umasks of both STLB_HIT. cycles: WALK_DURATION;
    WALK_ACTIVE, which comes with WALK_PENDING; WALK_PENDING alone; "" for none. errata: of the
    walker's loads, "" for cores without these events.
    """
    source = "{}x86/{}/virtual-memory.json; github.com/intel/perfmon {}".format(
        _FOLDER, *files.split()
    )
    load_hits, fetch_hits = hits or (None, None)
    rows = _side(source, "", load, cycles, load_hits)
    rows += _side(source, "itlb_", fetch, cycles, fetch_hits)
    if cycles == "WALK_ACTIVE":
        pending = "DTLB_LOAD_MISSES.WALK_PENDING"
        rows.append(_raw(_LOADS, source)("walk_pending", load, 0x10, pending))
    if nested:
        rows.append(_raw(_FETCHES, source)("nested_walk_cycles", 0x4F, 0x10, nested))
    else:
        rows.append(_lack("nested_walk_cycles", "no-nested-walk-event", source))
    for level, umask in _WALKER_LOADS.items() if errata else ():
        name = f"PAGE_WALKER_LOADS.DTLB_{level.upper()}"
        name += f" (errata {errata})" if level in ("l3", "memory") else ""
        rows.append(_raw(_WALKER, source)(f"walker_{level}", 0xBC, umask, name))
    return tuple(rows)


def _side(source: str, side: str, code: int, cycles: str, hits: int | None) -> list[Event]:
    """Return the rows of an Intel core's loads (side "") or fetches ("itlb_"), whose events have
    one code."""
    event = _raw(_FETCHES if side else _LOADS, source)
    name = "ITLB_MISSES" if side else "DTLB_LOAD_MISSES"
    rows = [event(f"{side}walk", code, 0x0E, f"{name}.WALK_COMPLETED")]
    if cycles:
        cmask = int(cycles == "WALK_ACTIVE")
        rows.append(event(f"{side}walk_cycles", code, 0x10, f"{name}.{cycles}", cmask))
    else:
        rows.append(_lack(f"{side}walk_cycles", "no-walk-cycle-event", source))
    if hits:
        rows.append(event(f"{side}stlb_hit", code, hits, f"{name}.STLB_HIT"))
    else:
        rows.append(_lack(f"{side}stlb_hit", "event-unknown", source))
    first = "l1_itlb_miss" if side else "l1_dtlb_miss"
    rows.append(_derive(first, f"{side}stlb_hit", "+", f"{side}walk", source))
    return rows


def _core(files: str, hits: tuple[int, int] = (0x20, 0x20)) -> tuple[Event, ...]:
    """Return the rows of Golden Cove and its successors. Lion Cove's umasks have a second byte,
    which Linux passes on where `format/umask` of the PMU in sysfs names those bits."""
    return _intel(files, 0x12, 0x11, hits=hits)


def _zen(fetch_walk_umask: int, data: str, fetch: str) -> tuple[Event, ...]:
    data, fetch = f"{_FOLDER}x86/{data}", f"{_FOLDER}x86/{fetch}"
    loads, fetches = _raw(_LOADS, data), _raw(_FETCHES, fetch)
    return (
        loads("walk", 0x45, 0xF0, "ls_l1_d_tlb_miss, all_l2_miss"),
        loads("stlb_hit", 0x45, 0x0F, "ls_l1_d_tlb_miss, the four tlb_reload_*_hit"),
        loads("l1_dtlb_miss", 0x45, 0xFF, "ls_l1_d_tlb_miss.all"),
        _lack("walk_cycles", "no-walk-cycle-event", data),
        fetches("itlb_walk", 0x85, fetch_walk_umask, "bp_l1_tlb_miss_l2_tlb_miss"),
        fetches("itlb_stlb_hit", 0x84, 0, "bp_l1_tlb_miss_l2_tlb_hit"),
        _derive("l1_itlb_miss", "itlb_stlb_hit", "+", "itlb_walk", fetch),
        _lack("itlb_walk_cycles", "no-walk-cycle-event", fetch),
        _lack("nested_walk_cycles", "no-nested-walk-event", data),
    )


def _neoverse(core: str, folder: str = "", *, walks_per_cycle: bool = False) -> tuple[Event, ...]:
    """Return the rows of an Arm core. stlb_hit is an upper bound: L1D_TLB_REFILL counts what
    hardware prefetches refill too, DTLB_WALK of V3 and N3 does not. L2D_TLB_REFILL mixes data and
    fetches, so nothing derives from it."""
    source = f"{_FOLDER}arm64/arm/{folder or core}/; github.com/ARM-software/data pmu/{core}.json"
    loads, fetches = _raw(_LOADS, source), _raw(_FETCHES, source)
    lack = "no-walk-cycle-event"
    if walks_per_cycle:
        cycles = loads("walk_cycles", 0x8128, 0, "DTLB_WALK_PERCYC")
        fetch_cycles = fetches("itlb_walk_cycles", 0x8129, 0, "ITLB_WALK_PERCYC")
    else:
        cycles = _lack("walk_cycles", lack, source)
        fetch_cycles = _lack("itlb_walk_cycles", lack, source)
    return (
        loads("walk", 0x34, 0, "DTLB_WALK"),
        loads("l1_dtlb_miss", 0x05, 0, "L1D_TLB_REFILL"),
        _derive("stlb_hit", "l1_dtlb_miss", "-", "walk", source),
        fetches("itlb_walk", 0x35, 0, "ITLB_WALK"),
        fetches("l1_itlb_miss", 0x02, 0, "L1I_TLB_REFILL"),
        _derive("itlb_stlb_hit", "l1_itlb_miss", "-", "itlb_walk", source),
        fetches("l2_tlb_refill", 0x2D, 0, "L2D_TLB_REFILL"),
        _lack("nested_walk_cycles", "no-nested-walk-event", source),
        cycles,
        fetch_cycles,
    )


_OLD = {"hits": (0x60, 0x60), "cycles": "WALK_DURATION", "nested": "EPT.WALK_CYCLES"}
_PENDING = {"nested": "EPT.WALK_PENDING"}
_LION_COVE_HITS = (0x320, 0x120)
_GOLDEN_COVE = _core("alderlake ADL/events/alderlake_goldencove_core.json")
_GRACEMONT = _intel("alderlake ADL/events/alderlake_gracemont_core.json", hits=None, cycles="")
_CASCADE_LAKE = _intel("cascadelakex CLX/events/cascadelakex_core.json", **_PENDING)


def _hybrid(folder: str, files: str, hits: tuple[int, int], **atoms: str) -> dict:
    """Return the tables of a hybrid part by PMU; files: the beginning of its files in perfmon."""
    core, *rest = atoms.items()
    tables = {core[0]: _core(f"{folder} {files}_{core[1]}_core.json", hits)}
    for unit, name in rest:
        tables[unit] = _intel(f"{folder} {files}_{name}_core.json", cycles="WALK_PENDING")
    return tables


_ALDER_LAKE = {"cpu_core": _GOLDEN_COVE, "cpu_atom": _GRACEMONT}
# By microarchitecture (the beginning of a name that tlb.machine.microarchitecture gives), then by
# PMU; "" is whichever the CPU has.
_CORES: dict[str, tuple[Event, ...] | dict[str, tuple[Event, ...]]] = {
    "Haswell": _intel("haswell HSW/events/haswell_core.json", errata="HSD25", **_OLD),
    "Broadwell": _intel("broadwell BDX/events/broadwellx_core.json", errata="BDM69, BDM98", **_OLD),
    "Skylake client": _intel("skylake SKL/events/skylake_core.json", **_PENDING),
    "Skylake server": _intel("skylakex SKX/events/skylakex_core.json", **_PENDING),
    "Cascade Lake": _CASCADE_LAKE,
    "Cooper Lake": _CASCADE_LAKE,
    "Ice Lake client": _intel("icelake ICL/events/icelake_core.json"),
    "Ice Lake server": _intel("icelakex ICX/events/icelakex_core.json"),
    "Tiger Lake": _intel("tigerlake TGL/events/tigerlake_core.json"),
    "Rocket Lake": _intel("rocketlake RKL/events/rocketlake_core.json"),
    "Sapphire Rapids": _core("sapphirerapids SPR/events/sapphirerapids_core.json"),
    "Emerald Rapids": _core("emeraldrapids EMR/events/emeraldrapids_core.json"),
    "Granite Rapids": _core("graniterapids GNR/events/graniterapids_core.json"),
    "Gracemont": _GRACEMONT,
    "Alder Lake": _ALDER_LAKE,
    "Raptor Lake": _ALDER_LAKE,
    "Meteor Lake": _hybrid(
        *("meteorlake", "MTL/events/meteorlake", (0x20, 0x20)),
        **{"cpu_core": "redwoodcove", "cpu_atom": "crestmont"},
    ),
    "Arrow Lake": _hybrid(
        *("arrowlake", "ARL/events/arrowlake", _LION_COVE_HITS),
        **{"cpu_core": "lioncove", "cpu_atom": "skymont", "cpu_lowpower": "crestmont"},
    ),
    "Lunar Lake": _hybrid(
        *("lunarlake", "LNL/events/lunarlake", _LION_COVE_HITS),
        **{"cpu_core": "lioncove", "cpu_atom": "skymont"},
    ),
    "Zen 1": _zen(0x00, "amdzen1/memory.json", "amdzen1/cache.json"),
    "Zen 2": _zen(0xFF, "amdzen2/memory.json", "amdzen2/cache.json"),
    "Zen 3": _zen(0xFF, "amdzen3/memory.json", "amdzen3/cache.json"),
    "Zen 4": _zen(0x0F, "amdzen4/memory.json", "amdzen4/memory.json"),
    "Zen 5": _zen(0x0F, "amdzen5/load-store.json", "amdzen5/branch-prediction.json"),
    "Neoverse N1": _neoverse("neoverse-n1"),
    "Neoverse V1": _neoverse("neoverse-v1"),
    "Neoverse N2": _neoverse("neoverse-n2", "neoverse-n2-v2"),
    "Neoverse V2": _neoverse("neoverse-v2", "neoverse-n2-v2"),
    "Neoverse V3AE": _neoverse("neoverse-v3ae", "neoverse-v3", walks_per_cycle=True),
    "Neoverse V3": _neoverse("neoverse-v3", walks_per_cycle=True),
    "Neoverse N3": _neoverse("neoverse-n3", walks_per_cycle=True),
}
TABLE: dict[tuple[str, str], tuple[Event, ...]] = {
    (name, unit): rows
    for name, tables in _CORES.items()
    for unit, rows in (tables if isinstance(tables, dict) else {"": tables}).items()
}


def may_be_zero(quantity: str) -> bool:
    """Return whether a process that misses in every TLB may have none of these: on bare metal there
    is no second dimension, and what answers the walker's loads depends on what the caches hold."""
    return quantity == "nested_walk_cycles" or quantity.startswith("walker_")


def quantities(microarchitecture: str, pmu: str = "cpu") -> tuple[Event, ...]:
    """Return the hardware events of a CPU: cycles and instructions, then its microarchitecture's
    rows.

    pmu: the one that the measuring CPU belongs to (tlb.machine.pmu). Where the table has no row,
    each quantity has its reason."""
    # On a hybrid CPU a bare `cycles` becomes two events, of which only the running CPU's counts.
    form = f"{pmu}/{{}}/u" if pmu.startswith("cpu_") else "{}:u"
    fixed = (
        Event("core_cycles", form.format("cycles"), source=f"{_SYSCALL}HW_CPU_CYCLES"),
        Event("instructions", form.format("instructions"), source=f"{_SYSCALL}HW_INSTRUCTIONS"),
    )
    for (name, unit), rows in TABLE.items():
        if microarchitecture.startswith(name) and unit in ("", pmu):
            return fixed + tuple(
                replace(row, event=row.event and row.event.format(pmu=pmu)) for row in rows
            )
    known = {event.quantity for event in fixed}
    return fixed + tuple(Event(q, None, "event-unknown") for q in CANONICAL if q not in known)
