"""Programs as they come: that fail, fork, hang, write without end; none leaves anything behind."""

import re
import sys
import time
import tracemalloc

import pytest
from support.common import LONG_S, alive, refusal
from support.programs import made

from tlb.programs import children, runs
from tlb.programs.levers import LEVERS
from tlb.programs.runs import ProgramRun, RunConditions
from tlb.programs.trial import TrialAim, run_trial
from tlb.system.reasons import Unavailable

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="programs are looked at in /proc"),
    pytest.mark.usefixtures("nothing_is_left"),
]


def ran(*command: str, limit_s: float = LONG_S, metric: str = "", share: float = 0.1) -> ProgramRun:
    return runs.run_program(
        list(command),
        LEVERS["none"],
        limit_s=limit_s,
        share=share,
        conditions=RunConditions(metric=re.compile(metric) if metric else None),
    )


def shell(script: str, **how: object) -> ProgramRun:
    return ran("sh", "-c", script, **how)


def test_what_a_program_writes_is_counted_and_told_apart_and_its_exit_code_is_kept():
    first, again, digits, other = (
        shell(f"echo {text}; echo wrong >&2; exit 7")
        for text in ("at 0x12", "at 0x12", "at 0x345", "no")
    )
    assert (first.status, first.written[0].size_bytes, first.written[1].size_bytes) == (7, 8, 6)
    assert first.written == again.written and first.written[1] == other.written[1]
    assert first.written[0].digest != digits.written[0].digest
    assert (
        first.written[0].digest_of_words
        == digits.written[0].digest_of_words
        != other.written[0].digest_of_words
    )


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("sleep 97.5 & exit 0", 1),
        ("setsid sleep 97.5 & (setsid sleep 97.5 &) ; exit 0", 2),
        ("(sleep 0.01 &) ; sleep 1", 0),
    ],
)
def test_what_it_leaves_running_is_ended_and_counted(script, left):
    done = shell(script)
    assert (done.status, done.left, alive("sleep 97.5")) == (0, left, [])


def test_one_that_ignores_being_asked_is_killed_after_a_while(monkeypatch):
    monkeypatch.setattr(children, "GRACE_S", 0.2)
    with pytest.raises(Unavailable) as why:
        shell(
            "trap '' TERM INT HUP; (trap '' TERM; sleep 96.5; :) & while :; do sleep 0.1; done",
            limit_s=0.5,
        )
    assert (why.value.code, alive("sleep 96.5")) == ("no-time", [])


def test_one_that_writes_without_end_is_ended_and_not_kept():
    tracemalloc.start()
    try:
        assert refusal(ran, "yes", limit_s=0.5) == "no-time"
        written = ran("head", "-c", str(100 << 20), "/dev/zero").written[0].size_bytes
        assert written == 100 << 20 and tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("echo took 12.5 s", 12.5),
        ("echo took 1,250 s >&2", 1250),
        ("echo took 1 s; echo took 2 s", 2),
        ("echo took 3 s; head -c 300000 /dev/zero", 3),
        ("head -c 300000 /dev/zero; echo took 4 s", 4),
    ],
)
def test_a_number_is_found_at_the_end_of_what_is_written_or_at_its_beginning(script, value):
    assert shell(script, metric=r"took (\S+) s").number.grouped == value


@pytest.mark.parametrize(
    ("text", "grouped", "decimal"),
    [
        ("1250", 1250, 1250),
        ("0.29", 0.29, 0.29),
        ("1,250", 1250, 1.25),
        ("1,234,567.8", 1234567.8, 1234567.8),
        ("12,34,567", 1234567, 1234567),
        ("0,29", 0.29, 0.29),
        ("0,290", 0.29, 0.29),
        ("9,99", 9.99, 9.99),
        ("1250,5", 1250.5, 1250.5),
        ("1.234,56", 1234.56, 1234.56),
        ("2,5e-03", 0.0025, 0.0025),
        ("1,250.5e3", 1250500, 1250500),
    ],
)
def test_a_comma_stands_between_thousands_or_before_decimals(text, grouped, decimal):
    assert children.parsed_number(text)[:2] == (grouped, decimal)


@pytest.mark.parametrize("text", ["", ",", "1,2,3", "1,23,4", "1.2.3", "12 s", "0x10", "1,"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError):
        children.parsed_number(text)


def test_one_number_with_decimals_after_a_comma_decides_for_all_runs():
    aim = TrialAim(["x"], LEVERS["none"], conditions=RunConditions(metric=re.compile("(.*)")))
    grouped, decimal = ("1,250", "999"), ("1,250", "0,998")
    for texts, values in ((grouped, [1250, 999]), (decimal, [1.25, 0.998])):
        assert aim.values([made(number=children.parsed_number(text)) for text in texts]) == values
    with pytest.raises(Unavailable) as why:
        aim.checked(made(number=children.parsed_number("inf")))
    assert why.value.code == "program-unfit"


def test_ctrl_c_while_it_runs_ends_it(monkeypatch):
    def interrupted(*_: object) -> None:
        time.sleep(0.2)
        raise KeyboardInterrupt

    monkeypatch.setattr(children, "drain", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shell("sleep 95.5 & sleep 95.5")
    assert alive("sleep 95.5") == []


@pytest.mark.parametrize("command", [["nonexistent-program"], ["a\0b"], ["SCRIPT"]], ids=repr)
def test_what_cannot_be_started_is_one_reason(command, tmp_path):
    plain, script = tmp_path / "plain", tmp_path / "script"
    plain.write_text("text")
    script.write_text("echo no interpreter named\n")
    script.chmod(0o755)
    assert (
        refusal(
            lambda: ran(
                *({"FILE": str(plain), "SCRIPT": str(script)}.get(word, word) for word in command)
            )
        )
        == "program-missing"
    )


@pytest.mark.parametrize(
    ("script", "metric", "code"),
    [
        ("kill -9 $$", "", "program-killed"),
        (":", "", "program-unfit"),
        ("echo 0", "([0-9]+)", "program-unfit"),
        ("sleep 94.5", "", "no-time"),
    ],
)
def test_a_program_that_says_nothing_is_refused_after_one_run(script, metric, code):
    with pytest.raises(Unavailable) as why:
        run_trial(
            TrialAim(
                ["sh", "-c", script],
                LEVERS["none"],
                within=1e-6,
                conditions=RunConditions(metric=re.compile(metric) if metric else None),
                minutes=0.01 if code == "no-time" else 5,
            )
        )
    assert (why.value.code, alive("sleep 94.5")) == (code, [])
