"""The client of a fleet: one task a computer on an existing Dask cluster, pinned to its worker, whose
bundle is checked like a stranger's and added.

Dask stores nothing that matters: a computer's rows lie in its own ledger before they are sent, and a
bundle is added whole or not at all. So after any failure the same command goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client, Future, LocalCluster, Scheduler, SpecCluster
from distributed.deploy import ssh as ssh_cluster
from distributed.versions import VersionMismatchWarning

from tlb.fleet import bundle, worker
from tlb.fleet.bundle import Bundle
from tlb.machine import host as hosts
from tlb.machine.host import Host, tlb_entries
from tlb.measure.grid import MeasuringProfile, Scope
from tlb.measure.measuring_setup import usable_bytes
from tlb.measure.record import Point
from tlb.report import claims, notebooks
from tlb.system.page_sizes import PAGE_KINDS
from tlb.system.reasons import Unavailable

POLL_S = 0.5
CALL_S = 5.0  # for the scheduler to answer
FETCH_S = 8.0  # for a bundle of a few MB to arrive, else it is fetched anew
STATUS_S = 10.0  # between two lines that say how far the computers are
RETRIES = 2  # by Dask, of a task that failed without a reason
MARGIN_S = 300.0  # to inspect a computer, compile kernels and pack rows, beyond the campaign
PASSING = {"measuring-already", "state-changed", "cpu-gone"}  # reasons that end by themselves
MOST_SHOWN = 8  # computers in a line


@dataclass
class Computer:
    """One worker. rows: new ones of this run. measured: what its last task gave. share: of the campaign
    that is done. lost: since when its worker is gone. why: the reason for which it is given up."""

    name: str
    address: str
    machine: str = ""
    rows: int = 0
    measured: worker.Measured = field(default_factory=worker.Measured)
    share: float = 0.0
    lost: float | None = None
    over: bool = False
    why: Unavailable | None = None

    def is_at(self, address: str) -> bool:
        """Return whether its worker is there and is still the one of this address."""
        return self.lost is None and self.address == address


@dataclass
class Fleet:
    """seconds: to measure on each computer. expected: computers to wait for, for wait_s at most;
    patience_s: how long a lost worker may take to come back. keep: takes each bundle, in a thread, and
    returns how many of its rows are new. say: takes a line about what happens."""

    client: Client
    profile: MeasuringProfile
    chapters: tuple[str, ...]
    seconds: float
    keep: Callable[[Bundle], int]
    expected: int = 1
    wait_s: float = 300.0
    patience_s: float = 20.0
    say: Callable[[str], None] = lambda line: None
    computers: dict[str, Computer] = field(default_factory=dict)

    def run(self) -> None:
        """Measure until all computers are done or given up. Raises Unavailable: worker-failed without a
        scheduler, or if fewer computers than expected came; disk-refused."""
        self._shown = time.monotonic()
        self._campaigns: dict[Scope, tuple[dict[str, list[Point]], set[Point]]] = {}
        self._making, self._checking = asyncio.Lock(), asyncio.Lock()  # one at a time, in a thread
        self.client.subscribe_topic(worker.TOPIC, self._progress)
        self.say(self.connected)
        self.client.sync(self._run)
        if len(self.computers) < self.expected:
            raise Unavailable("worker-failed", self.connected)

    @property
    def connected(self) -> str:
        return f"{len(self.computers)} of {self.expected} connected"

    async def _run(self) -> None:
        """Look for workers, and serve each that comes. Raises Unavailable: worker-failed, disk-refused."""
        begun = heard = time.monotonic()
        served: list[asyncio.Task[None]] = []
        try:
            while not all(one.done() for one in served) or (
                len(self.computers) < self.expected and time.monotonic() - begun <= self.wait_s
            ):
                present = await self._workers()
                if present is not None:
                    heard = time.monotonic()
                    served += [asyncio.create_task(self._serve(one)) for one in self._new(present)]
                    self._note_lost(present)
                elif time.monotonic() - heard > self.patience_s:
                    raise Unavailable("worker-failed", "the scheduler")
                self._show()
                await asyncio.sleep(POLL_S)
                for one in served:
                    if one.done():
                        one.result()
        finally:
            for one in served:
                one.cancel()

    async def _workers(self) -> dict[str, str] | None:
        """Return the addresses of present workers by name, None while the scheduler does not answer."""
        # Not scheduler_info(), which waits for a lost scheduler without a limit.
        asked = self.client.scheduler.identity if self.client.scheduler else None
        if asked is None or self.client.status != "running":
            return None
        try:
            info = await self.client.sync(asked, callback_timeout=CALL_S)
        except (OSError, TimeoutError, RuntimeError, ValueError):
            return None
        return {str(about["name"]): address for address, about in info["workers"].items()}

    def _new(self, present: dict[str, str]) -> list[Computer]:
        """Note the workers that came, and return them."""
        names = present.keys() - self.computers.keys()
        new = [Computer(name, present[name]) for name in sorted(names)]
        self.computers |= {one.name: one for one in new}
        if new:
            self.say(self.connected)
        return new

    def _note_lost(self, present: dict[str, str]) -> None:
        """Note workers that are gone, or came back."""
        for one in self.computers.values():
            if one.name in present:
                one.address = present[one.name]
                if one.lost is not None:
                    self.say(f"{one.name} is back.")
                one.lost = None
            elif one.lost is None and not one.over:
                one.lost = time.monotonic()
                self.say(f"{one.name} is lost; it may come back for {self.patience_s:.0f} s.")

    async def _serve(self, computer: Computer) -> None:
        """Measure on a computer, or give it up. Raises Unavailable("disk-refused")."""
        try:
            await self._measure(computer)
        except TimeoutError:
            computer.why = Unavailable("worker-failed", f"{computer.name} does not end")
        except Unavailable as why:
            if why.code == "disk-refused":
                raise
            computer.why = why
        except Exception as error:  # whatever a worker of another version sends
            detail = f"it sent no bundle, so nothing of it was kept: {computer.name}: "
            computer.why = Unavailable(
                "worker-failed",
                f"{detail}{type(error).__name__}: {error}"[:250],
                "Run `tlb run` and `tlb bundle make` on that computer and report what differs; then "
                "restart its worker.",
            )
        computer.over = True
        self.say(f"{computer.name}: {computer.why or f'{computer.rows} new rows'}")

    async def _measure(self, computer: Computer) -> None:
        """Measure on a computer and keep its bundle. Raises Unavailable for one that is present twice, a
        campaign that was stopped, and a bundle that is refused; TimeoutError."""
        host = await self._done(computer, lambda: (worker.describe,))
        machine = hosts.machine_id(host)
        if same := [one.name for one in self.computers.values() if one.machine == machine]:
            raise Unavailable(
                "worker-failed",
                f"this computer is already present under another name: {computer.name} is {same[0]}",
                "Name each computer once; copies of a disk image need their own /etc/machine-id "
                "(`systemd-machine-id-setup`).",
            )
        computer.machine = machine
        async with self._making:
            task = await asyncio.to_thread(self._task, host)
        until = time.monotonic() + self.seconds

        def measuring() -> tuple[Callable[[worker.Task], worker.Measured], worker.Task]:
            return worker.measure, replace(task, seconds=max(until - time.monotonic(), 0.0))

        while True:
            computer.measured = measured = await self._done(computer, measuring)
            if measured.contents is not None:
                async with self._checking:
                    computer.machine, new = await asyncio.to_thread(self._keep, measured.contents)
                computer.rows += new
            if not measured.code:
                return
            is_passing = measured.code in PASSING and time.monotonic() < until + MARGIN_S
            if not is_passing:  # else the next task goes on
                raise Unavailable(measured.code, measured.detail)

    async def _done(self, computer: Computer, call: Callable[[], tuple[Any, ...]]) -> Any:
        """Return what a task gives on a computer. call: gives its function and arguments.

        It is submitted again if its worker is lost, since a task is bound to its worker. Raises
        Unavailable("worker-failed") for a worker that stays away, TimeoutError for a task that does not end.
        """
        where: dict[str, Any] = {"pure": False, "retries": RETRIES}
        async with asyncio.timeout(self.seconds + MARGIN_S):
            while True:
                address = computer.address
                future = self.client.submit(*call(), workers=[address], **where)
                while computer.is_at(address) and future.status == "pending":
                    await asyncio.sleep(POLL_S)
                if computer.is_at(address) and future.status in ("finished", "error"):
                    with suppress(TimeoutError, CancelledError):
                        return await self._fetched(computer, future)
                await asyncio.sleep(POLL_S)
                while computer.lost is not None:
                    if time.monotonic() - computer.lost > self.patience_s:
                        raise Unavailable("worker-failed", computer.name)
                    await asyncio.sleep(POLL_S)

    async def _fetched(self, computer: Computer, future: Future) -> Any:
        """Return a task's result, or raise its error; that of a worker which died meanwhile never comes."""
        return await future.result(timeout=FETCH_S)

    def _task(self, host: Host) -> worker.Task:
        """Return what a computer is to measure."""
        most = max(usable_bytes(host, pages) for pages in PAGE_KINDS)
        most = min(most, self.profile.max_working_set)
        profile = self.profile.model_copy(update={"max_working_set": most})
        entries, cpus = tuple(tlb_entries(host)), len(host.usable_cpus)
        scope = Scope(profile, "c", entries, cpus, base_page_bytes=host.base_page_bytes)
        if scope not in self._campaigns:  # alike of computers of one type
            points = notebooks.load_book_module("overview.campaign").points_by_chapter(
                scope, self.chapters or None
            )
            is_compared = claims.compared_points(scope)
            every = {point for grid_points in points.values() for point in grid_points}
            self._campaigns[scope] = points, {point for point in every if is_compared(point)}
        return worker.Task(*self._campaigns[scope], profile.repeats, profile.shape_repeats, 0.0)

    def _keep(self, contents: bundle.Contents) -> tuple[str, int]:
        """Check and keep what a computer sent; return its machine and how many of its rows are new."""
        read = bundle.read(bundle.pack(contents))
        return read.machine, self.keep(read)

    def _progress(self, event: tuple[float, dict[str, object]]) -> None:
        """Note what a worker says of itself."""
        _, said = event
        share = said.get("share")
        computer = self.computers.get(str(said.get("name")))
        if computer and isinstance(share, float):
            computer.share = share

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= STATUS_S:
            self._shown = now
            measuring = [one for one in self.computers.values() if not one.over]
            measuring.sort(key=lambda one: one.share)
            done = len(self.computers) - len(measuring)
            shares = [f"{one.name} {one.share:.0%}" for one in measuring[:MOST_SHOWN]]
            self.say(f"{done} of {len(self.computers)} done; {', '.join(shares) or 'waiting'}")


def connected(
    scheduler: str, ssh: Sequence[str], local: int, timeout_s: float, python: str = ""
) -> Client:
    """Return a client of a scheduler's address, or of one that is started here with workers on these
    hosts by SSH or with this number of workers here. TLS is as Dask's configuration says.

    python: the workers' Python on each host. Raises Unavailable: worker-failed, bad-parameter.
    """
    if sum(map(bool, (scheduler, ssh, local))) != 1:
        raise Unavailable("bad-parameter", "name one of --scheduler, --ssh and --local")
    # Workers have neither NumPy nor pandas.
    warnings.simplefilter("ignore", VersionMismatchWarning)
    try:
        if scheduler:
            return Client(scheduler, timeout=timeout_s, set_as_default=False)
        one_task = {"threads_per_worker": 1, "memory_limit": 0}
        cluster = _by_ssh(ssh, python) if ssh else LocalCluster(n_workers=local, **one_task)
        return Client(cluster, set_as_default=False)
    # asyncssh's errors, and Dask's of a worker that does not start, are of no closer kind.
    except Exception as error:
        where = scheduler or ", ".join(ssh) or "this computer"
        detail = f"{where}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise Unavailable("worker-failed", detail[:200]) from None


def _by_ssh(names: Sequence[str], python: str) -> SpecCluster:
    """Return a cluster of a scheduler in this process and a worker on each host. Unlike SSHCluster it
    needs no SSH server here."""

    def options(name: str) -> dict[str, object]:
        kwargs = {"nthreads": 1, "memory_limit": 0, "name": name}
        how = {"connect_options": {}, "kwargs": kwargs, "remote_python": python}
        return {"cls": ssh_cluster.Worker, "options": {"address": name, **how}}

    scheduler = {"cls": Scheduler, "options": {"host": ""}}
    workers = {name: options(name) for name in names}
    return SpecCluster(workers, scheduler, silence_logs=logging.ERROR)
