"""`tlb watch` on the command line: what it prints, what it refuses in one line, and that Ctrl-C
leaves nothing."""

import json
import signal
import subprocess
import sys
import time

import pytest
from support import fake_perf
from support.common import ROOT, alive, ended, processes_with, wait_until

from tlb.measure import perf
from tlb.measure.events import PerfEvent
from tlb.programs import walk_price
from tlb.programs.walk_price import PriceAtSize, WalkPrices

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are looked at in /proc")


@pytest.fixture
def _has_prices(monkeypatch):
    """Prices of this computer are not timed."""
    prices = WalkPrices(4096, 2 << 20, 1536, (PriceAtSize(1024, 30.0, 0.5),))
    monkeypatch.setattr(walk_price, "kept", lambda: prices)


@pytest.mark.usefixtures("_has_prices")
def test_a_program_reads_json_with_what_perf_counted(monkeypatch, capsys, tmp_path):
    events = (
        PerfEvent("core_cycles", "cycles:u"),
        PerfEvent("walk_cycles", "cpu/event=0x08/u", group=0),
    )
    program = fake_perf.install(tmp_path, {"cycles:u": 1000, "cpu/event=0x08/u": 3})
    monkeypatch.setattr(perf, "plan", lambda *given: perf.EventPlan(program, events, {}))
    options = ["--json", "--seconds", "2", "--overhead", "5"]
    assert ended(monkeypatch, "watch", *options, "--", "sleep", "90.5") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["command"] == ["sleep", "90.5"] and told["overhead_allowed"] == 0.05
    assert told["counts"][0] == {"core_cycles": 1000, "walk_cycles": 3}
    assert told["windows"] and "idle" in told["verdict"] and told["line"] is None
    assert not told["ended"] and not alive("sleep 90.5")


@pytest.mark.usefixtures("_has_prices")
def test_all_processes_are_ranked_by_what_they_can_gain(monkeypatch, capsys):
    work = "import array; a = array.array('q', [1]) * (1 << 23)\nwhile 1: sum(a[::512])"
    with subprocess.Popen([sys.executable, "-c", work]) as child:
        try:
            for seconds in (4, 20, 60):  # a busy machine may not run it in a window
                words = ["watch", "--all", "--seconds", str(seconds), "--json"]
                assert ended(monkeypatch, *words) == 0
                told = json.loads(capsys.readouterr().out)
                own = [each for each in told["processes"] if each["pid"] == child.pid]
                if own and own[0]["touched_bytes"] > 32 << 20:
                    break
        finally:
            child.kill()
    assert own[0]["touched_bytes"] > 32 << 20 and 0 < own[0]["bound"] <= 0.5
    assert told["idle"] > 0


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
    for watched_s in (2, 20, 200):  # a busy machine may take no sample for long
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        # this command, which names them too, and what it starts: it has imported all by then
        assert wait_until(lambda: len(processes_with("sleep 89.5")) == 4)
        time.sleep(watched_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        assert "Traceback" not in err and not alive("sleep 89.5")
        if not process.returncode:
            break
    assert "Cannot tell" in out and process.returncode == 0
