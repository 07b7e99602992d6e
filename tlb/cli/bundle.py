"""`tlb bundle`, `tlb check-bundle` and `tlb add-bundle`: one machine as one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer
import yaml

from tlb.cli import terminal
from tlb.cli.book import refresh_summaries
from tlb.machine import doctor
from tlb.machine import host as hosts
from tlb.measure import build
from tlb.measure.store import OWN_PREFIX, Store, data_root
from tlb.system.files import ROOT
from tlb.system.prose import count, listed
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size

if TYPE_CHECKING:
    from tlb.fleet.check import Bundle
    from tlb.measure.record import Record

File = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `tlb bundle` wrote.")]
BACK = "began before the row before them: a clock was set back, or bundles were added out of order"
SHORT = "were timed for less than half of the region asked for, as single passes are"


def bundle(
    machine: Annotated[
        str, typer.Argument(help="this, a machine in data/own/ or data/, or own/NAME.")
    ] = "this",
    output: Annotated[Path | None, typer.Option(help="Default: MACHINE.tlb.zip.")] = None,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="A word that may be shared.")
    ] = None,
) -> None:
    """Pack a machine's data into a file, to contribute it.

    Words that may identify somebody are refused unless --allow permits them."""
    from tlb.fleet import check, pack

    terminal.check_output(output)
    data, this = Store(data_root()), hosts.machine_id(hosts.inspect()) if machine == "this" else ""
    asked = machine.removeprefix(OWN_PREFIX)
    is_own = this or machine.startswith(OWN_PREFIX) or machine in data.own.machines()
    store = data.own if is_own else data
    name = store.resolve(asked, this)
    path = output or Path(f"{name}{check.SUFFIX}")
    packed = pack.write(store, name, path, allow or ())
    made, size = packed.bundle, format_size(len(packed.content))
    unpacked, rows = format_size(sum(map(len, made.files.values()))), count(made.states.total())
    print(f"{path}: {rows} rows of {listed(made.kernels)}; {size}, {unpacked} unpacked.")
    print(f"States of the machine: {listed(sorted(made.states))}.")
    if packed.left_out:
        print(f"Left out: {listed(packed.left_out)}.")
    url = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    where = f"attach it to an issue at {url}" if url else "send it to the book's maintainer"
    print(f"`tlb check-bundle {path}` shows what is in it; then {where}.")


def check_bundle(file: File) -> None:
    """Check a bundle and show its content; exit 1 if it cannot be added."""
    from tlb.fleet import accept, archive, check

    data, accepted = Store(data_root()), check.opened(archive.read(file))
    host = pd.DataFrame(doctor.describe(accepted.host), columns=["", "it says"])
    kernels, title = pd.DataFrame(_kernels(data, accepted)), "as it describes itself:"
    terminal.parts([f"{accepted.machine}, {title}", host, kernels, *remarks(accepted)])
    if not accept.review(data, accepted, accept.Known(data)):
        raise Unavailable("bundle-known", f"no row of {accepted.machine} is new")
    rows = count(accepted.states.total())
    print(f"Accepted: {rows} rows. `tlb add-bundle {file}` adds them to data/.")


def add_bundle(file: File) -> None:
    """Add a bundle to data/, with a new card and profile."""
    from tlb.fleet import accept, archive, check

    added = accept.add(Store(data_root()), accepted := check.opened(archive.read(file)))
    if not added.rows:
        raise Unavailable("bundle-known", f"no row of {accepted.machine} is new")
    known = f"; {count(added.known)} were there already" if added.known else ""
    print(f"{added.folder}: {count(added.rows)} new rows{known}.")
    refresh_summaries()


def _kernels(data: Store, accepted: Bundle) -> Iterator[dict[str, object]]:
    """Yield of each kernel's rows how many there are, were disturbed and were counted, and what
    measured them: this checkout's sources, other ones that published rows are of, or unknown ones.
    """
    published = {
        (record.kernel, record.source)
        for machine in data.machines()
        for record in data.records(machine).values()
    }
    for kernel in accepted.kernels:
        rows, sources = [*accepted.rows(kernel)], Counter[str]()
        for row in rows:
            known = "published" if (kernel, row.record.source) in published else "unknown"
            is_ours = row.record.source == build.source_digest(kernel, row.record.engine)
            sources["this checkout" if is_ours else known] += 1
        walks = [row.record.counters.get("walk") for row in rows]
        began = sorted(row.record.started_at for row in rows)
        yield {
            "kernel": kernel,
            "rows": len(rows),
            "noisy": sum(bool(row.record.noisy) for row in rows),
            "counted": sum(walk is not None and walk.value is not None for walk in walks),
            "first": began[0],
            "last": began[-1],
            "source": ", ".join(f"{name} {number}" for name, number in sorted(sources.items())),
        }


def remarks(accepted: Bundle) -> Iterator[str]:
    """Yield in sentences what is no reason to refuse a bundle, and is to be known of it."""
    odd = Counter[str]()
    for state in accepted.states.keys() - accepted.hosts.keys():
        odd[f"are of the state {state}, which nothing describes"] = accepted.states[state]
    before: Record | None = None
    for record in accepted.records():
        if before and before.kernel == record.kernel:
            odd[BACK] += before.started_at > record.started_at
        odd[SHORT] += record.elapsed_ns < record.region_ms * 1e6 / 2
        before = record
    yield from (f"{number:,} rows {words}." for words, number in odd.items() if number)
