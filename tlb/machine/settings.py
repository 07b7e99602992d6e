"""What an administrator sets and a measurement depends on: huge pages, NUMA balancing, the clock,
SMT, mitigations, and what translates the memory of a guest (KVM)."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from tlb.machine import FrozenModel
from tlb.system import procfs
from tlb.system.reasons import Unavailable
from tlb.system.units import page_size_name

_MM = Path("sys/kernel/mm")
_CPU = Path("sys/devices/system/cpu")


class ThpSettings(FrozenModel):
    """Transparent huge pages: the words in brackets of the settings for all sizes, khugepaged's
    settings, and how large the page is that a whole table maps."""

    enabled: str  # always, madvise, never; absent where the kernel has none
    defrag: str
    khugepaged: dict[str, int] = {}
    # 2 MiB with base pages of 4 KiB, 512 MiB with those of 64; None where it is not stated
    page_bytes: int | None = None


class HugePagePool(FrozenModel):
    """The pool of one huge page size, in pages."""

    page: str
    total: int
    free: int
    reserved: int
    surplus: int

    @property
    def left(self) -> int:
        """Pages for a new mapping: reserved ones are free as well, but promised to mappings that
        have not touched them yet."""
        return max(0, self.free - self.reserved)


class NoiseSources(FrozenModel):
    """What may disturb a measurement. None is what the system does not state."""

    governor: str | None
    smt: str  # on, off, notsupported, ...: the kernel's words, or "unknown"
    turbo: bool | None
    load1: float | None


# Settings only: khugepaged's folder also has counters, and those change by themselves.
_KHUGEPAGED = (
    "defrag",
    "max_ptes_none",
    "max_ptes_shared",
    "max_ptes_swap",
    "pages_to_scan",
    "alloc_sleep_millisecs",
    "scan_sleep_millisecs",
)


def thp(root: Path) -> ThpSettings:
    folder = root / _MM / "transparent_hugepage"
    settings = {name: procfs.number(folder / "khugepaged" / name) for name in _KHUGEPAGED}
    return ThpSettings(
        enabled=procfs.chosen(folder / "enabled"),
        defrag=procfs.chosen(folder / "defrag"),
        khugepaged={name: value for name, value in settings.items() if value is not None},
        page_bytes=procfs.number(folder / "hpage_pmd_size"),
    )


def has_thp(root: Path = Path("/")) -> bool:
    """Return whether this Linux kernel was built with transparent huge pages."""
    return procfs.chosen(root / _MM / "transparent_hugepage/enabled") != "absent"


def require_thp(root: Path = Path("/")) -> None:
    """Raise Unavailable unless a program gets transparent huge pages where it asks for them:
    linux-lacks, thp-never."""
    path = root / _MM / "transparent_hugepage/enabled"
    if not has_thp(root):
        raise Unavailable("linux-lacks", f"there is no {path}")
    if (setting := procfs.chosen(path)) not in ("always", "madvise"):
        raise Unavailable("thp-never", f"{path}: {setting}")


def mthp(root: Path) -> dict[str, str]:
    """Page size -> the setting of that size alone (Linux 6.8), of which `inherit` means that of all
    sizes."""
    sizes = procfs.numbered(root / _MM / "transparent_hugepage", r"hugepages-([0-9]{1,9})kB")
    settings = {page_size_name(kib * 1024): procfs.chosen(path / "enabled") for kib, path in sizes}
    # Sizes without the file are for shared memory only.
    return {page: setting for page, setting in settings.items() if setting != "absent"}


# Pool's fields, and the beginnings of the names of the files that they are read from.
POOL_FILES = {"total": "nr", "free": "free", "reserved": "resv", "surplus": "surplus"}


def pools(root: Path) -> tuple[HugePagePool, ...]:
    return tuple(
        HugePagePool(
            page=page_size_name(kib * 1024),
            **{
                name: procfs.number(path / f"{file}_hugepages") or 0
                for name, file in POOL_FILES.items()
            },
        )
        for kib, path in procfs.numbered(root / _MM / "hugepages", r"hugepages-([0-9]{1,9})kB")
    )


def noise(root: Path, cpu: int) -> NoiseSources:
    """cpu: whose clock counts."""
    no_turbo = procfs.number(root / _CPU / "intel_pstate/no_turbo")
    boost = procfs.number(root / _CPU / "cpufreq/boost")
    load = re.match(r"[0-9]{1,6}\.[0-9]{1,2}\b", procfs.text(root / "proc/loadavg"))
    return NoiseSources(
        governor=procfs.word(root / _CPU / f"cpu{cpu}/cpufreq/scaling_governor") or None,
        smt=procfs.word(root / _CPU / "smt/control") or "unknown",
        turbo=no_turbo == 0 if no_turbo is not None else boost == 1 if boost is not None else None,
        load1=float(load[0]) if load else None,
    )


# The words of a kernel's command line that change what a translation, a switch or a fault costs.
# The others name disks and hosts, and are nobody's business. What mitigations= does is read by itself.
BOOT_WORDS = ("no5lvl", "nopti", "pti", "kpti", "nopcid", "noinvpcid")


def boot(root: Path) -> tuple[str, ...]:
    """Of the kernel's command line the BOOT_WORDS with their values, sorted: ("no5lvl",
    "pti=off")."""
    words = procfs.text(root / "proc/cmdline").split()
    return tuple(
        sorted({procfs.label(word) for word in words if word.partition("=")[0] in BOOT_WORDS})
    )


def numa_balancing(root: Path) -> int | None:
    """0 off, 1 on, 2 for tiers of memory; None where the kernel has none."""
    return procfs.number(root / "proc/sys/kernel/numa_balancing")


def switches(root: Path, cpu: int) -> tuple:
    """What an administrator may switch between two processes, read in a few milliseconds: of the
    state of a machine its part that no boot is needed to change."""
    now = noise(root, cpu)
    pages = thp(root), tuple(mthp(root).items()), numa_balancing(root)
    return *pages, now.governor, now.smt, now.turbo


# What KVM adds to a line as its module is loaded or a guest runs: part of no setting of this
# computer's.
_KVMS_PART = re.compile(r"; VMX:.*")


def mitigations(root: Path) -> dict[str, str]:
    """Weakness of the CPU -> what the kernel does about it, in its words: "Mitigation: PTI" flushes
    more of the TLB than "Not affected".

    itlb_multihit is left out, for it changes with whether a guest runs; what it would say is
    `KvmSupport.nx_huge_pages`.
    """
    folder = root / _CPU / "vulnerabilities"
    words = {
        procfs.label(name): _KVMS_PART.sub("", procfs.word(folder / name))
        for name in procfs.names(folder)
        if name != "itlb_multihit"
    }
    return {name: word for name, word in words.items() if word}


# --- KVM: its module, and the tables that it keeps

Tables = Literal["EPT", "NPT", "shadow", "unknown", "none"]

# Module -> the flag of a CPU that it needs, the parameter that says whether the CPU walks two
# dimensions, and their name. A module that is built in and has parameters has its folder on every
# CPU, so the folder alone proves nothing.
_HARDWARE: dict[str, tuple[str, str, Tables]] = {
    "kvm_intel": ("vmx", "ept", "EPT"),
    "kvm_amd": ("svm", "npt", "NPT"),
}
# Assumes no hardware virtualization, so it has no second dimension to use (Huang et al., SOSP
# 2023).
_SHADOWING = "kvm_pvm"
_YES, _NO = ("Y", "1"), ("N", "0")  # a bool; npt was an int in older kernels (arch/x86/kvm/svm.c)


class KvmSupport(FrozenModel):
    """KVM here. tables: those of a second dimension that the CPU walks; "shadow", one dimension
    that KVM writes itself; "unknown" of a module that does not say; "none" without a module."""

    device: bool  # whether there is a /dev/kvm, whoever may open it
    module: str  # kvm_intel, kvm_amd, kvm_pvm, ...; "" for none
    tables: Tables
    # Whether the page that holds a guest's code is mapped in small pieces (against an erratum of
    # Intel's); None where nothing says.
    nx_huge_pages: bool | None = None


def kvm_here(root: Path, flags: Collection[str]) -> KvmSupport:
    """KVM of the system under `root`, on a CPU with these flags of cpuinfo."""
    modules = [name for name in procfs.names(root / "sys/module") if name.startswith("kvm_")]
    serving = [name for name in modules if name not in _HARDWARE or _HARDWARE[name][0] in flags]
    module = procfs.label(serving[0]) if serving else ""
    pieces = procfs.word(root / "sys/module/kvm/parameters/nx_huge_pages")  # Y, N, or never
    return KvmSupport(
        device=(root / "dev/kvm").exists(),
        module=module,
        tables=_tables(root, module),
        nx_huge_pages=pieces in _YES if pieces else None,
    )


def _tables(root: Path, module: str) -> Tables:
    if module not in _HARDWARE:
        return "shadow" if module == _SHADOWING else "unknown" if module else "none"
    _, parameter, name = _HARDWARE[module]
    setting = procfs.word(root / "sys/module" / module / "parameters" / parameter)
    return name if setting in _YES else "shadow" if setting in _NO else "unknown"


def kvm_in_words(state: KvmSupport) -> str:
    """One line for people: "kvm_amd with NPT"."""
    if not state.module:
        return "no module" + ("" if state.device else ", no /dev/kvm")
    tables = {
        "shadow": "with shadow page tables",
        "unknown": "which does not say what translates",
    }.get(state.tables, f"with {state.tables}")
    return f"{state.module} {tables}" + ("" if state.device else ", but no /dev/kvm")
