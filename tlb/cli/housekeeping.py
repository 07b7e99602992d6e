"""`tlb housekeeping` and its commands."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from tlb.cli import terminal
from tlb.machine import changed_settings
from tlb.machine import host as hosts
from tlb.measure import states
from tlb.measure.store import Store, data_root
from tlb.system.files import measuring_lock
from tlb.system.units import format_size

app = typer.Typer(invoke_without_command=True)


def _book_module(name: str) -> ModuleType:
    """Return a module of the book, which needs the packages of a clone."""
    from tlb.report import discovery

    return discovery.load(name)


@app.callback()
def look(context: typer.Context) -> None:
    """Measure what Linux's background work on memory costs."""
    if context.invoked_subcommand:
        return
    campaign = _book_module("housekeeping.campaign")
    leave, pieces = campaign.plan()
    print(
        f"`sudo tlb housekeeping measure` takes up to {campaign.SECONDS / 60:.0f} minutes and all "
        f"memory but {format_size(leave)}, and fragments {format_size(pieces)} of it. It changes "
        "these settings and restores them:"
    )
    for name in sorted(changed_settings.names() - {*changed_settings.sizes().values()}):
        print(f"  /{name}: {changed_settings.value(name) or 'absent'}")
    for name, change in changed_settings.changes().items():
        print(
            f"/{name}: {change.before} before, set to {change.written[-1]} since. "
            "`tlb housekeeping restore` restores it."
        )


@app.command()
def measure(
    leave: Annotated[str, typer.Option(help="Left to others; default: 15 %, at least 1GiB.")] = "",
) -> None:
    """Measure compaction, short programs, KSM, swap and khugepaged, and store it (root)."""
    campaign = _book_module("housekeeping.campaign")
    leave_bytes = terminal.parsed_size("--leave", leave) if leave else None
    changed_settings.check_namespace(
        Path("/"), "compaction, KSM, swap and khugepaged cannot be set, so nothing is measured"
    )
    for name in sorted(changed_settings.names()):
        if Path("/", name).exists():
            changed_settings.may_write(Path("/"), name)
    print(f"This takes up to {campaign.SECONDS / 60:.0f} minutes.", file=sys.stderr)
    with measuring_lock():
        document = campaign.measure(
            leave_bytes, lambda part: print(part.replace("_", " "), file=sys.stderr, flush=True)
        )
    host, store = hosts.inspect(), Store(data_root()).own
    machine = hosts.machine_id(host)
    states.write_description(store, machine, host)
    name = _book_module("housekeeping.document").NAME
    store.write_document(machine, name, document.model_dump(mode="json"))
    parts = ", ".join(f"{part} ({code})" for part, code in document.lacking.items())
    lacking = f" Not measured: {parts}." if parts else ""
    print(f"{machine}: {name}; the chapter on housekeeping shows it.{lacking}")


@app.command()
def restore() -> None:
    """Restore settings that a killed `measure` or `tlb try` left, unless changed since (root)."""
    restored = [*changed_settings.restore(), *changed_settings.restore(owner="try")]
    terminal.restored(restored, "/{name}: from {found} to {now}.", "No setting was changed.")
