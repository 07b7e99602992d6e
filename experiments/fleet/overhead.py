"""What a worker costs the measurement: a table of `tlb bench`.

First a small campaign by hand and by a worker, in turns, process by process: the same points with the same seeds, each of the two first in
every other round. While one measures by hand the worker is stopped (SIGSTOP), as if there were none. Two processes have other memory, which
past the caches is more than any worker costs. So then the same chases once more, each in one process with one mapping, in slices between
which a worker that waits, as it does while a kernel runs, is stopped and continued. The scheduler and the client, which a fleet has on
another computer, run in all of it, kept off the measured CPU.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from experiments.fleet import certificates, module, parcel, slot
from experiments.inference.pairs import paired_ratio
from experiments.lab import campaign, grid, kernels
from experiments.lab.record import Point
from experiments.lab.rig import Rig
from experiments.lab.store import Store
from experiments.machine import host as hosts
from experiments.system.files import ROOT

if TYPE_CHECKING:
    from distributed import Client

TITLE = "A process measured by a worker and by hand (to reach: 1 %)"
COLUMNS = ("point", "without ns", "with a worker ns", "with over without")
ROUNDS = 14  # pairs of a point: its interval is at 99 %
NAME, EXPERIMENT = "bench", "fleet"
LINES = {"in the first-level cache": 64, "past the TLB": 8192, "in memory": 1 << 17}
PACKED = 64  # lines that lie side by side; more lie a page apart
# Pairs of slices, and how long one is: long beside a switch of processes, short beside the drift of a guest. Of so many the interval in
# memory, where a guest's neighbours disturb most, is as narrow as what is to be reached; they take five minutes.
SLICES, SLICE_S = 240, 0.2
WAIT_S = 60.0  # for a worker to come, which imports for some seconds


def fleet() -> Iterator[tuple[str, ...]]:
    """A row a point. Raises Unavailable: no-fleet, and what measuring raises."""
    module("nodes")  # before a process is started
    with tempfile.TemporaryDirectory(prefix="tlb-bench-") as folder:
        campaigns, slices = asyncio.run(_measured(Path(folder)))
    for words, sides in [*((f"{words}, process by process", sides) for words, sides in campaigns.items()),
                         *((f"{words}, slices of one", sides) for words, sides in slices.items())]:
        without, with_worker = sides
        yield words, f"{median(without):.3f}", f"{median(with_worker):.3f}", f"{paired_ratio(with_worker, without):.4f}"


Sides = tuple[list[float], list[float]]  # ns per access without a worker and with one, pair by pair
Times = dict[tuple[Point, int], float]  # by point and repeat


def _points() -> dict[str, Point]:
    scope = grid.Scope(grid.profile("full"), base_page_bytes=hosts.base_page_bytes())
    return {words: scope.point("page_chase", layout="packed" if lines == PACKED else "spread", lines=lines)
            for words, lines in LINES.items()}


async def _measured(folder: Path) -> tuple[dict[str, Sides], dict[str, Sides]]:
    """By point: campaigns by hand and by a worker, and slices of one process."""
    points = _points()
    rig = Rig.of(hosts.inspect(), Store(folder / "hand"))
    async with _worker(folder, rig) as (client, process):
        hand, worker = await _in_turns(client, process, rig, tuple(points.values()))
        waiting = client.submit(time.sleep, 3600.0, workers=[NAME], pure=False)
        slices = {words: await _slices(process, rig.cpu, point) for words, point in points.items()}
        waiting.release()  # not before: what nobody waits for is cancelled
    return {words: tuple([times[point, repeat] for repeat in range(ROUNDS)] for times in (hand, worker))  # type: ignore[misc]
            for words, point in points.items()}, slices


@asynccontextmanager
async def _worker(folder: Path, rig: Rig) -> AsyncIterator[tuple[Client, subprocess.Popen[bytes]]]:
    """A worker that came, and the client that may ask it."""
    from distributed import Client

    from experiments.fleet import nodes

    shown = certificates.member(folder / "pass")
    nodes.keep_off(rig.cpu)
    with nodes.configured():
        async with nodes.scheduler("tls://127.0.0.1:0", shown) as scheduler:
            command = [sys.executable, "-c", "from experiments.cli import main; main()", "fleet", "worker", scheduler.address,
                       "--name", NAME, "--certificates", str(folder / "pass")]
            process = await asyncio.to_thread(_start, command, folder / "worker")
            try:
                async with Client(scheduler.address, asynchronous=True, security=nodes.security(shown), set_as_default=False) as client:
                    await client.wait_for_workers(1, WAIT_S)
                    yield client, process
            finally:
                process.terminate()
                process.wait()


async def _slices(worker: subprocess.Popen[bytes], cpu: int, point: Point) -> Sides:
    """Of one process on the measured CPU; of each pair the other comes first."""
    apart = kernels.LINE_BYTES if point.layout == "packed" else hosts.base_page_bytes()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"from {__name__} import chase; chase({point.lines}, {apart}, {point.layout!r}, {SLICE_S})", cwd=ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin and child.stdout
    sides: Sides = ([], [])
    try:
        os.sched_setaffinity(child.pid, {cpu})
        hops = int(await child.stdout.readline())
        for number in range(2 * SLICES):
            with_worker = number % 4 in (1, 2)
            worker.send_signal(signal.SIGCONT if with_worker else signal.SIGSTOP)
            child.stdin.write(b"\n")
            sides[with_worker].append(1e9 * float(await child.stdout.readline()) / hops)
    finally:
        worker.send_signal(signal.SIGCONT)
        child.stdin.close()
        await child.wait()
    return sides


def chase(lines: int, apart_bytes: int, layout: str, slice_s: float) -> None:
    """A process of its own: through one cycle in one mapping of base pages. Prints the hops that take `slice_s`, and then, for each line of
    stdin, the seconds that they took now."""
    from kernels.twins.page_chase import follow, place_cycle
    from kernels.twins.placement import places_in

    mapping = mmap.mmap(-1, lines * apart_bytes)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        mapping.madvise(mmap.MADV_NOHUGEPAGE)
    words = np.frombuffer(mapping, np.uint64)
    at = np.uint64(words.ctypes.data)
    place_cycle(words, at, lines, places_in(layout == "packed", apart_bytes, mmap.PAGESIZE), True, np.uint64(1))

    def seconds(hops: int) -> float:
        nonlocal at
        begin = time.perf_counter()
        at = follow(at, np.uint64(hops))
        return time.perf_counter() - begin

    hops = 2 * lines
    while (took_s := seconds(hops)) < slice_s / 2:
        hops *= 2
    hops = int(hops * slice_s / took_s)
    print(hops, flush=True)
    for _ in sys.stdin:
        print(seconds(hops), flush=True)


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
