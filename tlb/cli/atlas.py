"""`tlb atlas` and its commands."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from datetime import date
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from tlb import fleet
from tlb.cli import terminal
from tlb.system.files import ROOT
from tlb.system.prose import count

DEFAULT = ROOT / "_build" / "atlas"
MOST_SHOWN = 200  # rows, to a person
app = typer.Typer(no_args_is_help=True, help="Query the data of many machines with SQL.")
Folder = Annotated[Path, typer.Option("--atlas", show_default="_build/atlas", help="The folder.")]


@app.command()
def build(
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="INPUT…", help="Bundles, machines' folders, or folders of these."),
    ],
    output: Annotated[
        Path, typer.Option(show_default="_build/atlas", help="The folder.")
    ] = DEFAULT,
) -> None:
    """Build the atlas, as Parquet, from bundles and folders; exit 1 if one is refused."""
    terminal.check_output(output)
    built = fleet.module("atlas").build(output, inputs)
    print(f"{output}: {count(built.rows)} rows of {count(built.machines)} machines.")
    for why in built.refused:
        print(f"Left out: {why}", file=sys.stderr)
    if built.refused:
        raise typer.Exit(1)


@app.command()
def ask(
    question: Annotated[
        str, typer.Argument(help="A name, or a SELECT; none: list the names.")
    ] = "",
    atlas: Folder = DEFAULT,
    as_json: terminal.Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV.")] = False,
) -> None:
    """Ask a named question, or SQL over rows, machines, profile and verdicts."""
    asking = fleet.module("ask")
    if not question:
        for name, (says, _) in asking.QUESTIONS.items():
            print(f"{name:10}  {says}")
        print("\nOr one SELECT of rows, machines, profile or verdicts; DESCRIBE shows columns.")
        return
    sql = asking.QUESTIONS[question][1] if question in asking.QUESTIONS else question
    with asking.opened(atlas) as connection:
        answer = asking.ask(connection, sql)
        if as_json:
            _print_json(answer)
        elif as_csv:
            out = csv.writer(sys.stdout, lineterminator="\n")
            out.writerow(answer.columns)
            out.writerows((_text(value) for value in row) for row in answer)
        else:
            _print_table(answer)


def _print_json(answer: Any) -> None:
    """An array of objects, a row a line; a number that is none is null."""
    separator = "["
    for row in answer:
        plain = dict(zip(answer.columns, map(_plain, row), strict=True))
        print(separator, json.dumps(plain, allow_nan=False), sep="", end="")
        separator = ",\n "
    print("]" if separator != "[" else "[]")


def _print_table(answer: Any) -> None:
    import pandas as pd

    rows: Iterator[tuple[Any, ...]] = iter(answer)
    first = [[_cell(value) for value in row] for row in islice(rows, MOST_SHOWN)]
    if not first:
        print(f"No row answers this ({', '.join(answer.columns)}).")
        return
    terminal.parts([pd.DataFrame(first, columns=answer.columns)])
    if next(rows, None) is not None:
        print(f"These are the first {MOST_SHOWN} rows; --csv and --json give all.")


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)


def _text(value: Any) -> Any:
    """A value in CSV: nothing for NULL, JSON for what has parts."""
    return json.dumps(_plain(value)) if isinstance(value, (list, tuple, dict)) else value


def _cell(value: Any) -> str:
    """A value in a table: what a terminal would obey in a text that a machine sent is shown as no
    character."""
    if value is None:
        return "–"
    if isinstance(value, (list, tuple, dict)):
        value = json.dumps(_plain(value), ensure_ascii=False)
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else "�" for letter in text)
