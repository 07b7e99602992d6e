"""The `tlb` command. What takes long to import, a command imports itself."""

from __future__ import annotations

import signal
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from tlb.cli import atlas, book, bundle, computer, fleet, housekeeping, measure, pool, trial, watch
from tlb.reasons import Unavailable
from tlb.system.processes import restore_signals_for_children

GROUPS = ("Start here", "Your program", "Measure", "Huge pages", "The book", "Share", "Development")
# What follows a program's name is the program's, also without a --.
PROGRAM: dict[str, Any] = {"context_settings": {"allow_interspersed_args": False}}
RESUMABLE = ("run", "book", "fleet")


class Grouped(TyperGroup):
    """A group whose help lists the commands by the panel that they name, without empty lines."""

    def format_options(self, context: Any, formatter: Any) -> None:
        formatter.write("\n")
        for group in GROUPS:
            formatter.write(f"{group}:\n")
            for name, command in self.commands.items():
                if getattr(command, "rich_help_panel", "") == group:
                    formatter.write(f"  {name:14}{command.get_short_help_str(100)}\n")
        formatter.write("`tlb COMMAND --help` explains a command and its options.\n")


app = typer.Typer(
    cls=Grouped,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Measure what address translation costs on this computer.",
)
for group, callbacks in {
    "Start here": {"doctor": computer.doctor, "inspect": computer.inspect},
    "Measure": {"measure": measure.measure, "geometry": computer.geometry, "run": book.run},
    "The book": {
        "book": book.book,
        "site": book.site,
        "pdf": book.pdf,
        "refresh": book.refresh,
        "publish": book.publish,
        "compare": book.compare,
    },
    "Share": {
        "bundle": bundle.bundle,
        "check-bundle": bundle.check_bundle,
        "add-bundle": bundle.add_bundle,
    },
    "Development": {"bench": book.bench, "release": book.release},
}.items():
    for name, callback in callbacks.items():
        extra = measure.SETTINGS if name == "measure" else {}
        app.command(name, rich_help_panel=group, **extra)(callback)
app.command("try", rich_help_panel="Your program", **PROGRAM)(trial.attempt)
app.command("watch", rich_help_panel="Your program", **PROGRAM)(watch.watch)
app.add_typer(pool.app, name="pool", rich_help_panel="Huge pages")
app.add_typer(housekeeping.app, name="housekeeping", rich_help_panel="Huge pages")
app.add_typer(fleet.app, name="fleet", rich_help_panel="Share")
app.add_typer(atlas.app, name="atlas", rich_help_panel="Share")


def main() -> None:
    """Run the command line. An unavailable operation prints one sentence to stderr and exits with 1
    (2 for a bad argument)."""
    arguments = _pairs(sys.argv[1:])
    for signal_name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, signal_name, None)
        # Under nohup, closing the terminal ends nothing. Otherwise as Ctrl-C, which ends in order.
        if number and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    restore_signals_for_children()
    try:
        # In standalone mode, typer would end the process itself, with errors in a box.
        status = app(args=arguments, prog_name="tlb", standalone_mode=False)
    except Unavailable as why:
        print(why, file=sys.stderr)
        raise SystemExit(2 if why.code == "bad-parameter" else 1) from None
    except Exception as error:
        # A usage error of click, of which typer may carry its own copy.
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.ctx.get_help())
            raise SystemExit(0) from None
        message = error.format_message().rstrip(".")
        end = "" if message.endswith("?") else "."
        print(f"{message}{end} `tlb --help` lists all commands.", file=sys.stderr)
        raise SystemExit(2) from None
    if status == 130:
        kept = "; what was finished is kept, and the same command goes on from there"
        is_kept = arguments[0] in RESUMABLE
        print(f"Interrupted{kept if is_kept else ''}.", file=sys.stderr)
    raise SystemExit(status or 0)


def _pairs(arguments: list[str]) -> list[str]:
    """Join `-p name value`, as Papermill takes it, to `-p name=value`, which typer can read."""
    joined: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        joined.append(argument)
        # After `try` and `watch` come the arguments of a program.
        if argument == "-p" and joined[0] not in ("try", "watch"):
            name = next(rest, "")
            joined.append(name if "=" in name else f"{name}={next(rest, '')}")
    return joined
