"""The CPUs of this computer: which one is measured, chosen once, so that the CPU that is described is
the one that every kernel runs on; and who it is, how deep its page tables are and what runs it, from
/proc/cpuinfo and what else Linux shows, on x86-64 and on arm64."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from tlb.machine import FrozenModel, cpuid, microarchitecture, pmu
from tlb.machine.cpuid import Cache, CacheKind, CpuidReader
from tlb.machine.microarchitecture import ARM_IMPLEMENTERS, UNKNOWN_MICROARCHITECTURE
from tlb.system import procfs

# Cores of one kind differ by a tenth in their highest clock at most (favoured cores, two CCDs of
# one package); cores of two kinds by a third and more, in clock or in capacity.
_ALIKE = 0.9


# By the words of sysfs, in small letters.
_CACHE_KINDS: dict[str, CacheKind] = {
    "data": "data",
    "instruction": "instruction",
    "unified": "unified",
}


class MeasuringCore(FrozenModel):
    """The CPU that is measured."""

    number: int
    kind: str  # of a hybrid part, the PMU that the CPU belongs to, such as cpu_core; "" elsewhere
    highest_khz: int | None  # cpuinfo_max_freq; None where no driver states it, as in most guests


def measuring_cpu(root: Path, usable: Collection[int]) -> int | None:
    """The last usable CPU among the strongest: the performance cores of a hybrid part, the big
    cores of an arm64 one; None of none.

    What a reader means by their CPU is its strongest core, and interrupts tend to favour the lowest
    number.
    """
    performance = pmu.listed(root).get("cpu_core", ())
    fast = [cpu for cpu in usable if cpu in performance] or [*usable]
    strength = {cpu: _strength(_folder(root, cpu)) for cpu in fast}
    least = _ALIKE * max(strength.values(), default=0)
    return max((cpu for cpu in fast if strength[cpu] >= least), default=None)


def core(root: Path, cpu: int) -> MeasuringCore:
    """What sysfs under `root` says of a CPU."""
    pmus = pmu.listed(root)
    return MeasuringCore(
        number=cpu,
        kind=(pmu.of_cpu(cpu, pmus) or "") if len(pmus) > 1 else "",
        highest_khz=_highest_khz(_folder(root, cpu)),
    )


def caches(root: Path, cpu: int) -> tuple[Cache, ...]:
    """The caches of a CPU, as sysfs states them; () where it states none."""
    listed = []
    for _, index in procfs.numbered(_folder(root, cpu) / "cache", r"index([0-9]{1,3})"):
        kind = _CACHE_KINDS.get(procfs.word(index / "type").lower())
        level = procfs.number(index / "level")
        size_bytes = procfs.kib(procfs.text(index / "size"))
        if kind is None or level is None or size_bytes is None:
            continue
        cache = Cache(
            level=level,
            kind=kind,
            size_bytes=size_bytes,
            line_bytes=procfs.number(index / "coherency_line_size"),
            ways=procfs.number(index / "ways_of_associativity"),
            sets=procfs.number(index / "number_of_sets"),
            shared_cpus=procfs.cpu_list(procfs.text(index / "shared_cpu_list")),
        )
        listed.append(cache)
    return tuple(listed)


def _folder(root: Path, cpu: int) -> Path:
    return root / f"sys/devices/system/cpu/cpu{cpu}"


def _highest_khz(folder: Path) -> int | None:
    return procfs.number(folder / "cpufreq/cpuinfo_max_freq")


def _strength(folder: Path) -> int:
    """What Linux schedules by on arm64 (1024 for the strongest), else the highest clock; 0 where
    nothing is stated."""
    capacity = procfs.number(folder / "cpu_capacity")
    return capacity if capacity is not None else _highest_khz(folder) or 0


def may_use_fifo() -> bool:
    """Whether a process here may be scheduled as SCHED_FIFO: tried in a thread that ends at
    once."""
    allowed = []

    def ask() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # of this thread alone
            allowed.append(True)
        except OSError:  # no right to, or a control group without time for it
            pass

    if hasattr(os, "sched_setscheduler"):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    return bool(allowed)


# --- who a CPU is, how deep its page tables are, and which computer it is in

# What platform.machine() calls the architectures that are measured.
X86, ARM = ("x86_64", "AMD64"), ("aarch64", "arm64")

# What a block of cpuinfo says of who its CPU is.
_IDENTITY = (
    "vendor_id",
    "cpu family",
    "model",
    "stepping",
    "CPU implementer",
    "CPU part",
    "CPU variant",
    "CPU revision",
)


def cpuinfo_block(cpuinfo: str, cpu: int) -> dict[str, str]:
    """The block of cpuinfo that is about a CPU. Where none has its number (a container's file may
    number its CPUs anew), the first, if all of them say the same of who they are, else {}."""
    blocks = [*procfs.blocks(cpuinfo)]
    own = [info for info in blocks if info.get("processor") == str(cpu)]
    alike = len({tuple(map(info.get, _IDENTITY)) for info in blocks}) == 1
    return own[0] if own else blocks[0] if alike else {}


def x86_identity(info: Mapping[str, str]) -> dict[str, object]:
    """The fields of a Host that name its CPU, from a block of cpuinfo."""
    vendor = procfs.label(info.get("vendor_id", "")) or UNKNOWN_MICROARCHITECTURE
    family, model, stepping = (
        procfs.leading_number(info.get(key, "")) for key in ("cpu family", "model", "stepping")
    )
    # other architectures than x86-64 have other words: riscv64 uarch, ppc64 cpu
    names = (procfs.label(info.get(key, "")) for key in ("model name", "uarch", "cpu"))
    return {
        "cpu_model": next(filter(None, names), UNKNOWN_MICROARCHITECTURE),
        "vendor": vendor,
        "family": family,
        "model": model,
        "stepping": stepping,
        "microarchitecture": microarchitecture.x86_name(vendor, family, model, stepping),
    }


def arm_identity(info: Mapping[str, str]) -> dict[str, object]:
    """The same; arm64's cpuinfo shows the fields of each core's MIDR_EL1 (before Linux 3.19 in
    another form, which names none)."""
    implementer, part, variant = (
        _hex(info.get(f"CPU {key}")) for key in ("implementer", "part", "variant")
    )
    revision = procfs.leading_number(info.get("CPU revision", ""))
    maker = (
        UNKNOWN_MICROARCHITECTURE
        if implementer is None
        else ARM_IMPLEMENTERS.get(implementer, UNKNOWN_MICROARCHITECTURE)
    )
    name = microarchitecture.arm_name(implementer, part)
    model = UNKNOWN_MICROARCHITECTURE
    if implementer is not None and part is not None:
        who = f"implementer {implementer:#x}" if maker == UNKNOWN_MICROARCHITECTURE else maker
        core = f"part {part:#x}" if name == UNKNOWN_MICROARCHITECTURE else name
        model = f"{who} {core} r{variant or 0}p{revision or 0}"
    return {
        "cpu_model": model,
        "vendor": maker,
        "family": None,
        "model": part,
        "stepping": None,
        "microarchitecture": name,
    }


def cpuinfo_elsewhere(root: Path, cpu: int, read: CpuidReader | None) -> dict[str, str]:
    """What names the CPU where /proc has no cpuinfo, as cpuinfo says it: from CPUID, or on arm64
    from the MIDR_EL1 in sysfs; {} where neither is shown."""
    if read:
        return cpuid.cpuinfo(read)
    midr = _hex(procfs.word(root / f"sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1"))
    if midr is None:
        return {}
    return {
        "CPU implementer": hex(midr >> 24),
        "CPU variant": hex(midr >> 20 & 0xF),
        "CPU part": hex(midr >> 4 & 0xFFF),
        "CPU revision": str(midr & 0xF),
    }


def _hex(value: str | None) -> int | None:
    match = re.fullmatch(r"0x0{0,8}([0-9a-fA-F]{1,8})", value or "")
    return int(match[1], 16) if match else None


def x86_levels(info: Mapping[str, str], flags: Collection[str]) -> int | None:
    """Five where addresses have 57 bits and the kernel kept the flag la57: it clears it unless it
    uses it."""
    bits = re.search(r"\b([0-9]{1,3}) bits virtual", info.get("address sizes", ""))
    if bits is None:
        return None
    return 5 if int(bits[1]) == 57 and "la57" in flags else 4


def arm_levels(root: Path, kernel_release: str) -> int | None:
    """As the kernel was built. With 52-bit addresses the boot decides, which no file shows:
    None."""
    config = procfs.kernel_config(root, kernel_release)
    levels = re.search(r"^CONFIG_PGTABLE_LEVELS=([2-5])$", config, re.MULTILINE)
    return int(levels[1]) if levels and "CONFIG_ARM64_VA_BITS=52" not in config else None


def hypervisor(root: Path, flags: Collection[str], read: CpuidReader | None) -> str:
    """`none`, a name such as `kvm`, or `unknown`: what CPUID says; without it the flag on x86-64,
    and on arm64 the device tree or the firmware, where they tell."""
    if procfs.word(root / "sys/hypervisor/type") == "xen":
        return "xen"  # a paravirtual guest's CPUID may be the processor's own, which names nobody
    if read:
        return cpuid.hypervisor(read)
    if flags:
        return "unknown" if "hypervisor" in flags else "none"
    firmware = root / "sys/class/dmi/id"
    stated = (
        root / "proc/device-tree/hypervisor/compatible",
        firmware / "product_name",
        firmware / "sys_vendor",
    )
    words = " ".join(map(procfs.text, stated)).lower()
    return next((name for name in ("kvm", "xen", "qemu", "vmware") if name in words), "unknown")


def offers_nested_paging(info: Mapping[str, str], flags: Collection[str]) -> bool | None:
    """Whether this CPU offers guests tables of their own (EPT, NPT), by its block of cpuinfo; None
    where it lists no flags."""
    return bool({"ept", "npt"} & {*flags, *info.get("vmx flags", "").split()}) if flags else None


# These run guests on the processor's second dimension or not at all: Hyper-V since Windows Server
# 2016 (its system requirements name second-level address translation), bhyve always (FreeBSD
# Handbook, bhyve: EPT or NPT).
_NESTED_ALWAYS = ("hyper-v", "bhyve")
_STAGE_2 = ("kvm", "xen", "vmware", "hyper-v")


def nested_walks(hypervisor: str, offers: bool, xen_guest: str, arm: bool) -> bool | None:
    """Whether a page walk has two dimensions under this hypervisor; None where a guest has no means
    to know.

    offers: whether the CPU that it shows offers such walks to guests of its own, which hypervisors
    let it only while they use them themselves (KVM: nested_vmx_setup_secondary_ctls() and
    svm_set_cpu_caps() ask for ept and npt). On arm64 a guest's tables are stage 1, and the
    processor walks stage 2 behind it.
    """
    if hypervisor in ("none", "qemu-tcg"):  # which emulates the walk, in software
        return False
    if hypervisor == "xen" and xen_guest == "PV":  # its tables hold the machine's own addresses
        return False
    is_nested = offers or hypervisor in _NESTED_ALWAYS or (arm and hypervisor in _STAGE_2)
    return True if is_nested else None


# machine-id(5) asks programs to show a keyed hash of the id, never the id itself. A boot's id names
# nobody, and is hashed alike.
_KEY = b"every load is two loads: machine"


def hashed(written: str) -> str:
    """16 hex digits that only this project's hash makes of a text; "" of an empty one."""
    return hmac.new(_KEY, written.encode(), hashlib.sha256).hexdigest()[:16] if written else ""


def installation(root: Path) -> str:
    """Which installation of the system this is; "" without a machine-id."""
    return hashed(procfs.word(root / "etc/machine-id"))


def boot_id(root: Path = Path("/")) -> str:
    """Which boot of Linux this is; "" where nothing says. Virtual machines made from one image have
    one machine-id, and so one id in data/; their boots differ, unless both go on from one snapshot.
    """
    return hashed(procfs.word(root / "proc/sys/kernel/random/boot_id"))
