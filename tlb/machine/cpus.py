"""Which CPU is measured: chosen once, so that the CPU that is described is the one that every
kernel runs on."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from pathlib import Path

from tlb.machine import pmu
from tlb.machine.cpuid import Cache
from tlb.machine.facts import Facts
from tlb.system import procfs

# Cores of one kind differ by a tenth in their highest clock at most (favoured cores, two CCDs of
# one package); cores of two kinds by a third and more, in clock or in capacity.
_ALIKE = 0.9


class Core(Facts):
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


def core(root: Path, cpu: int) -> Core:
    """What sysfs under `root` says of a CPU."""
    pmus = pmu.listed(root)
    return Core(
        number=cpu,
        kind=(pmu.of_cpu(cpu, pmus) or "") if len(pmus) > 1 else "",
        highest_khz=_highest_khz(_folder(root, cpu)),
    )


def caches(root: Path, cpu: int) -> tuple[Cache, ...]:
    """The caches of a CPU, as sysfs states them; () where it states none."""
    listed = []
    for _, index in procfs.numbered(_folder(root, cpu) / "cache", r"index([0-9]{1,3})"):
        kind, level = procfs.word(index / "type").lower(), procfs.number(index / "level")
        size_bytes = procfs.kib(procfs.text(index / "size"))
        if kind not in ("data", "instruction", "unified") or level is None or size_bytes is None:
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
