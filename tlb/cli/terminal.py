"""Print tables and sentences, in a terminal or down a pipe."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tlb.system.files import disk_errors_as_unavailable
from tlb.system.reasons import Unavailable
from tlb.system.units import SECONDS_PER_DAY, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd

    from tlb.machine.changed_settings import RestoredSetting as Setting
    from tlb.machine.pools import RestoredPool as Pool


class _Output(Console):
    """Standard output; a pipe that is closed is an error of the command, as with print()."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  rich calls this where it has caught the error


# A pipe is no screen to wrap for: its sentences are lines, and its tables as wide as their content,
# up to 200 columns.
IS_SCREEN = sys.stdout.isatty() or "COLUMNS" in os.environ
out = _Output(soft_wrap=True, width=None if IS_SCREEN else 200)
_GAP = 2  # between columns
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Html = Annotated[Path | None, typer.Option(help="Also write a page to this file.")]
Wait = Annotated[
    float, typer.Option(min=0, max=SECONDS_PER_DAY, help="Seconds to wait for another measurement.")
]


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return what completes a word in a shell by one of these names, which are read when asked."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def parsed_size(option: str, text: str) -> int:
    """Return the bytes that an option names. Raises Unavailable("bad-parameter")."""
    try:
        return parse_size(text)
    except ValueError as wrong:
        raise Unavailable("bad-parameter", f"{option}: {wrong}") from None


def restored(changes: Sequence[Setting | Pool], line: str, nothing: str) -> None:
    """Print settings that were put back, and end with exit code 1 if some could not be."""
    for change in changes:
        print(line.format(**change._asdict()))
    if not changes:
        print(nothing)
    if whys := [change.why for change in changes if change.why]:
        raise SystemExit("\n".join(whys))


def stage(text: str) -> None:
    """Say on stderr what begins now, for what prints nothing for many seconds."""
    print(text, file=sys.stderr, flush=True)


def progress(text: str) -> None:
    """Show in a terminal, in place of the last such text, how far something is."""
    if sys.stderr.isatty():
        print(f"\r{text} ", end="", file=sys.stderr, flush=True)


def check_files(html: Path | None = None, **others: Path | None) -> None:
    """Raise Unavailable("bad-parameter"), before anything is measured, if a file cannot be written.
    Each is named as its option."""
    for option, file in ({"html": html} | others).items():
        if file and (why := _why_not_written(file)):
            raise Unavailable("bad-parameter", f"--{option} {file}: {why}")


def _why_not_written(file: Path) -> str:
    try:
        if file.is_dir():
            return "it is a directory"
        if not file.parent.is_dir():
            return f"there is no directory {file.parent}"
        may_write = os.access(file if file.exists() else file.parent, os.W_OK)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return str(getattr(error, "strerror", None) or error)
    return "" if may_write else "it cannot be written here"


def check_output(output: Path | None) -> None:
    """Raise Unavailable("bad-parameter") if neither a file nor a folder can be made as --output."""
    if output is None:
        return
    try:
        nearest = next(path for path in (output, *output.absolute().parents) if path.exists())
        is_refused = not os.access(nearest, os.W_OK) or not (nearest == output or nearest.is_dir())
    except (OSError, ValueError):  # ValueError: a NUL in the name
        is_refused = True
    if is_refused:
        raise Unavailable("bad-parameter", f"--output {output} cannot be written")


def check_input(file: Path) -> None:
    """Raise Unavailable("bad-parameter") if not every run of a program can read --input."""
    why = ""
    try:
        if file.is_fifo() or file.is_socket():  # opening it would wait for who writes into it
            why = "each run reads it from its beginning, and a pipe has none"
        else:
            file.open("rb").close()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = str(getattr(error, "strerror", None) or error)
    if why:
        raise Unavailable("bad-parameter", f"--input {file}: {why}")


def write(path: Path, text: str) -> None:
    """Write a file. Raises Unavailable: disk-refused."""
    with disk_errors_as_unavailable(path):
        path.write_text(text, encoding="utf-8")


def rows(head: Iterable[str], cells: Iterable[Iterable[object]]) -> Table:
    """Return a table without lines that fits the screen: cells wrap at words, and the last columns
    are left out where even that does not fit. An empty head is not shown."""
    texts = [[*map(str, head)], *([str(cell) for cell in row] for row in cells)]
    columns = [*zip(*texts, strict=True)]
    least = [min(max(map(_longest_word, column)), out.width // 2) for column in columns]
    kept = len(columns)
    while kept > 2 and sum(least[:kept]) + _GAP * (kept - 1) > out.width:
        kept -= 1
    spare = out.width - sum(least[:kept]) - _GAP * (kept - 1)
    table = Table(box=None, pad_edge=False, show_header=any(texts[0]))
    for column, width in zip(columns[:kept], least, strict=False):
        more = min(max(map(len, column)) - width, max(spare, 0))
        spare -= more
        table.add_column(escape(column[0]), width=width + more, overflow="fold")
    for row in texts[1:]:
        table.add_row(*map(escape, row[:kept]))
    if left_out := texts[0][kept:]:
        table.caption = escape(f"Left out for lack of columns: {', '.join(left_out)}.")
    return table


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def table(head: Iterable[str], cells: Iterable[Iterable[object]]) -> None:
    """Print a table and an empty line."""
    out.print(rows(head, cells))
    out.print()


def prose(text: str, indent: str = "", hanging: str | None = None) -> None:
    """Print a sentence, on a screen wrapped at words. indent: of its first line; hanging: of the
    others, as the first if None."""
    lines = [f"{indent}{text}"]
    if IS_SCREEN:
        lines = textwrap.wrap(
            text,
            max(out.width, 20),
            initial_indent=indent,
            subsequent_indent=indent if hanging is None else hanging,
            break_long_words=False,
            break_on_hyphens=False,
        )
    for line in lines or [""]:
        out.print(escape(line), highlight=False)


def parts(parts: Iterable[str | pd.DataFrame]) -> None:
    """Print sentences, commands as they are, and tables."""
    for part in parts:
        if not isinstance(part, str):
            table(part.columns, part.itertuples(index=False))
        elif part.startswith(("tlb ", "cd ")):  # to be copied, so its lines are the terminal's
            out.print(escape(part), highlight=False)
        else:
            prose(part)
