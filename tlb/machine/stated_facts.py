"""What this computer states of itself and chapters keep as documents: what CPU, kernel and hypervisor
do about flushes of the TLB, and the modes and flags that Linux and Java list."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from tlb.machine import cpuid, cpus, host
from tlb.machine.cpuid import CpuidReader
from tlb.system import procfs
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session

MELTDOWN = "sys/devices/system/cpu/vulnerabilities/meltdown"
# where KVM's leaves begin beside an imitated Hyper-V's, and alone
_KVM_SIGNATURES = (0x40000100, 0x40000000)
# Bits of the leaf behind the signature, Documentation/virt/kvm/x86/cpuid.rst:
# KVM_FEATURE_STEAL_TIME and KVM_FEATURE_PV_TLB_FLUSH of eax; KVM_HINTS_REALTIME of edx, with which
# a guest's CPUs always run and Linux defers nothing (arch/x86/kernel/kvm.c).
_STEAL_TIME, _PV_FLUSH, _ALWAYS_RUNS = 5, 9, 0


class TlbFlushBehaviourDocument(BaseModel, extra="forbid", frozen=True):
    """The document `flushes` of data/. None is what nothing states."""

    schema_version: Literal[1] = 1
    state: str  # host.state_digest()
    # the kernel has page tables of its own, so that a system call changes tables too
    pti: bool | None
    # one CPU empties the TLBs of all, without an interrupt: INVLPGB, or any arm64
    broadcasts: bool | None
    defers: bool | None  # KVM offers its guest to flush a CPU that does not run when it next does


def make_flushes(profile: str) -> dict[str, Any]:
    """The document, whatever the profile. Raises Unavailable("not-linux")."""
    inspected = host.inspect_machine()
    return ask_flushes(
        host.state_digest(inspected),
        host.is_arm(inspected),
        cpuid.read if cpuid.available() else None,
    ).model_dump(mode="json")


def ask_flushes(
    state: str, is_arm: bool, read: CpuidReader | None, root: Path = Path("/")
) -> TlbFlushBehaviourDocument:
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
    return TlbFlushBehaviourDocument(state=state, pti=pti, broadcasts=broadcasts, defers=deferring)


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


# --- modes of Linux and flags of Java

DEFRAG = "/sys/kernel/mm/transparent_hugepage/defrag"
JAVA = ("java", "-XX:+UnlockDiagnosticVMOptions", "-XX:+PrintFlagsFinal", "-version")
JAVA_FLAGS = ("UseTransparentHugePages", "UseLargePagesIndividualAllocation")
# those that give a heap large pages
JAVA_HUGE_PAGE_FLAGS = ("UseLargePages", "UseTransparentHugePages", "UseHugeTLBFS")


class JavaFlagsDocument(BaseModel, extra="forbid", frozen=True):
    """The document `flags` of data/. java_flags: of JAVA_FLAGS those that Java lists; java_on: of
    JAVA_HUGE_PAGE_FLAGS those that it has on where nobody asks. None without a Java that answers, java_on
    also where an older version asked."""

    schema_version: Literal[1] = 1
    state: str  # host.state_digest()
    defrag_modes: tuple[str, ...]
    java_flags: tuple[str, ...] | None
    java_on: tuple[str, ...] | None = None


def make_flags(profile: str) -> dict[str, Any]:
    """The document, whatever the profile. Raises Unavailable("not-linux")."""
    return ask_flags(host.state_digest(host.inspect_machine())).model_dump(mode="json")


def ask_flags(
    state: str, root: Path = Path("/"), java: tuple[str, ...] = JAVA
) -> JavaFlagsDocument:
    """The words of this computer."""
    modes = tuple(procfs.text(root / DEFRAG.lstrip("/")).replace("[", "").replace("]", "").split())
    known, on = None, None
    with suppress(OSError, subprocess.TimeoutExpired):
        printed = run_in_own_session(java, timeout=PROBE_TIMEOUT_S).stdout
        if listed := dict(re.findall(r"^\s*\w+\s+(\w+)\s+:?=\s+(\S+)", printed, re.MULTILINE)):
            known = tuple(flag for flag in JAVA_FLAGS if flag in listed)
            on = tuple(flag for flag in JAVA_HUGE_PAGE_FLAGS if listed.get(flag) == "true")
    return JavaFlagsDocument(state=state, defrag_modes=modes, java_flags=known, java_on=on)
