"""The `tlb` command. A command's module is imported when the command is asked for, and what takes
long to import, or is no part of the core, a command imports itself."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import textwrap
from collections import UserDict
from importlib import import_module
from typing import Annotated, Any, Literal, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from tlb.system.files import IS_REPOSITORY_CLONE
from tlb.system.processes import restore_signals_for_children
from tlb.system.reasons import Unavailable, book_unavailable_error, missing_package_error

# What follows a program's name is the program's, also without a --; a kernel has its own options.
_PROGRAM = {"allow_interspersed_args": False}
_SETTINGS = {
    "try": _PROGRAM,
    "watch": _PROGRAM,
    "where": _PROGRAM,
    "measure": {"allow_extra_args": True, "ignore_unknown_options": True},
}
# Of other reasons why a command did nothing, 1; of a signal, 128 and its number, as a shell has it.
_EXIT_CODES = {
    "bad-parameter": 2,
    "measuring-already": 3,
    **dict.fromkeys(("program-failed", "program-killed", "prepare-failed", "lever-failed"), 4),
}
_SIGNALLED, _INTERRUPTED = 128, 130  # the latter is what typer returns after Ctrl-C
_OF_THE_BOOK = {"book", "fleet"}  # modules whose commands need a clone
_MESSAGE_CHARS = 500
RESUMABLE = ("run", "book", "fleet")


ABOUT = "Measure what address translation costs on this computer."


class Entry(NamedTuple):
    """A command that is not imported yet. module: below tlb.cli; function: or typer in it; help:
    the first sentence of its help."""

    name: str
    module: str
    function: str
    help: str

    def load(self) -> Any:
        """Import the command. Its module's EPILOG, if it has one, ends the help."""
        module = import_module(f"{__name__}.{self.module}")
        target, epilog = getattr(module, self.function), getattr(module, "EPILOG", None)
        parent = typer.Typer(add_completion=False, rich_markup_mode=None, callback=lambda: None)
        if isinstance(target, typer.Typer):
            parent.add_typer(target, name=self.name)
        else:
            settings = _SETTINGS.get(self.name)
            parent.command(self.name, context_settings=settings, epilog=epilog)(target)
        return typer.main.get_group(parent).commands[self.name]

    @property
    def needs_book(self) -> bool:
        """Whether the command needs a clone of the book."""
        return self.module in _OF_THE_BOOK

    @property
    def is_refused(self) -> bool:
        """Whether the command needs a clone, which this is not."""
        return self.needs_book and not IS_REPOSITORY_CLONE

    def unloaded(self) -> TyperCommand:
        """Return a command of this name and help, without parameters."""
        return TyperCommand(self.name, help=self.help)


GROUPS = {
    "Start here": [
        Entry(
            "doctor",
            "computer",
            "doctor",
            "Show what disturbs measurements on this computer, with remedies.",
        ),
        Entry(
            "inspect",
            "computer",
            "inspect",
            "Show CPU, caches, TLBs, page sizes, counters and limits.",
        ),
    ],
    "Your program": [
        Entry(
            "try",
            "trial",
            "attempt",
            "Measure a program with and without huge pages, in interleaved pairs.",
        ),
        Entry(
            "where",
            "where",
            "where",
            "Find which lines and allocations cost a program page walks, and what huge pages gain.",
        ),
        Entry(
            "watch",
            "watch",
            "watch",
            "Say how much huge pages can gain a running program at most, and print a line that tries it.",
        ),
    ],
    "Measure": [
        Entry("measure", "measure", "measure", "Measure one point and print its record as JSON."),
        Entry(
            "geometry",
            "computer",
            "geometry",
            "Infer the TLB's entries, ways and costs in half a minute.",
        ),
        Entry("run", "book", "run", "Run one chapter on this computer."),
    ],
    "Huge pages": [
        Entry(
            "pool",
            "computer",
            "pool_app",
            "Show the pools of huge pages, reserve pages and put them back.",
        )
    ],
    "The book": [
        Entry("book", "book", "book", "Measure this computer and build the book about it."),
        Entry("site", "book", "site", "Build the site from the published data."),
        Entry(
            "refresh", "book", "refresh", "Execute committed chapters again, on the published data."
        ),
        Entry("compare", "book", "compare", "Compare the quantities of two machines or more."),
    ],
    "Share": [
        Entry(
            "bundle",
            "fleet",
            "bundle_app",
            "Make one file of a machine's data, check one, or add it to data/.",
        ),
        Entry("fleet", "fleet", "fleet", "Measure the book's campaign on many computers, by Dask."),
    ],
}
ENTRIES = {entry.name: entry for entries in GROUPS.values() for entry in entries}


class Commands(UserDict):
    """Commands by name; an Entry is imported with its first use."""

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, Entry):
            found = self.data[name] = found.load()
        return found


class Grouped(TyperGroup):
    """A group whose help lists the commands of the table that work here, without importing them."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.commands = Commands(ENTRIES | dict(self.commands))

    def format_options(self, context: Any, formatter: Any) -> None:
        formatter.write("\n")
        for group, entries in GROUPS.items():
            shown = [entry for entry in entries if not entry.is_refused]
            lines = [f"  {entry.name:14}{entry.help}\n" for entry in shown]
            formatter.write("".join([f"{group}:\n", *lines] if lines else []))
        formatter.write(
            "`tlb COMMAND --help` explains a command. -V: version; --color always, never; "
            "--install-completion.\n"
        )

    def shell_complete(self, context: Any, incomplete: str) -> list[Any]:
        """Offer the commands of the table that work here, without importing them."""
        self.commands = {  # nothing runs after a completion
            name: entry.unloaded() for name, entry in ENTRIES.items() if not entry.is_refused
        }
        return super().shell_complete(context, incomplete)

    def resolve_command(self, context: Any, words: list[str]) -> Any:
        entry = ENTRIES.get(words[0])
        if entry and entry.is_refused:
            if context.resilient_parsing:  # a completion, which has nobody to read a refusal
                return entry.name, entry.unloaded(), words[1:]
            raise book_unavailable_error(f"tlb {entry.name}")
        return super().resolve_command(context, words)


app = typer.Typer(
    cls=Grouped,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # a tenth of the time that --help takes

        print(version("every-load-is-two-loads"))
        raise SystemExit(0)


@app.callback(help=ABOUT)
def _tlb(
    color: Annotated[Literal["auto", "always", "never"], typer.Option()] = "auto",
    version: Annotated[
        bool, typer.Option("-V", "--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    if color != "auto":  # what rich reads, once a command imports it
        os.environ["FORCE_COLOR" if color == "always" else "NO_COLOR"] = "1"


def _is_unread() -> bool:
    """Return whether standard output is a pipe that nobody reads any more; then it is dropped, or
    Python would complain as it ends."""
    if not hasattr(select, "poll"):  # Windows
        return False
    pipe = select.poll()
    pipe.register(1, 0)
    is_closed = any(event & select.POLLERR for _, event in pipe.poll(0))
    if is_closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return is_closed


def main() -> None:
    """Run the command line. An unavailable operation prints one sentence to stderr and exits with 1
    (2 for a bad argument); after a signal that ends it, the exit code is 128 and its number."""
    ended_by = [signal.SIGINT]

    def end(number: int, frame: object) -> None:
        ended_by.append(signal.Signals(number))
        raise KeyboardInterrupt  # which ends everything in order

    arguments = _pairs(sys.argv[1:])
    for name in ("stdout", "stderr"):  # None where a shell has closed it (>&-)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for signal_name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, signal_name, None)
        # Under nohup, closing the terminal ends nothing.
        if number and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    restore_signals_for_children()
    try:
        status = _ended(arguments)
    except SystemExit as ended:
        status = ended.code
    if status == 1 and _is_unread():  # typer makes it 1 without a word
        ended_by, status = [signal.SIGPIPE], _INTERRUPTED
    raise SystemExit(_SIGNALLED + ended_by[-1] if status == _INTERRUPTED else status or 0)


def _ended(arguments: list[str]) -> Any:
    """Run a command to its end and return its exit code, with a sentence if it was interrupted or
    its output could not be written."""
    try:
        status = _status(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:  # before typer, which returns the same
        status = _INTERRUPTED
    except OSError as error:  # of a pipe that is closed (| head), or a disk that is full
        is_output = error.filename is None and error.errno in (errno.EPIPE, errno.ENOSPC)
        if not is_output or sys.stdout.fileno() != 1:
            raise
        if _is_unread():
            return 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains as it ends
        print(f"The output could not be written: {error.strerror}.", file=sys.stderr)
        return 1
    if status == _INTERRUPTED:
        kept = "; what was finished is kept, and the same command goes on from there"
        is_kept = arguments[0] in RESUMABLE
        print(f"Interrupted{kept if is_kept else ''}.", file=sys.stderr)
    return status


def _status(arguments: list[str]) -> Any:
    """Run a command and return its exit code; after a wrong argument or an unavailable operation,
    exit with a sentence."""
    try:
        # In standalone mode, typer would end the process itself, with errors in a box.
        return app(args=arguments, prog_name="tlb", standalone_mode=False)
    except Unavailable as why:
        is_argument = why.code == "bad-parameter" and why.detail
        wrong = f"Wrong argument: {why.detail}"
        text = _with_help(wrong, _named(arguments)) if is_argument else str(why)
        for line in filter(None, (*getattr(why, "__notes__", ()), text)):
            print(line, file=sys.stderr)
        raise SystemExit(_EXIT_CODES.get(why.code, 1)) from None
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("tlb", "experiments", "kernels")):
            raise
        print(missing_package_error(error), file=sys.stderr)
        raise SystemExit(1) from None
    except Exception as error:
        # A usage error of click, of which typer may carry its own copy.
        if not hasattr(error, "format_message"):
            raise
        context: Any = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(context.get_help())
            raise SystemExit(0) from None
        command = context.command_path if context else _named(arguments)
        message = error.format_message().replace("Input should be", "it should be")
        print(_with_help(message, command), file=sys.stderr)
        raise SystemExit(2) from None


def _with_help(message: str, command: str) -> str:
    """Return what is wrong with an argument in one line, with the command that explains it."""
    message = textwrap.shorten(message, _MESSAGE_CHARS, placeholder="…").rstrip(".")
    end = "" if message.endswith("?") else "."
    lists = "lists all commands" if command == "tlb" else "lists its options"
    return f"{message}{end} `{command} --help` {lists}."


def _named(arguments: list[str]) -> str:
    """Return the command that arguments name, such as "tlb pool reserve"."""
    command, names = typer.main.get_command(app), ["tlb"]
    for word in arguments:
        below = getattr(command, "commands", {})
        if word in below:
            command = below[word]
            names.append(word)
    return " ".join(names)


def _pairs(arguments: list[str]) -> list[str]:
    """Join `-p name value`, as Papermill takes it, to `-p name=value`, which typer can read."""
    joined: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        joined.append(argument)
        # After `try` and `watch` come the arguments of a program.
        if argument == "-p" and joined[0] not in ("try", "watch", "where"):
            name = next(rest, "")
            joined.append(name if "=" in name else f"{name}={next(rest, '')}")
    return joined
