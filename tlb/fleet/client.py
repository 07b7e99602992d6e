"""The client of a fleet: one task a computer on an existing Dask cluster, pinned to its worker, whose
bundle is checked like a stranger's and added.

Dask stores nothing that matters: a computer's rows lie in its own ledger before they are sent, and a
bundle is added whole or not at all. So after any failure the same command goes on.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass, field

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
from tlb.report import claims, discovery
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
    """One worker. rows: new ones of this run. measured: what its last task gave. check: of the bundle in
    it. until: when its measuring has to end. lost: since when its worker is gone. why: the reason for
    which it is given up. share: of the campaign that is done."""

    name: str
    address: str
    machine: str = ""
    rows: int = 0
    measured: worker.Measured = field(default_factory=worker.Measured)
    check: ThreadFuture[tuple[str, int]] | None = None
    over: bool = False
    why: Unavailable | None = None
    share: float = 0.0
    since: float = field(default_factory=time.monotonic)
    until: float | None = None
    lost: float | None = None
    host: Host | None = None
    future: Future | None = None


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
        self._begun = self._heard = self._shown = time.monotonic()
        self._owners: dict[str, str] = {}
        self._campaigns: dict[Scope, tuple[dict[str, list[Point]], set[Point]]] = {}
        self._checker = ThreadPoolExecutor(1)  # bundles are checked while others are awaited
        self.client.subscribe_topic(worker.TOPIC, self._progress)
        self.say(self.connected)
        try:
            while not self._is_finished():
                if (present := self._workers()) is not None:
                    self._update(present)
                    for computer in self.computers.values():
                        self._advance(computer)
                self._show()
                time.sleep(POLL_S)
        finally:
            self._checker.shutdown(cancel_futures=True)
        if len(self.computers) < self.expected:
            raise Unavailable("worker-failed", self.connected)

    @property
    def connected(self) -> str:
        return f"{len(self.computers)} of {self.expected} connected"

    def _is_finished(self) -> bool:
        is_late = time.monotonic() - self._begun > self.wait_s
        has_all = len(self.computers) >= self.expected or is_late
        return has_all and all(computer.over for computer in self.computers.values())

    def _workers(self) -> dict[str, str] | None:
        """Return the addresses of present workers by name, None while the scheduler does not answer.
        Raises Unavailable("worker-failed") after too long without one."""
        try:
            # Not scheduler_info(), which waits for a lost scheduler without a limit.
            asked = self.client.scheduler.identity if self.client.scheduler else None
            is_there = asked is not None and self.client.status == "running"
            info = self.client.sync(asked, callback_timeout=CALL_S) if is_there else {}
            workers = info.get("workers")
        except (OSError, TimeoutError, RuntimeError, ValueError):
            workers = None
        now = time.monotonic()
        if workers is not None:
            self._heard = now
            return {str(about["name"]): address for address, about in workers.items()}
        if now - self._heard > self.patience_s:
            raise Unavailable("worker-failed", "the scheduler")
        return None

    def _update(self, present: dict[str, str]) -> None:
        """Note workers that came, came back, or are gone."""
        before = len(self.computers)
        for name, address in present.items():
            computer = self.computers.setdefault(name, Computer(name, address))
            if computer.address != address:
                computer.address, computer.future = address, None
            if computer.lost is not None:
                computer.lost = None
                self.say(f"{name} is back.")
        if len(self.computers) > before:
            self.say(self.connected)
        for computer in self.computers.values():
            is_needed = not computer.over and computer.check is None
            if is_needed and computer.name not in present:
                self._miss(computer)

    def _miss(self, computer: Computer) -> None:
        now = time.monotonic()
        if computer.lost is None:
            computer.lost, computer.future = now, None
            self.say(f"{computer.name} is lost; it may come back for {self.patience_s:.0f} s.")
        elif now - computer.lost > self.patience_s:
            self._end(computer, Unavailable("worker-failed", computer.name))

    def _advance(self, computer: Computer) -> None:
        """Submit what is next on a computer, and take what has ended there. Raises
        Unavailable("disk-refused")."""
        future, now = computer.future, time.monotonic()
        try:
            if computer.over or (computer.check and not computer.check.done()):
                return
            if computer.check:
                self._take(computer, computer.measured, computer.check)
            elif computer.lost is not None:
                return
            elif now > (computer.until or computer.since) + MARGIN_S + self.patience_s:
                raise Unavailable("worker-failed", f"{computer.name} does not end")
            elif future is None or future.status in ("cancelled", "lost"):
                computer.future = self._submitted(computer)
            elif future.status == "finished":
                self._fetch(computer, future)
            elif future.status == "error":
                raise _no_bundle(computer, future.exception())
        except Unavailable as why:
            if why.code == "disk-refused":
                raise
            self._end(computer, why)

    def _submitted(self, computer: Computer) -> Future:
        where = {"workers": [computer.address], "pure": False, "retries": RETRIES}
        if computer.host is None:
            return self.client.submit(worker.describe, **where)
        return self.client.submit(worker.measure, self._task(computer, computer.host), **where)

    def _task(self, computer: Computer, host: Host) -> worker.Task:
        """Return what a computer is to measure in the time that is left."""
        most = max(usable_bytes(host, pages) for pages in PAGE_KINDS)
        most = min(most, self.profile.max_working_set)
        profile = self.profile.model_copy(update={"max_working_set": most})
        scope = Scope(
            profile,
            "c",
            tuple(tlb_entries(host)),
            len(host.usable_cpus),
            base_page_bytes=host.base_page_bytes,
        )
        if scope not in self._campaigns:  # alike of computers of one type
            points = discovery.load("overview.campaign").grids_of(scope, self.chapters or None)
            is_compared = claims.compared_points(scope)
            every = {point for grid_points in points.values() for point in grid_points}
            self._campaigns[scope] = points, {point for point in every if is_compared(point)}
        points, compared = self._campaigns[scope]
        if computer.until is None:  # now, since making the tasks of many computers takes a while
            computer.until = time.monotonic() + self.seconds
        return worker.Task(
            points=points,
            compared=compared,
            repeats=profile.repeats,
            shape_repeats=profile.shape_repeats,
            seconds=max(computer.until - time.monotonic(), 0.0),
        )

    def _fetch(self, computer: Computer, future: Future) -> None:
        """Take a description, or have a bundle checked. That of a worker which died meanwhile never comes,
        since its task is bound to it: so the next look at the workers decides what to do."""
        try:
            result = future.result(timeout=FETCH_S)
        except (TimeoutError, CancelledError):
            return
        computer.future = None
        if isinstance(result, Host):
            self._introduce(computer, result)
        else:
            computer.measured = result
            computer.check = self._checker.submit(self._check, result)

    def _introduce(self, computer: Computer, host: Host) -> None:
        """Note what a computer is. Raises Unavailable: worker-failed, and as `machine_id`."""
        machine = hosts.machine_id(host)
        owner = self._owners.setdefault(machine, computer.name)
        if owner != computer.name:
            raise Unavailable(
                "worker-failed",
                f"this computer is already present under another name: {computer.name} is {owner}",
                "Name each computer once; copies of a disk image need their own /etc/machine-id "
                "(`systemd-machine-id-setup`).",
            )
        computer.machine, computer.host = machine, host

    def _check(self, measured: worker.Measured) -> tuple[str, int]:
        """Keep the bundle that a computer sent; return its machine and how many of its rows are new."""
        if measured.contents is None:
            return "", 0
        read = bundle.read(bundle.pack(measured.contents))
        return read.machine, self.keep(read)

    def _take(
        self, computer: Computer, measured: worker.Measured, check: ThreadFuture[tuple[str, int]]
    ) -> None:
        """Take the result of a check. Raises Unavailable for a bundle that is refused, and for a campaign
        that was stopped."""
        computer.check = None
        try:
            machine, new = check.result()
        except Unavailable:
            raise
        except Exception as error:  # whatever a worker of another version sent
            raise _no_bundle(computer, error) from error
        computer.machine, computer.rows = machine or computer.machine, computer.rows + new
        if measured.code in PASSING:
            return  # the next task goes on
        if measured.code:
            raise Unavailable(measured.code, measured.detail)
        self._end(computer, None)

    def _end(self, computer: Computer, why: Unavailable | None) -> None:
        computer.over, computer.why, computer.future = True, why, None
        self.say(f"{computer.name}: {why or f'{computer.rows} new rows'}")

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


def _no_bundle(computer: Computer, error: BaseException | None) -> Unavailable:
    why = f"it sent no bundle, so nothing of it was kept: {computer.name}: {type(error).__name__}: {error}"
    return Unavailable(
        "worker-failed",
        why[:250],
        "Run `tlb run` and `tlb bundle make` on that computer and report what differs; then restart "
        "its worker.",
    )


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
