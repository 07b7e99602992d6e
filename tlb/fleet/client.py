"""The client of a fleet: one task a computer, whose bundle is checked like any stranger's and
added.

Dask stores nothing that matters. A computer's rows lie in its ledger before they are sent, and the
client adds a bundle once, whole or not at all. So after any death the same command goes on, and no
process is measured twice.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

from distributed import Client, Future

from tlb.fleet import accept, check, tls
from tlb.fleet.worker import Campaign, Measured, measure
from tlb.lab.store import Store
from tlb.reasons import Unavailable

LOOK_S = 0.5  # between two looks at who is there
TRIES = 3  # of what failed without a reason on one worker
PAUSE_S = 2.0
PASSING = {"measuring-already", "state-changed", "cpu-gone"}  # reasons that end by themselves


@dataclass
class Computer:
    """One of the fleet. rows: new ones of this run; why: for what reason it is asked nothing more;
    begun, heard: monotonic."""

    name: str
    machine: str = ""
    rows: int = 0
    left: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    over: bool = False
    why: Unavailable | None = None
    begun: float = 0.0
    heard: float = field(default_factory=time.monotonic)
    address: str = ""
    failures: int = 0
    complaint: str = ""  # of what was to start its worker

    def complain(self, words: str) -> None:
        """Tell why a worker did not start or ended, each reason once in a row."""
        if words != self.complaint:
            self.complaint = words
            print(f"{self.name}: {words}", file=sys.stderr)


@dataclass
class Fleet:
    """names: who is expected; if empty, whoever comes, at least so many. notice: called with each
    computer that is over."""

    data: Store
    campaign: Campaign
    names: Collection[str] = ()
    least: int = 1
    patience_s: float = 600.0
    notice: Callable[[Computer], None] = lambda computer: None
    computers: dict[str, Computer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.computers |= {name: Computer(name) for name in self.names}
        self._visits: dict[str, asyncio.Task[None]] = {}
        self._owners: dict[str, str] = {}  # the computer that each machine is asked as
        self._known = accept.Known(self.data)
        self._full: Unavailable | None = None  # what keeps this client from storing

    @property
    def finished(self) -> bool:
        return len(self.computers) >= self.least and all(
            computer.over for computer in self.computers.values()
        )

    async def run(self, address: str, pem: str) -> None:
        """Measure until all is done or given up. Raises Unavailable: fleet-gone without a
        scheduler, disk-full, disk-read-only."""
        heard, how = (
            time.monotonic(),
            {"asynchronous": True, "security": tls.security(pem), "set_as_default": False},
        )
        while not self.finished:
            with suppress(OSError, TimeoutError):
                async with Client(address, timeout=min(self.patience_s, 10.0), **how) as client:
                    try:
                        while not self.finished and client.status == "running":
                            identity = await asyncio.wait_for(client.scheduler.identity(), 30.0)
                            heard = time.monotonic()
                            self._look(
                                client,
                                {
                                    str(worker["name"]): address
                                    for address, worker in identity["workers"].items()
                                },
                            )
                            await asyncio.sleep(LOOK_S)
                    finally:
                        for visit in self._visits.values():
                            visit.cancel()
                        await asyncio.gather(*self._visits.values(), return_exceptions=True)
            if not self.finished and time.monotonic() - heard > self.patience_s:
                raise Unavailable("fleet-gone", f"the scheduler at {address}")
            await asyncio.sleep(LOOK_S)

    def _look(self, client: Client, there: dict[str, str]) -> None:
        """Ask computers that came, forget the tasks of workers that are gone, give up computers
        that were silent for too long."""
        if self._full:
            raise self._full
        now = time.monotonic()
        for name in there.keys() & {*(self.names or there)}:
            computer, visit = (
                self.computers.setdefault(name, Computer(name)),
                self._visits.get(name),
            )
            computer.heard, computer.begun = now, computer.begun or now
            if visit and computer.address != there[name]:
                visit.cancel()
                computer.failures = 0
            if not computer.over and (visit is None or visit.done()):
                computer.address, computer.complaint = there[name], ""
                self._visits[name] = asyncio.create_task(self._visit(client, computer))
        for computer in self.computers.values():
            is_late = (
                computer.begun and now - computer.begun > self.campaign.seconds + self.patience_s
            )
            if not computer.over and (is_late or now - computer.heard > self.patience_s):
                self._end(
                    computer,
                    Unavailable(
                        "fleet-gone", ": ".join(filter(None, (computer.name, computer.complaint)))
                    ),
                )

    async def _visit(self, client: Client, computer: Computer) -> None:
        """Have one computer measured. What fails without a reason is tried again, as a worker that
        comes back is."""
        left_s = max(self.campaign.seconds - (time.monotonic() - computer.begun), 0.0)
        asked = self.campaign.model_copy(update={"seconds": left_s}).model_dump_json()
        future = client.submit(measure, asked, workers=[computer.address], pure=False)
        try:
            await self._collect(future, computer)
        except Unavailable as why:
            if why.code in PASSING:
                await asyncio.sleep(PAUSE_S)
            elif why is not self._full:
                self._end(computer, why)
        except Exception as error:  # of Dask, or for what is no bundle
            computer.failures += 1
            if computer.failures >= TRIES:
                self._end(
                    computer, Unavailable("fleet-garbage", f"{type(error).__name__}: {error}"[:200])
                )
        finally:
            future.release()

    async def _collect(self, future: Future, computer: Computer) -> None:
        """Add the bundle of a finished task. Raises Unavailable for one that is refused, and for a
        campaign that was stopped."""
        measured = Measured(*await future)
        bundle = await asyncio.to_thread(check.opened, measured.bundle)
        owner = self._owners.setdefault(bundle.machine, computer.name)
        if owner != computer.name:
            raise Unavailable("fleet-twice", f"{computer.name} is {owner}")
        try:
            added = await asyncio.to_thread(accept.add, self.data, bundle, self._known)
        except Unavailable as why:
            self._full = why if why.code.startswith("disk-") else self._full
            raise
        computer.machine, computer.rows = bundle.machine, computer.rows + added.rows
        computer.lacking, computer.left = measured.lacking, measured.left
        if measured.stopped:
            raise measured.stopped
        self._end(computer, None)

    def _end(self, computer: Computer, why: Unavailable | None) -> None:
        computer.over, computer.why = True, why
        self.notice(computer)
