"""`tlb bundle`: one machine as one file, made, checked and added."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer
import yaml

from tlb.cli import terminal
from tlb.machine import doctor
from tlb.machine import host as hosts
from tlb.measure.store import OWN_PREFIX, Store, data_root
from tlb.report import discovery
from tlb.system.files import ROOT, disk_errors, replace_file
from tlb.system.prose import list_in_words, with_thousands
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tlb.fleet.bundle import Bundle

app = typer.Typer(help="Make one file of a machine's data, check one, or add it to data/.")


@app.command()
def make(
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
    data, this = Store(data_root()), hosts.machine_id(hosts.inspect()) if machine == "this" else ""
    asked = machine.removeprefix(OWN_PREFIX)
    is_own = this or machine.startswith(OWN_PREFIX) or machine in data.own.machines()
    store = data.own if is_own else data
    content, left_out = bundle.make(store, store.resolve(asked, this))
    made = bundle.read(content)
    path = output or Path(f"{made.machine}{bundle.SUFFIX}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    kernels = sorted({record.kernel for record, _ in made.rows})
    size = format_size(len(content))
    print(f"{path}: {with_thousands(len(made.rows))} rows of {list_in_words(kernels)}; {size}.")
    if left_out:
        print(f"Left out: {list_in_words(left_out)}.")
    url = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    where = f"attach it to an issue at {url}" if url else "send it to the book's maintainer"
    print(f"`tlb bundle check {path}` shows what is in it; then {where}.")


@app.command()
def check(files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Bundles.")]) -> None:
    """Check bundles and show their content; exit 1 with the reason for the first that is refused."""
    from tlb.fleet import bundle

    for path in files:
        read = bundle.read_file(path)
        host = pd.DataFrame(doctor.host_description(read.host), columns=["", "it says"])
        terminal.parts([f"{read.machine}, as it describes itself:", host, _kernels(read)])
        print(
            f"Accepted: {with_thousands(len(read.rows))} rows. `tlb bundle add {path}` adds them to data/."
        )


@app.command()
def add(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Bundles, folders of bundles, or this computer."),
    ],
    quantities: Annotated[
        bool,
        typer.Option(help="Execute all chapters about each machine, which takes minutes each."),
    ] = True,
) -> None:
    """Add bundles, or what was measured here, to data/.

    All files are checked before the first is added. Then each machine's quantities are made."""
    from tlb.fleet import bundle
    from tlb.fleet.add import add as add_bundle
    from tlb.report import publish

    files = [path for source in sources if source != "this" for path in _files(Path(source))]
    for path in files:
        bundle.read_file(path)
    machines = dict[str, None]()
    for path in files:
        added = add_bundle(Store(data_root()), bundle.read_file(path))
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
    finish(machines, quantities)


def finish(machines: Iterable[str], quantities: bool) -> None:
    """Make what follows from the rows of machines that were added."""
    from tlb.report import publish

    if not quantities:
        print("`tlb refresh --machine NAME` makes the quantities of a machine.")
        return
    discovery.load("overview.profile").refresh()
    for machine in machines:
        terminal.stage(f"Making the quantities of {machine}: all chapters are executed.")
        publish.refresh_quantities(machine)


def _files(source: Path) -> list[Path]:
    """Return a bundle, or those of a folder. Raises Unavailable("bundle-refused") for an empty one."""
    from tlb.fleet.bundle import NO_FILE, SUFFIX

    if not source.is_dir():
        return [source]
    found = sorted(source.glob(f"*{SUFFIX}"))
    if not found:
        raise Unavailable("bundle-refused", f"{source} has no *{SUFFIX}", NO_FILE)
    return found


def _kernels(read: Bundle) -> pd.DataFrame:
    """Return a row a kernel: its rows, and when they were measured."""
    rows = Counter[str](record.kernel for record, _ in read.rows)
    noisy = Counter[str](record.kernel for record, _ in read.rows if record.noisy)
    times: dict[str, list[str]] = {}
    for record, _ in read.rows:
        times.setdefault(record.kernel, []).append(record.started_at)
    cells = [
        (kernel, rows[kernel], noisy[kernel], min(times[kernel]), max(times[kernel]))
        for kernel in sorted(rows)
    ]
    return pd.DataFrame(cells, columns=["kernel", "rows", "noisy", "first", "last"])
