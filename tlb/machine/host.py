"""What computer this is: CPU, caches, TLB, paging, huge pages, hypervisor, counters, limits,
settings; its id and its state.

What a CPU states of itself is asked of the one that is measured (tlb/machine/cpus.py), for the CPUs
of one computer may differ. Everything read from /proc and /sys lies under a root, and everything
else comes from a `Platform`, so a test describes any computer. A field that is absent or unreadable
is None, "absent" or "unknown": never an error.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tlb.machine import FrozenModel, background, cpuid, cpus, pmu, settings
from tlb.machine.cpuid import Cache, CpuidReader, Tlb, tlbs_stated_by_cpuid
from tlb.machine.cpus import MeasuringCore, measuring_cpu
from tlb.machine.memory import Memory, ResourceLimits, usable_memory
from tlb.machine.microarchitecture import ARM_IMPLEMENTERS, UNKNOWN_MICROARCHITECTURE, VENDORS
from tlb.machine.pmu import Pmu
from tlb.machine.settings import HugePagePool, KvmSupport, NoiseSources, ThpSettings
from tlb.system import procfs
from tlb.system.page_sizes import PAGE_KINDS, PUBLISHED_BASE_PAGE_BYTES, page_bytes
from tlb.system.processes import PROBE_TIMEOUT_S, pinned_to_cpu, run_in_own_session
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size, page_size_name


class Host(FrozenModel):
    """A computer, as far as measurements of address translation depend on it. Holds no host or user
    name."""

    cpu_model: str
    vendor: str
    family: int | None
    model: int | None
    stepping: int | None
    microarchitecture: str
    microcode: str | None
    logical_cpus: int
    usable_cpus: tuple[int, ...]
    caches: tuple[Cache, ...]
    tlb: tuple[Tlb, ...]
    tlb_reason: str | None  # why `tlb` is empty
    tlb_unknown_descriptors: tuple[str, ...]  # of CPUID leaf 2, such as "0xc2"
    page_table_levels: int | None  # what a walk passes at most, as this kernel set it up
    la57: bool | None  # whether the CPU could walk five
    gigabyte_pages: bool | None
    base_page_bytes: int
    thp: ThpSettings
    mthp: dict[str, str]  # page size -> always, inherit, madvise, never; empty before Linux 6.8
    pools: tuple[HugePagePool, ...]
    hypervisor: str
    pmu: Pmu
    memory: Memory
    noise: NoiseSources
    kernel_release: str
    os: str
    arch: str
    c_compiler: str | None
    installation: str  # keyed hash of /etc/machine-id; "" without one
    # Descriptions that older versions wrote lack these.
    kvm: KvmSupport | None = None
    core: MeasuringCore | None = (
        None  # the CPU that is measured, whose caches, TLBs and clock these are
    )
    mitigations: dict[str, str] = {}
    numa_balancing: int | None = None
    nested_paging: bool | None = None  # whether the CPU offers guests a second dimension
    xen_guest: str = ""  # PV, HVM or PVH under Xen, "" elsewhere
    # whether Linux has the TLB tell processes apart; a boot with nopcid takes the CPU's flag away
    pcid: bool | None = None
    # whether a process may be scheduled as SCHED_FIFO, which none preempts that is not real-time
    # itself
    fifo: bool = False
    boot: tuple[str, ...] = ()  # words of the kernel's command line (settings.BOOT_WORDS)
    # Provenance, in no key: what else runs (background.TASKS) in words, and which boot it is.
    background: dict[str, str] = {}
    boot_id: str = ""  # keyed hash of the kernel's random id of this boot; "" where nothing says

    @property
    def is_emulated(self) -> bool:
        """Whether a program interprets each instruction (QEMU's TCG), so that what is timed is that
        program."""
        return self.hypervisor == "qemu-tcg"

    @property
    def has_nested_walks(self) -> bool | None:
        """Whether a page walk here has two dimensions; None where nothing tells (see
        cpus.nested_walks)."""
        offered = self.nested_paging or bool(self.kvm and self.kvm.tables in ("EPT", "NPT"))
        return cpus.nested_walks(self.hypervisor, offered, self.xen_guest, is_arm(self))

    @property
    def thp_setting(self) -> str:
        """What decides on transparent huge pages that a whole table maps: always, madvise or never,
        or absent.

        Since Linux 6.8 the setting of their own size, unless it says `inherit`, as it does from
        boot on.
        """
        own = self.mthp.get(page_size_name(self.thp.page_bytes or 2 << 20))
        return own if own in ("always", "madvise", "never") else self.thp.enabled


def lacking_page_kinds(host: Host) -> dict[str, str]:
    """Return the kinds of pages that a computer does not give, whatever is reserved there, each with
    the reason's code: transparent ones that are switched off or that its Linux was built without,
    pools that it does not have, and, by its size, the base page of published machines."""
    unsupported, lacking = "page-size-unsupported", dict[str, str]()
    pools = {pool.page for pool in host.pools}
    for kind, page in PAGE_KINDS.items():
        is_large = page_bytes(kind, host.base_page_bytes) > host.base_page_bytes
        has_thp = host.thp_setting != "absent" and is_large
        if not (kind in pools if page.source == "pool" else has_thp or page.source == "base"):
            lacking[kind] = unsupported
    if host.thp_setting == "never":
        lacking["thp"] = "thp-never"
    if host.base_page_bytes != PUBLISHED_BASE_PAGE_BYTES:
        lacking[format_size(PUBLISHED_BASE_PAGE_BYTES)] = unsupported
    return lacking


def base_page_bytes() -> int:
    """The page that this kernel maps where nothing larger is asked for."""
    return mmap.PAGESIZE


def _usable_cpus() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _compiler() -> str | None:
    cc = compiler_on_path()
    return cc.label if cc else None


@dataclass(frozen=True)
class Platform:
    """What is not read from files. The defaults are this process's own."""

    os: str = field(default_factory=platform.system)
    arch: str = field(default_factory=platform.machine)
    kernel_release: str = field(default_factory=platform.release)
    base_page_bytes: int = field(default_factory=base_page_bytes)
    usable_cpus: tuple[int, ...] = field(default_factory=_usable_cpus)
    rlimits: ResourceLimits = field(default_factory=ResourceLimits.here)
    # of the CPU that runs
    cpuid: CpuidReader | None = field(
        default_factory=lambda: cpuid.read if cpuid.available() else None
    )
    pinned: Callable[[int], AbstractContextManager[None]] = pinned_to_cpu  # runs on a CPU meanwhile
    probe_pmu: Callable[[], tuple[pmu.Tier, str | None]] = pmu.probe
    find_compiler: Callable[[], str | None] = _compiler
    may_use_fifo: Callable[[], bool] = cpus.may_use_fifo


def inspect_machine(
    root: Path = Path("/"), computer: Platform | None = None, cpu: int | None = None
) -> Host:
    """Return the computer whose /proc and /sys lie under `root`, in a fraction of a second.

    cpu: the one to describe, by default the one that is measured. Raises Unavailable: bad-parameter
    for one that this process may not use, cpu-gone for one that went away meanwhile.
    """
    computer = computer or Platform()
    chosen = measuring_cpu(root, computer.usable_cpus) if cpu is None else cpu
    if cpu is not None and cpu not in computer.usable_cpus:
        raise Unavailable("bad-parameter", f"--cpu {cpu} is not one that this process may use")
    present = procfs.cpu_list(procfs.text(root / "sys/devices/system/cpu/present"))
    return Host(
        **_of_cpu(root, computer, chosen or 0),
        core=None if chosen is None else cpus.core(root, chosen),
        logical_cpus=len(present) or len(computer.usable_cpus),
        usable_cpus=computer.usable_cpus,
        base_page_bytes=computer.base_page_bytes,
        thp=settings.thp(root),
        mthp=settings.mthp(root),
        pools=settings.pools(root),
        mitigations=settings.mitigations(root),
        numa_balancing=settings.numa_balancing(root),
        noise=settings.noise(root, chosen or 0),
        pmu=pmu.look(root, computer.probe_pmu)
        if computer.os == "Linux"
        else Pmu(tier="timing", reason="not-linux"),
        memory=usable_memory(root, computer.rlimits),
        kernel_release=procfs.label(computer.kernel_release),
        os=computer.os,
        arch=computer.arch,
        c_compiler=computer.find_compiler(),
        installation=cpus.installation(root),
        xen_guest=procfs.word(root / "sys/hypervisor/guest_type"),
        fifo=computer.may_use_fifo(),
        boot=settings.boot(root),
        background=background.look(root),
        boot_id=cpus.boot_id(root),
    )


def _of_cpu(root: Path, computer: Platform, cpu: int) -> dict[str, Any]:
    """The fields of a Host that one CPU states of itself: in its block of cpuinfo, in its folder of
    sysfs, by CPUID executed on it."""
    arm, read = is_arm(computer), computer.cpuid
    info = cpus.cpuinfo_block(procfs.text(root / "proc/cpuinfo", procfs.CPUINFO_BYTES), cpu)
    flags = frozenset(info.get("flags", "").split())
    try:
        with computer.pinned(cpu) if read else nullcontext():
            stated, unknown = tlbs_stated_by_cpuid(read) if read else ((), ())
            caches = cpus.caches(root, cpu) or (cpuid.caches(read) if read else ())
            la57 = cpuid.has_la57(read) if read else None
            runs_on = cpus.hypervisor(root, flags, read)
            info = info or cpus.cpuinfo_elsewhere(root, cpu, read)
    except OSError as error:
        raise Unavailable("cpu-gone", f"CPU {cpu}: {error.strerror}") from error
    if arm:
        named, levels = cpus.arm_identity(info), cpus.arm_levels(root, computer.kernel_release)
    else:
        named, levels = cpus.x86_identity(info), cpus.x86_levels(info, flags)
    return named | {
        "caches": caches,
        "la57": la57,
        "microcode": procfs.label(info.get("microcode", "")) or None,
        "tlb": stated,
        "tlb_reason": None if stated else "no-geometry",
        "tlb_unknown_descriptors": tuple(f"{code:#04x}" for code in unknown),
        "page_table_levels": levels,
        "pcid": True if arm else "pcid" in flags if flags else None,
        "gigabyte_pages": None if arm or not flags else "pdpe1gb" in flags,
        "hypervisor": runs_on,
        "nested_paging": cpus.offers_nested_paging(info, flags),
        "kvm": settings.kvm_here(root, flags),
    }


def is_x86(host: Host | Platform) -> bool:
    return host.arch in cpus.X86


def is_arm(host: Host | Platform) -> bool:
    return host.arch in cpus.ARM


# --- what a description says: the id, the state, TLBs and caches

LOADS = ("data", "unified", "load")  # the kinds of TLB that translate a load


def machine_id(host: Host) -> str:
    """An id such as "zen-4-1a2b3c4d" ([a-z0-9-]{1,64}): the microarchitecture, and a hash of what
    stays.

    Kernel, microcode, limits and load are left out: they change on one computer. See `state_digest`. A
    computer whose CPUs differ has an id for each kind that is measured, since each has a
    description of its own. Raises Unavailable: other-arch; linux-lacks where a Linux
    states too little.
    """
    if host.arch not in (*cpus.X86, *cpus.ARM):
        raise Unavailable(
            "other-arch",
            f"the kernels are written for x86-64 and arm64, not for {host.arch}",
            "Measure on one of those; `tlb watch` and the published results work here.",
        )
    if host.os == "Linux" and (
        host.cpu_model == UNKNOWN_MICROARCHITECTURE or not host.memory.total_bytes
    ):
        raise Unavailable(
            "linux-lacks",
            "it states neither the CPU nor the memory of this computer, which cannot be identified",
            "In a container, mount /proc without subset=pid; elsewhere report what /proc/cpuinfo says.",
        )
    name = host.microarchitecture
    if name == UNKNOWN_MICROARCHITECTURE:
        name = (VENDORS | {maker: maker for maker in ARM_IMPLEMENTERS.values()}).get(
            host.vendor, "cpu"
        )
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"{slug}-{cpus.hashed(json.dumps(identity_facts(host)))[:8]}"


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
    facts: dict[str, object] = {
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


def _core_facts(host: Host, core: MeasuringCore) -> dict[str, object]:
    l3_bytes = data_caches(host).get(3)
    return {"kind": core.kind, "highest_khz": core.highest_khz, "l3_bytes": l3_bytes}


def state_digest(host: Host) -> str:
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


@dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]
    version: str  # its first line of --version

    @property
    def label(self) -> str:
        """As "gcc: gcc (Debian 12.2.0-14) 12.2.0": its name without the path, and its version
        line."""
        return procfs.label(f"{Path(self.command[0]).name}: {self.version}")


@cache
def compiler_on_path() -> Compiler | None:
    """$CC, else the first of cc, gcc, clang that answers --version; None where there is none."""
    for candidate in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        try:
            command = tuple(shlex.split(candidate))
            if not command or shutil.which(command[0]) is None:
                continue
            done = run_in_own_session([*command, "--version"], timeout=PROBE_TIMEOUT_S)
        # ValueError: a quote in $CC without its pair
        except (ValueError, OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0 and done.stdout.strip():
            return Compiler(command, done.stdout.strip().splitlines()[0].strip())
    return None
