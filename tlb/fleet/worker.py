"""One computer of a fleet: a Dask worker whose only task runs a campaign into this computer's own
ledger and returns a bundle of it.

The worker has one thread, does nothing periodically, and keeps its event loop off the CPU that
measures. The scheduler learns from the connection that a worker is gone.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dask
from distributed import Scheduler, Worker
from pydantic import BaseModel

from tlb.fleet import pack, tls
from tlb.machine.cpus import measuring_cpu
from tlb.measure import grid
from tlb.measure.campaign import Outcome
from tlb.measure.session import CPUS_AT_START
from tlb.measure.store import Store, data_root
from tlb.report import discovery, parameters
from tlb.report.chapter import Chapter
from tlb.system.reasons import Unavailable

book = discovery.load("overview.campaign")

AGAIN_S = 1.0  # between two tries to find a scheduler
QUIET: dict[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
SETTINGS: dict[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.work-stealing": False,  # a task belongs to its computer
    "distributed.scheduler.allowed-failures": 0,  # the client submits again
    "distributed.scheduler.worker-ttl": None,  # workers send no heartbeats
    "distributed.comm.timeouts.connect": "10s",
    "distributed.logging.distributed": "critical",
}
# After a reconnection, a task may arrive while the previous worker's thread still measures.
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
        grid.load_profile(self.profile)
        if unknown := sorted({*self.chapters} - {*discovery.measured_chapters()}):
            why = f"'{unknown[0][:80]}' has no grid; there are {', '.join(discovery.measured_chapters())}"
            raise Unavailable("bad-parameter", why)
        return self


class Measured(NamedTuple):
    """bundle: of the whole ledger; lacking: points by reason; left: processes without time;
    stopped: why the campaign ended early."""

    bundle: bytes
    lacking: Counter[str]
    left: int
    stopped: Unavailable | None


def measure(given: Campaign) -> Measured:
    """Run a campaign on this computer. Raises Unavailable if nothing can be measured or bundled."""
    with _TURN:
        os.sched_setaffinity(0, CPUS_AT_START)  # not the event loop's, for the kernels' processes
        page = parameters.table_of_contents()[0]
        declared = parameters.check(page, {"machine": "this", "profile": given.profile})
        chapter, outcome, stopped = Chapter(page, declared, Store(data_root())), Outcome(), None
        try:
            grids = book.grids_of(chapter.scope, given.chapters or discovery.measured_chapters())
            outcome = chapter.campaign(grids, seconds=given.seconds)
        except Unavailable as why:
            stopped = why
        try:
            bundle = pack.pack(chapter.store, chapter.rig.machine, given.allowed).content
        except Unavailable as why:
            raise stopped or why from None
        lacking = Counter(why.code for why in outcome.lacking.values())
        return Measured(bundle, lacking, outcome.skipped, stopped)


# --- processes


def configure() -> None:
    """Use Dask with SETTINGS, silently: the client reports what fails."""
    dask.config.set(SETTINGS)
    for name in ("distributed", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


class QuietWorker(Worker):
    sent_home = False  # by a scheduler that ended in order

    async def start_unsafe(self) -> Any:
        started = await super().start_unsafe()
        for callback in self.periodic_callbacks.values():
            callback.stop()
        return started

    async def close(  # type: ignore[override]  # Dask's own worker differs from its bases too
        self, *given: Any, reason: str = "worker-close", **how: Any
    ) -> str | None:
        """Close without waiting for the thread: its rows go into the ledger, and the next worker's
        task waits for it."""
        self.sent_home = self.sent_home or reason == "scheduler-close"
        return await super().close(*given, **how | {"executor_wait": False, "reason": reason})


def _keep_off(cpu: int | None) -> None:
    """Keep this thread, and those that it starts, off a CPU if there is another one."""
    others = CPUS_AT_START - {cpu}
    if cpu is not None and others:
        os.sched_setaffinity(0, others)
    else:
        print("This process may use one CPU only, which also measures.", file=sys.stderr)


def _exit(scratch: str) -> None:
    """End at once, whatever threads and tasks do: the ledger survives it."""
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)


async def work(address: str, name: str, pem: str, patience_s: float, port: int = 0) -> None:
    """Run a worker, and another one after each lost scheduler, until a scheduler ends in order or
    the process gets SIGTERM or Ctrl-C. Raises Unavailable: bad-parameter for a port that is taken,
    fleet-gone after `patience_s` without a scheduler, or with another worker of that name."""
    _keep_off(measuring_cpu(Path("/"), tuple(sorted(CPUS_AT_START))))
    loop = asyncio.get_running_loop()
    begin = heard = loop.time()
    with tempfile.TemporaryDirectory(prefix="tlb-fleet-") as scratch:
        _on_end(_exit, scratch)
        settings = QUIET | {"security": tls.security(pem), "local_directory": scratch}
        while loop.time() - heard <= patience_s:
            worker = QuietWorker(
                address, name=name, port=port, nthreads=1, memory_limit=0, **settings
            )
            try:
                await asyncio.wait_for(worker, patience_s)
                await worker.finished()
                heard = loop.time()
                if worker.sent_home:
                    return
            except (OSError, TimeoutError, ValueError, RuntimeError) as failed:
                await worker.close()
                # The port of a lost worker may be taken for a moment: then it is tried again.
                if heard == begin and (why := _why_deaf(failed, f"port {port}")):
                    raise why from None
            await asyncio.sleep(AGAIN_S)
    raise Unavailable("fleet-gone", f"the scheduler at {address}, or a place there for {name}")


async def serve(address: str, pem: str) -> None:
    """Run a scheduler until SIGTERM or Ctrl-C, when it sends its workers home. Raises
    Unavailable("bad-parameter") for an address where this computer cannot listen."""
    scheduler = Scheduler(host=address, security=tls.security(pem), **QUIET)
    try:
        await scheduler
    except RuntimeError as failed:
        raise _why_deaf(failed, address) or failed from None
    async with scheduler:
        print(f"The scheduler listens on {address}.", file=sys.stderr, flush=True)
        _on_end(lambda: asyncio.ensure_future(scheduler.close()))
        await scheduler.finished()


def _why_deaf(failed: BaseException, place: str) -> Unavailable | None:
    """Return why Dask could not listen on an address or port; None if it failed for another
    reason."""
    cause = failed.__cause__
    if isinstance(cause, socket.gaierror) or (
        isinstance(cause, OSError)
        and cause.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
    ):
        return Unavailable("bad-parameter", f"cannot listen on {place}: {cause.strerror}")
    return None


def _on_end(call: Callable[..., object], *given: object) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, call, *given)
