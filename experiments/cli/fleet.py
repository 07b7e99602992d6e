"""`tlb fleet`: the book's campaign on many computers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from experiments import fleet as fleets
from experiments.cli import shown
from experiments.words.reasons import Unavailable

app = typer.Typer(help="Measure many computers, each into its own ledger, and collect their rows.", invoke_without_command=True)
Insecure = Annotated[bool, typer.Option("--insecure", help="Without TLS: whoever reaches a port runs programs here.")]
Certificates = Annotated[str, typer.Option(help="A folder of the fleet's certificates; - for a pass on stdin. Default: this user's.")]
Patience = Annotated[float, typer.Option(help="Minutes without a word until one is given up.")]
MOST_BARS = 24  # on a screen; of a larger fleet the one bar of all


def _rooms() -> SimpleNamespace:
    """What takes Dask, and what goes with it. Raises Unavailable("no-fleet")."""
    names = ("nodes", "courier", "campaigns", "certificates", "collected", "starting", "unlike")
    return SimpleNamespace(**{name: fleets.module(name) for name in names})


def _pass(rooms: SimpleNamespace, certificates: str, insecure: bool) -> Any:
    if insecure:
        return None
    if certificates == "-":
        return rooms.certificates.from_pipe(sys.stdin)
    return rooms.certificates.member(Path(certificates) if certificates else None)


@app.callback()
def fleet(
    context: typer.Context,
    hosts: Annotated[Path | None, typer.Option(help="A file, a line a computer, HOST [FOLDER]: workers are started by ssh.")] = None,
    scheduler: Annotated[str, typer.Option(help="tls://HOST:PORT of a scheduler whose workers were started otherwise.")] = "",
    listen: Annotated[str, typer.Option(help="With --hosts: HOST:PORT of this computer, as the others reach it.")] = "",
    profile: Annotated[str, typer.Option(help="smoke, quick or full.")] = "quick",
    minutes: Annotated[float, typer.Option(help="To measure, on each computer.", min=0)] = 10.0,
    chapter: Annotated[list[str] | None, typer.Option(help="Of this chapter alone; may be given again.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where rows are collected, a folder a machine. Default: data/own.")] = None,
    workers: Annotated[int, typer.Option(help="With --scheduler: how many computers are expected at least.", min=1)] = 1,
    ssh: Annotated[str, typer.Option(help="With --hosts: what starts a worker.")] = "",
    certificates: Certificates = "", insecure: Insecure = False, patience: Patience = 10.0,
) -> None:
    """Measure the book's campaign on many computers. The same command goes on from where anything died."""
    if context.invoked_subcommand:
        return
    if (hosts is None) == (not scheduler):
        raise Unavailable("bad-parameter", "a fleet takes --hosts FILE, or --scheduler ADDRESS")
    rooms = _rooms()
    from experiments.lab.store import Store, data_root

    campaign = rooms.campaigns.Campaign(profile, tuple(chapter or ()), 60 * minutes).checked()
    listed = rooms.starting.read_hosts(hosts) if hosts else []
    address = rooms.nodes.checked(scheduler or listen or f"{socket.getfqdn()}:{rooms.nodes.PORT}", insecure)
    shown_pass = _pass(rooms, certificates, insecure)
    with rooms.nodes.configured(), rooms.collected.collecting(output or Store(data_root()).own.root) as collected, _Bars() as bars:
        courier = rooms.courier.Courier(collected, campaign, [one.host for one in listed], workers, 60 * patience, bars.notice)
        try:
            asyncio.run(_measure(rooms, courier, address, shown_pass, listed, ssh or rooms.starting.SSH, insecure, bars))
        except asyncio.CancelledError:  # of a SIGTERM, which then is as Ctrl-C
            raise KeyboardInterrupt from None
        finally:
            bars.stop()
            shown.parts(rooms.unlike.told(collected, courier.fleet.values()))
    if any(visited.why for visited in courier.fleet.values()):
        raise typer.Exit(1)


async def _measure(rooms: SimpleNamespace, courier: Any, address: str, shown_pass: Any, listed: list[Any], ssh: str,
                   insecure: bool, bars: _Bars) -> None:
    this = asyncio.current_task()
    assert this
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    if not listed:
        await courier.run(address, shown_pass)
        return
    started = [asyncio.create_task(rooms.starting.keep(
        rooms.starting.command(one, address, ssh, insecure=insecure, patience_s=courier.patience_s), shown_pass,
        partial(bars.complain, courier.fleet[one.host]))) for one in listed]
    try:
        async with rooms.nodes.scheduler(address, shown_pass):  # which sends its workers home as it ends
            await courier.run(address, shown_pass)
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


@app.command()
def worker(
    address: Annotated[str, typer.Argument(help="tls://HOST:PORT of the scheduler.")],
    name: Annotated[str, typer.Option(help="As this computer is called in the fleet. Default: its host name.")] = "",
    port: Annotated[int, typer.Option(help="To listen on; by default any.", min=0, max=65535)] = 0,
    tied: Annotated[bool, typer.Option("--tied", help="End where stdin ends, as with the ssh that holds its other end.")] = False,
    certificates: Certificates = "", insecure: Insecure = False, patience: Patience = 10.0,
) -> None:
    """Measure on this computer what a fleet's client asks for, one process at a time, until its scheduler is gone."""
    rooms = _rooms()
    address = rooms.nodes.checked(address, insecure)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until there is a loop, whose own it is then
    shown_pass = _pass(rooms, certificates, insecure)
    if tied:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    with rooms.nodes.configured():
        asyncio.run(_work(rooms.nodes, address, name or socket.gethostname(), shown_pass, 60 * patience, port))


async def _work(nodes: Any, *given: Any) -> None:
    """It ends the process itself: asyncio would wait for tasks of Dask, and Python for the thread that measures."""
    status = 0
    try:
        await nodes.work(*given)
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
    certificates: Certificates = "", insecure: Insecure = False,
) -> None:
    """Hand on between a fleet's client and its workers, until ended."""
    rooms = _rooms()
    address = rooms.nodes.checked(address, insecure)

    with rooms.nodes.configured():
        asyncio.run(rooms.nodes.serve(address, _pass(rooms, certificates, insecure)))


class _Bars:
    """A bar a computer, of a large fleet one of all; down a pipe a line for each that is over."""

    def __init__(self) -> None:
        self._on_screen = sys.stderr.isatty()
        self._progress = Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} of {task.total} tasks"),
                                  TextColumn("{task.fields[rows]} rows"), console=Console(stderr=True), disable=not self._on_screen)
        self._bars: dict[str, Any] = {}
        self._counts: dict[str, tuple[int, int, int]] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        self._all = self._progress.add_task("all", rows=0, total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._progress.stop()

    def complain(self, visited: Any, words: str) -> None:
        """Why a worker did not start or ended, each reason once in a row."""
        if words != visited.complaint:
            visited.complaint = words
            self._progress.console.print(f"{visited.name}: {words}", markup=False, highlight=False, soft_wrap=True)

    def notice(self, visited: Any) -> None:
        now = self._counts[visited.name] = visited.done, visited.tasks, visited.rows
        done, tasks, rows = (sum(counts[place] for counts in self._counts.values()) for place in range(3))
        self._progress.update(self._all, completed=done, total=tasks, rows=rows)
        if visited.name not in self._bars and len(self._bars) < MOST_BARS:
            self._bars[visited.name] = self._progress.add_task(visited.name, rows=0)
        if visited.name in self._bars:
            self._progress.update(self._bars[visited.name], completed=now[0], total=now[1], rows=now[2])
        if visited.over and not self._on_screen:
            print(f"{visited.name}: {visited.why or f'{visited.rows} rows'}", file=sys.stderr)


