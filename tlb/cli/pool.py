"""`tlb pool` and its commands."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tlb.machine import pools
from tlb.reasons import Unavailable
from tlb.units import format_size, parse_size

app = typer.Typer(invoke_without_command=True)


@app.callback()
def look(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """The pools of huge pages and what was changed in them; `reserve` lets one grow, `restore` puts
    it back."""
    if context.invoked_subcommand:
        return
    by_page, changed = pools.look(), pools.changes()
    if as_json:
        rows = [
            {**state.model_dump(), "bytes": state.total * parse_size(page)}
            for page, state in by_page.items()
        ]
        print(
            json.dumps(
                {
                    "pools": rows,
                    "changed": {page: change.model_dump() for page, change in changed.items()},
                },
                indent=1,
            )
        )
        return
    if not by_page:
        print("This kernel has no pools of huge pages.")
    for page, state in by_page.items():
        print(
            f"{page}: {state.total} pages ({format_size(state.total * parse_size(page))}), "
            f"{state.free} free, {state.reserved} reserved, {state.surplus} surplus"
        )
    for page, change in changed.items():
        print(
            f"{page}: {change.before} pages before, set to {change.written[-1]} since; `tlb pool restore` puts them back"
        )


@app.command()
def reserve(
    page: Annotated[
        str, typer.Option("--pages", help="2m, 1g, or another size that `tlb pool` lists.")
    ],
    size: Annotated[str, typer.Option(help="How much of it is to be free, such as 4GiB.")],
) -> None:
    """Let a pool grow until that much is free (root); the kernel may give less, which is then said,
    with exit 1."""
    try:
        size_bytes = parse_size(size)
    except ValueError as wrong:
        raise Unavailable("bad-parameter", str(wrong).removesuffix(".")) from None
    got = pools.reserve(page, size_bytes)
    print(
        f"{page}: {got.free} of {got.wanted} pages asked are free; {got.added} were added, the pool has {got.total}."
    )
    if got.why:
        raise SystemExit(got.why)


@app.command()
def restore() -> None:
    """Put every pool back that `reserve` changed, also after a crash, where its size is still ours
    (root)."""
    restored = pools.restore()
    for change in restored:
        print(f"{change.page}: from {change.found} pages to {change.total}.")
    if not restored:
        print("No pool was changed, so there is nothing to put back.")
    if whys := [change.why for change in restored if change.why]:
        raise SystemExit("\n".join(whys))
