"""What a description of a computer says: its id, its state, its TLBs and caches."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from tlb.machine import background, identity
from tlb.machine.cpus import Core
from tlb.machine.microarchitecture import IMPLEMENTERS, UNKNOWN, VENDORS
from tlb.machine.tlb import Tlb
from tlb.system.reasons import Unavailable

if TYPE_CHECKING:
    from tlb.machine.host import Host

LOADS = ("data", "unified", "load")  # the kinds of TLB that translate a load


def machine_id(host: Host) -> str:
    """An id such as "zen-4-1a2b3c4d" ([a-z0-9-]{1,64}): the microarchitecture, and a hash of what
    stays.

    Kernel, microcode, limits and load are left out: they change on one computer. See `state`. A
    computer whose CPUs differ has an id for each kind that is measured, since each has a
    description of its own. Raises Unavailable: arch-unsupported; machine-unknown where a Linux
    states too little.
    """
    if host.arch not in (*identity.X86, *identity.ARM):
        raise Unavailable("arch-unsupported", host.arch)
    if host.os == "Linux" and (host.cpu_model == UNKNOWN or not host.memory.total_bytes):
        raise Unavailable("machine-unknown")
    name = host.microarchitecture
    if name == UNKNOWN:
        name = (VENDORS | {maker: maker for maker in IMPLEMENTERS.values()}).get(host.vendor, "cpu")
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"{slug}-{identity.hashed(json.dumps(identity_facts(host)))[:8]}"


def identity_facts(host: Host) -> list[Any]:
    """What stays on one computer, and tells it from others."""
    signature = [host.family, host.model, host.stepping, host.logical_cpus]
    return [
        host.cpu_model,
        [*signature, host.hypervisor, host.installation],
        [[c.level, c.kind, c.size_bytes, c.line_bytes, c.ways, c.sets] for c in host.caches],
        # the kernel keeps some for itself, by version more or less
        round(host.memory.total_bytes / 2**30),
    ]


def state_facts(host: Host) -> dict[str, object]:
    """Return the settings and versions that change on one computer, and its numbers with it: rows
    are compared and reused within one such state.

    What fluctuates by itself is no part of it: the clock of the moment, the load, free memory and
    pool pages, counters, whether a guest runs. Nor is provenance: `background` and `boot_id`.
    """
    core, kvm = host.core, host.kvm
    facts = {
        "kernel_release": host.kernel_release,
        "microcode": host.microcode,
        "base_page_bytes": host.base_page_bytes,
        "page_table_levels": host.page_table_levels,  # Linux's own choice (no5lvl)
        "la57": host.la57,
        "thp": host.thp.model_dump(),
        "mthp": host.mthp,
        "numa_balancing": host.numa_balancing,  # unmaps pages, to see who touches them
        "governor": host.noise.governor,
        "turbo": host.noise.turbo,
        "smt": host.noise.smt,  # a sibling thread shares the core's TLB
        "mitigations": host.mitigations,  # page-table isolation and other costs of a fault
        # A module that is loaded later is no other state; one that shadows page tables, or splits
        # pages, gives guests other numbers.
        "guests_are_shadowed": bool(kvm and kvm.tables == "shadow"),
        "nx_huge_pages": bool(kvm and kvm.nx_huge_pages),
        "core": core and _core_facts(host, core),
    }
    # Only where they differ from the default, so that older rows keep their state.
    if host.pcid is False:
        facts["pcid"] = False
    if host.fifo:
        facts["fifo"] = True
    if host.boot:
        facts["boot"] = list(host.boot)
    # A quota or a switched-off THP changes what is measured, unlike the other background tasks.
    for name in (background.CPU_QUOTA, background.THP_OF_PROCESS):
        if (words := host.background.get(name, "none")) != "none":
            facts[name] = words
    return facts


def _core_facts(host: Host, core: Core) -> dict[str, object]:
    l3_bytes = data_caches(host).get(3)
    return {"kind": core.kind, "highest_khz": core.highest_khz, "l3_bytes": l3_bytes}


def state(host: Host) -> str:
    """12 hex digits of `state_facts`."""
    return hashlib.sha256(json.dumps(state_facts(host), sort_keys=True).encode()).hexdigest()[:12]


def data_tlbs(host: Host, page: str = "4k") -> list[Tlb]:
    """The TLB levels that translate loads of a page size, as CPUID states them; one a level, empty
    where it is silent.

    Two parts of one level that both hold 4 KiB pages (Ice Lake: one shares with 2 MiB, one with 1
    GiB) are one capacity.
    """
    by_level: dict[int, Tlb] = {}
    for tlb in host.tlb:
        if page in tlb.pages and tlb.kind in LOADS and tlb.entries:
            if before := by_level.get(tlb.level):
                entries = before.entries + tlb.entries
                both = {"entries": entries, "ways": None, "ways_between": None}
                tlb = tlb.model_copy(update=both)
            by_level[tlb.level] = tlb
    return [by_level[level] for level in sorted(by_level)]


def tlb_entries(host: Host) -> list[int]:
    """4 KiB data entries of each TLB level as CPUID states them, ascending; empty where it is
    silent."""
    return [tlb.entries for tlb in data_tlbs(host)]


def data_caches(host: Host) -> dict[int, int]:
    """Level -> bytes of the data caches that sysfs or CPUID state; of two of a level the first."""
    return {
        cache.level: cache.size_bytes
        for cache in reversed(host.caches)
        if cache.kind != "instruction"
    }
