"""What a worker costs the measurement: a table of `tlb bench`.

A small campaign by hand and by a worker, in turns, process by process: the same points with the same seeds, each of the two first in every
other round. While one measures by hand the worker is stopped (SIGSTOP), as if there were none. The scheduler and the client, which a fleet
has on another computer, run in both, kept off the measured CPU.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from experiments.fleet import certificates, module, parcel, slot
from experiments.inference.pairs import paired_ratio
from experiments.lab import campaign, grid
from experiments.lab.record import Point
from experiments.lab.rig import Rig
from experiments.lab.store import Store
from experiments.machine import host as hosts
from experiments.system.files import ROOT

if TYPE_CHECKING:
    from distributed import Client

TITLE = "A process measured by a worker and by hand (to reach: 1 %)"
COLUMNS = ("point", "by hand ns", "by a worker ns", "worker over hand")
ROUNDS = 14  # pairs of a point: its interval is at 99 %
NAME, EXPERIMENT = "bench", "fleet"
LINES = {"in the first-level cache": 64, "past the TLB": 8192, "in memory": 1 << 17}
WAIT_S = 60.0  # for a worker to come, which imports for some seconds


def fleet() -> Iterator[tuple[str, ...]]:
    """A row a point. Raises Unavailable: no-fleet, and what measuring raises."""
    module("nodes")  # before a process is started
    scope = grid.Scope(grid.profile("full"), base_page_bytes=hosts.base_page_bytes())
    points = {words: scope.point("page_chase", layout="packed" if lines == 64 else "spread", lines=lines) for words, lines in LINES.items()}
    with tempfile.TemporaryDirectory(prefix="tlb-bench-") as folder:
        hand, worker = asyncio.run(_both(Path(folder), tuple(points.values())))
    for words, point in points.items():
        sides = [[times[point, repeat] for repeat in range(ROUNDS)] for times in (hand, worker)]
        yield words, *(f"{median(side):.3f}" for side in sides), f"{paired_ratio(sides[1], sides[0]):.4f}"


Times = dict[tuple[Point, int], float]


async def _both(folder: Path, points: tuple[Point, ...]) -> tuple[Times, Times]:
    """ns per access of each process, by hand and by a worker."""
    from distributed import Client

    from experiments.fleet import nodes

    shown = certificates.member(folder / "pass")
    rig = Rig.of(hosts.inspect(), Store(folder / "hand"))
    nodes.keep_off(rig.cpu)
    with nodes.configured():
        async with nodes.scheduler("tls://127.0.0.1:0", shown) as scheduler:
            command = [sys.executable, "-c", "from experiments.cli import main; main()", "fleet", "worker", scheduler.address,
                       "--name", NAME, "--certificates", str(folder / "pass")]
            process = await asyncio.to_thread(_start, command, folder / "worker")
            try:
                async with Client(scheduler.address, asynchronous=True, security=nodes.security(shown), set_as_default=False) as client:
                    await client.wait_for_workers(1, WAIT_S)
                    return await _in_turns(client, process, rig, points)
            finally:
                process.kill()
                process.wait()


def _start(command: list[str], data: Path) -> subprocess.Popen[bytes]:
    """From a thread that may run on all CPUs, which the child inherits."""
    slot.unpinned()
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"TLB_DATA": str(data)})


async def _in_turns(client: Client, process: subprocess.Popen[bytes], rig: Rig, points: tuple[Point, ...]) -> tuple[Times, Times]:
    sender = parcel.check_sender(await client.submit(slot.greet, workers=[NAME], pure=False))
    hand: Times = {}
    worker: Times = {}

    async def by_hand(task: parcel.Task) -> None:
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.to_thread(_measure, rig, task)
        finally:
            process.send_signal(signal.SIGCONT)

    async def by_worker(task: parcel.Task) -> None:
        opened = parcel.open_parcel(await client.submit(slot.take, task.model_dump_json(), workers=[NAME], pure=False), task, sender)
        if why := opened.stopped or next(iter(opened.lacking.values()), None):
            raise why
        worker.update({(row.record.point, row.record.repeat): row.record.ns_per_access for row in opened.rows})

    for number in range(ROUNDS):
        task = parcel.Task(grids={EXPERIMENT: points}, repeats=number + 1, most=number + 1, seconds=600.0)
        for measured in (by_hand, by_worker) if number % 2 else (by_worker, by_hand):
            await measured(task)
    hand |= {(record.point, record.repeat): record.ns_per_access for record in rig.store.records(rig.machine, ["page_chase"]).values()}
    return hand, worker


def _measure(rig: Rig, task: parcel.Task) -> None:
    slot.unpinned()
    campaign.run(rig, task.grids, task.repeats, quiet=True)
