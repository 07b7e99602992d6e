"""How the fleet uses Dask distributed: what is switched off, what is encrypted, and the two processes beside the client.

A worker has one thread and is silent while it measures: no profile of its thread every 10 ms, no look at its memory, no tick of its event
loop every 20 ms, no diagnosis of garbage collection, and whatever else is periodic as rare as QUIET_S. Its event loop runs on the other
CPUs. What is left of its cost, `tlb bench fleet` measures.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from distributed import Scheduler, Security, Worker
from distributed.gc import disable_gc_diagnosis, enable_gc_diagnosis

from experiments.fleet.certificates import Pass
from experiments.lab.session import CPUS_AT_START
from experiments.machine.cpus import measuring_cpu
from experiments.words.reasons import Unavailable

PORT = 8786  # Dask's own
QUIET_S = 30.0  # between two heartbeats, and two of anything else that is periodic
SILENT_S = 300  # without a heartbeat, after which a worker is another one: ten of them
SENT_HOME = "scheduler-close"  # what Scheduler.close tells its workers
AGAIN_S = 1.0  # between two tries to find a scheduler

SETTINGS: dict[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.http.routes": [],  # nobody is served but the fleet
    "distributed.scheduler.http.routes": [],
    "distributed.admin.tick.interval": f"{QUIET_S:g}s",
    "distributed.admin.tick.cycle": f"{QUIET_S:g}s",
    "distributed.admin.tick.limit": f"{10 * QUIET_S:g}s",
    "distributed.admin.system-monitor.interval": f"{QUIET_S:g}s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.work-stealing": False,  # a task is of its computer
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.allowed-failures": 0,  # the client asks again, of whoever has that name by then
    "distributed.scheduler.worker-ttl": f"{SILENT_S}s",
    "distributed.comm.timeouts.connect": "10s",
    "distributed.logging.distributed": "critical",  # what befalls a worker is told by the client, by host
}


@contextmanager
def configured(**changes: Any) -> Iterator[None]:
    """Dask as the fleet uses it. changes: of SETTINGS, with `__` for a dot and `_` for a dash."""
    with dask.config.set(SETTINGS):
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        logging.getLogger("tornado").setLevel(logging.CRITICAL)
        with dask.config.set({name.replace("__", ".").replace("_", "-"): value for name, value in changes.items()}):
            yield


def security(shown: Pass | None) -> Security:
    """Encrypted and both ends proved with a pass; with none, neither."""
    if shown is None:
        return Security()
    ends = {f"tls_{role}_{part}": text for role in ("client", "scheduler", "worker")
            for part, text in (("cert", shown.certificate), ("key", shown.key))}
    return Security(require_encryption=True, tls_ca_file=shown.authority, **ends)


def checked(address: str, insecure: bool) -> str:
    """An address with its scheme. Raises Unavailable: fleet-insecure for one without TLS that nobody asked for, bad-parameter."""
    scheme, there, place = address.rpartition("://")
    scheme = scheme if there else "tcp" if insecure else "tls"
    if scheme not in ("tls", "tcp") or not place.rpartition(":")[2].isdigit():
        raise Unavailable("bad-parameter", f"a scheduler's address is tls://HOST:PORT, not '{address[:80]}'")
    if (scheme == "tcp") != insecure:
        if insecure:
            raise Unavailable("bad-parameter", "--insecure goes with tcp://, and this address has TLS")
        raise Unavailable("fleet-insecure", address[:80])
    return f"{scheme}://{place}"


class QuietWorker(Worker):
    """A worker that does nothing by itself while it measures."""

    sent_home = False  # by a scheduler that ended in order

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self._thin()

    def _thin(self) -> None:
        for callback in self.periodic_callbacks.values():
            callback.callback_time = max(callback.callback_time, QUIET_S * 1000)

    async def heartbeat(self) -> None:
        await super().heartbeat()
        self._thin()  # the scheduler asks for two a second

    async def start_unsafe(self) -> Any:
        started = await super().start_unsafe()
        disable_gc_diagnosis()
        return started

    async def close(self, timeout: float = 30, executor_wait: bool = True, nanny: bool = True, reason: str = "worker-close") -> str | None:
        """Without a wait for the thread: what it measures goes into the ledger, and the next worker's task waits for it."""
        self.sent_home = self.sent_home or reason == SENT_HOME
        if self.status.name not in ("closed", "closing", "failed"):
            enable_gc_diagnosis()  # which Worker.close takes back once
        return await super().close(timeout, False, nanny, reason)


def keep_off(cpu: int | None) -> bool:
    """Keep the thread that calls, and those that it starts, off a CPU; whether there is another one."""
    others = CPUS_AT_START - {cpu}
    if cpu is None or not others or not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, others)
    return True


def _end(scratch: str) -> None:
    """At once, whatever its threads and tasks are at: a ledger bears it, and what measures dies with its worker."""
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)


async def work(address: str, name: str, shown: Pass | None, patience_s: float, port: int = 0) -> None:
    """A worker under a name, and another one whenever its scheduler was lost and is found again. It ends with a scheduler that ends in
    order, where none was found for `patience_s`, and at a SIGTERM or Ctrl-C. Raises Unavailable: fleet-gone, fleet-twice where a worker of
    that name is there."""
    if not keep_off(measuring_cpu(Path("/"), tuple(sorted(CPUS_AT_START)))):
        print("The worker shares the CPU that measures: this process may use no other.", file=sys.stderr)
    loop = asyncio.get_running_loop()
    heard = loop.time()
    with tempfile.TemporaryDirectory(prefix="tlb-fleet-") as scratch:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _end, scratch)
        while True:
            worker = QuietWorker(address, nthreads=1, name=name, security=security(shown), port=port, memory_limit=0, data=dict,
                                 local_directory=scratch, dashboard=False, dashboard_address="127.0.0.1:0")
            try:
                await asyncio.wait_for(worker, patience_s)
                await worker.finished()
                heard = loop.time()
                if worker.sent_home:
                    return
            except (OSError, TimeoutError, ValueError, RuntimeError) as error:
                await worker.close()
                if "name taken" in f"{error} {error.__cause__}" and loop.time() - heard > patience_s:
                    raise Unavailable("fleet-twice", f"a worker called {name} is there") from None
            if loop.time() - heard > patience_s:
                raise Unavailable("fleet-gone", f"the scheduler at {address}")
            await asyncio.sleep(AGAIN_S)


def scheduler(address: str, shown: Pass | None) -> Scheduler:
    """One that listens at an address, to be awaited: it hands on and keeps nothing."""
    scheme, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    return Scheduler(host=host, port=int(port), protocol=scheme, security=security(shown), dashboard=False, dashboard_address="127.0.0.1:0")


async def serve(address: str, shown: Pass | None) -> None:
    """A scheduler until it is asked to end (SIGTERM, Ctrl-C), which sends its workers home."""
    async with scheduler(address, shown) as serving:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, lambda: asyncio.ensure_future(serving.close()))
        await serving.finished()
