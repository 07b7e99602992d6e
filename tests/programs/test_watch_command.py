"""`tlb watch` on the command line: what it prints, what it refuses in one line, and that Ctrl-C
leaves nothing."""

import json
import signal
import subprocess
import sys
import time

import pytest
from support import fake_perf
from support.common import ROOT, alive, ended

from tlb.measure import perf
from tlb.measure.events import Event

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are looked at in /proc")


@pytest.mark.parametrize("arguments", [[], ["-1"], ["--overhead", "0", "1"]], ids=" ".join)
def test_a_wrong_argument_is_one_line_and_exit_2(arguments, monkeypatch, capsys):
    assert ended(monkeypatch, "watch", *arguments) == 2
    told = capsys.readouterr()
    assert (told.out, len(told.err.splitlines())) == ("", 1)


def test_a_program_reads_json_with_what_perf_counted(monkeypatch, capsys, tmp_path):
    events = (Event("instructions", "instructions:u"), Event("walk", "cpu/event=0x08/u", group=0))
    program = fake_perf.install(
        tmp_path,
        {"instructions:u": 1000, "cpu/event=0x08/u": 3},
        samples={"ibs_op//": ["4K", "2M"]},
    )
    monkeypatch.setattr(perf, "plan", lambda *given: perf.EventPlan(program, events, {}))
    assert (
        ended(
            monkeypatch,
            "watch",
            "--json",
            "--seconds",
            "2",
            "--overhead",
            "5",
            "--",
            "sleep",
            "90.5",
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["overhead_allowed"] == 0.05
    assert (
        told["command"] == ["sleep", "90.5"]
        and told["counts"][0] == {"instructions": 1000, "walk": 3}
        and told["active"]
    )
    assert told["loads_by_page_bytes"] in (
        {"4096": 1, "2097152": 1},
        {"reason": "no-time"},
    )  # there may be one pause alone
    assert not told["ended"] and not alive("sleep 90.5")


def test_ctrl_c_ends_the_command_and_says_what_was_seen():
    command = [
        sys.executable,
        "-c",
        "from tlb import cli; cli.main()",
        "watch",
        "--seconds",
        "0",
        "--",
        "sh",
        "-c",
        "sleep 89.5 & sleep 89.5",
    ]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    first = process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (
        " touches " in first
        and "Sampling took" in out
        and (process.returncode, err) == (0, "")
        and not alive("sleep 89.5")
    )
