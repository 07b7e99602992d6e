"""The data card of a machine: what lies in its folder, how it was measured, and what it must not be taken for."""

from __future__ import annotations

from experiments.inference.intervals import newest, summarise
from experiments.lab.store import Store
from experiments.machine.host import Host
from experiments.words.reasons import explain
from experiments.words.units import format_size

_POINT = ["kernel", "engine", "pages", "layout", "order", "stride_pages", "lines"]


def card(store: Store, machine: str, host: Host) -> str:
    """Markdown for data/<machine>/README.md; files without rows are left out."""
    metal = host.hypervisor == "none"
    lines = [
        f"# {machine}",
        "",
        f"{host.cpu_model} ({host.microarchitecture}), {len(host.usable_cpus)} CPUs, {format_size(host.memory.total_bytes)} of memory, "
        + ("bare metal." if metal else f"a guest under {host.hypervisor}."),
        f"Linux {host.kernel_release}, {host.arch}; compiler: {host.c_compiler or 'none'}; THP {host.thp.enabled}.",
        "",
        "| file | records | noisy | points | repeats | unstable points | measured (UTC) |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in store.experiments(machine):
        frame = store.load(machine, name)
        if frame.empty:
            continue
        summary = summarise(newest(frame), _POINT)
        noisy = int((frame["noisy"] != "").sum())
        lines.append(f"| {name}.jsonl | {len(frame)} | {noisy} | {len(summary)} | {summary['n'].min()} to {summary['n'].max()} | "
                     f"{int(summary['unstable'].sum())} | {frame['started_at'].min()} to {frame['started_at'].max()} |")
    lines += [
        "",
        "One JSON object a line: `key`, `digest`, `kernel_digest`, `record`; the record's fields and units are those of",
        "`experiments/lab/record.py`. A record is one fresh process. An unstable point spreads by more than 5 % (interquartile range over",
        "median) over its processes; it is kept. A noisy record is of a process that something disturbed; its field `noisy` says what.",
        "(Records from before that field have no mark.) `machine.json` is what `tlb inspect --json` said.",
        "",
        "What it must not be taken for:",
        "",
        "- " + ("A guest's numbers: they hold the price of two-dimensional walks and of the host's page size." if not metal else
                "Bare metal, so it says nothing of what a guest on this processor would pay."),
        "- " + (f"Counts of walks. {explain(host.pmu.reason)}" if host.pmu.reason else
                "A time budget: counters cover the timed regions only."),
        "- Another machine's numbers, even of the same model: the compiler, the kernel and the neighbours differ.",
        "",
    ]
    return "\n".join(lines)
