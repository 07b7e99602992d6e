"""Events: which event of which CPU counts which quantity, with the file that each was read in.

A quantity has one meaning on every CPU. An event has not: `dTLB-load-misses` counts walks started
on Haswell, walks completed on Skylake and something else again on Zen, so no generic TLB event is
used.

    walk, itlb_walk                 page walks completed, of loads and of instruction fetches
    stlb_hit, itlb_stlb_hit         first-level misses that the second level answered
    l1_dtlb_miss, l1_itlb_miss      the two together
    walk_cycles, itlb_walk_cycles   cycles with a walk in progress; where the event is Intel's
                                    WALK_PENDING alone (Tremont to Skymont) or Arm's
                                    DTLB_WALK_PERCYC (Neoverse V3 and N3, Cortex-A520 to X4), the
                                    walks in progress summed over cycles: the same while no two
                                    walks overlap
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

from tlb.machine.microarchitecture import ARM_NAMES


@dataclass(frozen=True)
class PerfEvent:
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

    @property
    def parts(self) -> tuple[str, ...]:
        """The two quantities that this one derives from; () for a counted one."""
        return self.derived[::2] if self.derived else ()


LOAD_GROUP, FETCH_GROUP, WALKER_GROUP = 0, 1, 2  # groups
LINUX_EVENTS_FOLDER = "Linux tools/perf/pmu-events/arch/"


def missing_event(quantity: str, reason: str, source: str) -> PerfEvent:
    """Return the row of a quantity that the CPU does not count."""
    return PerfEvent(quantity, None, reason, source)


def derived_event(quantity: str, one: str, sign: str, other: str, source: str) -> PerfEvent:
    """Return the row of a quantity that is the sum or difference of two others."""
    return PerfEvent(quantity, None, source=source, derived=(one, sign, other))


def raw_event_maker(group: int, source: str) -> Callable[..., PerfEvent]:
    """Make events of one group by code and umask; "{pmu}" becomes the name of the CPU's PMU."""

    def event(quantity: str, code: int, umask: int, name: str, cmask: int = 0) -> PerfEvent:
        terms = [f"event={code:#04x}"]
        terms += [f"umask={umask:#04x}"] if umask else []
        terms += [f"cmask={cmask}"] if cmask else []
        config = f"{{pmu}}/{','.join(terms)}/u"
        return PerfEvent(quantity, config, source=f"{source}, {name}", group=group)

    return event


# --- x86-64 CPUs, by microarchitecture and PMU

# What answered a walker's load, by umask. Intel's errata concern the last two.
_WALKER_LOADS = {"l1": 0x11, "l2": 0x12, "l3": 0x14, "memory": 0x18}


def _intel(
    files: str,
    load: int = 0x08,
    fetch: int = 0x85,
    *,
    nested: str = "",
    hits: tuple[int, int] | None = (0x20, 0x20),
    cycles: str = "WALK_ACTIVE",
    fetch_cycles: str | None = None,
    errata: str = "",
) -> tuple[PerfEvent, ...]:
    """Return the rows of an Intel core since Haswell.

    files: its folder in Linux, a blank, its file in perfmon. load, fetch: codes of DTLB_LOAD_MISSES
    and ITLB_MISSES; their umasks are common. hits: umasks of both STLB_HIT. cycles: WALK_DURATION;
    WALK_ACTIVE, which comes with WALK_PENDING; WALK_PENDING alone; "" for none. fetch_cycles: that
    of fetches where it is another. errata: of the walker's loads, "" for cores without these
    events.
    """
    source = "{}x86/{}/virtual-memory.json; github.com/intel/perfmon {}".format(
        LINUX_EVENTS_FOLDER, *files.split()
    )
    load_hits, fetch_hits = hits or (None, None)
    rows = _side(source, "", load, cycles, load_hits)
    rows += _side(
        source, "itlb_", fetch, cycles if fetch_cycles is None else fetch_cycles, fetch_hits
    )
    if cycles == "WALK_ACTIVE":
        pending = "DTLB_LOAD_MISSES.WALK_PENDING"
        rows.append(raw_event_maker(LOAD_GROUP, source)("walk_pending", load, 0x10, pending))
    if nested:
        rows.append(raw_event_maker(FETCH_GROUP, source)("nested_walk_cycles", 0x4F, 0x10, nested))
    else:
        rows.append(missing_event("nested_walk_cycles", "no-walk-cycle-event", source))
    for level, umask in _WALKER_LOADS.items() if errata else ():
        name = f"PAGE_WALKER_LOADS.DTLB_{level.upper()}"
        name += f" (errata {errata})" if level in ("l3", "memory") else ""
        rows.append(raw_event_maker(WALKER_GROUP, source)(f"walker_{level}", 0xBC, umask, name))
    return tuple(rows)


def _side(source: str, side: str, code: int, cycles: str, hits: int | None) -> list[PerfEvent]:
    """Return the rows of an Intel core's loads (side "") or fetches ("itlb_"), whose events have
    one code."""
    event = raw_event_maker(FETCH_GROUP if side else LOAD_GROUP, source)
    name = "ITLB_MISSES" if side else "DTLB_LOAD_MISSES"
    rows = [event(f"{side}walk", code, 0x0E, f"{name}.WALK_COMPLETED")]
    if cycles:
        cmask = int(cycles == "WALK_ACTIVE")
        rows.append(event(f"{side}walk_cycles", code, 0x10, f"{name}.{cycles}", cmask))
    else:
        rows.append(missing_event(f"{side}walk_cycles", "no-walk-cycle-event", source))
    if hits:
        rows.append(event(f"{side}stlb_hit", code, hits, f"{name}.STLB_HIT"))
    else:
        rows.append(missing_event(f"{side}stlb_hit", "event-unknown", source))
    first = "l1_itlb_miss" if side else "l1_dtlb_miss"
    rows.append(derived_event(first, f"{side}stlb_hit", "+", f"{side}walk", source))
    return rows


def _bridge(files: str, walk: int, cycles: int, hits: tuple[int, int]) -> tuple[PerfEvent, ...]:
    """Return the rows of Sandy Bridge and Ivy Bridge. walk, cycles: umasks of WALK_COMPLETED and
    WALK_DURATION of loads. hits: code and umask of DTLB_LOAD_MISSES.STLB_HIT."""
    source = "{}x86/{}/virtual-memory.json; github.com/intel/perfmon {}".format(
        LINUX_EVENTS_FOLDER, *files.split()
    )
    loads, fetches = raw_event_maker(LOAD_GROUP, source), raw_event_maker(FETCH_GROUP, source)
    return (
        loads("walk", 0x08, walk, "DTLB_LOAD_MISSES.WALK_COMPLETED"),
        loads("walk_cycles", 0x08, cycles, "DTLB_LOAD_MISSES.WALK_DURATION"),
        loads("stlb_hit", *hits, "DTLB_LOAD_MISSES.STLB_HIT"),
        derived_event("l1_dtlb_miss", "stlb_hit", "+", "walk", source),
        fetches("itlb_walk", 0x85, 0x02, "ITLB_MISSES.WALK_COMPLETED"),
        fetches("itlb_walk_cycles", 0x85, 0x04, "ITLB_MISSES.WALK_DURATION"),
        fetches("itlb_stlb_hit", 0x85, 0x10, "ITLB_MISSES.STLB_HIT"),
        derived_event("l1_itlb_miss", "itlb_stlb_hit", "+", "itlb_walk", source),
        fetches("nested_walk_cycles", 0x4F, 0x10, "EPT.WALK_CYCLES"),
    )


def _core(files: str, hits: tuple[int, int] = (0x20, 0x20)) -> tuple[PerfEvent, ...]:
    """Return the rows of Golden Cove and its successors. Lion Cove's umasks have a second byte,
    which Linux passes on where `format/umask` of the PMU in sysfs names those bits."""
    return _intel(files, 0x12, 0x11, hits=hits)


def _zen(fetch_walk_umask: int, data: str, fetch: str) -> tuple[PerfEvent, ...]:
    data, fetch = f"{LINUX_EVENTS_FOLDER}x86/{data}", f"{LINUX_EVENTS_FOLDER}x86/{fetch}"
    loads, fetches = raw_event_maker(LOAD_GROUP, data), raw_event_maker(FETCH_GROUP, fetch)
    return (
        loads("walk", 0x45, 0xF0, "ls_l1_d_tlb_miss, all_l2_miss"),
        loads("stlb_hit", 0x45, 0x0F, "ls_l1_d_tlb_miss, the four tlb_reload_*_hit"),
        loads("l1_dtlb_miss", 0x45, 0xFF, "ls_l1_d_tlb_miss.all"),
        missing_event("walk_cycles", "no-walk-cycle-event", data),
        fetches("itlb_walk", 0x85, fetch_walk_umask, "bp_l1_tlb_miss_l2_tlb_miss"),
        fetches("itlb_stlb_hit", 0x84, 0, "bp_l1_tlb_miss_l2_tlb_hit"),
        derived_event("l1_itlb_miss", "itlb_stlb_hit", "+", "itlb_walk", fetch),
        missing_event("itlb_walk_cycles", "no-walk-cycle-event", fetch),
        missing_event("nested_walk_cycles", "no-walk-cycle-event", data),
    )


_LION_COVE_HITS = (0x320, 0x120)
_GOLDEN_COVE = _core("alderlake ADL/events/alderlake_goldencove_core.json")
_GRACEMONT = _intel("alderlake ADL/events/alderlake_gracemont_core.json", hits=None, cycles="")
_CASCADE_LAKE = _intel("cascadelakex CLX/events/cascadelakex_core.json", nested="EPT.WALK_PENDING")
_HASWELL = _intel(
    "haswell HSW/events/haswell_core.json",
    errata="HSD25",
    hits=(0x60, 0x60),
    cycles="WALK_DURATION",
    nested="EPT.WALK_CYCLES",
)
_BROADWELL = _intel(
    "broadwell BDX/events/broadwellx_core.json",
    errata="BDM69, BDM98",
    hits=(0x60, 0x60),
    cycles="WALK_DURATION",
    nested="EPT.WALK_CYCLES",
)


def _hybrid(
    folder: str, files: str, hits: tuple[int, int], cores: dict[str, str]
) -> dict[str, tuple[PerfEvent, ...]]:
    """Return the tables of a hybrid part by PMU; files: the beginning of its files in perfmon."""
    core, *rest = cores.items()
    tables = {core[0]: _core(f"{folder} {files}_{core[1]}_core.json", hits)}
    for unit, name in rest:
        tables[unit] = _intel(f"{folder} {files}_{name}_core.json", cycles="WALK_PENDING")
    return tables


_ALDER_LAKE = {"cpu_core": _GOLDEN_COVE, "cpu_atom": _GRACEMONT}
# By microarchitecture (a name of tlb.machine.microarchitecture), then by PMU; "" is whichever the
# CPU has.
X86_CORES: dict[str, tuple[PerfEvent, ...] | dict[str, tuple[PerfEvent, ...]]] = {
    "Sandy Bridge": _bridge(
        "sandybridge SNB/events/sandybridge_core.json", 0x02, 0x04, (0x08, 0x10)
    ),
    "Sandy Bridge server": _bridge(
        "jaketown JKT/events/Jaketown_core.json", 0x02, 0x04, (0x08, 0x10)
    ),
    "Ivy Bridge": _bridge("ivybridge IVB/events/ivybridge_core.json", 0x82, 0x84, (0x5F, 0x04)),
    "Ivy Bridge server": _bridge("ivytown IVT/events/ivytown_core.json", 0x82, 0x84, (0x5F, 0x04)),
    "Haswell": _HASWELL,
    "Haswell server": _HASWELL,
    "Broadwell": _BROADWELL,
    "Broadwell server": _BROADWELL,
    "Skylake client": _intel("skylake SKL/events/skylake_core.json", nested="EPT.WALK_PENDING"),
    "Skylake server": _intel("skylakex SKX/events/skylakex_core.json", nested="EPT.WALK_PENDING"),
    "Cascade Lake": _CASCADE_LAKE,
    "Cooper Lake": _CASCADE_LAKE,
    "Ice Lake client": _intel("icelake ICL/events/icelake_core.json"),
    "Ice Lake server": _intel("icelakex ICX/events/icelakex_core.json"),
    "Tiger Lake": _intel("tigerlake TGL/events/tigerlake_core.json"),
    "Rocket Lake": _intel("rocketlake RKL/events/rocketlake_core.json"),
    "Sapphire Rapids": _core("sapphirerapids SPR/events/sapphirerapids_core.json"),
    "Emerald Rapids": _core("emeraldrapids EMR/events/emeraldrapids_core.json"),
    "Granite Rapids": _core("graniterapids GNR/events/graniterapids_core.json"),
    "Tremont": _intel(
        "elkhartlake EHL/events/elkhartlake_core.json",
        cycles="WALK_PENDING",
        nested="EPT.WALK_PENDING",
    ),
    "Gracemont": _GRACEMONT,
    "Crestmont": _intel("sierraforest SRF/events/sierraforest_core.json", cycles="WALK_PENDING"),
    # fetches alone have WALK_PENDING
    "Darkmont": _intel(
        "clearwaterforest CWF/events/clearwaterforest_core.json",
        cycles="",
        fetch_cycles="WALK_PENDING",
    ),
    "Alder Lake": _ALDER_LAKE,
    "Raptor Lake": _ALDER_LAKE,
    "Meteor Lake": _hybrid(
        "meteorlake",
        "MTL/events/meteorlake",
        (0x20, 0x20),
        {"cpu_core": "redwoodcove", "cpu_atom": "crestmont"},
    ),
    "Arrow Lake": _hybrid(
        "arrowlake",
        "ARL/events/arrowlake",
        _LION_COVE_HITS,
        {"cpu_core": "lioncove", "cpu_atom": "skymont", "cpu_lowpower": "crestmont"},
    ),
    "Lunar Lake": _hybrid(
        "lunarlake",
        "LNL/events/lunarlake",
        _LION_COVE_HITS,
        {"cpu_core": "lioncove", "cpu_atom": "skymont"},
    ),
    "Panther Lake": {
        "cpu_core": _core(
            "pantherlake PTL/events/pantherlake_cougarcove_core.json", _LION_COVE_HITS
        ),
        "cpu_atom": _intel(
            "pantherlake PTL/events/pantherlake_darkmont_core.json",
            cycles="",
            fetch_cycles="WALK_PENDING",
        ),
    },
    "Zen 1": _zen(0x00, "amdzen1/memory.json", "amdzen1/cache.json"),
    "Zen 2": _zen(0xFF, "amdzen2/memory.json", "amdzen2/cache.json"),
    "Zen 3": _zen(0xFF, "amdzen3/memory.json", "amdzen3/cache.json"),
    "Zen 4": _zen(0x0F, "amdzen4/memory.json", "amdzen4/memory.json"),
    "Zen 5": _zen(0x0F, "amdzen5/load-store.json", "amdzen5/branch-prediction.json"),
    # Linux counts Dhyana's TLB misses by Zen's codes: arch/x86/events/amd/core.c, amd_pmu_init().
    "Dhyana": _zen(0x00, "amdzen1/memory.json", "amdzen1/cache.json"),
}


# --- arm64 CPUs, by microarchitecture


def _arm(linux: str, data: str = "", *, walks_per_cycle: bool = False) -> tuple[PerfEvent, ...]:
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
        missing_event("nested_walk_cycles", "no-walk-cycle-event", source),
        cycles,
        fetch_cycles,
    )


def _arm_refills(
    linux: str, data: str = "", *, second_level: bool = False
) -> tuple[PerfEvent, ...]:
    """Return the rows of an Arm core whose files list no walks, only refills of its TLBs.

    second_level: whether its second level counts data and fetches apart, each refill a walk."""
    source = _arm_source(linux, data)
    loads, fetches = raw_event_maker(LOAD_GROUP, source), raw_event_maker(FETCH_GROUP, source)
    first = (
        loads("l1_dtlb_miss", 0x05, 0, "L1D_TLB_REFILL"),
        fetches("l1_itlb_miss", 0x02, 0, "L1I_TLB_REFILL"),
    )
    second: tuple[PerfEvent, ...]
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
        missing_event("nested_walk_cycles", "no-walk-cycle-event", source),
    )


def _arm_source(linux: str, data: str) -> str:
    files = [f"{LINUX_EVENTS_FOLDER}arm64/{linux}/"] if linux else []
    files += [f"github.com/ARM-software/data pmu/{data}.json"] if data else []
    return "; ".join(files)


ARM_CORES: dict[str, tuple[PerfEvent, ...]] = {
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


# What a plan covers on every CPU; other quantities exist only where the CPU has an event.
CANONICAL_QUANTITIES = (
    *("walk", "walk_cycles", "stlb_hit", "l1_dtlb_miss", "core_cycles", "instructions"),
    *("itlb_walk", "itlb_walk_cycles", "itlb_stlb_hit", "l1_itlb_miss", "nested_walk_cycles"),
)
# Intel's cores count at most four programmable events per thread with Hyper-Threading on; Zen and
# Neoverse have six counters, of which cycles and instructions take up to two. One fewer where the
# kernel's NMI watchdog has cycles counted.
PROGRAMMABLE_COUNTERS = 4

_SYSCALL = "perf_event_open(2), PERF_COUNT_"
# On every Linux, in user mode: no privilege up to perf_event_paranoid 2.
SOFTWARE_EVENTS = (
    PerfEvent("minor_faults", "minor-faults:u", source=f"{_SYSCALL}SW_PAGE_FAULTS_MIN"),
    PerfEvent("task_clock_ns", "task-clock:u", source=f"{_SYSCALL}SW_TASK_CLOCK"),
)
TABLE: dict[tuple[str, str], tuple[PerfEvent, ...]] = {
    (name, unit): rows
    for name, tables in (X86_CORES | ARM_CORES).items()
    for unit, rows in (tables if isinstance(tables, dict) else {"": tables}).items()
}


def event_count_may_be_zero(quantity: str) -> bool:
    """Return whether a process that misses in every TLB may have none of these: on bare metal there
    is no second dimension, and what answers the walker's loads depends on what the caches hold."""
    return quantity == "nested_walk_cycles" or quantity.startswith("walker_")


def are_known(microarchitecture: str, pmu: str = "") -> bool:
    """Return whether the table has rows for a CPU; pmu: as `hardware_events` takes it."""
    return all(event.reason != "no-events" for event in hardware_events(microarchitecture, pmu))


# The common events CPU_CYCLES and INST_RETIRED (Arm ARM, DDI 0487, D13: PMU events).
_ARM_FIXED = ("{}/event=0x11/u", "{}/event=0x08/u")


def hardware_events(microarchitecture: str, pmu: str = "") -> tuple[PerfEvent, ...]:
    """Return the hardware events of a CPU: cycles and instructions, then its microarchitecture's
    rows.

    pmu: the one that the measuring CPU belongs to (tlb.machine.pmu), by default what Linux calls
    one of that CPU. Where the table has no row, each quantity has its reason."""
    pmu = pmu or ("armv8_pmuv3_0" if microarchitecture in ARM_NAMES else "cpu")
    forms = ("cycles:u", "instructions:u")
    # Where cores differ, a bare `cycles` becomes an event of each kind, of which one counts.
    if pmu.startswith("armv"):
        forms = _ARM_FIXED
    elif pmu != "cpu":
        forms = ("{}/cycles/u", "{}/instructions/u")
    cycles, instructions = (form.format(pmu) for form in forms)
    fixed = (
        PerfEvent("core_cycles", cycles, source=f"{_SYSCALL}HW_CPU_CYCLES"),
        PerfEvent("instructions", instructions, source=f"{_SYSCALL}HW_INSTRUCTIONS"),
    )
    rows = TABLE.get((microarchitecture, pmu)) or TABLE.get((microarchitecture, ""))
    if rows is None:
        known = {event.quantity for event in fixed}
        return fixed + tuple(
            PerfEvent(q, None, "no-events") for q in CANONICAL_QUANTITIES if q not in known
        )
    return fixed + tuple(
        replace(row, event=row.event and row.event.format(pmu=pmu)) for row in rows
    )


def missing_event_reason(microarchitecture: str, quantity: str) -> str:
    """Return why a CPU has no event for a quantity, whatever its system lets count; "" if it has one,
    or if nothing is known of its events."""
    reasons = {row.quantity: row.reason for row in hardware_events(microarchitecture)}
    why = reasons.get(quantity) or ""
    return "" if why == "no-events" else why
