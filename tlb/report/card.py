"""What pages and data cards call a machine, and the card itself: what a machine's folder has, and how
it was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tlb.machine.host import Host
from tlb.measure.row_tables import point_columns, rows_of_last_campaign
from tlb.measure.store import Store
from tlb.stats.curves import counter_curve, missing_counter_reason
from tlb.stats.intervals import summarise
from tlb.system import procfs
from tlb.system.files import disk_errors_as_unavailable
from tlb.system.reasons import explain_reason, none_if_unavailable
from tlb.system.units import format_size

_CARD = """# {name}

{cpu} ({microarchitecture}), {cpus} CPUs, {memory} of memory, {where}.
Linux {release}, {arch}; compiler: {compiler}; THP {thp}.

| experiment | kernel | engine | records | noisy | points | processes a point | unstable points | \
measured (UTC) |
|---|---|---|---|---|---|---|---|---|
{table}
The rows are in `rows.parquet` (on this computer in `rows.sqlite` until they are published); \
`data/README.md` explains each
column. A row is one point of one mapping. `experiments` says which experiments asked for its \
point; a row of two experiments
counts here for both. Points and what follows are of an experiment's last campaign with a kernel, which \
pages show. An unstable point
spreads by more than 5 % (interquartile range over median) over its processes; it is kept. A noisy \
record is of a process that
something disturbed; its field `noisy` says what. (Records from before that field have no mark.)
`machine.json` is what `tlb inspect --json` said.

What it must not be taken for:

- {dimensions}
- {counters}
- Another machine's numbers, even of the same model: the compiler, the kernel and the neighbours \
differ.
"""
_GUEST = (
    "A guest's numbers: they hold the price of two-dimensional walks and of the host's page size."
)
_METAL = "Bare metal, so it says nothing of what a guest on this processor would pay."
_EITHER = (
    "Bare metal's or a guest's numbers, which could not be determined: a guest's hold the price of "
    "two-dimensional walks and of the host's page size."
)


def write(store: Store, machine: str, host: Host) -> None:
    """Write the card beside the rows. Raises Unavailable: disk-refused."""
    path = store.root / machine / "README.md"
    with disk_errors_as_unavailable(path):
        path.write_text(card(store, machine, host))


def _counts(rows: pd.DataFrame) -> str:
    """Return the cells of one kernel and engine of an experiment."""
    points = summarise(rows_of_last_campaign(rows), point_columns(rows))
    n, start = points["n"], rows["started_at"]
    return (
        f"{len(rows)} | {int((rows['noisy'] != '').sum())} | {len(points)} | {n.min()} to {n.max()}"
        f" | {int(points['unstable'].sum())} | {start.min()} to {start.max()}"
    )


def card(store: Store, machine: str, host: Host) -> str:
    """Return Markdown for data/<machine>/README.md, with the experiments that have rows."""
    table = ""
    where, dimensions = {
        "none": ("bare metal", _METAL),
        "unknown": ("bare metal or a guest", _EITHER),
    }.get(host.hypervisor, (f"a guest under {host.hypervisor}", _GUEST))
    frames = {name: store.load(machine, name) for name in store.experiments(machine)}
    for name, frame in frames.items():
        for (kernel, engine), part in frame.groupby(["kernel", "engine"]):
            table += f"| {name} | {kernel} | {engine} | {_counts(part)} |\n"
    rows = pd.concat([pd.DataFrame(columns=["lines"]), *frames.values()])  # may have no frames
    counters = "A time budget: counters cover the timed regions only."
    if not len(counter_curve(rows, "walk")):
        counters = f"Counts of walks. {explain_reason(missing_counter_reason(rows, 'walk', host.pmu.reason))}"
    return _CARD.format(
        name=machine_display_name(store, machine),
        cpu=host.cpu_model,
        microarchitecture=host.microarchitecture,
        cpus=len(host.usable_cpus),
        memory=format_size(host.memory.total_bytes),
        where=where,
        release=host.kernel_release,
        arch=host.arch,
        compiler=host.c_compiler or "none",
        thp=host.thp.enabled,
        table=table,
        dimensions=dimensions,
        counters=counters,
    )


THIS_COMPUTER_LABEL = "this computer"  # what a page calls the reader's own, whatever its model
_FAMILIES = ("EPYC", "Ryzen", "Xeon", "Core", "Neoverse", "Graviton", "Ampere")
_MOST_CHARS = 40  # what a phone has room for


def machine_display_name(store: Store, machine: str) -> str:
    """Return what a machine of a store is, as "Zen 4, EPYC guest", or its folder's name if that is
    not known. Two machines never share a name: the folder's number tells those apart that would."""
    kinds = {
        name: _kind(none_if_unavailable(store.read_machine, name) or {})
        for name in store.machines()
    }
    kind = kinds.get(machine, "")
    if not kind:
        return machine
    is_alone = Counter(kinds.values())[kind] == 1
    return kind if is_alone else f"{kind} {machine.rpartition('-')[2]}"


def short_machine_names(store: Store) -> dict[str, str]:
    """Return the microarchitecture of each machine of a store, as "Zen 4", for heads of columns; the
    name of `machine_display_name` for two of one microarchitecture."""
    names = {machine: machine_display_name(store, machine) for machine in store.machines()}
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
