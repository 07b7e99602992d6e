"""A fleet on one computer: a scheduler and workers as processes that may be killed, whose
measurements are made up, but the same whenever they are asked for."""

import asyncio
import contextlib
import ctypes
import hashlib
import itertools
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import pytest

from support import bundles
from support.campaigns import one_by_one
from support.common import fake_kernel
from support.synthetic import Stated
from tlb.fleet.bundle import Contents
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure import build, campaign
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.plan import order_seed
from tlb.measure.record import Point, Record
from tlb.measure.store import Store
from tlb.system import files

# Of a process that has no threads, as the tests' own has after the first client.
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["support.fleet", "tlb.fleet.worker"])
_TESTS = str(Path(__file__).resolve().parents[1])
POINTS = [
    Point(kernel="page_chase", lines=lines, layout=layout)
    for lines in (64, 128, 256)
    for layout in ("spread", "packed")
]
GRIDS = {"stlb_cliff": POINTS, "tlb_blocking": POINTS[1:4]}
ROWS_BEFORE_PAUSE = 5
PROCESS_S = 0.02  # of a made-up process: long enough to be killed in
_PDEATHSIG = 1
DASK = {"distributed.worker.profile.enabled": False, "distributed.logging.distributed": "critical"}


def host_of(name: str) -> Host:
    changes = {
        "cpu_model": "Intel Xeon 9000",
        "installation": hashlib.sha256(name.encode()).hexdigest()[:16],
    }
    return Stated(changes=changes).host()


def machine_of(name: str) -> str:
    return hosts.machine_id(host_of(name))


def made_up(name: str, pause: Path | None = None) -> Callable[..., Record]:
    """Stands for plan.measure on a computer: the same record for the same process. Of those after the
    first five none ends while there is a file `pause`."""
    number = itertools.count()

    def one(point: Point, repeat: int, *, state: str, **_: object) -> Record:
        rng = random.Random(f"{name} {point} {repeat}")
        time.sleep(PROCESS_S)
        while pause and next(number) >= ROWS_BEFORE_PAUSE and pause.exists():
            time.sleep(PROCESS_S)
        return bundles.row(
            point.lines,
            point.layout,
            repeat,
            state=state,
            ns_per_access=6.5,
            wall_ns=1.2e8 + rng.randrange(10**8),
            checksum=f"{order_seed(point, repeat):016x}"[:16],
            started_at=f"2025-01-31T12:{repeat:02}:00Z",
            arena_bytes=4096 * point.lines,
            page_table_bytes=8 * 4096,
        )

    return one


def a_rig(name: str, root: Path, pause: Path | None = None) -> MeasuringSetup:
    host = host_of(name)
    return MeasuringSetup(
        host=host,
        store=Store(root).own,
        machine=hosts.machine_id(host),
        state=hosts.state_digest(host),
        usable_bytes=1 << 30,
        measure=one_by_one(made_up(name, pause)),
    )


def by_hand(name: str, root: Path, repeats: int) -> list[str]:
    """The rows of a campaign on that computer without a fleet, sorted."""
    rig = a_rig(name, root)
    campaign.run(rig, GRIDS, repeats, most=campaign.most_mappings(repeats), quiet=True)
    return rows_of(rig.store, rig.machine)


def rows_of(store: Store, machine: str) -> list[str]:
    """The rows of a machine, sorted, each as often as it is there."""
    rows = [record.model_dump_json() for record, _ in store.published(machine)]
    return sorted(rows or [one.model_dump_json() for one in store.records(machine).values()])


def work(
    name: str, address: str, root: Path, alike: str = "", spoil: str = "", pause: Path | None = None
) -> None:
    """Run a worker on the computer `alike`, by default its own. spoil: what it sends instead. pause: a
    file; as long as it is there, the worker goes no further than a few rows."""
    from distributed import Worker

    from tlb.fleet import worker

    root.mkdir(parents=True, exist_ok=True)
    build.kernel = fake_kernel()
    build.has_session = lambda point: False
    campaign.measuring_lock = lambda wait=False: files.measuring_lock(wait, root / "lock")
    os.environ["TLB_DATA"] = str(root)
    worker.EVENT_S = 0.0
    rig = a_rig(alike or name, root, pause)
    hosts.inspect_machine = lambda *_, **__: rig.host
    MeasuringSetup.of = classmethod(lambda cls, *given: rig)
    collect = worker.bundle.collect
    if spoil:
        worker.bundle.collect = lambda *given: _spoiled(collect(*given), spoil)

    async def run() -> None:
        options = {"nthreads": 1, "memory_limit": 0, "dashboard": False}
        async with Worker(address, name=name, local_directory=str(root), **options) as one:
            await one.finished()

    asyncio.run(run())


def _spoiled(contents: Contents, how: str) -> object:
    """What a worker sends that has other units, or another version."""
    if how == "no bundle":
        return how
    rows = [
        (record.model_copy(update={"ns_per_access": record.ns_per_access / 1000}), asked)
        for record, asked in contents.rows
    ]
    return replace(contents, rows=rows)


def schedule(port: int) -> None:
    from distributed import Scheduler

    async def run() -> None:
        async with Scheduler(host="127.0.0.1", port=port, dashboard=False) as one:
            await one.finished()

    asyncio.run(run())


def collect(address: str, root: Path, repeats: int, expected: int) -> None:
    """Run a client as `tlb fleet` does; exit with 1 unless all computers are done."""
    from distributed import Client

    from experiments.overview import campaign as book
    from tlb.fleet import client
    from tlb.fleet.bundle import add
    from tlb.measure import grid
    from tlb.report import claims

    book.points_by_chapter = lambda scope, names=None: GRIDS
    claims.compared_points = lambda scope: lambda point: True
    profile = grid.load_profile("smoke").model_copy(update={"repeats": repeats})
    with Client(address, timeout=10) as connection:
        made = client.Fleet(
            connection,
            profile,
            (),
            600.0,
            lambda read: add(Store(root), read).rows,
            expected=expected,
            wait_s=20.0,
            patience_s=5.0,
        )
        made.run()
    raise SystemExit(any(computer.why for computer in made.computers.values()))


class Processes:
    """What runs, by name; `kill` is -9, and `again` starts the same once more."""

    def __init__(self) -> None:
        self._how: dict[str, tuple[Callable[..., None], tuple, dict]] = {}
        self.running: dict[str, Any] = {}

    def start(self, called: str, what: Callable[..., None], *given: Any, **how: Any) -> None:
        self._how[called] = what, given, how
        self.again(called)

    def again(self, called: str) -> None:
        what, given, how = self._how[called]
        self.running[called] = server.Process(target=_alone, args=(what, *given), kwargs=how)
        with pytest.MonkeyPatch.context() as patch:  # for the server, which this may start
            patch.setenv("PYTHONPATH", f"{files.ROOT}:{_TESTS}")
            self.running[called].start()

    def kill(self, called: str) -> None:
        self.running[called].kill()
        self.running[called].join()

    def revive(self) -> None:
        """Start again what has ended, but a client that is done."""
        for called, process in self.running.items():
            is_done = called == "client" and process.exitcode == 0
            if not process.is_alive() and not is_done:
                self.again(called)

    def end(self) -> None:
        for called in self.running:
            self.kill(called)


def _alone(what: Callable[..., None], *given: Any, **how: Any) -> None:
    """As a program of its own: not the test's handlers, nor its standard streams."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if not os.environ.get("TLB_FLEET_DEBUG"):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
    dask.config.set(DASK)
    what(*given, **how)


@contextlib.contextmanager
def processes() -> Iterator[Processes]:
    """Processes that end with the block."""
    started = Processes()
    try:
        yield started
    finally:
        started.end()
