"""Watching: how rare samples are, which windows are used, what is left behind, and the report."""

import subprocess
import sys
import threading
import time

import pandas as pd
import pytest
from support.common import alive
from support.synthetic import Truth, frame, scope

from tlb.inference.program_bounds import Prices
from tlb.programs import activity, levers, watch, watch_report
from tlb.programs.activity import Read, Sample, Used
from tlb.programs.reach import Reach
from tlb.programs.watch import PRICE, WINDOWS_S, Target, Watched
from tlb.programs.watch_report import Report
from tlb.reasons import Unavailable

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MIB = 1 << 20


def sample(
    window_s: float = 0.1,
    mib: float = 64,
    took_s: float = 0.01,
    huge_mib: float = 0,
    pool_mib: int = 0,
) -> Sample:
    """Return a sample of a process of which `mib` is touched, `huge_mib` of it on 2 MiB pages."""
    huge = int(huge_mib * MIB)
    mapped = {"4k": 512 * MIB, "thp": huge} | ({"1g": pool_mib * MIB} if pool_mib else {})
    return Sample(window_s, took_s, 1, {}, 20, mapped, MIB, int(mib * MIB), huge, huge)


class Clock:
    """A clock that only waiting advances, samples that take took_s, and a program that ends."""

    def __init__(self, monkeypatch, took_s: float, ends_s: float = 1e9):
        self.now, self.took_s, self.ends_s, self.begun = 0.0, took_s, ends_s, []
        monkeypatch.setattr(watch, "time", self)
        monkeypatch.setattr(activity, "used", lambda pid: Used(user_s=self.now))
        monkeypatch.setattr(activity, "reading_s", self.reading_s)
        monkeypatch.setattr(activity, "sample", self.sample)

    def monotonic(self) -> float:
        return self.now

    def reading_s(self, pids: list[int]) -> float:
        self.now += self.took_s / 2
        return self.took_s / 2

    def ended(self, wait_s: float) -> bool:
        self.now = min(self.now + wait_s, max(self.ends_s, self.now))
        return self.now >= self.ends_s

    def sample(self, pids: list[int], window_s: float, wait: object) -> tuple[Sample, Read]:
        self.begun.append((self.now, window_s))
        if self.now >= self.ends_s:
            raise Unavailable("process-gone")
        self.ended(window_s)
        self.now += self.took_s
        return sample(window_s, took_s=self.took_s), []


@pytest.mark.parametrize(
    ("took_s", "overhead", "seconds"),
    [(1e-4, 0.001, 3600.0), (0.02, 0.2, 20.0), (0.3, 0.01, 3600.0)],
)
def test_samples_are_as_rare_as_asked_and_no_window_is_shorter_than_its_sample(
    took_s, overhead, seconds, monkeypatch
):
    clock = Clock(monkeypatch, took_s)
    target = Target(1, lambda: [1], clock.ended, ["program"])
    watched = watch.watch(target, seconds, overhead, lambda watched: None)
    assert all(window_s >= took_s for _, window_s in clock.begun)
    within = watched.cost <= overhead * (1 + 1e-9)
    assert len(watched.samples) == 1 or within
    assert (
        any("That exceeds" in line for line in Report(watched, reach()).sentences()) is not within
    )
    assert watched.elapsed_s <= seconds + took_s + 1e-9
    for n, (begun_s, _) in enumerate(clock.begun):
        assert n == 0 or PRICE * (n + 1 / (2 * PRICE)) * took_s <= overhead * begun_s * (1 + 1e-9)
    if seconds == 3600:
        fitting = [window_s for window_s in WINDOWS_S if window_s >= took_s]
        first = [window_s for _, window_s in clock.begun[: len(fitting)]]
        assert first == fitting == watched.windows_s
        assert watched.left_out_s == tuple(window_s for window_s in WINDOWS_S if window_s < took_s)


# --- real programs


@linux
@pytest.mark.usefixtures("nothing_is_left")
def test_a_command_is_watched_with_all_that_it_started_and_ends_with_the_watching():
    script = "trap '' TERM; sleep 94.5 & setsid sleep 94.5 & yes & wait"
    with watch.started(["sh", "-c", script]) as target:
        deadline = time.monotonic() + 30
        while len(target.pids()) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        done = watch.watch(target, 0.5, 0.5, lambda watched: None)
    assert done.samples[-1].processes == 4 and not done.has_ended and not alive("sleep 94.5")
    assert done.used.user_s + done.used.kernel_s > 0  # that of yes


@linux
@pytest.mark.usefixtures("nothing_is_left")
def test_a_process_that_runs_already_is_left_running_and_its_end_is_noticed():
    command = [sys.executable, "-c", "import time; time.sleep(93.5)"]
    with subprocess.Popen(command) as child:
        with watch.attached(child.pid) as target:
            assert not watch.watch(target, 0.3, 0.5, lambda watched: None).has_ended
            assert child.poll() is None and target.command == command
            threading.Timer(0.5, child.kill).start()
            done = watch.watch(target, 60, 0.5, lambda watched: None)
        assert done.has_ended and done.elapsed_s < 50
    for pid in (child.pid, (1 << 22) + 1):
        with pytest.raises(Unavailable) as why, watch.attached(pid):
            pass
        assert why.value.code == "process-gone"


# --- the report

SIZES = [2**n for n in range(4, 19)]
ROWS, LARGE = (
    frame(truth, [point for n in SIZES for point in scope().chase("page_chase", pages, n)])
    for truth, pages in ((Truth(noise=0.0), "4k"), (Truth((2**40, 2**41), noise=0.0), "thp"))
)


def reach(rows: object = None, is_splintered: bool = False) -> Reach:
    entries = {"4k": (64, 1536), "2m": (32, 1024)}
    prices = Prices.of(pd.concat([ROWS, LARGE])) if rows is None else rows
    return Reach(entries, dict.fromkeys(entries, "CPUID"), prices, is_splintered, 4096, 2 * MIB)


BUSY = Used(100, 0, 3.0, 0.0)


def watched(*samples: Sample, used: Used = BUSY, **how: object) -> Watched:
    target = Target(1, lambda: [1], lambda wait_s: False, ["/bin/true"])
    return Watched(target, 0.01, [*samples], {1: used}, 10.0, 0.05, **how)


def test_the_advice_is_what_may_show_and_a_line_to_copy(monkeypatch):
    monkeypatch.setattr(watch_report, "lever_for", lambda program: levers.LEVERS["advise"])

    def last_lines(*samples: Sample, rows: object = None, **how: object) -> list[str]:
        found = Report(watched(*samples, **how), reach(rows)).sentences()
        return found[next(n for n, line in enumerate(found) if line.startswith("Advice")) :]

    far = last_lines(sample(mib=64))
    assert far[-1] == "tlb try --lever advise -- /bin/true" and f"{1 / 12:.2f} and 1.00" in far[0]
    assert watch_report.try_line("x", ["a b", "$c"]) == "tlb try --lever x -- 'a b' '$c'"
    for little in (sample(mib=0.2), sample(mib=64, huge_mib=64)):
        assert last_lines(little) == ["Advice: nothing. Huge pages would gain it less than 2%."]
    faults = last_lines(sample(mib=0.2), used=Used(10**6, 0, 1.0, 1.0))
    assert len(faults) == 2 and "0.50 and" in faults[0]
    (idle,) = last_lines(sample(mib=64), used=Used(user_s=0.05))
    assert "idle" in idle
    unknown = last_lines(sample(mib=64), rows=Unavailable("no-data"))
    assert unknown[-1] == far[-1] and "0.0" not in unknown[0]
