"""Watching: how rare looks are, which windows are looked through, what is left behind, and what is
said of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pandas as pd
import pytest
from support.fake_perf import alive
from support.synthetic import Truth, frame, scope

from tlb.programs import active, watch, watch_words
from tlb.programs.active import Sight, Used
from tlb.programs.looks import own
from tlb.programs.reach import Reach
from tlb.programs.watch import PRICE, WINDOWS_S, Target, Watched
from tlb.reasons import Unavailable
from tlb.system import processes

linux = pytest.mark.skipif(sys.platform != "linux", reason="programs are looked at in /proc")
MIB = 1 << 20


def sight(
    window_s: float = 0.1,
    mib: float = 64,
    look_s: float = 0.01,
    thp_mib: float = 0,
    large: tuple[float, float] = (0, 0),
    pool_mib: int = 0,
    denied: int = 0,
    mapped_mib: float = 512,
) -> Sight:
    mapped = {"4k": int(mapped_mib * MIB), "thp": int(thp_mib * MIB)} | (
        {"1g": pool_mib * MIB} if pool_mib else {}
    )
    return Sight(
        window_s,
        look_s,
        1,
        denied,
        20,
        mapped,
        1 << 20,
        int(mib * MIB),
        *(int(size * MIB) for size in large),
    )


class Clock:
    """A time that passes by waiting alone, with looks that take as long as told, of a program that
    ends at some time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, look_s: float, ends_s: float = 1e9):
        self.now, self.look_s, self.ends_s, self.begun = 0.0, look_s, ends_s, []
        monkeypatch.setattr(watch, "time", self)
        monkeypatch.setattr(active, "used", lambda pid: Used(user_s=self.now))
        monkeypatch.setattr(active, "reading_s", self.reading_s)
        monkeypatch.setattr(active, "sight", self.sight)

    def monotonic(self) -> float:
        return self.now

    def reading_s(self, pids: list[int]) -> float:
        self.now += self.look_s / 2
        return self.look_s / 2

    def ended(self, wait_s: float) -> bool:
        self.now = min(self.now + wait_s, max(self.ends_s, self.now))
        return self.now >= self.ends_s

    def sight(self, pids: list[int], window_s: float, wait: object, then: object) -> Sight:
        self.begun.append((self.now, window_s))
        if self.now >= self.ends_s:
            raise Unavailable("process-gone")
        self.ended(window_s)
        self.now += self.look_s
        return sight(window_s, look_s=self.look_s)

    def watch(self, seconds: float, overhead: float) -> Watched:
        return watch.watch(
            Target(1, lambda: [1], self.ended, ["program"]), seconds, overhead, lambda watched: None
        )


@pytest.mark.parametrize(
    ("look_s", "overhead", "seconds"),
    [(1e-4, 0.001, 3600.0), (0.02, 0.2, 20.0), (0.3, 0.01, 3600.0)],
)
def test_looks_are_as_rare_as_asked_and_no_window_is_shorter_than_its_look(
    look_s: float, overhead: float, seconds: float, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock(monkeypatch, look_s)
    watched = clock.watch(seconds, overhead)
    assert all(window_s >= look_s for _, window_s in clock.begun)
    assert len(watched.sights) == 1 or watched.cost <= overhead * (1 + 1e-9)
    assert any("more than" in told for told in watch_words._cost(watched)) is (
        watched.cost > overhead * (1 + 1e-9)
    )
    assert watched.elapsed_s <= seconds + look_s + 1e-9
    for n, (begun_s, _) in enumerate(clock.begun):
        assert n == 0 or PRICE * (n + 1 / (2 * PRICE)) * look_s <= overhead * begun_s * (1 + 1e-9)
    if seconds == 3600:
        fitting = [window_s for window_s in WINDOWS_S if window_s >= look_s]
        assert (
            [window_s for _, window_s in clock.begun[: len(fitting)]]
            == fitting
            == watched.windows_s
        )
        assert watched.left_out_s == tuple(window_s for window_s in WINDOWS_S if window_s < look_s)


# --- programs as they come


@pytest.fixture
def nothing_is_left():
    before, files = set(processes.descendants(os.getpid())), sorted(os.listdir("/proc/self/fd"))
    yield
    assert own(before) == {} and sorted(os.listdir("/proc/self/fd")) == files


def watched(target: Target, seconds: float) -> Watched:
    return watch.watch(target, seconds, 0.5, lambda watched: None)


@linux
@pytest.mark.usefixtures("nothing_is_left")
def test_a_command_is_watched_with_all_that_it_started_and_ends_with_the_watching():
    with watch.started(
        ["sh", "-c", "trap '' TERM; sleep 94.5 & setsid sleep 94.5 & yes & wait"]
    ) as target:
        deadline = time.monotonic() + 30
        while len(target.pids()) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        done = watched(target, 0.5)
    assert done.sights[-1].processes == 4 and not done.has_ended and not alive("sleep 94.5")
    assert done.used.user_s + done.used.kernel_s > 0  # that of yes, which it started


@linux
@pytest.mark.usefixtures("nothing_is_left")
def test_a_process_that_runs_already_is_left_running_and_its_end_is_noticed():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(93.5)"]) as child:
        with watch.running(child.pid) as target:
            assert not watched(target, 0.3).has_ended and child.poll() is None
            assert target.command == [sys.executable, "-c", "import time; time.sleep(93.5)"]
            threading.Timer(0.5, child.kill).start()
            done = watched(target, 60)
        assert done.has_ended and done.elapsed_s < 50
    for pid in (child.pid, (1 << 22) + 1):
        with pytest.raises(Unavailable) as why, watch.running(pid):
            pass
        assert why.value.code == "process-gone"


# --- what is said of it

SIZES = [2**n for n in range(4, 19)]
ROWS = frame(Truth(noise=0.0), [p for n in SIZES for p in scope().chase("page_chase", "4k", n)])
LARGE = frame(
    Truth((2**40, 2**41), noise=0.0),
    [p for n in SIZES for p in scope().chase("page_chase", "thp", n)],
)


def reach(rows: object = None, is_splintered: bool = False, **entries: tuple[int, ...]) -> Reach:
    known = entries or {"4k": (64, 1536), "2m": (32, 1024)}
    return Reach(
        known,
        dict.fromkeys(known, "CPUID"),
        pd.concat([ROWS, LARGE]) if rows is None else rows,
        is_splintered,
        4096,
        2 * MIB,
    )


BUSY = Used(100, 0, 3.0, 0.0)


def seen(*sights: Sight, command: str = "/bin/true", used: Used = BUSY, **how: object) -> Watched:
    return Watched(
        Target(1, lambda: [1], lambda wait_s: False, [command]),
        0.01,
        list(sights),
        {1: used},
        10.0,
        0.05,
        **how,
    )


def test_the_advice_is_what_may_show_and_a_line_to_copy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch_words, "lever_for", lambda program: "advise")
    far = watch_words.advice(seen(sight(mib=64)), reach())
    assert far[-1] == "tlb try --lever advise -- /bin/true" and f"{1 / 12:.2f} and 1.00" in far[0]
    assert watch_words.trial("collapse", ["a b", "$c"]) == "tlb try --lever collapse -- 'a b' '$c'"
    for little in (sight(mib=0.2), sight(mib=64, large=(64, 64), thp_mib=64)):
        (nothing,) = watch_words.advice(seen(little), reach())
        assert "tlb try" not in nothing
    faults = watch_words.advice(seen(sight(mib=0.2), used=Used(10**6, 0, 1.0, 1.0)), reach())
    assert len(faults) == 2 and "0.50 and" in faults[0]
    (idle,) = watch_words.advice(seen(sight(mib=64), used=Used(user_s=0.05)), reach())
    assert "tlb try" not in idle
    unknown = watch_words.advice(seen(sight(mib=64)), reach(rows=Unavailable("no-data")))
    assert unknown[-1] == far[-1] and "0.0" not in unknown[0]
