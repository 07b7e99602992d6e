"""The client of a fleet: one task at a time on each computer, of which it keeps what arrives and is proved, and nothing else.

Dask carries; it stores nothing that matters. Each computer's rows lie in its own ledger before they are sent, and in this client's store
before their future is released, so whatever dies, the same command goes on. A task is for the computer that it names and for no other;
what became of it is told by the address under which that name is known: another one, or none, and it is asked again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf

from distributed import Client

from experiments.fleet import nodes, slot
from experiments.fleet.campaigns import Campaign
from experiments.fleet.certificates import Pass
from experiments.fleet.collected import Collected
from experiments.fleet.parcel import Sender, Task, check_sender, open_parcel
from experiments.lab.record import Point
from experiments.words.reasons import Unavailable

LOOK_S = 0.5  # between two looks at who is there; of a large fleet as rare as its heartbeats
LOOKS_AT = 200  # computers a second
TRIES = 3  # of what failed without a reason on one and the same worker
# What passes: another measurement on that computer, a setting that was switched, a worker that was restarted.
PAUSE_S = 2.0
PASSING = frozenset({"measuring-already", "state-changed", "cpu-gone"})


@dataclass
class Visited:
    """How far one computer is. why: the reason for which nothing more is asked of it."""

    name: str
    machine: str = ""
    done: int = 0  # tasks
    tasks: int = 0
    rows: int = 0  # that arrived in this run
    left: int = 0  # processes that there was no time for
    lacking: Counter[str] = field(default_factory=Counter)  # points, by reason
    over: bool = False
    why: Unavailable | None = None
    shares_its_cpu: bool = False
    begun: float = inf  # monotonic
    heard: float = field(default_factory=time.monotonic)
    address: str = ""
    failures: int = 0
    complaint: str = ""  # of what was to start its worker


@dataclass
class Courier:
    """names: who is expected; with none, whoever comes until all that came are done, and these are `least`. notice: called with each
    computer when something about it changed."""

    collected: Collected
    campaign: Campaign
    names: Collection[str] = ()
    least: int = 1
    patience_s: float = 600.0
    notice: Callable[[Visited], None] = lambda visited: None
    fleet: dict[str, Visited] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fleet |= {name: Visited(name) for name in dict.fromkeys(self.names)}
        self._visits: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._owners: dict[str, str] = {}  # the name under which a machine is asked
        self._full: Unavailable | None = None  # what keeps this client from storing

    @property
    def finished(self) -> bool:
        return len(self.fleet) >= self.least and all(visited.over for visited in self.fleet.values())

    async def run(self, address: str, shown: Pass | None) -> list[Visited]:
        """Until all is done, or nothing was heard of what is left for as long as patience has it. Raises Unavailable: fleet-gone where no
        scheduler was, and what its store raises."""
        heard = time.monotonic()
        while not self.finished:
            with suppress(OSError, TimeoutError):
                async with Client(address, asynchronous=True, security=nodes.security(shown), set_as_default=False,
                                  direct_to_workers=False, timeout=min(self.patience_s, 10.0)) as client:
                    try:
                        await self._session(client)
                    finally:
                        heard = time.monotonic()
                        await self._leave()
            if not self.finished:
                if time.monotonic() - heard > self.patience_s:
                    raise Unavailable("fleet-gone", f"the scheduler at {address}")
                await asyncio.sleep(LOOK_S)
        return list(self.fleet.values())

    async def _session(self, client: Client) -> None:
        """As long as there is this connection."""
        while not self.finished and client.status == "running":
            identity = await asyncio.wait_for(client.scheduler.identity(), 30.0)
            there = {str(worker["name"]): address for address, worker in identity["workers"].items()}
            self._look(client, there)
            if self._full:
                raise self._full
            await asyncio.sleep(max(LOOK_S, len(there) / LOOKS_AT))

    def _look(self, client: Client, there: dict[str, str]) -> None:
        """Begin with who is new, end with who is gone or another, give up who was silent for too long."""
        for name, (address, visit) in [*self._visits.items()]:
            if visit.done() or there.get(name) != address:
                visit.cancel()
                del self._visits[name]
        for name in there.keys() & {*self.names} if self.names else [*there]:
            visited = self.fleet.setdefault(name, Visited(name))
            visited.heard = time.monotonic()
            if not visited.over and name not in self._visits:
                visited.failures = visited.failures if visited.address == there[name] else 0
                visited.address, visited.complaint = there[name], ""
                self._visits[name] = there[name], asyncio.create_task(self._visit(client, visited))
        for visited in self.fleet.values():
            if not visited.over and visited.name not in there and time.monotonic() - visited.heard > self.patience_s:
                self._end(visited, Unavailable("fleet-gone", ": ".join(filter(None, (visited.name, visited.complaint)))))

    async def _visit(self, client: Client, visited: Visited) -> None:
        """Ask one computer for all there is. What fails with no reason is tried again, as a worker that comes back is."""
        try:
            await self._ask_all(client, visited)
        except Unavailable as why:
            if why.code in PASSING and time.monotonic() - visited.begun < self.campaign.seconds:
                await asyncio.sleep(PAUSE_S)
            elif why is not self._full:
                self._end(visited, why)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # of Dask, or what the worker's own code raised
            visited.failures += 1
            if visited.failures >= TRIES:
                self._end(visited, Unavailable("fleet-garbage", f"{type(error).__name__}: {error}"[:200]))

    async def _ask_all(self, client: Client, visited: Visited) -> None:
        async with self._result(client, visited, slot.greet) as greeting:
            sender = check_sender(greeting)
        owner = self.fleet.get(self._owners.get(sender.machine, ""), visited)
        if owner is not visited and (owner.name in self._visits or (owner.over and not owner.why)):
            raise Unavailable("fleet-twice", f"{visited.name} is {owner.name}")
        self._owners[sender.machine] = visited.name
        visited.machine, visited.shares_its_cpu = sender.machine, sender.shares_its_cpu
        visited.begun = min(visited.begun, time.monotonic())
        grids = self.campaign.grids(sender.host)
        self._store(self.collected.describe, sender, grids)
        rounds = [*self.campaign.rounds(grids)]
        visited.done, visited.tasks, visited.lacking = 0, len(rounds), Counter()
        lacking: dict[Point, str] = {}
        for kernel, repeats, most in rounds:
            left_s = max(self.campaign.seconds - (time.monotonic() - visited.begun), 0.0)
            task = self.collected.task(sender.machine, grids, kernel, repeats, most, left_s)
            lacking |= await self._ask(client, visited, sender, task)
            visited.lacking = Counter(lacking.values())
            visited.done += 1
            self.notice(visited)
        visited.left = self.collected.left(sender, grids, self.campaign.rounds(grids), lacking)
        self._end(visited, None)

    async def _ask(self, client: Client, visited: Visited, sender: Sender, task: Task) -> dict[Point, str]:
        """The points that it cannot measure, with their reasons. Its rows are on disk before its future is released."""
        async with self._result(client, visited, slot.take, task.model_dump_json()) as parcel:
            opened = open_parcel(parcel, task, sender)
            visited.rows += self._store(self.collected.add, opened)
        visited.failures = 0
        if opened.stopped:
            raise opened.stopped
        return {point: why.code for point, why in opened.lacking.items()}

    @asynccontextmanager
    async def _result(self, client: Client, visited: Visited, function: Callable[..., object], *given: object) -> AsyncIterator[object]:
        """What a function gives on the worker of this name, which alone may run it."""
        future = client.submit(function, *given, workers=[visited.name], allow_other_workers=False, pure=False)
        try:
            yield await future
        finally:
            visited.heard = time.monotonic()
            future.release()

    def _store(self, keep: Callable[..., int | None], *what: object) -> int:
        """Raises Unavailable where this client's own disk takes nothing more: that ends the run, and refuses nobody."""
        try:
            return keep(*what) or 0
        except Unavailable as why:
            self._full = why
            raise

    def _end(self, visited: Visited, why: Unavailable | None) -> None:
        visited.over, visited.why = True, why
        self.notice(visited)

    async def _leave(self) -> None:
        for _, visit in self._visits.values():
            visit.cancel()
        await asyncio.gather(*(visit for _, visit in self._visits.values()), return_exceptions=True)
        self._visits.clear()
