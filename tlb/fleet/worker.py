"""One computer of a fleet: a Dask worker whose only task runs a campaign into this computer's own
ledger and returns a bundle of it.

The worker has one thread, nothing in it is periodic, and its event loop runs on the CPUs that are
not measured. That it is gone, its connection tells.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import dask
from distributed import Scheduler, Worker
from pydantic import BaseModel

from tlb import discovery
from tlb.fleet import pack, tls
from tlb.lab import grid
from tlb.lab.campaign import Outcome
from tlb.lab.session import CPUS_AT_START
from tlb.lab.store import Store, data_root
from tlb.machine.cpus import measuring_cpu
from tlb.reasons import Unavailable
from tlb.report import parameters
from tlb.report.chapter import Chapter

book = discovery.load("overview.campaign")

AGAIN_S = 1.0  # between two tries to find a scheduler
QUIET = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
SETTINGS: dict[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.http.routes": [],  # nobody is served but the fleet
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.work-stealing": False,  # a task is its computer's
    "distributed.scheduler.allowed-failures": 0,  # the client asks again
    "distributed.scheduler.worker-ttl": None,  # workers send no heartbeats
    "distributed.comm.timeouts.connect": "10s",
}
# A worker that lost its scheduler and found it again may be asked while the thread of before still
# measures.
_TURN = threading.Lock()


class Campaign(BaseModel):
    """chapters: whose grids are measured, by default all; seconds: on each computer; allowed: words
    of descriptions that may leave it."""

    profile: str = "quick"
    chapters: tuple[str, ...] = ()
    seconds: float = 600.0
    allowed: tuple[str, ...] = ()

    def checked(self) -> Campaign:
        """Return itself. Raises Unavailable("bad-parameter") for an unknown profile or chapter."""
        grid.profile(self.profile)
        if unknown := sorted({*self.chapters} - {*book.gridded()}):
            raise Unavailable(
                "bad-parameter",
                f"'{unknown[0][:80]}' has no grid; there are {', '.join(book.gridded())}",
            )
        return self


class Measured(NamedTuple):
    """bundle: of the whole ledger; lacking: points by reason; left: processes without time;
    stopped: why the campaign ended early."""

    bundle: bytes
    lacking: Counter[str]
    left: int
    stopped: Unavailable | None


def measure(asked: str) -> Measured:
    """Run a `Campaign`, given as JSON, on this computer. Raises Unavailable if nothing can be
    measured or bundled."""
    with _TURN:
        os.sched_setaffinity(
            0, CPUS_AT_START
        )  # what this thread starts inherits it, and not the event loop's
        task, page, stopped, outcome = (
            Campaign.model_validate_json(asked),
            parameters.table_of_contents()[0],
            None,
            Outcome(),
        )
        given = parameters.check(page, {"machine": "this", "profile": task.profile})
        chapter = Chapter(page, given, Store(data_root()))
        try:
            grids = book.grids_of(
                chapter.scope,
                [name for name in book.gridded() if not task.chapters or name in task.chapters],
            )
            outcome = chapter.campaign(
                grids, seconds=task.seconds, compared=book.compared(chapter.scope)
            )
        except Unavailable as why:
            stopped = why
        try:
            bundle = pack.sealed(chapter.store, chapter.rig.machine, task.allowed)[1]
        except Unavailable as why:
            raise stopped or why from None
        return Measured(
            bundle, Counter(why.code for why in outcome.lacking.values()), outcome.skipped, stopped
        )


# --- processes


def configure() -> None:
    """Make this process use Dask with SETTINGS, silently: what befalls a worker, the client
    reports."""
    dask.config.set({**SETTINGS, "distributed.logging.distributed": "critical"})
    for name in ("distributed", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


class QuietWorker(Worker):
    """A worker that does nothing by itself."""

    sent_home = False  # by a scheduler that ended in order

    async def start_unsafe(self) -> Any:
        started = await super().start_unsafe()
        for callback in self.periodic_callbacks.values():
            callback.stop()
        return started

    async def close(
        self,
        timeout: float = 30,
        executor_wait: bool = True,
        nanny: bool = True,
        reason: str = "worker-close",
    ) -> str | None:
        """Close without a wait for the thread: what it measures goes into the ledger, and the next
        worker's task waits for it."""
        self.sent_home = self.sent_home or reason == "scheduler-close"
        return await super().close(timeout, False, nanny, reason)


def _keep_off(cpu: int | None) -> None:
    """Keep the calling thread, and those that it starts, off a CPU if there is another one."""
    others = CPUS_AT_START - {cpu}
    if cpu is not None and others:
        os.sched_setaffinity(0, others)
    else:
        print(
            "The worker shares the CPU that measures: this process may use no other.",
            file=sys.stderr,
        )


def _end(scratch: str) -> None:
    """End at once, whatever threads and tasks do: a ledger bears it, and what measures dies with
    its worker."""
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)


async def work(address: str, name: str, pem: str, patience_s: float, port: int = 0) -> None:
    """Run a worker, and another one whenever its scheduler was lost and is found again, until a
    scheduler ends in order, or a SIGTERM or Ctrl-C. Raises Unavailable("fleet-gone") after
    `patience_s` without a scheduler, or with another worker of that name."""
    _keep_off(measuring_cpu(Path("/"), tuple(sorted(CPUS_AT_START))))
    loop = asyncio.get_running_loop()
    heard = loop.time()
    with tempfile.TemporaryDirectory(prefix="tlb-fleet-") as scratch:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _end, scratch)
        how = {
            "nthreads": 1,
            "memory_limit": 0,
            "local_directory": scratch,
            "security": tls.security(pem),
            **QUIET,
        }
        while loop.time() - heard <= patience_s:
            worker = QuietWorker(address, name=name, port=port, **how)
            try:
                await asyncio.wait_for(worker, patience_s)
                await worker.finished()
                heard = loop.time()
                if worker.sent_home:
                    return
            except (OSError, TimeoutError, ValueError, RuntimeError):
                await worker.close()
            await asyncio.sleep(AGAIN_S)
    raise Unavailable("fleet-gone", f"the scheduler at {address}, or a place there for {name}")


def scheduler(address: str, pem: str) -> Scheduler:
    """Return one that listens at an address, to be awaited: it passes on and keeps nothing."""
    scheme, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    return Scheduler(
        host=host, port=int(port), protocol=scheme, security=tls.security(pem), **QUIET
    )


async def serve(address: str, pem: str) -> None:
    """Run a scheduler until it is asked to end (SIGTERM, Ctrl-C), which sends its workers home."""
    async with scheduler(address, pem) as serving:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(
                number, lambda: asyncio.ensure_future(serving.close())
            )
        await serving.finished()
