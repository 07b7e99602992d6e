"""This computer, ready to measure: made once, and handed to whatever measures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tlb.machine import host as hosts
from tlb.machine import pools, settings
from tlb.machine.host import Host
from tlb.measure import mapping, perf
from tlb.measure import plan as plans
from tlb.measure.mapping import PointResult
from tlb.measure.plan import MeasuringConditions, SessionRecord
from tlb.measure.record import Point, Record
from tlb.measure.store import Store
from tlb.system import procfs
from tlb.system.page_sizes import BASE_PAGES, PAGE_KINDS
from tlb.system.reasons import Unavailable

USABLE_MEMORY_SHARE = 0.5  # of the memory that is free for us (design: half at most)


@dataclass(frozen=True)
class MeasuringSetup:
    """A host with what follows from it: its state, its CPU for measuring, its counters, its memory,
    and where rows go.

    usable_bytes: of memory, all that one process may use. measure: `mapping.measured`, which tests
    replace. switches: the settings as they are when it is called, which may not change while rows
    of this state are measured.
    """

    host: Host
    store: Store
    machine: str  # its name in data/
    state: str
    usable_bytes: int
    cpu: int | None = None  # None: the kernels take the last one allowed
    plan: perf.EventPlan = perf.NO_COUNTERS
    measure: Callable[..., Iterator[PointResult]] = mapping.measured
    switches: Callable[[], tuple] = tuple
    inspected: tuple = ()  # the settings as they were at the inspection
    sessions: list[SessionRecord] = field(default_factory=list)  # of each process that has ended
    # points that this computer cannot do, which no later campaign of this object tries again
    lacking: dict[Point, Unavailable] = field(default_factory=dict)

    @classmethod
    def of(
        cls, host: Host, store: Store, machine: str = "", *, counters: bool = True
    ) -> MeasuringSetup:
        """The rig of an inspected host, on the CPU that the inspection was of. counters: probes
        perf, once."""
        cpu = host.core.number if host.core else None
        plan = perf.plan(host.microarchitecture, cpu=cpu) if counters else perf.NO_COUNTERS
        switches = partial(settings.switches, Path("/"), cpu or 0)
        return cls(
            host,
            store,
            machine or hosts.machine_id(host),
            hosts.state_digest(host),
            usable_bytes(host),
            cpu,
            plan,
            switches=switches,
            inspected=switches(),
        )

    def measured(self, points: Sequence[Point], repeat: int, **how: Any) -> Iterator[PointResult]:
        """The result of each point, as `mapping.measured` gives it. Raises state-changed where it
        would be of no one state."""
        for result in self.measure(points, repeat, self.setting, **how):
            self._check_state()
            yield result

    def take(self, point: Point, repeat: int = 0) -> Record:
        """The record of one fresh process. Raises Unavailable, as `plan.measure` does, and
        state-changed."""
        record = plans.measure(point, repeat, **self.setting._asdict())
        self._check_state()
        return record

    @cached_property
    def means(self) -> list[str]:
        """What a point may lack now and have at another time of the same state: pages in pools, the
        cgroup's limits on them, CPUs, and transparent pages, which a process may be denied."""
        pages = [f"{pool.left} {pool.page}" for pool in self.host.pools if pool.total]
        limits = [
            limit for kind in PAGE_KINDS if (limit := pools.cgroup_limits_below(kind, float("inf")))
        ]
        own_thp = re.findall(r"THP_enabled:\s*\d", procfs.text(Path("/proc/self/status")))
        return [*pages, *limits, *own_thp, f"{len(self.host.usable_cpus)} CPUs"]

    @property
    def setting(self) -> MeasuringConditions:
        return MeasuringConditions(
            self.state, self.usable_bytes, self.plan, self.cpu, self.host.fifo, self.sessions
        )

    def _check_state(self) -> None:
        if self.switches() != self.inspected:
            raise Unavailable("state-changed")


def usable_bytes(host: Host, pages: str = BASE_PAGES) -> int:
    """What one measuring process may use of a host's memory, on pages of this kind: of a pool, what
    is free in it."""
    if PAGE_KINDS[pages].source != "pool":
        return int(host.memory.usable_bytes * USABLE_MEMORY_SHARE)
    limit = host.memory.address_space_bytes
    free = sum(
        pool.left * (PAGE_KINDS[pages].size_bytes or 0) for pool in host.pools if pool.page == pages
    )
    return free if limit is None else min(free, limit)
