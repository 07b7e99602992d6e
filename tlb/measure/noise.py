"""What disturbed a measuring process: the point is measured again, or its record is marked."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tlb.measure import kernels
from tlb.measure.record import Disturbance, Record
from tlb.system import procfs

# Half of the 2 percent within which a point's median shall repeat.
STOLEN_SHARE = 0.01
# Of the region, spent neither running nor stopped by the kernel. On a quiet guest perf's clock and
# the kernel's own differ by 0.5 percent at most, because the gate closes a little after the last
# batch. The count of switches would say nothing: there it is 3 a process, and not one in a hundred
# of those processes lost 1 percent.
SWITCHED_SHARE = 0.02
# Of the region, spent on minor faults. Where no kernel faults pages in there, Linux takes pages
# away from it meanwhile: NUMA balancing unmaps them to see who touches them, and moves them.
FAULTED_SHARE = 0.01
# prefault touches a base page in 700 ns (Zen 4, guest); one that has to be moved takes longer
FAULT_NS = 1000
# Interquartile range of the batches over their median: twice the 5 percent from which the repeats
# of a point are called unstable. Of the first 2808 processes of the reference machine 9 percent are
# over it; two thirds of these are more than 5 percent off their point's median, of the others one
# in six.
UNEVEN_SHARE = 0.10

_CPU_LINE = re.compile(r"cpu([0-9]{1,5})((?: [0-9]{1,18}){8})\b")


def tick_ms() -> float:
    """Return the unit of /proc/stat, usually 10 ms."""
    return 1000 / os.sysconf("SC_CLK_TCK")


def stolen_ms(root: Path = Path("/")) -> dict[int, float]:
    """Return ms since boot that the hypervisor ran something else, by CPU; {} if not stated."""
    lines = map(_CPU_LINE.match, procfs.text(root / "proc/stat").split("\n"))
    return {int(line[1]): int(line[2].split()[7]) * tick_ms() for line in lines if line}


def between(before: dict[int, float], after: dict[int, float], cpu: int) -> float | None:
    """Return ms stolen from a CPU between two readings; None if one lacks it."""
    return max(after[cpu] - before[cpu], 0.0) if cpu in before and cpu in after else None


def disturbance(record: Record) -> Disturbance:
    """Return the first thing that disturbed the process, "" for none. The measured time plays no
    part."""
    counted = record.counters.get("task_clock_ns")
    ran_ns = record.cpu_ns or (
        counted.value if counted and counted.value is not None else record.elapsed_ns
    )
    if record.migrations:
        return "migrated"  # to cold caches and a cold TLB
    if record.major_faults or (
        not kernels.declaration(record.kernel).faults_in
        and record.minor_faults * FAULT_NS > FAULTED_SHARE * record.elapsed_ns
    ):
        return "faulted"  # waited for a disk, or for pages that were taken away
    if record.also.get("off_node_pages"):
        return "spilled"  # onto another node's memory, which is further away
    # One tick may stand for a microsecond: it is where the clock of /proc/stat happened to step.
    if (record.steal_ms or 0) > max(STOLEN_SHARE * record.wall_ns / 1e6, tick_ms()):
        return "stolen"
    if (
        record.involuntary_switches
        and record.elapsed_ns - ran_ns > SWITCHED_SHARE * record.elapsed_ns
    ):
        return "switched"
    return "uneven" if unevenness(record.batch_ns_per_access) > UNEVEN_SHARE else ""


def unevenness(batches: list[float]) -> float:
    """Return interquartile range over median, by nearest rank."""
    ascending, last = sorted(batches), len(batches) - 1
    low, middle, high = (ascending[round(last * share)] for share in (0.25, 0.5, 0.75))
    return (high - low) / middle
