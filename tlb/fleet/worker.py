"""What runs on a computer of a fleet, as a task of a Dask worker: it says what the computer is, and
runs a campaign into the computer's own ledger.

It imports nothing of the book: a worker is installed from the wheel.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from distributed import get_worker

from tlb.fleet import bundle
from tlb.machine import host as hosts
from tlb.machine.cpus import measuring_cpu
from tlb.machine.host import Host
from tlb.measure import campaign, machine_states
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.outcome import CampaignOutcome, CampaignProgress
from tlb.measure.record import Point
from tlb.measure.session import CPUS_ALLOWED_AT_START
from tlb.measure.store import Store, data_root
from tlb.system.reasons import Unavailable

TOPIC = "tlb-fleet"  # of the events in which a worker says how far it is
EVENT_S = 2.0  # between two of them


@dataclass(frozen=True)
class Task:
    """points: of each experiment's grid. repeats: mappings of each point that a claim compares, the
    `compared`, and of any other. seconds: to measure."""

    points: dict[str, list[Point]]
    compared: set[Point]
    repeats: int
    shape_repeats: int
    seconds: float


@dataclass
class Measured:
    """contents: of a bundle of the whole ledger; None without rows. lacking: points by reason. left:
    mappings without time. code, detail: why the campaign ended early, "" if it did not."""

    contents: bundle.Contents | None = None
    lacking: dict[str, int] = field(default_factory=dict)
    left: int = 0
    code: str = ""
    detail: str = ""


def describe() -> Host:
    """Return what this computer is."""
    return hosts.inspect_machine()


def measure(task: Task) -> Measured:
    """Run a campaign on this computer and return all that its ledger has. What fails for a reason is
    in the result, so that Dask does not try it again."""
    measured = Measured()
    with _others_kept_off(measuring_cpu(Path("/"), tuple(sorted(CPUS_ALLOWED_AT_START)))):
        host, store = hosts.inspect_machine(), Store(data_root()).own
        try:
            rig = MeasuringSetup.of(host, store)
            machine_states.write_description(store, rig.machine, host)
            outcome = _run(rig, task)
            measured.lacking = Counter(why.code for why in outcome.lacking.values())
            measured.left = outcome.skipped
        except Unavailable as why:
            measured.code, measured.detail = why.code, why.detail
    try:
        measured.contents = bundle.collect(store, hosts.machine_id(host))
    except Unavailable as why:
        if not measured.code:
            measured.code, measured.detail = why.code, why.detail
    return measured


def _run(rig: MeasuringSetup, task: Task) -> CampaignOutcome:
    compared = task.compared
    return campaign.run(
        rig,
        task.points,
        lambda point: task.repeats if point in compared else task.shape_repeats,
        most=campaign.most_mappings(task.repeats),
        seconds=task.seconds,
        compared=compared.__contains__,
        progress=EventProgress(rig.machine),
    )


class EventProgress(CampaignProgress):
    """Progress that a worker's events show to the client."""

    def __init__(self, machine: str) -> None:
        super().__init__(machine, quiet=True)
        self._worker, self._sent_s = get_worker(), -EVENT_S

    def _show(self, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if is_last or now - self._sent_s >= EVENT_S:
            self._sent_s = now
            total_s = self.gone_s + self.left_s
            share = self.gone_s / total_s if total_s else 1.0
            event = {"name": str(self._worker.name), "share": min(share, 1.0)}
            self._worker.log_event(TOPIC, event)


@contextmanager
def _others_kept_off(cpu: int | None) -> Iterator[None]:
    """Keep the other threads of this process, as Dask's event loop, off the CPU that measures if
    there is another one."""
    others, own = CPUS_ALLOWED_AT_START - {cpu}, threading.get_native_id()
    threads = [int(path.name) for path in Path("/proc/self/task").glob("*")]
    moved = [thread for thread in threads if thread != own] if cpu is not None and others else []
    try:
        _allow(moved, others)
        yield
    finally:
        _allow(moved, CPUS_ALLOWED_AT_START)


def _allow(threads: list[int], cpus: frozenset[int]) -> None:
    for thread in threads:
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(thread, cpus)
