"""`tlb fleet`: the book's campaign on many computers, on a Dask cluster; and `tlb bundle`: one
machine as one file, made, checked and added."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer

from tlb.cli import terminal
from tlb.machine import doctor
from tlb.machine import host as hosts
from tlb.measure import grid
from tlb.measure.store import OWN_MACHINE_PREFIX, Store, data_root
from tlb.report import notebooks
from tlb.system.files import disk_errors_as_unavailable, replace_file
from tlb.system.reasons import Unavailable
from tlb.system.units import MINUTES_PER_DAY, format_size, list_in_words, with_thousands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tlb.fleet.bundle import Bundle
    from tlb.fleet.client import Fleet

bundle_app = typer.Typer(help="Make one file of a machine's data, check one, or add it to data/.")

Scheduler = Annotated[
    str, typer.Option(help="Address of a Dask scheduler, as tcp://HOST:8786 or tls://HOST:8786.")
]
Ssh = Annotated[
    list[str] | None, typer.Option(metavar="HOST", help="Start a worker there by SSH; several.")
]
Python = Annotated[
    str, typer.Option(help="Of --ssh: the Python of the worker's environment on each host.")
]
Local = Annotated[int, typer.Option(help="Workers to start here.", min=0, max=64)]
Workers = Annotated[
    int,
    typer.Option(
        help="To wait for; default: those that --ssh or --local start, else 1.", min=0, max=65_536
    ),
]
Wait = Annotated[float, typer.Option(help="Minutes to wait for them.", min=0, max=MINUTES_PER_DAY)]
Patience = Annotated[
    float, typer.Option(help="Seconds in which a lost worker may come back.", min=0, max=3600)
]
Minutes = Annotated[
    float, typer.Option(help="To measure on each computer.", min=0, max=MINUTES_PER_DAY)
]
Chapters = Annotated[list[str] | None, typer.Option(help="Only this one; several.")]
Output = Annotated[
    Path | None, typer.Option(help="Write bundles into this folder, and add none to data/.")
]
Quantities = Annotated[
    bool, typer.Option(help="Execute all chapters about each new machine, some minutes each.")
]


def fleet(
    scheduler: Scheduler = "",
    ssh: Ssh = None,
    remote_python: Python = "tlb/bin/python",
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
    from tlb.fleet import client

    machines = dict[str, None]()
    known = notebooks.measured_chapters()
    if unknown := sorted({*(chapter or ())} - {*known}):
        why = f"'{unknown[0][:80]}' has no grid; there are {', '.join(known)}"
        raise Unavailable("bad-parameter", why)
    wanted = grid.load_profile(profile)
    terminal.check_output(output)
    keep = _into_folder(output) if output else _into_data(machines)
    with client.connected(scheduler, ssh or (), local, 60 * wait, remote_python) as connection:
        run = client.Fleet(connection, wanted, tuple(chapter or ()), 60 * minutes, keep)
        run.expected = workers or len(ssh or ()) or local or 1
        run.wait_s, run.patience_s, run.say = 60 * wait, patience, terminal.stage
        try:
            run.run()
        finally:
            terminal.parts([_table(run)])
    if machines:
        _finish(machines, quantities)
        print(f"`tlb compare {' '.join(machines)}` shows how they differ.")
    if any(computer.why for computer in run.computers.values()):
        raise typer.Exit(1)


def _into_data(machines: dict[str, None]) -> Callable[[Bundle], int]:
    """Return what adds a bundle to data/, and the machine to these if any row is new."""

    def keep(read: Bundle) -> int:
        from tlb.fleet import bundle

        added = bundle.add(Store(data_root()), read)
        if added.rows:
            machines[read.machine] = None
        return added.rows

    return keep


def _into_folder(folder: Path) -> Callable[[Bundle], int]:
    """Return what writes a bundle as a file."""

    def keep(read: Bundle) -> int:
        from tlb.fleet.bundle import BUNDLE_SUFFIX

        _write(folder / f"{read.machine}{BUNDLE_SUFFIX}", read.content)
        return len(read.rows)

    return keep


def _write(path: Path, content: bytes) -> None:
    with disk_errors_as_unavailable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)


def _table(run: Fleet) -> pd.DataFrame:
    """Return a row a computer with its result, those that failed first."""
    rows = []
    for one in sorted(run.computers.values(), key=lambda one: (one.why is None, one.name)):
        lacking, left = sorted(one.measured.lacking.items()), f"{one.measured.left:,}"
        reasons = ", ".join(f"{n} {code}" for code, n in lacking) or "none"
        ended = one.why.code if one.why else "done" if one.over else "unfinished"
        rows.append((one.name, one.machine or "unknown", f"{one.rows:,}", left, reasons, ended))
    columns = ["computer", "machine", "new rows", "left out", "cannot be had", "ended"]
    return pd.DataFrame(rows, columns=columns)


# --- tlb bundle


@bundle_app.command("make")
def make_bundle(
    machine: Annotated[
        str, typer.Argument(help="this, a machine in data/own/ or data/, or own/NAME.")
    ] = "this",
    output: Annotated[Path | None, typer.Option(help="Default: MACHINE.tlb.zip.")] = None,
) -> None:
    """Pack a machine's rows, description and documents into a file.

    Names of a compiler, a Linux release and a CPU are reduced to known names and versions."""
    from tlb.fleet import bundle

    terminal.check_output(output)
    if output and output.is_dir():
        raise Unavailable("bad-parameter", f"--output is a file, not the folder {output}")
    data, asked = Store(data_root()), machine.removeprefix(OWN_MACHINE_PREFIX)
    this = hosts.machine_id(hosts.inspect_machine()) if machine == "this" else ""
    is_own = this or machine.startswith(OWN_MACHINE_PREFIX) or machine in data.own.machines()
    store = data.own if is_own else data
    contents = bundle.collect(store, store.resolve(asked, this))
    made = bundle.read(bundle.pack(contents))
    path = output or Path(f"{made.machine}{bundle.BUNDLE_SUFFIX}")
    _write(path, made.content)
    rows, size = with_thousands(len(made.rows)), format_size(len(made.content))
    kernels = list_in_words(sorted({record.kernel for record, _ in made.rows}))
    print(f"{path}: {rows} rows of {kernels}; {size}.")
    if contents.left_out:
        print(f"Left out: {list_in_words(contents.left_out)}.")
    print(f"`tlb bundle check {path}` shows what is in it; then send it to the book's maintainer.")


@bundle_app.command("check")
def check_bundles(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Bundles.")],
) -> None:
    """Check bundles and show their content; exit 1 with the reason for the first that is refused."""
    from tlb.fleet import bundle

    for path in files:
        read = bundle.read_file(path)
        host = pd.DataFrame(doctor.host_description(read.host), columns=["", "it says"])
        cells = [(one.kernel, bool(one.noisy), one.started_at) for one, _ in read.rows]
        rows = pd.DataFrame(cells, columns=["kernel", "noisy", "at"])
        table = rows.groupby("kernel", as_index=False).agg(
            rows=("noisy", "size"), noisy=("noisy", "sum"), first=("at", "min"), last=("at", "max")
        )
        terminal.parts([f"{read.machine}, as it describes itself:", host, table])
        accepted = f"Accepted: {with_thousands(len(rows))} rows."
        print(f"{accepted} `tlb bundle add {path}` adds them to data/.")


@bundle_app.command("add")
def add_bundles(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Bundles, folders of bundles, or this computer."),
    ],
    quantities: Quantities = True,
) -> None:
    """Add bundles, or what was measured here, to data/.

    All files are checked before the first is added. Then each machine's quantities are made."""
    from tlb.fleet import bundle
    from tlb.report import publish

    files = [path for source in sources if source != "this" for path in _files(Path(source))]
    for path in files:
        bundle.read_file(path)
    machines = dict[str, None]()
    for path in files:
        added = bundle.add(Store(data_root()), bundle.read_file(path))
        known = f"; {with_thousands(added.known)} were there already" if added.known else ""
        print(f"{added.folder}: {with_thousands(added.rows)} new rows{known}.")
        if added.rows:
            machines[added.folder.name] = None
    if "this" in sources:
        folder = publish.rows()
        print(folder)
        machines[folder.name] = None
    if not machines:
        raise Unavailable(
            "bundle-refused",
            "data/ already holds everything in it: no row is new",
            "For rows of another machine, measure on that machine.",
        )
    _finish(machines, quantities)


def _finish(machines: Iterable[str], quantities: bool) -> None:
    """Make what follows from the rows of machines that were added."""
    from tlb.report import publish

    if not quantities:
        print("`tlb refresh --machine NAME` makes the quantities of a machine.")
        return
    notebooks.load_book_module("overview.profile").refresh()
    for machine in machines:
        terminal.stage(f"Making the quantities of {machine}: all chapters are executed.")
        publish.refresh_quantities(machine)


def _files(source: Path) -> list[Path]:
    """Return a bundle, or those of a folder. Raises Unavailable("bundle-refused") for an empty one."""
    from tlb.fleet.bundle import BUNDLE_SUFFIX

    found = sorted(source.glob(f"*{BUNDLE_SUFFIX}")) if source.is_dir() else [source]
    if not found:
        raise Unavailable("bundle-refused", f"{source} has no *{BUNDLE_SUFFIX}")
    return found
