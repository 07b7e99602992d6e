"""The client of a fleet: one task a computer, whose bundle is checked like any stranger's and
added.

Dask stores nothing that matters. A computer's rows lie in its ledger before they are sent, and the
client adds a bundle once, whole or not at all. So after any death the same command goes on, and no
process is measured twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from distributed import Client

from tlb.fleet import accept, check, tls
from tlb.fleet.worker import Campaign, Measured, measure
from tlb.measure.store import Store
from tlb.system.reasons import Unavailable

POLL_S = 0.5  # between two questions to the scheduler about its workers
TRIES = 3  # of a task that fails without a reason on one worker
PAUSE_S = 2.0
PASSING = {"measuring-already", "state-changed", "cpu-gone"}  # reasons that end by themselves


@dataclass
class Computer:
    """One member. rows: new ones of this run; left: processes without time; lacking: points by
    reason; why: the reason for which it is given up; begun, heard: monotonic seconds."""

    name: str
    machine: str = ""
    rows: int = 0
    left: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    over: bool = False
    why: Unavailable | None = None
    begun: float = field(default_factory=time.monotonic)
    heard: float = 0.0
    address: str = ""
    failures: int = 0


@dataclass
class Fleet:
    """least: how many computers are waited for; notice: called with each computer that is over;
    count: called with how many of the awaited ones are there, as more come."""

    data: Store
    campaign: Campaign
    least: int = 1
    patience_s: float = 600.0
    notice: Callable[[Computer], None] = lambda computer: None
    count: Callable[[str], None] = lambda connected: None
    computers: dict[str, Computer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._visits: dict[str, asyncio.Task[None]] = {}
        self._owners: dict[str, str] = {}  # the computer's name by machine
        self._known = accept.Known(self.data)
        self._full: Unavailable | None = None  # why this client cannot store rows

    @property
    def finished(self) -> bool:
        return len(self.computers) >= self.least and self._all_over

    @property
    def _all_over(self) -> bool:
        return all(computer.over for computer in self.computers.values())

    @property
    def connected(self) -> str:
        return f"{len(self.computers)} of {self.least} connected"

    async def run(self, address: str, pem: str) -> None:
        """Measure until all is done or given up. Raises Unavailable: fleet-gone without a scheduler
        or with too few computers, disk-full, disk-read-only."""
        self._heard = self._came = time.monotonic()
        while not self.finished:
            # ValueError: Tornado's, where a connection closes before its TLS handshake.
            with suppress(OSError, TimeoutError, ValueError):
                async with Client(
                    address,
                    timeout=min(self.patience_s, 10.0),
                    asynchronous=True,
                    security=tls.security(pem),
                    set_as_default=False,
                ) as client:
                    await self._follow(client)
            if not self.finished and time.monotonic() - self._heard > self.patience_s:
                raise Unavailable("fleet-gone", f"the scheduler at {address}")
            await asyncio.sleep(POLL_S)

    async def _follow(self, client: Client) -> None:
        """Give tasks to workers until all is done or the scheduler is gone."""
        try:
            while not self.finished and client.status == "running":
                identity = await asyncio.wait_for(client.scheduler.identity(), 30.0)
                self._heard = time.monotonic()
                self._update(client, {str(w["name"]): at for at, w in identity["workers"].items()})
                await asyncio.sleep(POLL_S)
        finally:
            for visit in self._visits.values():
                visit.cancel()
            await asyncio.gather(*self._visits.values(), return_exceptions=True)

    def _update(self, client: Client, present: dict[str, str]) -> None:
        """Start tasks on workers that came, and give up computers that were silent for too long.
        present: addresses of workers by name."""
        if self._full:
            raise self._full
        now = time.monotonic()
        before = len(self.computers)
        for name, address in present.items():
            computer = self.computers.setdefault(name, Computer(name))
            computer.heard, visit = now, self._visits.get(name)
            if visit and computer.address != address:
                visit.cancel()
                computer.failures = 0
            if not computer.over and (visit is None or visit.done()):
                computer.address = address
                self._visits[name] = asyncio.create_task(self._visit(client, computer))
        for computer in self.computers.values():
            is_late = now - computer.begun > self.campaign.seconds + self.patience_s
            if not computer.over and (is_late or now - computer.heard > self.patience_s):
                self._end(computer, Unavailable("fleet-gone", computer.name))
        if len(self.computers) > before:
            self._came = now
            if before < self.least:
                self.count(self.connected)
        too_few = len(self.computers) < self.least and self._all_over
        if too_few and now - self._came > self.patience_s:
            raise Unavailable("fleet-gone", self.connected)

    async def _visit(self, client: Client, computer: Computer) -> None:
        """A failure without a reason is tried again."""
        left_s = max(self.campaign.seconds - (time.monotonic() - computer.begun), 0.0)
        campaign = self.campaign.model_copy(update={"seconds": left_s})
        future = client.submit(measure, campaign, workers=[computer.address], pure=False)
        try:
            await self._collect(Measured(*await future), computer)
        except Unavailable as why:
            if why.code in PASSING:
                await asyncio.sleep(PAUSE_S)
            elif why is not self._full:
                self._end(computer, why)
        except Exception as error:  # of Dask, or for what is no bundle
            computer.failures += 1
            if computer.failures >= TRIES:
                detail = f"{type(error).__name__}: {error}"[:200]
                self._end(computer, Unavailable("fleet-garbage", detail))
        finally:
            future.release()

    async def _collect(self, measured: Measured, computer: Computer) -> None:
        """Add a bundle. Raises Unavailable for one that is refused, and for a campaign that was
        stopped."""
        bundle = await asyncio.to_thread(check.opened, measured.bundle)
        owner = self._owners.setdefault(bundle.machine, computer.name)
        if owner != computer.name:
            raise Unavailable("fleet-twice", f"{computer.name} is {owner}")
        try:
            added = await asyncio.to_thread(accept.add, self.data, bundle, self._known)
        except Unavailable as why:
            self._full = why if why.code in ("disk-full", "disk-read-only") else self._full
            raise
        computer.machine, computer.rows = bundle.machine, computer.rows + added.rows
        computer.lacking, computer.left = measured.lacking, measured.left
        if measured.stopped:
            raise measured.stopped
        self._end(computer, None)

    def _end(self, computer: Computer, why: Unavailable | None) -> None:
        computer.over, computer.why = True, why
        self.notice(computer)
