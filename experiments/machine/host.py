"""What computer this is: CPU, caches, TLB, paging, huge pages, hypervisor, counters, limits, noise; its id.

Everything read from /proc and /sys lies under a root, and everything else comes from a `Platform`, so a test describes any computer.
A field that is absent or unreadable is None, "absent" or "unknown": never an error.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from experiments.machine import cpuid, identity, kvm, pmu
from experiments.machine.compiler import compiler
from experiments.machine.cpuid import Cache, Reader
from experiments.machine.facts import Facts
from experiments.machine.kvm import Kvm
from experiments.machine.memory import Memory, Rlimits, usable_memory
from experiments.machine.microarchitecture import IMPLEMENTERS, UNKNOWN, VENDORS
from experiments.machine.pmu import Pmu
from experiments.machine.tlb import Tlb, tlbs
from experiments.system import procfs
from experiments.words.units import page_name

LOADS = ("data", "unified", "load")  # the kinds of TLB that translate a load


class Thp(Facts):
    """Transparent huge pages of the PMD size: the words in brackets, and khugepaged's settings."""

    enabled: str  # always, madvise, never; absent where the kernel has none
    defrag: str
    khugepaged: dict[str, int] = {}


class Pool(Facts):
    """The pool of one huge page size, in pages."""

    page: str
    total: int
    free: int
    reserved: int
    surplus: int


class Noise(Facts):
    """What may disturb a measurement. None is what the system does not state."""

    governor: str | None
    smt: str  # on, off, notsupported, ...: the kernel's words, or "unknown"
    turbo: bool | None
    load1: float | None


class Host(Facts):
    """A computer, as far as measurements of address translation depend on it. Holds no host or user name."""

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
    thp: Thp
    mthp: dict[str, str]  # page size -> always, inherit, madvise, never; empty before Linux 6.8
    pools: tuple[Pool, ...]
    hypervisor: str
    pmu: Pmu
    memory: Memory
    noise: Noise
    kernel_release: str
    os: str
    arch: str
    c_compiler: str | None
    installation: str  # keyed hash of /etc/machine-id; "" without one
    kvm: Kvm | None = None  # None where an older version wrote the description


def base_page_bytes() -> int:
    """The page that this kernel maps where nothing larger is asked for."""
    return os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def _usable_cpus() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _compiler() -> str | None:
    """The compiler as "gcc: gcc (Debian 12.2.0-14) 12.2.0": its name without the path, and its version line."""
    cc = compiler()
    return procfs.label(f"{Path(cc.command[0]).name}: {cc.version}") if cc else None


@dataclass(frozen=True)
class Platform:
    """What is not read from files. The defaults are this process's own."""

    os: str = field(default_factory=platform.system)
    arch: str = field(default_factory=platform.machine)
    kernel_release: str = field(default_factory=platform.release)
    base_page_bytes: int = field(default_factory=base_page_bytes)
    usable_cpus: tuple[int, ...] = field(default_factory=_usable_cpus)
    rlimits: Rlimits = field(default_factory=Rlimits.here)
    cpuid: Reader | None = field(default_factory=lambda: cpuid.read if cpuid.available() else None)
    probe_pmu: Callable[[], tuple[pmu.Tier, str | None]] = pmu.probe
    find_compiler: Callable[[], str | None] = _compiler


def inspect(root: Path = Path("/"), computer: Platform | None = None) -> Host:
    """The computer whose /proc and /sys lie under `root`. Takes a fraction of a second, most of it perf's."""
    computer = computer or Platform()
    arm = is_arm(computer)
    info = procfs.fields(procfs.text(root / "proc/cpuinfo"))
    flags = frozenset(info.get("flags", "").split())
    stated, unknown = tlbs(computer.cpuid) if computer.cpuid else ((), ())
    system = root / "sys/devices/system/cpu"
    cpu = system / f"cpu{min(computer.usable_cpus, default=0)}"
    present = procfs.cpu_list(procfs.text(system / "present"))
    return Host(
        **(identity.arm(info) if arm else identity.x86(info)),
        microcode=procfs.label(info.get("microcode", "")) or None,
        logical_cpus=len(present) or len(computer.usable_cpus),
        usable_cpus=computer.usable_cpus,
        caches=_caches(cpu / "cache") or (cpuid.caches(computer.cpuid) if computer.cpuid else ()),
        tlb=stated,
        tlb_reason=None if stated else "no-geometry" if computer.cpuid else "no-cpuid",
        tlb_unknown_descriptors=tuple(f"{code:#04x}" for code in unknown),
        page_table_levels=identity.arm_levels(root, computer.kernel_release) if arm else identity.x86_levels(info, flags),
        la57=cpuid.has_la57(computer.cpuid) if computer.cpuid else None,
        gigabyte_pages=None if arm or not flags else "pdpe1gb" in flags,
        base_page_bytes=computer.base_page_bytes,
        thp=_thp(root / "sys/kernel/mm/transparent_hugepage"),
        mthp=_mthp(root / "sys/kernel/mm/transparent_hugepage"),
        pools=_pools(root / "sys/kernel/mm/hugepages"),
        hypervisor=cpuid.hypervisor(computer.cpuid) if computer.cpuid else identity.hypervisor(root, flags),
        pmu=pmu.look(root, computer.probe_pmu) if computer.os == "Linux" else Pmu(tier="timing", reason="not-linux"),
        memory=usable_memory(root, computer.rlimits),
        noise=_noise(root, system, cpu),
        kernel_release=procfs.label(computer.kernel_release),
        os=computer.os,
        arch=computer.arch,
        c_compiler=computer.find_compiler(),
        installation=_installation(root),
        kvm=kvm.look(root, flags),
    )


# machine-id(5) asks programs to show a keyed hash of the id, never the id itself.
_KEY = b"every load is two loads: machine"


def _installation(root: Path) -> str:
    written = procfs.word(root / "etc/machine-id")
    return hmac.new(_KEY, written.encode(), hashlib.sha256).hexdigest()[:16] if written else ""


def machine_id(host: Host) -> str:
    """An id such as "zen-4-1a2b3c4d" ([a-z0-9-]{1,64}): the microarchitecture, and a hash of what stays.

    Kernel, microcode, limits and load are left out: they change on one computer. See `state`.
    """
    name = host.microarchitecture
    if name == UNKNOWN:
        name = (VENDORS | {maker: maker for maker in IMPLEMENTERS.values()}).get(host.vendor, "cpu")
    facts = [
        host.cpu_model,
        [host.family, host.model, host.stepping, host.logical_cpus, host.hypervisor, host.installation],
        [[c.level, c.kind, c.size_bytes, c.line_bytes, c.ways, c.sets] for c in host.caches],
        round(host.memory.total_bytes / 2**30),  # the kernel keeps some for itself, by version more or less
    ]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"{slug}-{hmac.new(_KEY, json.dumps(facts).encode(), hashlib.sha256).hexdigest()[:8]}"


def state(host: Host) -> str:
    """12 hex digits of what changes on one computer, and its numbers with it: kernel, microcode, THP."""
    facts = [host.kernel_release, host.microcode, host.thp.model_dump(), host.mthp]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _caches(folder: Path) -> tuple[Cache, ...]:
    caches = []
    for _, index in procfs.numbered(folder, r"index([0-9]{1,3})"):
        kind, level = procfs.word(index / "type").lower(), procfs.number(index / "level")
        size_bytes = procfs.kib(procfs.text(index / "size"))
        if kind not in ("data", "instruction", "unified") or level is None or size_bytes is None:
            continue
        details = ("coherency_line_size", "ways_of_associativity", "number_of_sets")
        line_bytes, ways, sets = (procfs.number(index / name) for name in details)
        cpus = procfs.cpu_list(procfs.text(index / "shared_cpu_list"))
        caches.append(Cache(level=level, kind=kind, size_bytes=size_bytes, line_bytes=line_bytes, ways=ways, sets=sets, shared_cpus=cpus))
    return tuple(caches)


# Settings only: khugepaged's folder also has counters, and those change by themselves.
_KHUGEPAGED = ("defrag", "max_ptes_none", "max_ptes_shared", "max_ptes_swap", "pages_to_scan",
               "alloc_sleep_millisecs", "scan_sleep_millisecs")


def _thp(folder: Path) -> Thp:
    settings = {name: procfs.number(folder / "khugepaged" / name) for name in _KHUGEPAGED}
    return Thp(enabled=procfs.chosen(folder / "enabled"), defrag=procfs.chosen(folder / "defrag"),
               khugepaged={name: value for name, value in settings.items() if value is not None})


def _mthp(folder: Path) -> dict[str, str]:
    sizes = procfs.numbered(folder, r"hugepages-([0-9]{1,9})kB")
    settings = {page_name(kib * 1024): procfs.chosen(path / "enabled") for kib, path in sizes}
    # Sizes without the file are for shared memory only.
    return {page: setting for page, setting in settings.items() if setting != "absent"}


# Pool's fields, and the beginnings of the names of the files that they are read from.
POOL_FILES = {"total": "nr", "free": "free", "reserved": "resv", "surplus": "surplus"}


def _pools(folder: Path) -> tuple[Pool, ...]:
    return tuple(Pool(page=page_name(kib * 1024), **{
        name: procfs.number(path / f"{file}_hugepages") or 0 for name, file in POOL_FILES.items()})
        for kib, path in procfs.numbered(folder, r"hugepages-([0-9]{1,9})kB"))


def _noise(root: Path, system: Path, cpu: Path) -> Noise:
    no_turbo = procfs.number(system / "intel_pstate/no_turbo")
    boost = procfs.number(system / "cpufreq/boost")
    load = re.match(r"[0-9]{1,6}\.[0-9]{1,2}\b", procfs.text(root / "proc/loadavg"))
    return Noise(
        governor=procfs.word(cpu / "cpufreq/scaling_governor") or None,
        smt=procfs.word(system / "smt/control") or "unknown",
        turbo=no_turbo == 0 if no_turbo is not None else boost == 1 if boost is not None else None,
        load1=float(load[0]) if load else None,
    )


# --- what others ask of a description


def data_tlbs(host: Host, page: str = "4k") -> list[Tlb]:
    """The TLB levels that translate loads of a page size, as CPUID states them; one a level, empty where it is silent.

    Two parts of one level that both hold 4 KiB pages (Ice Lake: one shares with 2 MiB, one with 1 GiB) are one capacity.
    """
    by_level: dict[int, Tlb] = {}
    for tlb in host.tlb:
        if page in tlb.pages and tlb.kind in LOADS and tlb.entries:
            if before := by_level.get(tlb.level):
                tlb = tlb.model_copy(update={"entries": before.entries + tlb.entries, "ways": None, "ways_between": None})
            by_level[tlb.level] = tlb
    return [by_level[level] for level in sorted(by_level)]


def tlb_entries(host: Host) -> list[int]:
    """4 KiB data entries of each TLB level as CPUID states them, ascending; empty where it is silent."""
    return [tlb.entries for tlb in data_tlbs(host)]


def data_caches(host: Host) -> dict[int, int]:
    """Level -> bytes of the data caches that sysfs or CPUID state; of two of a level the first."""
    return {cache.level: cache.size_bytes for cache in reversed(host.caches) if cache.kind != "instruction"}


def is_x86(host: Host | Platform) -> bool:
    return host.arch in ("x86_64", "AMD64")


def is_arm(host: Host | Platform) -> bool:
    return host.arch in ("aarch64", "arm64")
