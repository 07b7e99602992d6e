"""The data card of a machine: what lies in its folder, how it was measured, and what it must not be
taken for."""

from __future__ import annotations

import pandas as pd

from tlb.inference.campaigns import newest
from tlb.inference.counts import counted, why_not_counted
from tlb.inference.intervals import summarise
from tlb.lab import kernels
from tlb.lab.record import Point
from tlb.lab.store import Store
from tlb.machine.host import Host
from tlb.reasons import explain
from tlb.system.files import disk_errors
from tlb.units import format_size

_POINT = [
    name for name in Point.model_fields if name != "options"
]  # which are columns of their own


def write(store: Store, machine: str, host: Host) -> None:
    """Put the card beside the rows. Raises Unavailable: disk-full, disk-read-only."""
    path = store.root / machine / "README.md"
    with disk_errors(path):
        path.write_text(card(store, machine, host))


def _counts(rows: pd.DataFrame, kernel: str) -> str:
    """The cells of one kernel and engine of an experiment."""
    options = kernels.CATALOGUE[kernel].options if kernel in kernels.CATALOGUE else {}
    points = summarise(newest(rows), [*_POINT, *(name for name in options if name in rows)])
    return (
        f"{len(rows)} | {int((rows['noisy'] != '').sum())} | {len(points)} | {points['n'].min()} to {points['n'].max()} | "
        f"{int(points['unstable'].sum())} | {rows['started_at'].min()} to {rows['started_at'].max()}"
    )


def card(store: Store, machine: str, host: Host) -> str:
    """Markdown for data/<machine>/README.md; experiments without rows are left out."""
    metal, frames = (
        host.hypervisor == "none",
        {name: store.load(machine, name) for name in store.experiments(machine)},
    )
    rows = pd.concat(
        [pd.DataFrame(columns=["lines"]), *frames.values()]
    )  # of a folder without rows, none
    lines = [
        f"# {machine}",
        "",
        f"{host.cpu_model} ({host.microarchitecture}), {len(host.usable_cpus)} CPUs, {format_size(host.memory.total_bytes)} of memory, "
        + ("bare metal." if metal else f"a guest under {host.hypervisor}."),
        f"Linux {host.kernel_release}, {host.arch}; compiler: {host.c_compiler or 'none'}; THP {host.thp.enabled}.",
        "",
        "| experiment | file | engine | records | noisy | points | processes a point | unstable points | measured (UTC) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, frame in frames.items():
        lines += [
            f"| {name} | {kernel}.jsonl | {engine} | {_counts(part, kernel)} |"
            for (kernel, engine), part in frame.groupby(["kernel", "engine"])
        ]
    lines += [
        "",
        "One JSON object a line: `key`, `digest`, `kernel_digest`, `record`; the record's fields and units are those of",
        "`tlb/lab/record.py`, and CONTRIBUTING.md has the rest (*The format of rows*). A record is one point of one mapping.",
        "`grids.json` says which points an experiment asked for; a record of two experiments stands in its kernel's file once and counts",
        "here for both. Points and what follows are of an experiment's last campaign with a kernel, which pages show. An unstable point",
        "spreads by more than 5 % (interquartile range over median) over its processes; it is kept. A noisy record is of a process that",
        "something disturbed; its field `noisy` says what. (Records from before that field have no mark.)",
        "`machine.json` is what `tlb inspect --json` said.",
        "",
        "What it must not be taken for:",
        "",
        "- "
        + (
            "A guest's numbers: they hold the price of two-dimensional walks and of the host's page size."
            if not metal
            else "Bare metal, so it says nothing of what a guest on this processor would pay."
        ),
        "- "
        + (
            "A time budget: counters cover the timed regions only."
            if len(counted(rows, "walk"))
            else f"Counts of walks. {explain(why_not_counted(rows, 'walk', host))}"
        ),
        "- Another machine's numbers, even of the same model: the compiler, the kernel and the neighbours differ.",
        "",
    ]
    return "\n".join(lines)
