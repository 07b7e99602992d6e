"""How the commands print: for a person, in a terminal or down a pipe."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

# A pipe is no screen to wrap for; its tables are as wide as what they hold, but for what is very
# long.
out = Console(soft_wrap=True, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200)
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


def parts(told: Iterable[str | pd.DataFrame]) -> None:
    """Sentences and tables for a person."""
    for part in told:
        if isinstance(part, str):
            out.print(escape(part), highlight=False)
            continue
        table = Table(*part.columns, box=None, pad_edge=False)
        for row in part.itertuples(index=False):
            table.add_row(*(escape(str(value)) for value in row))
        out.print(table)
        out.print()
