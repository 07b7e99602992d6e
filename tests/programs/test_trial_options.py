"""What `tlb try` lets a user say about each run, and what it does with a program that fails. The
programs are real; the lock is the test's own."""

import json
import os
import re
import sys
import time
from threading import Thread

import pytest
from support.common import ended
from support.programs import made, trial

from tlb.cli import trial as command
from tlb.programs.children import ProgramOutput
from tlb.programs.trial_report import markdown
from tlb.system import files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are looked at in /proc")
SLEEPS = "sleep 0.06"  # long enough for a difference of 2 %, which has to exceed a millisecond


@pytest.fixture
def call(monkeypatch, tmp_path, capfd):
    """Run `tlb try` with arguments; return its exit code, stdout and stderr."""
    lock = tmp_path / "lock"
    monkeypatch.setattr(command, "measuring_lock", lambda wait: files.measuring_lock(wait, lock))

    def run(*arguments: str) -> tuple[int, str, str]:
        status = ended(monkeypatch, "try", "--minutes", "60", "--within", "50", *arguments)
        return status, *capfd.readouterr()

    run.lock = lock
    return run


def shell(script: str) -> list[str]:
    return ["--lever", "none", "--", "sh", "-c", script]


def test_a_failing_program_stops_at_its_first_run_and_shows_why(call, tmp_path):
    runs = tmp_path / "runs"
    script = f"echo x >> {runs}; echo took 1; echo no such word list >&2; exit 3"
    status, out, err = call(*shell(script))
    assert (status, out) == (4, "") and "no such word list" in err and "exit code 3" in err
    assert runs.read_text().count("x") == 1
    status, out, err = call("--ignore-failure", "--metric", "took (.*)", *shell(script))
    assert (status, runs.read_text().count("x")) == (0, 1 + 2 + 14) and "exit code is 3" in out
    assert call(*shell("kill -9 $$"))[0] == 4


def test_each_run_has_its_input_its_preparation_and_warm_ups(call, tmp_path):
    given, log = tmp_path / "input", tmp_path / "log"
    given.write_text("41\n")
    prepare = f"sh -c 'echo prepared >> {log}'"
    options = ["--input", str(given), "--prepare", prepare, "--warmup", "2", "--json"]
    script = f"read n; echo ran $n >> {log}; echo $n; {SLEEPS}"
    status, out, _ = call(*options, "--metric", "([0-9]+)", *shell(script))
    lines = log.read_text().split("\n")[:-1]
    assert status == 0 and json.loads(out)["sides"][0]["value"]["value"] == 41
    assert lines == ["prepared", "ran 41"] * (2 + 2 + 14)
    status, _, err = call("--prepare", "false", *shell(SLEEPS))
    assert status == 4 and "exit code 1" in err
    assert call("--input", str(tmp_path / "absent"), *shell(SLEEPS))[0] == 2
    status, _, err = call("--show-output", "--metric", "([0-9]+)", *shell("echo shown 7"))
    assert status == 0 and err.count("shown 7") == 2 + 14


def test_a_sweep_compares_at_each_value(call, tmp_path):
    table = tmp_path / "table.md"
    options = ["--metric", "([0-9]+)", "--sweep", "n=3,5", "--json", "--markdown", str(table)]
    status, out, _ = call(*options, *shell("echo {n}"))
    values = [each["sides"][1]["value"]["value"] for each in json.loads(out)]
    assert (status, values) == (0, [3, 5]) and table.read_text().count("\n") == 2 + 2
    for wrong in (["--sweep", "n", "true"], ["--sweep", "n=1", "true"]):
        assert call(*wrong)[0] == 2


def test_two_commands_are_compared(call):
    status, out, _ = call("--versus", "echo 2", "--json", "--metric", "(.)", "--", "echo", "1")
    told = json.loads(out)
    verdict = told["quantities"][0]["verdict"]
    assert (status, told["versus"], verdict) == (0, ["echo", "2"], "hurts")
    assert [side["lever"] for side in told["sides"]] == ["none", "none"]
    first = [run for run in told["runs"] if run["position"] == 1 and run["pair"]]
    assert {run["side"] for run in first} == {0, 1} and len(first) == told["pairs"]
    status, _, err = call("--versus", "true", "--lever", "malloc", "--", "true")
    assert status == 2 and "--lever and --versus" in err


def test_a_quantile_is_of_all_numbers_that_a_run_prints():
    read, write = os.pipe()
    os.write(write, "".join(f"took {n} us\n" for n in range(1, 1001)).encode())
    os.close(write)
    stream = ProgramOutput(read)
    while stream.read() > 0:
        pass
    os.close(read)
    metric = re.compile(r"took (\d+) us")
    assert [stream.number(metric, q).grouped for q in (0.5, 0.99, 1.0)] == [500, 990, 1000]
    assert stream.number(metric).grouped == 1000
    stream.size_bytes = 1 << 40  # of which a part was kept
    assert stream.number(metric, 0.5) is None


def test_a_second_command_names_the_first_or_waits_for_it(call):
    with files.measuring_lock(path=call.lock):
        status, _, err = call(*shell(SLEEPS))
        assert status == 3 and f"process {os.getpid()}, " in err
        begin = time.monotonic()
        assert call("--wait", "0.3", *shell(SLEEPS))[0] == 3
        assert time.monotonic() - begin >= 0.3

    def hold() -> None:
        with files.measuring_lock(path=call.lock):
            time.sleep(0.5)

    holder = Thread(target=hold)
    holder.start()
    time.sleep(0.1)
    assert call("--wait", "30", *shell(SLEEPS))[0] == 0
    holder.join()


def test_a_markdown_cell_holds_no_bar_of_its_own():
    one = trial(made(2.0), made(1.0))
    one.aim.command[:] = ["sh", "-c", "a | b"]
    head, rule, row = markdown([one]).splitlines()
    assert {line.replace("\\|", "").count("|") for line in (head, rule, row)} == {8}
