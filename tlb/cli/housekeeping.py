"""`tlb housekeeping` and its commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tlb.lab import housekeeping, housework, states
from tlb.lab.store import Store, data_root
from tlb.machine import borrowed
from tlb.machine import host as hosts
from tlb.reasons import Unavailable
from tlb.system.files import measuring_lock
from tlb.units import format_size, parse_size

app = typer.Typer(invoke_without_command=True)


@app.callback()
def look(context: typer.Context) -> None:
    """What the kernel's own housekeeping costs; `measure` borrows settings for it, `restore` puts
    back what a kill left."""
    if context.invoked_subcommand:
        return
    leave, pieces = housework.plan()
    print(
        f"`sudo tlb housekeeping measure` takes up to {housework.SECONDS / 60:.0f} minutes and all memory but {format_size(leave)}, "
        f"of which {format_size(pieces)} are broken into pieces. It borrows these settings and puts them back:"
    )
    for name in sorted(borrowed.names()):
        print(f"  /{name}: {borrowed.value(name) or 'not there'}")
    for name, change in borrowed.changes().items():
        print(
            f"/{name}: {change.before} before, set to {change.written[-1]} since; `tlb housekeeping restore` puts it back"
        )


@app.command()
def measure(
    leave: Annotated[
        str, typer.Option(help="What others keep, such as 2GiB. Default: 15 %, at least 1GiB.")
    ] = "",
) -> None:
    """Measure defrag, short programs, merging, swapping and joining, and write it beside this
    machine's rows (root)."""
    try:
        leave_bytes = parse_size(leave) if leave else None
    except ValueError as wrong:
        raise Unavailable("bad-parameter", str(wrong).removesuffix(".")) from None
    print(f"This takes up to {housework.SECONDS / 60:.0f} minutes.", file=sys.stderr)
    with measuring_lock():
        document = housework.measure(
            leave_bytes, lambda part: print(part.replace("_", " "), file=sys.stderr, flush=True)
        )
    host, store = hosts.inspect(), Store(data_root()).own
    machine = hosts.machine_id(host)
    states.describe(store, machine, host)
    store.write_document(machine, housekeeping.NAME, document.model_dump(mode="json"))
    print(
        f"{machine}: {housekeeping.NAME}; the chapter about churn shows it."
        + (
            f" Without {', '.join(f'{part} ({code})' for part, code in document.lacking.items())}."
            if document.lacking
            else ""
        )
    )


@app.command()
def restore() -> None:
    """Put every setting back that `measure` borrowed and could not return, where its value is still
    ours (root)."""
    restored = borrowed.restore()
    for change in restored:
        print(f"/{change.name}: from {change.found} to {change.now}.")
    if not restored:
        print("No setting was changed, so there is nothing to put back.")
    if whys := [change.why for change in restored if change.why]:
        raise SystemExit("\n".join(whys))
