"""Watching: how rare samples are, which windows are used, what is left behind, and the report."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest
from support.common import alive, wait_until
from support.synthetic import Truth, frame, scope

from tlb.programs import activity, levers, watch, watch_report
from tlb.programs.activity import ActivitySample, ProcessMappings, ProcessUsage
from tlb.programs.program_bounds import TranslationPrices
from tlb.programs.reach import TlbReach
from tlb.programs.watch import PRICE, WINDOWS_S, WatchedProgram, WatchState
from tlb.programs.watch_report import WatchReport
from tlb.system.reasons import Unavailable

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MIB = 1 << 20


def sample(
    window_s: float = 0.1,
    mib: float = 64,
    took_s: float = 0.01,
    huge_mib: float = 0,
    pool_mib: int = 0,
    base_mib: int = 512,
) -> ActivitySample:
    """Return a sample of a process of which `mib` is touched, `huge_mib` of it on huge pages."""
    huge = int(huge_mib * MIB)
    mapped = {"4k": base_mib * MIB, "thp": huge} | ({"1g": pool_mib * MIB} if pool_mib else {})
    return ActivitySample(window_s, took_s, 1, {}, 20, mapped, MIB, int(mib * MIB), huge, huge)


class Clock:
    """A clock that only waiting advances, samples that take took_s, and a program that ends."""

    def __init__(self, monkeypatch, took_s: float, ends_s: float = 1e9):
        self.now, self.took_s, self.ends_s, self.begun = 0.0, took_s, ends_s, []
        self.fills_s = 0.0
        monkeypatch.setattr(watch, "time", self)
        monkeypatch.setattr(activity, "used", lambda pid: ProcessUsage(user_s=self.now))
        monkeypatch.setattr(activity, "reading_s", self.reading_s)
        monkeypatch.setattr(activity, "sample", self.sample)
        monkeypatch.setattr(activity, "resident_bytes", self.resident_bytes)

    def resident_bytes(self, pids: list[int]) -> float:
        return min(self.now, self.fills_s) * 1e9 + 1e6

    def monotonic(self) -> float:
        return self.now

    def reading_s(self, pids: list[int]) -> float:
        self.now += self.took_s / 2
        return self.took_s / 2

    def ended(self, wait_s: float) -> bool:
        self.now = min(self.now + wait_s, max(self.ends_s, self.now))
        return self.now >= self.ends_s

    def sample(
        self, pids: list[int], window_s: float, wait: object
    ) -> tuple[ActivitySample, ProcessMappings]:
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
    target = WatchedProgram(1, lambda: [1], clock.ended, ["program"])
    watched = watch.watch(target, seconds, overhead, lambda watched: None)
    assert all(window_s >= took_s for _, window_s in clock.begun)
    within = watched.cost <= overhead * (1 + 1e-9)
    assert len(watched.samples) == 1 or within
    assert watched.within_overhead is within and WatchReport(watched, reach()).sentences()
    assert watched.elapsed_s <= seconds + took_s + 1e-9
    for n, (begun_s, _) in enumerate(clock.begun):
        assert n == 0 or PRICE * (n + 1 / (2 * PRICE)) * took_s <= overhead * begun_s * (1 + 1e-9)
    if seconds == 3600:
        fitting = [window_s for window_s in WINDOWS_S if window_s >= took_s]
        first = [window_s for _, window_s in clock.begun[: len(fitting)]]
        assert first == fitting == watched.windows_s
        assert watched.left_out_s == tuple(window_s for window_s in WINDOWS_S if window_s < took_s)


@pytest.mark.parametrize(
    ("fills_s", "seconds", "first_s"), [(0.0, 60, 0.3), (2.0, 60, 2.3), (50.0, 8, 4.0)]
)
def test_the_first_sample_waits_until_memory_stands_still_or_half_of_the_time_is_over(
    fills_s, seconds, first_s, monkeypatch
):
    clock = Clock(monkeypatch, 0.001)
    clock.fills_s = fills_s
    target = WatchedProgram(1, lambda: [1], clock.ended, ["program"])
    done = watch.watch(target, seconds, 0.01, lambda watched: None)
    assert first_s * 0.6 <= clock.begun[0][0] <= first_s + 0.1
    assert done.samples[0].at_s == clock.begun[0][0]
    assert done.used_after_start.user_s == pytest.approx(done.after_start_s)


# --- real programs


@linux
@pytest.mark.usefixtures("nothing_is_left")
def test_a_command_is_watched_with_all_that_it_started_and_ends_with_the_watching():
    script = "trap '' TERM; sleep 94.5 & setsid sleep 94.5 & yes & wait"
    with watch.started_program(["sh", "-c", script]) as target:
        assert wait_until(lambda: len(target.pids()) == 4)
        done = watch.watch(target, 0.5, 0.5, lambda watched: None)
    assert done.samples[-1].processes == 4 and not done.has_ended and not alive("sleep 94.5")
    assert done.used.user_s + done.used.kernel_s > 0  # that of yes


@linux
@pytest.mark.usefixtures("nothing_is_left")
def test_a_process_that_runs_already_is_left_running_and_its_end_is_noticed():
    command = [sys.executable, "-c", "import time; time.sleep(93.5)"]
    with subprocess.Popen(command) as child:
        with watch.attached_program(child.pid) as target:
            assert not watch.watch(target, 0.3, 0.5, lambda watched: None).has_ended
            assert child.poll() is None and target.command == command
            threading.Timer(0.5, child.kill).start()
            done = watch.watch(target, 60, 0.5, lambda watched: None)
        assert done.has_ended and done.elapsed_s < 50
    for pid in (child.pid, (1 << 22) + 1):
        with pytest.raises(Unavailable) as why, watch.attached_program(pid):
            pass
        assert why.value.code == "process-gone"


# --- the report

SIZES = [2**n for n in range(4, 19)]
ROWS, LARGE = (
    frame(truth, [point for n in SIZES for point in scope().chase("page_chase", pages, n)])
    for truth, pages in ((Truth(noise=0.0), "4k"), (Truth((2**40, 2**41), noise=0.0), "thp"))
)


def reach(rows: object = None, is_splintered: bool = False) -> TlbReach:
    entries = {"4k": (64, 1536), "2m": (32, 1024)}
    prices = TranslationPrices.of(pd.concat([ROWS, LARGE])) if rows is None else rows
    source = dict.fromkeys(entries, "CPUID")
    return TlbReach(entries, source, prices, is_splintered, 4096, 2 * MIB, fault_s=1e-6)


BUSY = ProcessUsage(100, 0, 3.0, 0.0)


def watched(
    *samples: ActivitySample,
    used: ProcessUsage = BUSY,
    program: dict[str, object] | None = None,
    **how: object,
) -> WatchState:
    target = WatchedProgram(1, lambda: [1], lambda wait_s: False, ["/bin/true"], **program or {})
    return WatchState(target, 0.01, [*samples], {1: used}, 10.0, 0.05, **how)


def test_the_advice_is_what_may_show_and_a_line_to_copy(monkeypatch):
    monkeypatch.setattr(watch_report, "lever_for", lambda program: levers.LEVERS["advise"])

    def made(*samples: ActivitySample, rows: object = None, **how: object) -> WatchReport:
        return WatchReport(watched(*samples, **how), reach(rows))

    far = made(sample(mib=64))
    assert far.line == far.sentences()[-1] == "tlb try --lever advise -- /bin/true"
    assert far.gain().ratio.low == pytest.approx(1 / 12, abs=0.005)
    assert watch_report.try_line("x", ["--", "a b", "$c"]) == "tlb try --lever x -- 'a b' '$c'"
    assert watch_report.try_line("x", ["--", "a"], "/") == "cd / && tlb try --lever x -- a"
    for little in (sample(mib=0.2), sample(mib=64, huge_mib=64), sample(mib=5)):
        nothing = made(little)
        assert nothing.is_small and not nothing.line
    faults = made(sample(mib=0.2), used=ProcessUsage(10**6, 0, 1.0, 1.0))
    assert faults.line and faults.gain().ratio.low == pytest.approx(0.5, abs=0.005)
    idle = made(sample(mib=64), used=ProcessUsage(user_s=0.05))
    assert idle.is_idle and not idle.line
    unknown = made(sample(mib=64), rows=Unavailable("no-data"))
    assert unknown.line == far.line and isinstance(unknown.gain_or_reason, Unavailable)


def test_a_program_that_frees_its_input_is_reported_at_work():
    start = sample(0.1, mib=48, base_mib=48)._replace(used=ProcessUsage())
    work = [
        sample(window_s, mib=mib, base_mib=8)._replace(
            at_s=at_s, used=ProcessUsage(9000, 0, at_s, 0.5)
        )
        for at_s, window_s, mib in ((4, 0.01, 5), (5, 0.1, 6), (6, 1.0, 6))
    ]
    report = WatchReport(watched(start, *work, used=ProcessUsage(9001, 0, 9.0, 0.5)), reach())
    assert report.largest == work[1] and report.level == "second level"
    assert report.used == ProcessUsage(1, 0, 5.0, 0.0) and report.window_rows()
    assert report.watched.samples_after_start == work


@pytest.mark.parametrize("kernel_share", [0.0, 0.59, 0.9])
def test_no_bound_is_beyond_the_program_s_own_time_and_its_page_faults(kernel_share):
    """1,000 faults of a microsecond in 10 s of CPU time are nothing."""
    used = ProcessUsage(1000, 0, 10 * (1 - kernel_share), 10 * kernel_share)
    report = WatchReport(watched(sample(mib=64), used=used), reach())
    ratio = report.gain().ratio
    assert 1 - (1 - kernel_share) - 1e-3 <= ratio.low <= ratio.value <= ratio.high == 1
    assert ratio.value == pytest.approx(1 - (1 - kernel_share) * 11 / 12, rel=0.01)
    faults = WatchReport(watched(sample(mib=64), used=used._replace(minor_faults=10**9)), reach())
    assert faults.fault_share == pytest.approx(kernel_share)


def test_a_program_on_huge_pages_is_told_so_and_how_to_do_without_them():
    report = WatchReport(watched(sample(mib=300, huge_mib=264, base_mib=37)), reach())
    assert report.is_huge and report.line == "tlb try --lever no-thp -- /bin/true"
    assert not WatchReport(watched(sample(mib=300, huge_mib=10)), reach()).is_huge
    pool = WatchReport(watched(sample(mib=1, pool_mib=1024, base_mib=8)), reach())
    assert pool.is_huge and pool.line == ""  # no lever takes those away


@pytest.mark.parametrize(
    ("was_started", "listens", "line"),
    [
        (True, False, "tlb try --lever advise -- /bin/true"),
        (True, True, "tlb try --lever advise --driver CLIENT -- /bin/true"),
        (False, False, "tlb try --lever advise -- /bin/true"),
        (False, True, "tlb try --lever collapse --pid 1 --driver CLIENT"),
    ],
)
def test_a_server_is_tried_with_a_driver(was_started, listens, line, monkeypatch):
    monkeypatch.setattr(watch_report, "lever_for", lambda program: levers.LEVERS["advise"])
    monkeypatch.setattr(levers, "lever", lambda name, settings: levers.LEVERS[name])
    seen = watched(sample(mib=64), listens=listens, program={"was_started": was_started})
    assert WatchReport(seen, reach()).line == line


@pytest.mark.parametrize(("base_kib", "large_mib"), [(16, 32), (64, 512)])
def test_huge_pages_are_called_by_their_size_on_a_computer_without_cpuid(base_kib, large_mib):
    here = TlbReach(
        {}, {}, Unavailable("no-data"), True, base_kib << 10, large_mib * MIB, "no-geometry"
    )
    report = WatchReport(watched(sample(mib=1024, huge_mib=512)), here)
    rows = [" ".join(row) for row in report.page_rows()]
    text = "\n".join([*rows, *report.sentences()])
    assert f"transparent {large_mib} MiB pages 512 MiB" in rows
    assert not re.search(r"\b2 MiB|CPUID", text)
    assert f"counts as {large_mib * 1024 // base_kib} base pages" in text


# --- a command that starts a program again

SLEEP = "/bin/sleep"


def linked(folder: Path, words: list[str], file: str = SLEEP, cwd: str = "/") -> None:
    (folder / "7").mkdir()
    (folder / "7/cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (folder / "7/exe").symlink_to(file)
    (folder / "7/cwd").symlink_to(cwd)


@linux
@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["sleep", "9", ""], ["sleep", "9"]),
        (["/bin/sleep", "", "9"], ["/bin/sleep", "", "9"]),
        (["bin/sleep", "9"], ["/bin/sleep", "9"]),  # from its own folder
        (["sleep: waits *:7399", *[""] * 17], [SLEEP]),
        (["sleep: waits", "", "9"], [SLEEP, "9"]),
        (["-sleep", "9"], [SLEEP, "9"]),
    ],
)
def test_a_command_line_that_a_program_has_overwritten_is_replaced_by_its_file(
    words, again, tmp_path
):
    linked(tmp_path, words)
    assert watch.command_again(7, tmp_path) == (again, "/")


@linux
def test_a_program_whose_file_is_not_here_has_no_command(tmp_path):
    linked(tmp_path, ["program", "9"], file=str(tmp_path / "elsewhere"))
    assert watch.command_again(7, tmp_path) == ([], "/")
    assert watch.command_again(8, tmp_path)[0] == []
