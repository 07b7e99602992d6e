"""`tlb watch`: a program seen from outside, on the command line."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from tlb.reasons import Unavailable

if TYPE_CHECKING:
    from tlb.lab.perf import Plan
    from tlb.lab.record import Quantity
    from tlb.programs.reach import Reach
    from tlb.programs.watch import Target, Watched

# What follows the program's name is the program's, also without a --.
SETTINGS = {"name": "watch", "context_settings": {"allow_interspersed_args": False}}
_PID_DIGITS = 7  # of the largest PID that Linux gives, 4,194,304 (PID_MAX_LIMIT)
_WINDOWS = ("in", "it touches", "of it on 2 MiB pages", "TLB level", "looks", "a look")


def watch(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="PID | -- COMMAND...",
            help="A process, or a program and its arguments, without a "
            "shell; it reads nothing, and what it writes is dropped.",
        ),
    ],
    seconds: Annotated[
        float,
        typer.Option(min=0, help="How long; 0 until it ends, or Ctrl-C. A command is ended then."),
    ] = 60.0,
    overhead: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=50,
            help="Per cent of the program's time that looks may cost; one is always made.",
        ),
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, at the end.")] = False,
) -> None:
    """Watch what a running program touches, without changing it: on which tread of the staircase it
    lives, what translation can cost it at most, and what to try."""
    from tlb.lab import perf
    from tlb.lab.store import Store, data_root
    from tlb.machine import host as hosts
    from tlb.programs import watch_words
    from tlb.programs.reach import Reach
    from tlb.programs.watch import watch as looked

    begin = _target(target)
    host = hosts.inspect()
    reach, plan = Reach.of(host, Store(data_root())), perf.plan(host.microarchitecture)
    with begin as aim:
        counting = _Counting(plan, aim)
        try:
            with ExitStack() as screen:
                watched = looked(
                    aim,
                    seconds or math.inf,
                    overhead / 100,
                    _teller(screen, reach, as_json),
                    counting.pause,
                )
        except KeyboardInterrupt:
            print("Interrupted before a first look; nothing was seen.", file=sys.stderr)
            raise SystemExit(130) from None
    if as_json:
        print(
            json.dumps(
                watch_words.document(watched, reach, counting.counts, counting.sampled), indent=1
            )
        )
        return
    out = Console(
        soft_wrap=True, width=None if sys.stdout.isatty() else 160
    )  # a pipe is no screen to wrap for
    out.print(_tables(watched, reach))
    for sentence in watch_words.sentences(watched, reach, counting.counts, counting.sampled):
        out.print(escape(sentence), highlight=False)


class _Counting:
    """Counts the program in the pauses between looks, a group of events in turn. counts: of each
    turn, or the reason for none. pause: None where nothing counts walks."""

    def __init__(self, plan: Plan, aim: Target) -> None:
        self._plan, self._aim = plan, aim
        self._turns: list[dict[str, Quantity]] = []
        self.sampled: dict[int, int] | str = plan.lacking.get(
            "walk", "no-time"
        )  # loads by the size of the page that they read
        self._pauses = 0
        can = any(event.quantity == "walk" for event in plan.events)
        self.pause: Callable[[float], None] | None = self._count if can else None

    def _count(self, seconds: float) -> None:
        from tlb.lab.attached import counted, page_sizes

        self._pauses += 1
        if (
            self._pauses == 2
        ):  # the first pause counts, and the second, of a program that is at work, samples
            self.sampled = page_sizes(self._plan, self._aim.pid, seconds)
            return
        self._turns.append(counted(self._plan, self._aim.pid, seconds, len(self._turns)))

    @property
    def counts(self) -> list[dict[str, Quantity]] | str:
        return self._turns if self.pause else self._plan.lacking.get("walk", "no-perf")


def _target(words: list[str]):
    """What is to be watched, as a context. Raises Unavailable("bad-parameter")."""
    from tlb.programs.watch import running, started

    if len(words) == 1 and words[0].lstrip("-").isdigit():
        if not (
            words[0].isascii()
            and words[0].isdigit()
            and len(words[0]) <= _PID_DIGITS
            and int(words[0])
        ):
            raise Unavailable("bad-parameter", f"a PID is a number from 1 on, not {words[0][:20]}")
        return running(int(words[0]))
    return started(words)


def _teller(screen: ExitStack, reach: Reach, as_json: bool) -> Callable[[Watched], None]:
    """What is done after each look: on a terminal a table that stays in its place, elsewhere a
    line; nothing where JSON is asked for."""
    from tlb.programs import watch_words

    if as_json:
        return lambda watched: None
    if sys.stdout.isatty():
        live = screen.enter_context(Live(transient=True, auto_refresh=False))
        return lambda watched: live.update(_tables(watched, reach), refresh=True)

    def line(watched: Watched) -> None:
        window_s = watched.sights[-1].window_s
        (row,) = [
            row
            for row in watch_words.window_rows(watched, reach)
            if row[0] == watch_words.duration(window_s)
        ]
        print(
            f"{watch_words.duration(watched.elapsed_s)}: in {row[0]} it touches {row[1]}, {row[2]} on 2 MiB pages: {row[3]}",
            flush=True,
        )

    return line


def _tables(watched: Watched, reach: Reach) -> Group:
    from tlb.programs import watch_words

    pages = Table(show_header=False, box=None, pad_edge=False)
    for row in watch_words.pages_rows(watched):
        pages.add_row(*map(escape, row))
    windows = Table(*_WINDOWS, box=None, pad_edge=False)
    for row in watch_words.window_rows(watched, reach):
        windows.add_row(*map(escape, row))
    return Group(pages, "", windows, "")
