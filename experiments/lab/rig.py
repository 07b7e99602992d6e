"""This computer, ready to measure: made once, and handed to whatever measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.lab import measure as processes
from experiments.lab import perf
from experiments.lab.record import Point, Record
from experiments.lab.store import Store
from experiments.machine import host as hosts
from experiments.machine.host import Host
from experiments.machine.pmu import performance_cpu

MEMORY_SHARE = 0.5  # of the memory that is free for us (design: half at most)


@dataclass(frozen=True)
class Rig:
    """A host with what follows from it: its state, its CPU for measuring, its counters, its memory, and where rows go.

    usable_bytes: all that one process may use. measure: one process a call, which tests replace.
    """

    host: Host
    store: Store
    machine: str  # its name in data/
    state: str
    usable_bytes: int
    cpu: int | None = None  # None: the kernels take the last one allowed
    plan: perf.Plan = perf.NO_COUNTERS
    measure: Callable[..., Record] = processes.measure

    @classmethod
    def of(cls, host: Host, store: Store, machine: str = "", *, counters: bool = True, cpu: int | None = None) -> Rig:
        """The rig of an inspected host. counters: probes perf, once."""
        cpu = performance_cpu(host.usable_cpus) if cpu is None else cpu
        plan = perf.plan(host.microarchitecture, cpu=cpu) if counters else perf.NO_COUNTERS
        return cls(host, store, machine or hosts.machine_id(host), hosts.state(host), usable_bytes(host), cpu, plan)

    def take(self, point: Point, repeat: int = 0) -> Record:
        """The record of one fresh process. Raises Unavailable, as `measure.measure` does."""
        return self.measure(point, repeat, state=self.state, usable_bytes=self.usable_bytes, plan=self.plan, cpu=self.cpu)


def usable_bytes(host: Host) -> int:
    """What one measuring process may use of a host's memory."""
    return int(host.memory.usable_bytes * MEMORY_SHARE)
