"""The `tlb` command: what it prints for a person, what for a program, and one line for whatever is
wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from support.common import ROOT, descendants_with, ended, in_turn, living, needs_c, wait_until

from experiments.overview import campaign
from tlb import cli
from tlb.cli import commands, terminal
from tlb.machine.changed_settings import RestoredSetting
from tlb.measure.record import Record
from tlb.report import publish
from tlb.system import files
from tlb.system.units import MINUTES_PER_DAY

TLB = [sys.executable, "-c", "from tlb.cli import main; main()"]


def tlb(*arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
    return in_turn([*TLB, *arguments], **how)


def test_the_page_of_commands_is_what_help_prints():
    page = commands.PAGE.read_text(encoding="utf-8")
    assert commands.refreshed(page) == page, "run `python -m tlb.cli.commands`"


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.parametrize("engine", [pytest.param("c", marks=needs_c), "numba", "auto"])
def test_measure_prints_one_record_as_json(engine):
    words = "measure page_chase --pages 4k --layout spread --lines 256 --region-ms 1 --engine"
    done = tlb(*words.split(), engine)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert json.loads(done.stdout)["ns_per_access"] > 0
    record = Record.model_validate_json(done.stdout)
    point = (record.kernel, record.pages, record.layout, record.lines)
    assert point == ("page_chase", "4k", "spread", 256)
    assert record.engine in ({engine} if engine != "auto" else {"c", "numba"})
    assert {"walk", "core_cycles"} <= record.counters.keys()  # a value or a reason, each


@pytest.mark.measures
@pytest.mark.measuring
@needs_c
def test_ctrl_c_ends_the_kernel():
    with files.measuring_lock(wait=True):
        pass  # nobody else measures, most likely for the next seconds
    process = subprocess.Popen(
        [*TLB, "measure", "page_chase", "--region-ms", "60000"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # a shell's & ignores it
    seen: list[psutil.Process] = []
    while process.poll() is None and not seen:
        seen = descendants_with("--plan", process.pid)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    if "Another measurement is running" in err:
        pytest.skip("another measurement runs on this computer")
    assert seen and (process.returncode, out) == (130, "")
    assert err == "Interrupted.\n"  # a single point is not stored
    assert wait_until(lambda: not any(map(living, seen)))


@pytest.mark.slow
@pytest.mark.parametrize("words", [["inspect"], ["--help"], ["doctor"]], ids=" ".join)
def test_a_reader_that_has_seen_enough_ends_the_command_as_any_other(words):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*TLB, *words], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_that_ends_a_command_is_its_exit_code(number, status, monkeypatch, capsys):
    before = {name: signal.getsignal(name) for name in signal.valid_signals()}
    monkeypatch.setattr(cli, "app", lambda **how: signal.raise_signal(signal.Signals[number]))
    try:
        assert ended(monkeypatch, "inspect") == status
    finally:
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, before[name])


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ([], {}),
        (["-p", "repeats", "3"], {"repeats": 3}),
        (["-p", "max_working_set", "256MiB"], {"max_working_set": "256MiB"}),
    ],
)
def test_a_pair_is_read_in_either_form_and_has_the_type_that_the_chapter_declares(
    given, read, monkeypatch, capsys
):
    executed: list[tuple[str, Path, dict]] = []
    monkeypatch.setattr(publish, "execute", lambda *what: executed.append(what))
    monkeypatch.setattr(publish, "keep_own_quantities", lambda path: None)
    monkeypatch.setattr(
        campaign, "book", lambda given: executed.append(given) or publish.Book(Path("index.html"))
    )
    assert ended(monkeypatch, "run", "stlb_cliff", *given) == 0
    assert executed == [
        ("stlb_cliff", ROOT / "_build/runs/stlb_cliff.ipynb", {"machine": "this"} | read)
    ]
    assert ended(monkeypatch, "book", "--profile", "smoke", *given) == 0
    assert executed[1] == {"machine": "this", "profile": "smoke", "minutes": MINUTES_PER_DAY} | read


@pytest.fixture
def narrow(monkeypatch) -> None:
    """A screen of twenty columns."""
    monkeypatch.setattr(terminal, "out", Console(width=20, soft_wrap=True))
    monkeypatch.setattr(terminal, "IS_SCREEN", True)


@pytest.mark.usefixtures("narrow")
def test_a_narrow_screen_shows_two_columns_at_least_and_names_the_others():
    heads = ["first" * 3, "second" * 3, "third" * 3]
    made = terminal.rows(heads, [["x", "y", "z"]])
    assert [column.header for column in made.columns] == heads[:2] and heads[2] in made.caption


@pytest.mark.usefixtures("narrow")
def test_sentences_are_wrapped_and_commands_can_be_copied(capsys):
    command = f"tlb try -- {'word ' * 9}x"
    terminal.parts([command, "A word. " * 9])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == command and len(lines) > 2 and max(map(len, lines)) <= 20


def test_what_could_not_be_put_back_is_an_error(capsys):
    terminal.restored([], "", "Nothing.")
    changes = [RestoredSetting("a", "1", "2", ""), RestoredSetting("b", "1", "1", "It is in use.")]
    with pytest.raises(SystemExit, match="It is in use."):
        terminal.restored(changes, "{name}: {found}", "Nothing.")
    assert capsys.readouterr().out == "Nothing.\na: 1\nb: 1\n"
