"""`tlb try` on the command line: what it prints, what it refuses in one line, and that Ctrl-C
leaves nothing."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import get_args

import psutil
import pytest
from bs4 import BeautifulSoup
from support.common import ROOT, descendants_with, ended, living, needs_c, wait_until
from support.programs import TLB_SCRIPT, built, look, made, trial

from tlb.cli import trial as command
from tlb.programs import trial as trials
from tlb.programs.reports import trial_page
from tlb.programs.trial import Trial, TrialAim, TrialVerdict
from tlb.system import files
from tlb.system.reasons import Unavailable


def tlb(tmp_path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", TLB_SCRIPT, str(tmp_path / "lock"), "try", *arguments]


def call(monkeypatch, *arguments: str) -> int:
    return ended(monkeypatch, "try", *arguments)


@pytest.fixture
def aims(monkeypatch, tmp_path) -> list[TrialAim]:
    """What was to be measured, in place of measuring it."""
    asked: list[TrialAim] = []

    def fake(aim: TrialAim, tell: object) -> Trial:
        asked.append(aim)
        return trial(made(2.0), made(1.0, looks=(look(huge_mib=90, reached=1),)))

    monkeypatch.setattr(trials, "run_trial", fake)
    monkeypatch.setattr(
        command, "measuring_lock", lambda wait: files.measuring_lock(path=tmp_path / "lock")
    )
    return asked


@pytest.mark.parametrize(
    ("words", "dashes"),
    [(["true", "-p", "x", "--json", "--"], ["--"]), (["true", "--lever", "none"], [])],
)
def test_what_follows_the_program_is_the_program_s(words, dashes, monkeypatch, aims):
    assert (
        call(monkeypatch, "--within", "5", "--lever", "collapse", "--after", "1.5", *dashes, *words)
        == 0
    )
    (aim,) = aims
    assert (aim.command, aim.lever.name, aim.within, aim.after_s, aim.metric) == (
        words,
        "collapse",
        0.05,
        1.5,
        None,
    )


@pytest.mark.parametrize(
    ("ends", "status"),
    [(KeyboardInterrupt(), 130), (Unavailable("program-failed", "exit code 7"), 4)],
    ids=["interrupted", "failed"],
)
def test_what_is_finished_is_printed_whatever_ends_a_sweep(ends, status, monkeypatch, capsys, aims):
    fake = trials.run_trial

    def attempt(aim: TrialAim, tell: object) -> Trial:
        if len(aims) == 2:
            raise ends
        return fake(aim, tell)

    monkeypatch.setattr(trials, "run_trial", attempt)
    sweep = ("--json", "--sweep", "n=1,2,3", "--", "true", "{n}")
    assert call(monkeypatch, *sweep) == status
    told = capsys.readouterr()
    assert [each["pairs"] for each in json.loads(told.out)] == [7, 7] and len(aims) == 2
    assert "exit code 7" in told.err or status == 130


def test_a_page_loads_nothing_and_escapes_what_is_not_ours(monkeypatch, aims, tmp_path):
    told = tmp_path / "page.html"
    assert call(monkeypatch, "--html", str(told), "--", "true") == 0
    soup = BeautifulSoup(told.read_text(), "html.parser")
    assert (soup.h1.text, soup.code.text) == ("Time: helps, CPU time: helps", "program") and len(
        soup.select("tbody tr")
    ) == 8
    assert ["0.500" in chart["aria-label"] for chart in soup.select("figure svg")] == [True, True]
    assert not soup.select("link, img, script, iframe") and "url(" not in soup.style.text
    assert len(told.read_bytes()) < 20_000
    hostile = trial(made(), made())
    hostile.aim.command[0], hostile.ended = "<b>bold</b>", "<script>alert()</script>"
    assert "<b>" not in trial_page(hostile) and "<script>a" not in trial_page(hostile)
    assert trial_page(trial(made(), made(), pairs=0)).count("<figure>") == 0


@pytest.mark.measures
@needs_c
def test_an_experiment_from_its_command_to_its_document(tmp_path):
    program = [str(built(tmp_path)), "mmap", "32", "5", "300"]  # it waits to be looked at
    done = subprocess.run(
        tlb(tmp_path, "--json", "--minutes", "60", "--within", "50", "--", *program),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)  # what a pair takes
    told = json.loads(done.stdout)
    assert len(told["runs"]) == 2 + 2 * told["pairs"] >= 16 and told["command"] == program
    assert {each["verdict"] for each in told["quantities"]} <= {*get_args(TrialVerdict)}
    assert [side["exit_codes"] for side in told["sides"]] == [[0], [0]]
    assert [side["peak"]["reached"] for side in told["sides"]] == [0, 1]
    assert not any("writes" in remark for remark in told["remarks"])


linux = pytest.mark.skipif(sys.platform != "linux", reason="programs are looked at in /proc")
STARTS = ["sh", "-c", "setsid sleep 91.5 & sleep 91.5"]
TRY, WATCH = ["try", "--lever", "none", "--", *STARTS], ["watch", "--seconds", "0", "--", *STARTS]
SERVED = [
    "try",
    "--lever",
    "none",
    "--ready",
    "ready",
    "--driver",
    "sleep 91.5",
    "--",
    "sh",
    "-c",
    "echo ready; sleep 91.5 & sleep 91.5",
]


def begun(
    arguments: list[str], tmp_path, count: int, action: signal.Handlers = signal.SIG_DFL
) -> tuple[subprocess.Popen, list[psutil.Process]]:
    """A command of tlb, with an action for the signals of a terminal, once its program has started
    so many processes."""

    def act() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, action)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})

    command = [sys.executable, "-c", TLB_SCRIPT, str(tmp_path / "lock"), *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=act
    )
    seen: list[psutil.Process] = []
    while process.poll() is None and len(seen) < count:
        with suppress(psutil.Error):  # before exec, a program still has Python's name
            seen = [
                child
                for child in descendants_with("91.5", process.pid)
                if child.name() in ("sh", "sleep")
            ]
        time.sleep(0.05)
    assert len(seen) == count
    return process, seen


def gone(processes: list[psutil.Process]) -> bool:
    """Whether they end by themselves; those that do not are killed."""
    wait_until(lambda: not any(map(living, processes)))
    left = [process for process in processes if living(process)]
    for process in left:
        process.kill()
    return not left


@linux
def test_a_signal_ends_the_program_with_all_that_it_started(tmp_path):
    process, seen = begun(TRY, tmp_path, 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (
        130,
        "",
        "Interrupted before the first pair; the program has ended.\n",
    )
    assert not any(map(living, seen))


@linux
@pytest.mark.parametrize(
    ("arguments", "count"), [(WATCH, 3), (SERVED, 4)], ids=["watch", "a server and its driver"]
)
def test_a_program_ends_with_a_command_that_is_killed(arguments, count, tmp_path):
    process, seen = begun(arguments, tmp_path, count)
    process.kill()
    process.communicate()
    assert gone(seen)
