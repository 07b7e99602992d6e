"""`tlb fleet`: the book's campaign on many computers, on a Dask cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer

from tlb import fleet as fleets
from tlb.cli import terminal
from tlb.cli.bundle import finish
from tlb.measure import grid
from tlb.measure.store import Store, data_root
from tlb.report import discovery
from tlb.system.files import replace_file
from tlb.system.reasons import Unavailable
from tlb.system.units import DAY_MINUTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tlb.fleet.bundle import Bundle
    from tlb.fleet.client import Fleet

Scheduler = Annotated[
    str, typer.Option(help="Address of a Dask scheduler, as tcp://HOST:8786 or tls://HOST:8786.")
]
Ssh = Annotated[
    list[str] | None, typer.Option(metavar="HOST", help="Start a worker there by SSH; several.")
]
Local = Annotated[int, typer.Option(help="Workers to start here.", min=0, max=64)]
Workers = Annotated[
    int,
    typer.Option(
        help="To wait for; default: those that --ssh or --local start, else 1.", min=0, max=65_536
    ),
]
Wait = Annotated[float, typer.Option(help="Minutes to wait for them.", min=0, max=DAY_MINUTES)]
Patience = Annotated[
    float, typer.Option(help="Seconds in which a lost worker may come back.", min=0, max=3600)
]
Minutes = Annotated[
    float, typer.Option(help="To measure on each computer.", min=0, max=DAY_MINUTES)
]
Chapters = Annotated[list[str] | None, typer.Option(help="Only this one; several.")]
Output = Annotated[
    Path | None, typer.Option(help="Write bundles into this folder, and add none to data/.")
]
Quantities = Annotated[
    bool, typer.Option(help="Execute all chapters about each new machine in the end.")
]


def fleet(
    scheduler: Scheduler = "",
    ssh: Ssh = None,
    local: Local = 0,
    workers: Workers = 0,
    wait: Wait = 5.0,
    patience: Patience = 20.0,
    profile: Annotated[str, typer.Option(help="smoke, quick or full.")] = "quick",
    minutes: Minutes = 10.0,
    chapter: Chapters = None,
    output: Output = None,
    quantities: Quantities = True,
) -> None:
    """Measure the book's campaign on many computers, by Dask.

    After a failure, the same command goes on from there."""
    client, machines = fleets.module("client"), dict[str, None]()
    _check_chapters(chapter or [])
    wanted = grid.load_profile(profile)
    terminal.check_output(output)
    keep = _into_folder(output) if output else _into_data(machines)
    with client.connected(scheduler, ssh or (), local, 60 * wait) as connection:
        run = client.Fleet(connection, wanted, tuple(chapter or ()), 60 * minutes, keep)
        run.expected = workers or len(ssh or ()) or local or 1
        run.wait_s, run.patience_s, run.say = 60 * wait, patience, terminal.stage
        try:
            run.run()
        finally:
            terminal.parts([_table(run)])
    if machines:
        finish(machines, quantities)
    if any(computer.why for computer in run.computers.values()):
        raise typer.Exit(1)


def _check_chapters(names: list[str]) -> None:
    """Raise Unavailable("bad-parameter") for a chapter that measures nothing."""
    known = discovery.measured_chapters()
    if unknown := sorted({*names} - {*known}):
        why = f"'{unknown[0][:80]}' has no grid; there are {', '.join(known)}"
        raise Unavailable("bad-parameter", why)


def _into_data(machines: dict[str, None]) -> Callable[[Bundle], int]:
    """Return what adds a bundle to data/, and the machine to these if any row is new."""
    from tlb.fleet.add import add

    def keep(read: Bundle) -> int:
        added = add(Store(data_root()), read)
        if added.rows:
            machines[read.machine] = None
        return added.rows

    return keep


def _into_folder(folder: Path) -> Callable[[Bundle], int]:
    """Return what writes a bundle as a file."""
    from tlb.fleet import bundle

    def keep(read: Bundle) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / f"{read.machine}{bundle.SUFFIX}", read.content)
        return len(read.rows)

    return keep


def _table(run: Fleet) -> pd.DataFrame:
    """Return a row a computer with its result, those that failed first."""
    rows = []
    for one in sorted(run.computers.values(), key=lambda one: (one.why is None, one.name)):
        lacking = ", ".join(f"{n} {code}" for code, n in sorted(one.lacking.items())) or "none"
        ended = one.why.code if one.why else "done" if one.over else "unfinished"
        machine = one.machine or "unknown"
        rows.append((one.name, machine, f"{one.rows:,}", f"{one.left:,}", lacking, ended))
    columns = ["computer", "machine", "new rows", "left out", "cannot be had", "ended"]
    return pd.DataFrame(rows, columns=columns)
