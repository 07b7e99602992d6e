"""What a run writes of how far it is: a line in place on a terminal, plain lines in a log."""

import io
import sys

import pytest

from tlb.measure import outcome
from tlb.measure.outcome import LOG_S, CampaignProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """A list whose one element is the time."""
    now = [1000.0]
    monkeypatch.setattr(outcome.time, "monotonic", lambda: now[0])
    return now


def run(clock: list[float], pieces: int, piece_s: float) -> None:
    with CampaignProgress("chapter") as made:
        made.expect({"kind": pieces * piece_s}, until=1e6)
        for number in range(pieces):
            assert made.begin("kind", piece_s, f"piece {number}")
            clock[0] += piece_s
        made.end()


def test_a_log_gets_a_line_a_minute_without_a_control_character(clock, monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    run(clock, pieces=300, piece_s=1.0)
    lines = log.getvalue().splitlines()
    assert log.getvalue().replace("\n", "").isprintable()
    assert len(lines) == 300 / LOG_S + 1
    assert "100%" in lines[-1] and "5:00 gone" in lines[-1]


def test_a_terminal_shows_one_line_that_fits_it(clock, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "40")
    run(clock, pieces=90, piece_s=100.0)
    *shown, end = screen.getvalue().split("\r")[1:]
    assert screen.getvalue().count("\n") == 1 and end.endswith("\n")
    assert len(shown) >= 90 and max(len(text.split("\x1b")[0]) for text in shown) < 40


def test_a_quiet_run_writes_nothing(clock, capsys):
    with CampaignProgress("chapter", quiet=True) as made:
        made.expect({"kind": 10.0}, until=1e6)
        assert made.begin("kind", 10.0, "")
    assert capsys.readouterr().err == ""


def test_what_comes_later_is_estimated_at_the_pace_of_the_first_of_its_kind(clock):
    with CampaignProgress("book", quiet=True) as made:
        made.later["site"] = 200.0
        assert made.left_s == pytest.approx(200)
        with made.doing("site", 100.0):
            clock[0] += 30
        assert made.left_s == pytest.approx(30)
