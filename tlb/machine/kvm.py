"""What translates the memory of a guest that this computer would run: KVM's module, and the tables
that it keeps."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal

from tlb.machine.facts import FrozenModel
from tlb.system import procfs

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


class Kvm(FrozenModel):
    """KVM here. tables: those of a second dimension that the CPU walks; "shadow", one dimension
    that KVM writes itself; "unknown" of a module that does not say; "none" without a module."""

    device: bool  # whether there is a /dev/kvm, whoever may open it
    module: str  # kvm_intel, kvm_amd, kvm_pvm, ...; "" for none
    tables: Tables
    # Whether the page that holds a guest's code is mapped in small pieces (against an erratum of
    # Intel's); None where nothing says.
    nx_huge_pages: bool | None = None


def look(root: Path, flags: Collection[str]) -> Kvm:
    """KVM of the system under `root`, on a CPU with these flags of cpuinfo."""
    modules = [name for name in procfs.names(root / "sys/module") if name.startswith("kvm_")]
    serving = [name for name in modules if name not in _HARDWARE or _HARDWARE[name][0] in flags]
    module = procfs.label(serving[0]) if serving else ""
    pieces = procfs.word(root / "sys/module/kvm/parameters/nx_huge_pages")  # Y, N, or never
    return Kvm(
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


def kvm_in_words(state: Kvm) -> str:
    """One line for people: "kvm_amd with NPT"."""
    if not state.module:
        return "no module" + ("" if state.device else ", no /dev/kvm")
    tables = {
        "shadow": "with shadow page tables",
        "unknown": "which does not say what translates",
    }.get(state.tables, f"with {state.tables}")
    return f"{state.module} {tables}" + ("" if state.device else ", but no /dev/kvm")
