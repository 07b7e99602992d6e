"""The events of x86-64 CPUs, by microarchitecture and PMU."""

from __future__ import annotations

from tlb.measure.event_rows import (
    FETCH_GROUP,
    LINUX_EVENTS_FOLDER,
    LOAD_GROUP,
    WALKER_GROUP,
    Event,
    derived_event,
    missing_event,
    raw_event_maker,
)

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
) -> tuple[Event, ...]:
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
        rows.append(missing_event("nested_walk_cycles", "no-nested-walk-event", source))
    for level, umask in _WALKER_LOADS.items() if errata else ():
        name = f"PAGE_WALKER_LOADS.DTLB_{level.upper()}"
        name += f" (errata {errata})" if level in ("l3", "memory") else ""
        rows.append(raw_event_maker(WALKER_GROUP, source)(f"walker_{level}", 0xBC, umask, name))
    return tuple(rows)


def _side(source: str, side: str, code: int, cycles: str, hits: int | None) -> list[Event]:
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


def _bridge(files: str, walk: int, cycles: int, hits: tuple[int, int]) -> tuple[Event, ...]:
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


def _core(files: str, hits: tuple[int, int] = (0x20, 0x20)) -> tuple[Event, ...]:
    """Return the rows of Golden Cove and its successors. Lion Cove's umasks have a second byte,
    which Linux passes on where `format/umask` of the PMU in sysfs names those bits."""
    return _intel(files, 0x12, 0x11, hits=hits)


def _zen(fetch_walk_umask: int, data: str, fetch: str) -> tuple[Event, ...]:
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
        missing_event("nested_walk_cycles", "no-nested-walk-event", data),
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
) -> dict[str, tuple[Event, ...]]:
    """Return the tables of a hybrid part by PMU; files: the beginning of its files in perfmon."""
    core, *rest = cores.items()
    tables = {core[0]: _core(f"{folder} {files}_{core[1]}_core.json", hits)}
    for unit, name in rest:
        tables[unit] = _intel(f"{folder} {files}_{name}_core.json", cycles="WALK_PENDING")
    return tables


_ALDER_LAKE = {"cpu_core": _GOLDEN_COVE, "cpu_atom": _GRACEMONT}
# By microarchitecture (a name of tlb.machine.microarchitecture), then by PMU; "" is whichever the
# CPU has.
X86_CORES: dict[str, tuple[Event, ...] | dict[str, tuple[Event, ...]]] = {
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
