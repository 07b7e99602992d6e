"""Who a CPU is and how deep its page tables are, from /proc/cpuinfo and what else Linux shows, on x86-64 and on arm64."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from experiments.machine import microarchitecture
from experiments.machine.microarchitecture import IMPLEMENTERS, UNKNOWN
from experiments.system import procfs


def x86(info: Mapping[str, str]) -> dict[str, object]:
    """The fields of a Host that name its CPU, from a block of cpuinfo."""
    vendor = procfs.label(info.get("vendor_id", "")) or UNKNOWN
    family, model, stepping = (procfs.leading_number(info.get(key, "")) for key in ("cpu family", "model", "stepping"))
    return {"cpu_model": procfs.label(info.get("model name", "")) or UNKNOWN, "vendor": vendor, "family": family, "model": model,
            "stepping": stepping, "microarchitecture": microarchitecture.x86_name(vendor, family, model, stepping)}


def arm(info: Mapping[str, str]) -> dict[str, object]:
    """The same; arm64's cpuinfo shows the fields of MIDR_EL1 of each core, and the first core stands for all."""
    implementer, part, variant = (_hex(info.get(f"CPU {key}")) for key in ("implementer", "part", "variant"))
    revision = procfs.leading_number(info.get("CPU revision", ""))
    maker, name = IMPLEMENTERS.get(implementer, UNKNOWN), microarchitecture.arm_name(implementer, part)
    core = f"part {part:#x}" if name == UNKNOWN and part is not None else name
    return {"cpu_model": f"{maker} {core} r{variant or 0}p{revision or 0}", "vendor": maker, "family": None, "model": part,
            "stepping": None, "microarchitecture": name}


def _hex(value: str | None) -> int | None:
    match = re.fullmatch(r"0x([0-9a-fA-F]{1,8})", value or "")
    return int(match[1], 16) if match else None


def x86_levels(info: Mapping[str, str], flags: Collection[str]) -> int | None:
    """Five where addresses have 57 bits and the kernel kept the flag la57: it clears it unless it uses it."""
    bits = re.search(r"\b([0-9]{1,3}) bits virtual", info.get("address sizes", ""))
    if bits is None:
        return None
    return 5 if int(bits[1]) == 57 and "la57" in flags else 4


def arm_levels(root: Path, kernel_release: str) -> int | None:
    """As the kernel was built. With 52-bit addresses the boot decides, which no file shows: None."""
    config = procfs.kernel_config(root, kernel_release)
    levels = re.search(r"^CONFIG_PGTABLE_LEVELS=([2-5])$", config, re.MULTILINE)
    return int(levels[1]) if levels and "CONFIG_ARM64_VA_BITS=52" not in config else None


def hypervisor(root: Path, flags: Collection[str]) -> str:
    """Without CPUID: the flag on x86-64; on arm64 the device tree or the firmware, where they tell."""
    if flags:
        return "unknown" if "hypervisor" in flags else "none"
    firmware = root / "sys/class/dmi/id"
    stated = (root / "proc/device-tree/hypervisor/compatible", firmware / "product_name", firmware / "sys_vendor")
    words = " ".join(map(procfs.text, stated)).lower()
    return next((name for name in ("kvm", "xen", "qemu", "vmware") if name in words), "unknown")
