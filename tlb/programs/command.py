"""`tlb try`: the experiment on the command line."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tlb.programs import levers
from tlb.reasons import Unavailable
from tlb.system.files import disk_errors, measuring_lock
from tlb.units import format_ns

if TYPE_CHECKING:
    from tlb.programs.served import Driver
    from tlb.programs.trial import Aim, Trial

# What follows the program's name is the program's, also without a --.
SETTINGS = {"name": "try", "context_settings": {"allow_interspersed_args": False}}


def compare(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...", help="The program and its arguments, without a shell."
        ),
    ] = None,
    lever: Annotated[
        str,
        typer.Option(
            help="; ".join(f"{each.name}: {each.does}" for each in levers.LEVERS.values())
        ),
    ] = "advise",
    env: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE",
            help="A variable of its environment, in place of --lever; also several.",
        ),
    ] = [],  # noqa: B006
    minutes: Annotated[
        float, typer.Option(min=0.01, help="To measure in; six pairs are made in any case.")
    ] = 5.0,
    within: Annotated[
        float, typer.Option(min=0.1, max=50, help="Per cent to which the ratio is to be known.")
    ] = 2.0,
    metric: Annotated[
        str,
        typer.Option(help="Compare a number that it prints: a regular expression with one group."),
    ] = "",
    higher: Annotated[bool, typer.Option("--higher-is-better", help="Of that number.")] = False,
    after: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Seconds after its start at which collapse acts. Default: once nine tenths of its memory are there.",
        ),
    ] = None,
    driver: Annotated[
        str,
        typer.Option(
            metavar="CMD",
            help="COMMAND is a server: compare the time of CMD against it, or --metric of what CMD prints.",
        ),
    ] = "",
    ready: Annotated[
        str,
        typer.Option(
            help="With --driver: what the server writes once it is ready, a regular expression. "
            "Default: once it listens."
        ),
    ] = "",
    pid: Annotated[
        int,
        typer.Option(
            min=0,
            help="In place of COMMAND, a process that runs: CMD is run in windows before its memory is joined, and after.",
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="And as a page, into this file.")] = None,
) -> None:
    """Compare a program as it is with the same program and a lever, in interleaved pairs, with
    large pages verified from outside."""
    from tlb.programs.trial import Aim

    if html and (pid or html.is_dir() or not html.parent.is_dir()):
        raise Unavailable(
            "bad-parameter",
            "--html draws pairs, of which --pid has none"
            if pid
            else f"--html is a file in a folder that is there, not {html}",
        )
    within, pattern, server = within / 100, _pattern(metric, higher), _driver(driver, ready)
    if pid or not command:
        if (
            command
            or not pid
            or not server
            or ready
            or env
            or after is not None
            or lever not in ("advise", "collapse")
        ):
            raise Unavailable(
                "bad-parameter",
                "what is compared is a COMMAND, or a --pid by the windows of a --driver, which joining "
                "alone reaches",
            )
        return _joined(
            pid,
            Aim(server.command, levers.LEVERS["collapse"], within, minutes, pattern, higher),
            as_json,
        )
    _paired(
        Aim(command, levers.lever(lever, env), within, minutes, pattern, higher, after, server),
        as_json,
        html,
    )


def _paired(aim: Aim, as_json: bool, html: Path | None) -> None:
    """A program in pairs, as it is and with a lever."""
    from tlb.programs import report, trial

    with _measuring("Interrupted before six pairs; nothing of the program is left."):
        done = trial.attempt(aim, _progress if sys.stderr.isatty() else lambda trial: None)
    if as_json:
        print(json.dumps(report.document(done), indent=1))
    else:
        _show(done)
    if html:  # last, so that a full disk hides nothing
        from tlb.programs.page import page

        with disk_errors(html):
            html.write_text(page(done), encoding="utf-8")


@contextmanager
def _measuring(interrupted: str) -> Iterator[None]:
    """Alone on this computer; Ctrl-C is a sentence and exit 130."""
    try:
        with measuring_lock():
            yield
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        raise SystemExit(130) from None


def _joined(pid: int, aim: Aim, as_json: bool) -> None:
    """A process that runs, before and after."""
    from tlb.programs import running

    running.check(pid)  # before it is waited for that nobody else measures
    with _measuring(
        "Interrupted before there were windows after joining; what is joined stays so."
    ):
        done = running.change(pid, aim)
    if as_json:
        print(json.dumps(running.document(done), indent=1))
    else:
        _print(("", "before", "after joining"), running.rows(done), running.sentences(done))


def _print(head: tuple[str, ...], rows: list[tuple[str, str, str]], sentences: list[str]) -> None:
    out, table = Console(soft_wrap=True), Table(*head, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table, width=None if sys.stdout.isatty() else 120)  # a pipe is no screen to wrap for
    out.print()
    for sentence in sentences:
        out.print(escape(sentence), highlight=False)


def _driver(driver: str, ready: str) -> Driver | None:
    """What --driver and --ready say. Raises Unavailable("bad-parameter")."""
    from tlb.programs.served import Driver

    try:
        words, pattern = shlex.split(driver), re.compile(ready) if ready else None
    except (ValueError, re.error) as wrong:  # a quote that is not closed
        raise Unavailable(
            "bad-parameter", f"--{'ready' if isinstance(wrong, re.error) else 'driver'}: {wrong}"
        ) from None
    if not words and (driver or ready):
        raise Unavailable(
            "bad-parameter",
            "--driver names a command" if driver else "--ready is of a server with a --driver",
        )
    return Driver(words, pattern) if words else None


def _pattern(metric: str, higher: bool) -> re.Pattern[str] | None:
    """The expression of --metric. Raises Unavailable("bad-parameter")."""
    if not metric:
        if higher:
            raise Unavailable(
                "bad-parameter",
                "--higher-is-better is of a number that --metric names; of times less is better",
            )
        return None
    try:
        pattern = re.compile(metric)
    except re.error as wrong:
        raise Unavailable("bad-parameter", f"--metric: {wrong}") from None
    if pattern.groups != 1:
        raise Unavailable(
            "bad-parameter", f"--metric has one group, around the number, and not {pattern.groups}"
        )
    return pattern


def _progress(trial: Trial) -> None:
    if not trial.pairs:
        each_s = sum(run.elapsed_s for run in trial.rehearsal)
        print(
            f"A pair takes {format_ns(each_s * 1e9)}; there are six at least, and no more after {trial.aim.minutes:g} minutes.",
            file=sys.stderr,
        )
        return
    print(f"\r{len(trial.pairs)} pairs: {trial.ratio():.3f} ", end="", file=sys.stderr, flush=True)


def _show(trial: Trial) -> None:
    from tlb.programs import report

    if sys.stderr.isatty():
        print(file=sys.stderr)
    _print(
        ("", "as it is", f"with {trial.aim.lever.name}"),
        report.rows(trial),
        [
            report.verdict_sentence(trial),
            *report.remarks(trial),
            f"It took {format_ns(trial.spent_s * 1e9)}.",
        ],
    )
