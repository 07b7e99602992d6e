"""`tlb try`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from tlb.cli import terminal
from tlb.machine import changed_settings
from tlb.machine import host as hosts
from tlb.programs import executable, levers, trial
from tlb.programs.runs import RunConditions, ServerDriver
from tlb.programs.trial import MAX_INTERVAL_PERCENT, MAX_WRONG_VERDICT_SHARE, Trial, TrialAim
from tlb.system.files import measuring_lock
from tlb.system.reasons import Unavailable
from tlb.system.units import MINUTES_PER_DAY, SECONDS_PER_DAY, format_ns

if TYPE_CHECKING:
    from tlb.programs.before_after import BeforeAfterComparison

INTERRUPTED = 130  # the exit code
PID_MAX = 1 << 22  # of Linux (PID_MAX_LIMIT)
DEFAULT_LEVER = "advise"
# Of click: \b keeps the lines of a paragraph as they are.
LEVER_TABLE = "\b\n" + "\n".join(
    f"  {each.name:15} {each.suits}" for each in levers.LEVERS.values() if each.suits
)
EPILOG = f"""Time and CPU time each get a ratio, its interval and a verdict. Runs go on until the ratio of
times is known to --within, or --minutes are over; Ctrl-C shows the pairs until then.

Levers, each for programs such as:

{LEVER_TABLE}

\b
Exit codes: 1 impossible, 2 usage, 3 another measurement runs, 4 the program failed."""
Command = Annotated[list[str] | None, Argument(metavar="-- COMMAND...", help="The program.")]


LEVER_NAMES = terminal.completing(levers.LEVERS)
LEVER_HELP = f"What changes, see below; default: {DEFAULT_LEVER}."
LeverName = Annotated[str, Option(help=LEVER_HELP, autocompletion=LEVER_NAMES)]
Against = Annotated[
    str, Option(metavar="LEVER", help="Compare with this lever.", autocompletion=LEVER_NAMES)
]
Only = Annotated[
    str,
    Option(
        metavar="SITE,SITE",
        help="Huge pages for these allocations of `tlb where`; with --pid, for FROM-TO of `tlb watch`.",
    ),
]
EnvOption = Annotated[
    list[str], Option(metavar="NAME=VALUE", help="Instead of --lever, set a variable.")
]


def _settings(incomplete: str) -> list[str]:
    prefix = "sys/kernel/mm/"
    names = sorted(name.removeprefix(prefix) for name in changed_settings.names())
    return terminal.completing(f"{name}=" for name in names)(incomplete)


Settings = Annotated[
    list[str],
    Option(
        metavar="NAME=VALUE",
        help="Instead of --lever, change a setting of Linux below /sys/kernel/mm during its runs (root).",
        autocompletion=_settings,
    ),
]
Versus = Annotated[str, Option(metavar="CMD", help="Instead of --lever, compare COMMAND with CMD.")]
Within = Annotated[
    float, Option(min=0.1, max=MAX_INTERVAL_PERCENT, help="Precision of the ratio in %.")
]
Metric = Annotated[
    str, Option(help="Compare a printed number: a regular expression with one group.")
]
Quantile = Annotated[
    float | None,
    Option(min=0.01, max=1, help="Compare this quantile of all the numbers that a run prints."),
]
MarkdownOption = Annotated[Path | None, Option(help="Also write a table to this file.")]
Minutes = Annotated[
    float,
    Option(
        min=0.01, max=MINUTES_PER_DAY, help="For all runs together; a verdict takes seven pairs."
    ),
]
Warmup = Annotated[int, Option(min=0, max=1000, help="Runs before all others, not counted.")]
After = Annotated[
    float | None,
    Option(
        min=0, max=SECONDS_PER_DAY, help="Seconds until collapse acts; default: at 90 % memory."
    ),
]
Ready = Annotated[
    str, Option(help="What a ready server writes, an expression; default: it listens.")
]
Pid = Annotated[
    int | None,
    Option(min=1, max=PID_MAX, help="Instead of COMMAND, a process: before and after collapse."),
]
Sweep = Annotated[
    str, Option(metavar="NAME=A,B,...", help="Repeat with {NAME} in COMMAND replaced by each.")
]


def attempt(
    command: Command = None,
    lever: LeverName = "", versus: Versus = "",
    setting: Settings = [], env: EnvOption = [], only: Only = "",  # noqa: B006
    against: Against = "none",
    minutes: Minutes = 5, within: Within = 2, metric: Metric = "", quantile: Quantile = None,
    higher: Annotated[bool, Option("--higher-is-better", help="Of the printed number.")] = False,
    after: After = None,
    driver: Annotated[str, Option(metavar="CMD", help="Time CMD against COMMAND, a server.")] = "",
    ready: Ready = "", pid: Pid = None, sweep: Sweep = "",
    input_file: Annotated[Path, Option("--input", help="The program's stdin.")] = Path(os.devnull),
    prepare: Annotated[str, Option(metavar="CMD", help="Run CMD before each run.")] = "",
    warmup: Warmup = 0,
    failing: Annotated[bool, Option("--ignore-failure", help="Compare failing runs.")] = False,
    shows: Annotated[bool, Option("--show-output", help="Copy its output to stderr.")] = False,
    wait: terminal.Wait = 0, as_json: terminal.Json = False,
    html: terminal.Html = None, markdown: MarkdownOption = None,
) -> None:  # fmt: skip
    """Measure a program with and without huge pages, in interleaved pairs.

    \b
    tlb try -- ./program --its-option
    tlb try --versus './new data' -- ./old data"""
    _check_files(input_file, html, markdown, pid, sweep)
    served, prepared = _driver(driver, ready), tuple(_words("--prepare", prepare))
    pattern = _pattern(metric, higher, quantile)
    conditions = RunConditions(input_file, prepared, pattern, quantile, shows)
    template = _template(within, minutes, higher, conditions, warmup, failing, against)
    if command and not pid:
        changed = _changed(lever, env, only, setting, versus)
        other = tuple(_words("--versus", versus))
        template = replace(template, lever=changed, versus=other, after_s=after, driver=served)
        return _paired(_swept(template, command, sweep), wait, as_json, html, markdown)
    others = (ready, env, setting, versus, sweep, markdown)
    is_other = any(others) or against != "none" or after is not None
    if command or not pid or not served or lever not in ("", "collapse") or is_other:
        raise Unavailable("bad-parameter", "give a COMMAND, or a --pid and for it a --driver")
    return _before_after(pid, replace(template, command=served.command), only, as_json, wait)


def _template(
    within_percent: float,
    minutes: float,
    higher: bool,
    conditions: RunConditions,
    warmup: int,
    ignore_failure: bool,
    against: str,
) -> TrialAim:
    """Return an aim without a command, for a running process. Raises Unavailable."""
    return TrialAim(
        [],
        levers.LEVERS["collapse"],
        within_percent / 100,
        minutes,
        higher,
        conditions=conditions,
        warmup=warmup,
        ignore_failure=ignore_failure,
        against=levers.lever_by_name(against, "--against"),
    )


def _changed(
    name: str, env: list[str], only: str, settings: list[str], versus: str
) -> levers.Lever:
    """Return the lever that the options name. Raises Unavailable("bad-parameter"), and what the
    lever's check raises."""
    given = {"lever": name, "env": env, "only": only, "setting": settings, "versus": versus}
    chosen = [f"--{option}" for option, value in given.items() if value]
    if len(chosen) > 1:
        raise Unavailable("bad-parameter", f"{' and '.join(chosen)} do not go together")
    if versus:
        return levers.LEVERS["none"]
    if env:
        return levers.environment_lever(env)
    if settings:
        return levers.settings_lever(settings)
    return _sites_lever(only) if only else levers.lever_by_name(name or DEFAULT_LEVER)


def _sites_lever(only: str) -> levers.Lever:
    """Return the lever of --only. Raises Unavailable("bad-parameter")."""
    sites = only.split(",")
    if not all(re.fullmatch("[0-9a-f]{16}|all", site) for site in sites):
        raise Unavailable("bad-parameter", f"--only takes sites of `tlb where`, not '{only}'")
    return levers.allocation_sites_lever(sites)


def _check_files(
    given: Path, html: Path | None, markdown: Path | None, pid: int | None, sweep: str
) -> None:
    """Raise Unavailable if each run cannot read its input, or a result be written: bad-parameter,
    no-extra."""
    if html and (pid or sweep):
        raise Unavailable("bad-parameter", "--html takes a COMMAND and no --sweep")
    terminal.check_files(html=html, markdown=markdown)
    terminal.check_input(given)


def _swept(template: TrialAim, command: list[str], sweep: str) -> list[TrialAim]:
    """Return an aim for the command with each value of --sweep in it; they share the minutes.
    Raises Unavailable: bad-parameter, program-missing."""
    name, _, values = sweep.partition("=")
    place = f"{{{name}}}"
    if sweep and (not values or not any(place in word for word in command)):
        raise Unavailable(
            "bad-parameter", f"--sweep NAME=A,B takes {{NAME}} in COMMAND, not {sweep}"
        )
    each = values.split(",") if sweep else [""]
    commands = [
        [word.replace(place, value) if sweep else word for word in command] for value in each
    ]
    for words in commands:
        executable.check(words)
    minutes = template.minutes / len(commands)
    return [replace(template, command=words, minutes=minutes) for words in commands]


def _trials(aims: list[TrialAim]) -> tuple[list[Trial], KeyboardInterrupt | Unavailable | None]:
    """Return a trial of each aim, and what ended them early: those before it stay. Raises what ends
    the first without a pair."""
    done: list[Trial] = []
    try:
        for aim in aims:
            done.append(trial.run_trial(aim, _progress))
            if done[-1].is_interrupted:
                return done, KeyboardInterrupt()
    except (KeyboardInterrupt, Unavailable) as why:
        if not done:
            raise
        return done, why
    return done, None


def _paired(
    aims: list[TrialAim], wait: float, as_json: bool, html: Path | None, markdown: Path | None
) -> None:
    from tlb.programs import reports, trial_report

    with interruptible_measuring_lock(
        "Interrupted before the first pair; the program has ended.", wait
    ):
        trials, ended = _trials(aims)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if as_json:
        host = hosts.inspect_machine()
        documents = [reports.document("try", trial_report.document(done), host) for done in trials]
        print(json.dumps(documents[0] if len(aims) == 1 else documents, indent=1))
    elif len(aims) > 1:
        terminal.table(trial_report.sweep_head(trials[0]), map(trial_report.sweep_row, trials))
        for done in trials:
            title = f"{shlex.join(done.aim.command)}:"
            terminal.parts([title, *trial_report.trial_remarks(done)])
    else:
        (done,) = trials
        terminal.table(("", *done.aim.sides), trial_report.trial_table_rows(done))
        took = f"It took {format_ns(done.spent_s * 1e9)}."
        if done.has_verdict:
            took += f" Where nothing differs, one of the verdicts is wrong in at most {MAX_WRONG_VERDICT_SHARE:.0%} of trials."
        terminal.parts(
            [*trial_report.verdict_sentences(done), *trial_report.trial_remarks(done), took]
        )
    if html:  # last, so that a full disk hides nothing
        terminal.write(html, reports.trial_page(trials[0]))
    if markdown:
        terminal.write(markdown, trial_report.markdown(trials))
    if isinstance(ended, Unavailable):
        raise ended
    if ended and not (len(aims) == 1 and trials[0].has_verdict):
        raise SystemExit(INTERRUPTED)


def _before_after(pid: int, aim: TrialAim, only: str, as_json: bool, wait: float) -> None:
    from tlb.programs import before_after, collapse, reports

    addresses = collapse.parsed_range(only) if only else None
    before_after.check(pid)  # before waiting for the lock
    interrupted = "Interrupted before the first window; nothing is collapsed."
    with interruptible_measuring_lock(interrupted, wait):
        done = before_after.compare(pid, aim, addresses, _show_windows)
    if as_json:
        found = reports.document("try-pid", before_after.document(done), hosts.inspect_machine())
        print(json.dumps(found, indent=1))
    else:
        terminal.table(("", "before", "after collapsing"), before_after.rows(done))
        terminal.parts(before_after.remarks(done))
    if done.is_interrupted:
        raise SystemExit(INTERRUPTED)


@contextlib.contextmanager
def interruptible_measuring_lock(interrupted: str, wait: float) -> Iterator[None]:
    """Hold the lock of this computer; Ctrl-C prints a sentence and exits with 130."""
    try:
        with measuring_lock(wait):
            yield
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def _driver(driver: str, ready: str) -> ServerDriver | None:
    """Return --driver and --ready, parsed. Raises Unavailable("bad-parameter")."""
    words = _words("--driver", driver)
    pattern = _compiled("--ready", ready)
    if ready and not words:
        raise Unavailable("bad-parameter", "--ready takes a --driver, which names a command")
    return ServerDriver(words, pattern) if words else None


def _words(option: str, command: str) -> list[str]:
    """Return the words of a command. Raises Unavailable: bad-parameter, program-missing."""
    try:
        words = shlex.split(command)
    except ValueError as wrong:  # a quote that is not closed
        raise Unavailable("bad-parameter", f"{option}: {wrong}") from None
    if command and not words:
        raise Unavailable("bad-parameter", f"{option} names no command")
    if words:
        executable.check(words, option)
    return words


def _pattern(metric: str, higher: bool, quantile: float | None) -> re.Pattern[str] | None:
    """Return --metric, parsed. Raises Unavailable("bad-parameter")."""
    pattern = _compiled("--metric", metric)
    if (higher or quantile) and not pattern:
        raise Unavailable("bad-parameter", "--higher-is-better and --quantile take a --metric")
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
    """Print what a pair takes, and in a terminal the ratio so far and the time left."""
    if trial.pairs:
        left_s = max(trial.aim.minutes * 60 - trial.spent_s, 0)
        return terminal.progress(
            f"{len(trial.pairs)} pairs: {trial.ratio():.3f}; at most {left_s:.0f} s left"
        )
    pair = format_ns(sum(run.elapsed_s for run in trial.rehearsal) * 1e9)
    minutes, needed = trial.aim.minutes, trial.minutes_needed
    short = f"; a verdict takes about {needed:g} (--minutes)" if needed > minutes else ""
    terminal.stage(f"A pair takes {pair}; pairs are made for {minutes:g} minutes at most{short}.")


def _show_windows(done: BeforeAfterComparison) -> None:
    """Show in a terminal how many windows there are."""
    before, after = len(done.runs_before), len(done.runs_after)
    terminal.progress(f"{before} windows before, {after} after collapsing")
