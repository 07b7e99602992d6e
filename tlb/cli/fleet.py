"""`tlb fleet`: the book's campaign on many computers."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pandas as pd
import typer

from tlb import fleet as fleets
from tlb.cli import terminal
from tlb.measure.store import Store, data_root
from tlb.system.reasons import Unavailable
from tlb.system.units import DAY_MINUTES

app = typer.Typer(
    help="Measure the book's campaign on many computers.", invoke_without_command=True
)
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS: whoever reaches a port can run programs.")
]
Certificate = Annotated[
    Path | None, typer.Option(help="The fleet's certificate; default: this user's.")
]
Patience = Annotated[
    float,
    typer.Option(
        min=0.01, max=DAY_MINUTES, help="Minutes of silence until a computer is given up."
    ),
]


def _checked(address: str, insecure: bool) -> str:
    """Return an address with its scheme. Raises Unavailable: fleet-insecure for plain TCP without
    --insecure, bad-parameter."""
    scheme, there, place = address.rpartition("://")
    scheme = scheme if there else "tcp" if insecure else "tls"
    is_address = scheme in ("tls", "tcp") and place.rpartition(":")[2].isdigit()
    if not is_address or (insecure and scheme == "tls"):
        why = f"an address is tls://HOST:PORT, or tcp:// with --insecure, not '{address[:80]}'"
        raise Unavailable("bad-parameter", why)
    if scheme == "tcp" and not insecure:
        raise Unavailable("fleet-insecure", address[:80])
    return f"{scheme}://{place}"


def _pem(certificate: Path | None, insecure: bool) -> str:
    """Return the fleet's key and certificate, "" for none. Raises
    Unavailable("fleet-certificates")."""
    tls = fleets.module("tls")
    return "" if insecure else tls.shared(certificate or tls.default())


@app.callback()
def fleet(
    context: typer.Context,
    scheduler: Annotated[str, typer.Option(help="tls://HOST:PORT of the scheduler.")] = "",
    profile: Annotated[str, typer.Option(help="smoke, quick or full.")] = "quick",
    minutes: Annotated[float, typer.Option(help="To measure on each computer.", min=0, max=DAY_MINUTES)] = 10.0,
    chapter: Annotated[list[str] | None, typer.Option(help="Only this one; several.")] = None,
    output: Annotated[Path | None, typer.Option(help="For rows; default: data/own.")] = None,
    workers: Annotated[int, typer.Option(help="To wait for, at least.", min=1, max=65_536)] = 1,
    allow: Annotated[list[str] | None, typer.Option(help="A word that may be shared.")] = None,
    certificate: Certificate = None, insecure: Insecure = False, patience: Patience = 10.0,
) -> None:  # fmt: skip
    """Measure the book's campaign on many computers.

    After a failure, the same command goes on from there."""
    if context.invoked_subcommand:
        return
    client, worker = fleets.module("client"), fleets.module("worker")
    campaign = worker.Campaign(
        profile=profile, chapters=chapter or (), seconds=60 * minutes, allowed=allow or ()
    ).checked()
    address = _checked(scheduler, insecure)
    pem = _pem(certificate, insecure)
    worker.configure()
    store = Store(output) if output else Store(data_root()).own
    run = client.Fleet(store, campaign, workers, 60 * patience, _notice, terminal.stage)
    terminal.stage(run.connected)
    try:
        asyncio.run(run.run(address, pem))
    finally:
        terminal.parts([_table(run)])
    if any(computer.why for computer in run.computers.values()):
        raise typer.Exit(1)


@app.command()
def worker(
    address: Annotated[str, typer.Argument(help="tls://HOST:PORT of the scheduler.")],
    name: Annotated[str, typer.Option(help="In the fleet; default: the host name.")] = "",
    port: Annotated[int, typer.Option(help="To listen on; by default any.", min=0, max=65535)] = 0,
    certificate: Certificate = None, insecure: Insecure = False, patience: Patience = 10.0,
) -> None:  # fmt: skip
    """Measure here for a fleet, until its scheduler is gone."""
    module = fleets.module("worker")
    address = _checked(address, insecure)
    pem = _pem(certificate, insecure)
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


@app.command()
def scheduler(
    address: Annotated[str, typer.Argument(help="tls://HOST:PORT to listen on.")],
    certificate: Certificate = None, insecure: Insecure = False,
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
    """Return a row a computer with its result, those that failed first."""
    rows = []
    for one in sorted(run.computers.values(), key=lambda one: (one.why is None, one.name)):
        lacking = ", ".join(f"{n} {code}" for code, n in sorted(one.lacking.items())) or "none"
        ended = one.why.code if one.why else "done" if one.over else "unfinished"
        machine = one.machine or "unknown"
        rows.append((one.name, machine, f"{one.rows:,}", f"{one.left:,}", lacking, ended))
    columns = ["computer", "machine", "new rows", "left out", "cannot be had", "ended"]
    return pd.DataFrame(rows, columns=columns)
