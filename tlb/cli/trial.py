"""`tlb try`."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from tlb.cli import shown
from tlb.programs import levers
from tlb.reasons import Unavailable
from tlb.system.files import IS_CLONE, disk_errors, measuring_lock
from tlb.units import format_ns

if TYPE_CHECKING:
    from tlb.programs.servers import Driver
    from tlb.programs.trial import Aim, Trial

LEVER = "; ".join(f"{each.name}: {each.does}" for each in levers.LEVERS.values())
Command = Annotated[list[str] | None, Argument(metavar="-- COMMAND...", help="The program.")]


def attempt(
    command: Command = None,
    lever: Annotated[str, Option(help=LEVER)] = "advise",
    env: Annotated[
        list[str], Option(metavar="NAME=VALUE", help="Instead of --lever, set a variable.")
    ] = [],  # noqa: B006
    minutes: Annotated[float, Option(min=0.01, help="Stop then, after six pairs at least.")] = 5,
    within: Annotated[float, Option(min=0.1, max=50, help="Precision of the ratio in %.")] = 2,
    metric: Annotated[
        str, Option(help="Compare a printed number: a regular expression with one group.")
    ] = "",
    higher: Annotated[bool, Option("--higher-is-better", help="Of the printed number.")] = False,
    after: Annotated[
        float | None, Option(min=0, help="Seconds until collapse acts; default: at 90 % memory.")
    ] = None,
    driver: Annotated[str, Option(metavar="CMD", help="Time CMD against COMMAND, a server.")] = "",
    ready: Annotated[
        str, Option(help="What a ready server writes, an expression; default: it listens.")
    ] = "",
    pid: Annotated[
        int, Option(min=0, help="Instead of COMMAND, a process: before and after collapse.")
    ] = 0,
    as_json: shown.Json = False,
    html: Annotated[Path | None, Option(help="Also write a page to this file.")] = None,
) -> None:
    """Measure a program with and without huge pages, in interleaved pairs."""
    from tlb.programs.trial import Aim

    _check_html(html, pid)
    pattern, server, within = _pattern(metric, higher), _driver(driver, ready), within / 100
    if command and not pid:
        goal = (within, minutes, pattern, higher, after, server)
        return _paired(Aim(command, levers.lever(lever, env), *goal), as_json, html)
    paired_only = ready or env or after is not None or lever not in ("advise", "collapse")
    if command or not pid or not server or paired_only:
        raise Unavailable(
            "bad-parameter", "give a COMMAND, or a --pid with --lever collapse, --driver"
        )
    aim = Aim(server.command, levers.LEVERS["collapse"], within, minutes, pattern, higher)
    return _before_after(pid, aim, as_json)


def _check_html(html: Path | None, pid: int) -> None:
    """Raise Unavailable if the page cannot be written: bad-parameter, no-book."""
    if html and not IS_CLONE:
        raise Unavailable("no-book", "--html")
    if html and (pid or html.is_dir() or not html.parent.is_dir()):
        why = "--pid has no pairs to draw" if pid else f"{html} is not a file in an existing folder"
        raise Unavailable("bad-parameter", f"--html: {why}")


def _paired(aim: Aim, as_json: bool, html: Path | None) -> None:
    from tlb.programs import trial, trial_report

    with _measuring("Interrupted before six pairs; the program has ended."):
        done = trial.attempt(aim, _progress if sys.stderr.isatty() else lambda trial: None)
    if as_json:
        print(json.dumps(trial_report.document(done), indent=1))
    else:
        if sys.stderr.isatty():
            print(file=sys.stderr)
        shown.table(("", "as it is", f"with {aim.lever.name}"), trial_report.rows(done))
        took = f"It took {format_ns(done.spent_s * 1e9)}."
        shown.parts([trial_report.verdict_sentence(done), *trial_report.remarks(done), took])
    if html:  # last, so that a full disk hides nothing
        from tlb.programs.trial_page import page

        with disk_errors(html):
            html.write_text(page(done), encoding="utf-8")


def _before_after(pid: int, aim: Aim, as_json: bool) -> None:
    from tlb.programs import before_after

    before_after.check(pid)  # before waiting for the lock
    with _measuring("Interrupted before the windows after collapsing; what is collapsed stays so."):
        done = before_after.compare(pid, aim)
    if as_json:
        print(json.dumps(before_after.document(done), indent=1))
    else:
        shown.table(("", "before", "after collapsing"), before_after.rows(done))
        shown.parts(before_after.remarks(done))


@contextmanager
def _measuring(interrupted: str) -> Iterator[None]:
    """Hold the lock of this computer; Ctrl-C prints a sentence and exits with 130."""
    try:
        with measuring_lock():
            yield
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        raise SystemExit(130) from None


def _driver(driver: str, ready: str) -> Driver | None:
    """Return --driver and --ready, parsed. Raises Unavailable("bad-parameter")."""
    from tlb.programs.servers import Driver

    try:
        words = shlex.split(driver)
    except ValueError as wrong:  # a quote that is not closed
        raise Unavailable("bad-parameter", f"--driver: {wrong}") from None
    pattern = _compiled("--ready", ready)
    if not words and (driver or ready):
        raise Unavailable("bad-parameter", "--ready takes a --driver, which names a command")
    return Driver(words, pattern) if words else None


def _pattern(metric: str, higher: bool) -> re.Pattern[str] | None:
    """Return --metric, parsed. Raises Unavailable("bad-parameter")."""
    pattern = _compiled("--metric", metric)
    if higher and not pattern:
        raise Unavailable("bad-parameter", "--higher-is-better takes a --metric")
    if pattern and pattern.groups != 1:
        raise Unavailable(
            "bad-parameter", f"--metric has one group around the number, not {pattern.groups}"
        )
    return pattern


def _compiled(option: str, expression: str) -> re.Pattern[str] | None:
    try:
        return re.compile(expression) if expression else None
    except re.error as wrong:
        raise Unavailable("bad-parameter", f"{option}: {wrong}") from None


def _progress(trial: Trial) -> None:
    out: Any = {"file": sys.stderr, "flush": True}
    if trial.pairs:
        print(f"\r{len(trial.pairs)} pairs: {trial.ratio():.3f} ", end="", **out)
        return
    pair = format_ns(sum(run.elapsed_s for run in trial.rehearsal) * 1e9)
    minutes = f"{trial.aim.minutes:g} minutes"
    print(f"A pair takes {pair}; at least six are made, and none after {minutes}.", **out)
