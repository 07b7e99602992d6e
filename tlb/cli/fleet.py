"""`tlb fleet`: the book's campaign on many computers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pandas as pd
import typer

from tlb import fleet as fleets
from tlb.cli import shown
from tlb.lab.store import Store, data_root
from tlb.reasons import Unavailable

app = typer.Typer(
    help="Measure the book's campaign on many computers.", invoke_without_command=True
)
PORT = 8786  # Dask's own
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS: whoever reaches a port can run programs.")
]
Certificate = Annotated[
    str, typer.Option(help="The fleet's certificate; -: stdin; default: this user's.")
]
Patience = Annotated[float, typer.Option(help="Minutes of silence until a computer is given up.")]


def _checked(address: str, insecure: bool) -> str:
    """Return an address with its scheme. Raises Unavailable: fleet-insecure for plain TCP that was
    not asked for, bad-parameter."""
    scheme, there, place = address.rpartition("://")
    scheme = scheme if there else "tcp" if insecure else "tls"
    if (
        scheme not in ("tls", "tcp")
        or not place.rpartition(":")[2].isdigit()
        or (insecure and scheme == "tls")
    ):
        raise Unavailable(
            "bad-parameter",
            "a scheduler's address is tls://HOST:PORT, or tcp:// with --insecure, "
            f"not '{address[:80]}'",
        )
    if scheme == "tcp" and not insecure:
        raise Unavailable("fleet-insecure", address[:80])
    return f"{scheme}://{place}"


def _pem(certificate: str, insecure: bool) -> str:
    """Return the fleet's key and certificate, "" for none. Raises
    Unavailable("fleet-certificates")."""
    tls = fleets.module("tls")
    if insecure:
        return ""
    if certificate != "-":
        return tls.shared(Path(certificate) if certificate else tls.default())
    text = ""
    for line in sys.stdin:  # which may stay open
        text += line
        if text.count("-----END ") == 2:
            break
    return tls.checked(text)


@app.callback()
def fleet(
    context: typer.Context,
    hosts: Annotated[Path | None, typer.Option(help="A file of HOST [FOLDER], for ssh.")] = None,
    scheduler: Annotated[str, typer.Option(help="tls://HOST:PORT, with workers of its own.")] = "",
    listen: Annotated[str, typer.Option(help="With --hosts: HOST:PORT of this computer.")] = "",
    profile: Annotated[str, typer.Option(help="smoke, quick or full.")] = "quick",
    minutes: Annotated[float, typer.Option(help="To measure on each computer.", min=0)] = 10.0,
    chapter: Annotated[list[str] | None, typer.Option(help="Only this one; several.")] = None,
    output: Annotated[Path | None, typer.Option(help="For rows; default: data/own.")] = None,
    workers: Annotated[int, typer.Option(help="With --scheduler: at least so many.", min=1)] = 1,
    allow: Annotated[list[str] | None, typer.Option(help="A word that may be shared.")] = None,
    ssh: Annotated[str, typer.Option(help="With --hosts: what starts a worker.")] = "",
    certificate: Certificate = "", insecure: Insecure = False, patience: Patience = 10.0,
) -> None:  # fmt: skip
    """Measure the book's campaign on many computers.

    After a failure, the same command goes on from there."""
    if context.invoked_subcommand:
        return
    if (hosts is None) == (not scheduler):
        raise Unavailable("bad-parameter", "a fleet takes --hosts FILE, or --scheduler ADDRESS")
    client, starting, worker = (fleets.module(name) for name in ("client", "ssh", "worker"))
    asked = worker.Campaign(
        profile=profile, chapters=chapter or (), seconds=60 * minutes, allowed=allow or ()
    ).checked()
    listed = starting.read_hosts(hosts) if hosts else {}
    address = _checked(scheduler or listen or f"{socket.getfqdn()}:{PORT}", insecure)
    pem = _pem(certificate, insecure)
    worker.configure()
    store = Store(output) if output else Store(data_root()).own
    run = client.Fleet(store, asked, [*listed], workers, 60 * patience, _notice)
    try:
        asyncio.run(_measure(run, address, pem, listed, ssh or starting.SSH))
    except asyncio.CancelledError:  # of a SIGTERM, which then is as Ctrl-C
        raise KeyboardInterrupt from None
    finally:
        shown.parts([_table(run)])
    if any(computer.why for computer in run.computers.values()):
        raise typer.Exit(1)


async def _measure(run: Any, address: str, pem: str, listed: dict[str, str], ssh: str) -> None:
    this, starting, worker = asyncio.current_task(), fleets.module("ssh"), fleets.module("worker")
    assert this
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    if not listed:
        await run.run(address, pem)
        return
    started = []
    for host, folder in listed.items():
        words = starting.command(
            host, folder, address, ssh, insecure=not pem, patience_s=run.patience_s
        )
        started.append(asyncio.create_task(starting.keep(words, pem, run.computers[host].complain)))
    try:
        async with worker.scheduler(address, pem):  # which sends its workers home as it ends
            await run.run(address, pem)
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


@app.command()
def worker(
    address: Annotated[str, typer.Argument(help="tls://HOST:PORT of the scheduler.")],
    name: Annotated[str, typer.Option(help="In the fleet; default: the host name.")] = "",
    port: Annotated[int, typer.Option(help="To listen on; by default any.", min=0, max=65535)] = 0,
    tied: Annotated[bool, typer.Option("--tied", help="End when stdin ends.")] = False,
    certificate: Certificate = "", insecure: Insecure = False, patience: Patience = 10.0,
) -> None:  # fmt: skip
    """Measure here for a fleet, until its scheduler is gone."""
    module = fleets.module("worker")
    address = _checked(address, insecure)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until there is a loop, whose own it is then
    pem = _pem(certificate, insecure)
    if tied:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    module.configure()
    asyncio.run(_work(module, address, name or socket.gethostname(), pem, 60 * patience, port))


async def _work(module: ModuleType, *given: Any) -> None:
    """Run a worker, and end the process: asyncio would wait for tasks of Dask, and Python for the
    thread that measures."""
    status = 0
    try:
        await module.work(*given)
    except Unavailable as why:
        print(why, file=sys.stderr, flush=True)
        status = 1
    os._exit(status)


def _end_with_stdin() -> None:
    with suppress(OSError):
        while os.read(0, 1 << 16):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


@app.command()
def scheduler(
    address: Annotated[str, typer.Argument(help="tls://HOST:PORT to listen on.")],
    certificate: Certificate = "", insecure: Insecure = False,
) -> None:  # fmt: skip
    """Connect a fleet's client and its workers, until ended."""
    module = fleets.module("worker")
    address = _checked(address, insecure)
    pem = _pem(certificate, insecure)
    module.configure()
    asyncio.run(module.serve(address, pem))


def _notice(computer: Any) -> None:
    print(f"{computer.name}: {computer.why or f'{computer.rows} rows'}", file=sys.stderr)


def _table(run: Any) -> pd.DataFrame:
    """Return each computer with what became of it, those that failed first."""
    rows = []
    for one in sorted(run.computers.values(), key=lambda one: (one.why is None, one.name)):
        lacking = (
            ", ".join(f"{number} {code}" for code, number in sorted(one.lacking.items())) or "none"
        )
        ended = one.why.code if one.why else "done" if one.over else "unfinished"
        rows.append(
            (one.name, one.machine or "unknown", f"{one.rows:,}", f"{one.left:,}", lacking, ended)
        )
    return pd.DataFrame(
        rows, columns=["computer", "machine", "new rows", "left out", "cannot be had", "ended"]
    )
