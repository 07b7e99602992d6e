"""Names of published machines for headings and notes: what each is, in place of its folder's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tlb.measure.store import Store
from tlb.system import procfs
from tlb.system.reasons import if_available

THIS_COMPUTER = "this computer"  # what a page calls the reader's own, whatever its model
_FAMILIES = ("EPYC", "Ryzen", "Xeon", "Core", "Neoverse", "Graviton", "Ampere")
_MOST_CHARS = 40  # what a phone has room for


def machine_name(store: Store, machine: str) -> str:
    """Return what a machine of a store is, as "Zen 4, EPYC guest", or its folder's name if that is
    not known. Two machines never share a name: the folder's number tells those apart that would."""
    kinds = {name: _kind(if_available(store.read_machine, name) or {}) for name in store.machines()}
    kind = kinds.get(machine, "")
    if not kind:
        return machine
    is_alone = Counter(kinds.values())[kind] == 1
    return kind if is_alone else f"{kind} {machine.rpartition('-')[2]}"


def short_machine_names(store: Store) -> dict[str, str]:
    """Return the microarchitecture of each machine of a store, as "Zen 4", for heads of columns; the
    name of `machine_name` for two of one microarchitecture."""
    names = {machine: machine_name(store, machine) for machine in store.machines()}
    short = {machine: name.partition(",")[0] for machine, name in names.items()}
    often = Counter(short.values())
    return {
        machine: name if often[name] == 1 else names[machine] for machine, name in short.items()
    }


def _kind(stated: Mapping[str, Any]) -> str:
    core = procfs.label(str(stated.get("microarchitecture", "")))
    if core in ("", "unknown"):
        return ""
    model = str(stated.get("cpu_model", ""))
    family = next((one for one in _FAMILIES if one.lower() in model.lower()), "")
    is_guest = stated.get("hypervisor", "unknown") not in ("none", "unknown")
    more = " ".join(filter(None, [family, "guest" if is_guest else ""]))
    return (f"{core}, {more}" if more else core)[:_MOST_CHARS]
