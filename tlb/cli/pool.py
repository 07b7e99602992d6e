"""`tlb pool` and its commands."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tlb.cli import shown
from tlb.machine import pools
from tlb.system.units import format_size, parse_size

app = typer.Typer(invoke_without_command=True)


@app.callback()
def look(context: typer.Context, as_json: shown.Json = False) -> None:
    """Show the pools of huge pages, reserve pages and put them back."""
    if context.invoked_subcommand:
        return
    by_page, changed = pools.look(), pools.changes()
    if as_json:
        rows = [
            {**state.model_dump(), "bytes": state.total * parse_size(page)}
            for page, state in by_page.items()
        ]
        changes = {page: change.model_dump() for page, change in changed.items()}
        print(json.dumps({"pools": rows, "changed": changes}, indent=1))
        return
    if not by_page:
        print("This Linux kernel has no pools of huge pages.")
    for page, state in by_page.items():
        print(
            f"{page}: {state.total} pages ({format_size(state.total * parse_size(page))}), "
            f"{state.free} free, {state.reserved} reserved, {state.surplus} surplus"
        )
    for page, change in changed.items():
        print(
            f"{page}: {change.before} pages before, set to {change.written[-1]} since. "
            "`tlb pool restore` restores the old number."
        )


@app.command()
def reserve(
    page: Annotated[str, typer.Option("--pages", help="2m, 1g, or another size in `tlb pool`.")],
    size: Annotated[str, typer.Option(help="Free afterwards, such as 4GiB.")],
) -> None:
    """Grow a pool until a size is free (root); exit 1 if Linux gives less."""
    got = pools.reserve(page, shown.parsed_size("--size", size))
    print(
        f"{page}: {got.free} pages are free ({got.wanted} requested); {got.added} were added, "
        f"the pool has {got.total}."
    )
    if got.why:
        raise SystemExit(got.why)


@app.command()
def restore() -> None:
    """Restore pools that `reserve` changed, unless others changed them since (root)."""
    line = "{page}: from {found} pages to {total}."
    shown.restored(pools.restore(), line, "No pool was changed.")
