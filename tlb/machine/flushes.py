"""What this computer's CPU, kernel and hypervisor do about flushes of the TLB, as they state it
themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from tlb.machine import cpuid, cpus, host
from tlb.machine.cpuid import CpuidReader
from tlb.system import procfs

MELTDOWN = "sys/devices/system/cpu/vulnerabilities/meltdown"
# where KVM's leaves begin beside an imitated Hyper-V's, and alone
_KVM_SIGNATURES = (0x40000100, 0x40000000)
# Bits of the leaf behind the signature, Documentation/virt/kvm/x86/cpuid.rst:
# KVM_FEATURE_STEAL_TIME and KVM_FEATURE_PV_TLB_FLUSH of eax; KVM_HINTS_REALTIME of edx, with which
# a guest's CPUs always run and Linux defers nothing (arch/x86/kernel/kvm.c).
_STEAL_TIME, _PV_FLUSH, _ALWAYS_RUNS = 5, 9, 0


class FlushesDocument(BaseModel, extra="forbid", frozen=True):
    """The document `flushes` of data/. None is what nothing states."""

    schema_version: Literal[1] = 1
    state: str  # host.state_digest()
    # the kernel has page tables of its own, so that a system call changes tables too
    pti: bool | None
    # one CPU empties the TLBs of all, without an interrupt: INVLPGB, or any arm64
    broadcasts: bool | None
    defers: bool | None  # KVM offers its guest to flush a CPU that does not run when it next does


def make(profile: str) -> dict[str, Any]:
    """The document, whatever the profile. Raises Unavailable("not-linux")."""
    inspected = host.inspect()
    return ask(
        host.state_digest(inspected),
        host.is_arm(inspected),
        cpuid.read if cpuid.available() else None,
    ).model_dump(mode="json")


def ask(
    state: str, is_arm: bool, read: CpuidReader | None, root: Path = Path("/")
) -> FlushesDocument:
    """The words of the computer whose /proc and /sys lie under `root`."""
    cpuinfo = procfs.text(root / "proc/cpuinfo", procfs.CPUINFO_BYTES)
    flags = cpus.cpuinfo_block(cpuinfo, 0).get("flags", "").split()
    words = procfs.word(root / MELTDOWN)
    broadcasts: bool | None = True
    deferring: bool | None = False
    if not is_arm:
        broadcasts = "invlpgb" in flags if flags else None
        deferring = defers(read) if read else None
    pti = "PTI" in words if words else None
    return FlushesDocument(state=state, pti=pti, broadcasts=broadcasts, defers=deferring)


def defers(read: CpuidReader) -> bool:
    """Whether KVM offers its guest flushes that wait until a CPU runs again; False elsewhere."""
    if cpuid.hypervisor(read) != "kvm":
        return False
    for leaf in _KVM_SIGNATURES:
        if read(leaf, 0).ebx == int.from_bytes(b"KVMK", "little"):
            stated = read(leaf + 1, 0)
            return bool(
                stated.eax >> _STEAL_TIME & 1
                and stated.eax >> _PV_FLUSH & 1
                and not stated.edx >> _ALWAYS_RUNS & 1
            )
    return False
