"""Watching: how rare samples are, which windows are used, what is left behind, and the report."""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.common import STRICT, SUPPORT, alive, compiled, needs_c, wait_until

from tlb.measure.record import CounterReading
from tlb.programs import activity, levers, watch, watch_report
from tlb.programs.activity import ActivitySample, ProcessMappings, ProcessUsage, TouchedMapping
from tlb.programs.collapse import CollapseForecast
from tlb.programs.walk_price import PriceAtSize, WalkPrices
from tlb.programs.watch import (
    SAMPLE_COST_FACTOR,
    WINDOWS_S,
    ProcessStart,
    WatchedProgram,
    WatchState,
)
from tlb.programs.watch_report import WatchReport, hot_mappings, walk_rate_share
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
        self.fills_s = self.waited_s = 0.0
        monkeypatch.setattr(watch, "time", self)
        monkeypatch.setattr(activity, "used", lambda pid: ProcessUsage(user_s=self.now))
        monkeypatch.setattr(activity, "reading_s", self.reading_s)
        monkeypatch.setattr(activity, "sample", self.sample)
        monkeypatch.setattr(activity, "resident_bytes", self.resident_bytes)

    def resident_bytes(self, pids: list[int]) -> float:
        return min(self.now, self.fills_s) * 1e9 + 1e6

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.now - self.waited_s

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
        self.waited_s += window_s
        return sample(window_s, took_s=self.took_s), []


@pytest.mark.parametrize(
    ("took_s", "overhead", "seconds"),
    [(1e-4, 1e-4, 3600.0), (0.02, 0.2, 20.0), (0.3, 0.01, 3600.0)],
)
def test_samples_are_as_rare_as_asked_and_no_window_is_shorter_than_its_sample(
    took_s, overhead, seconds, monkeypatch
):
    clock = Clock(monkeypatch, took_s)
    target = WatchedProgram(1, lambda: [1], clock.ended, ProcessStart(["program"]))
    watched = watch.watch(target, seconds, overhead, lambda watched: None)
    assert all(window_s >= took_s for _, window_s in clock.begun)
    within = watched.cost <= overhead * (1 + 1e-9)
    assert len(watched.samples) == 1 or within
    assert watched.within_overhead is within and WatchReport(watched, PRICES).sentences()
    assert watched.elapsed_s <= seconds + took_s + 1e-9
    for n, (begun_s, _) in enumerate(clock.begun):
        assert n == 0 or SAMPLE_COST_FACTOR * (
            n + 1 / (2 * SAMPLE_COST_FACTOR)
        ) * took_s <= overhead * begun_s * (1 + 1e-9)
    if seconds == 3600:
        fitting = [window_s for window_s in WINDOWS_S if window_s >= took_s]
        first = [window_s for _, window_s in clock.begun[: len(fitting) + 2]]
        assert [*dict.fromkeys(first)] == fitting == watched.windows_s
        assert watched.left_out_s == tuple(window_s for window_s in WINDOWS_S if window_s < took_s)


@pytest.mark.parametrize(
    ("fills_s", "seconds", "first_s"), [(0.0, 60, 0.3), (2.0, 60, 2.3), (50.0, 8, 4.0)]
)
def test_the_first_sample_waits_until_memory_stands_still_or_half_of_the_time_is_over(
    fills_s, seconds, first_s, monkeypatch
):
    clock = Clock(monkeypatch, 0.001)
    clock.fills_s = fills_s
    target = WatchedProgram(1, lambda: [1], clock.ended, ProcessStart(["program"]))
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
            assert child.poll() is None and target.start.command == command
            done = watch.watch(target, 3600, 0.5, lambda watched: child.kill())
        assert done.has_ended and done.samples
    for pid in (child.pid, (1 << 22) + 1):
        with pytest.raises(Unavailable) as why, watch.attached_program(pid):
            pass
        assert why.value.code == "process-gone"


@linux
@needs_c
@pytest.mark.usefixtures("nothing_is_left")
def test_the_hot_mapping_is_named_though_the_cold_one_is_larger(tmp_path):
    program = compiled(SUPPORT / "hot_cold.c", tmp_path / "hot_cold", *STRICT)
    with subprocess.Popen([program, "32", "96"], stdout=subprocess.PIPE) as child:
        try:
            hot = int(child.stdout.readline().split()[0], 16)
            for seconds in (
                2,
                20,
                60,
            ):  # a program that seldom has the CPU touches less in a window
                with watch.attached_program(child.pid) as target:
                    report = WatchReport(
                        watch.watch(target, seconds, 0.5, lambda watched: None), PRICES
                    )
                if report.bound.pages * 4096 >= 0.9 * 32 * MIB:
                    break
        finally:
            child.kill()
    assert report.hot_mappings[0].start == hot and report.hot_mappings[0].share > 0.8
    assert 0.9 * 32 * MIB <= report.bound.pages * 4096 <= 1.1 * 32 * MIB


# --- the report

NS = 1e-9
PRICES = WalkPrices(
    4096,
    2 * MIB,
    1536,
    (PriceAtSize(1024, 2.0, 1.0), PriceAtSize(4096, 30.0, 0.5), PriceAtSize(65536, 90.0, 0.4)),
    fault_ns=1000.0,
    retouch_ns=200.0,
    collapse_s=0.001,
)
BUSY = ProcessUsage(100, 0, 3.0, 0.0)


def watched(
    *samples: ActivitySample,
    used: ProcessUsage = BUSY,
    program: dict[str, object] | None = None,
    **how: object,
) -> WatchState:
    how_to_start = {"start": ProcessStart(["/bin/true"])} | (program or {})
    target = WatchedProgram(1, lambda: [1], lambda wait_s: False, **how_to_start)
    return WatchState(target, 0.01, [*samples], {1: used}, 10.0, 0.05, **how)


@pytest.fixture(autouse=True)
def _levers_work(monkeypatch):
    monkeypatch.setattr(watch_report, "_usable", levers.LEVERS.__getitem__)


def test_the_verdict_is_one_number_and_a_line_to_copy():
    def made(*samples: ActivitySample, prices: object = PRICES, **how: object) -> WatchReport:
        return WatchReport(watched(*samples, **how), prices)

    far = made(sample(mib=64))
    assert far.line == far.sentences()[-1] == "tlb try --lever advise -- /bin/true"
    assert far.bound.share == pytest.approx(0.6, abs=1e-4) and "up to 60%" in far.verdict
    for little in (sample(mib=0.2), sample(mib=3)):
        nothing = made(little)
        assert nothing.is_small and not nothing.line and "Nothing" in nothing.verdict
    faults = made(sample(mib=0.2), used=ProcessUsage(10**6, 0, 1.0, 1.0))
    assert faults.line and faults.bound.share == pytest.approx(0.5, abs=0.005)
    idle = made(sample(mib=64), used=ProcessUsage(user_s=0.05))
    assert "Cannot tell" in idle.verdict and not idle.line
    unknown = made(sample(mib=64), prices=Unavailable("no-data"))
    assert "Cannot tell" in unknown.verdict and unknown.line == far.line
    json.dumps([watch_report.watch_document(each) for each in (far, idle, unknown)])


def test_a_program_that_frees_its_input_is_reported_at_work():
    start = sample(0.1, mib=48, base_mib=48)._replace(used=ProcessUsage())
    work = [
        sample(window_s, mib=mib, base_mib=8)._replace(
            at_s=at_s, used=ProcessUsage(9000, 0, at_s, 0.5)
        )
        for at_s, window_s, mib in ((4, 0.01, 5), (5, 0.1, 6), (6, 1.0, 6))
    ]
    report = WatchReport(watched(start, *work, used=ProcessUsage(9001, 0, 9.0, 0.5)), PRICES)
    assert report.largest == work[1] and report.bound.pages == 6 * MIB // 4096
    assert report.used == ProcessUsage(1, 0, 5.0, 0.0)
    assert "1 during start-up" in dict(report.page_rows())["samples"]


@pytest.mark.parametrize("kernel_share", [0.0, 0.59, 0.9])
def test_no_bound_is_beyond_the_program_s_own_time_and_its_page_faults(kernel_share):
    """1,000 faults of a microsecond in 10 s of CPU time are nothing."""
    used = ProcessUsage(1000, 0, 10 * (1 - kernel_share), 10 * kernel_share)
    report = WatchReport(watched(sample(mib=256), used=used), PRICES)
    assert report.bound.share == pytest.approx((1 - kernel_share) * 0.6, abs=1e-3)
    many = used._replace(minor_faults=10**9)
    faults = WatchReport(watched(sample(mib=256), used=many), PRICES)
    assert faults.fault_share == pytest.approx(kernel_share) and faults.bound.share <= 1


def test_pages_that_the_tlb_holds_are_walked_to_twice_a_window_at_most():
    """1,000 pages in 10 ms of CPU time: 2,000 walks of 30 ns, and 0.2 ms went into sampling."""
    one = sample(0.01, mib=1000 * 4096 / MIB)._replace(run_s=0.01)
    share = walk_rate_share(PRICES, [one] * 3)
    assert share == pytest.approx(2000 * 2 * NS / (0.01 - 0.0002))
    assert walk_rate_share(PRICES, [one] * 2) is None  # too few
    beyond = one._replace(active_bytes=2000 * 4096)
    assert walk_rate_share(PRICES, [one, one, beyond]) is None
    assert walk_rate_share(PRICES._replace(tlb_entries=0), [one] * 3) is None
    sampled = one._replace(run_s=0.0003)  # most of its time was the sampling
    assert walk_rate_share(PRICES, [sampled] * 3) is None
    large = sample(1.0, mib=256)
    rare = WatchReport(watched(one, one, one, large), PRICES)
    assert rare.bound.evidence == "rate of page walks" and rare.is_small


def test_counted_walk_cycles_are_a_bound_where_they_are_fewer():
    counts = [
        {"walk_cycles": CounterReading(value=5.0), "core_cycles": CounterReading(value=100.0)},
        {},
    ]
    report = WatchReport(watched(sample(mib=64)), PRICES, counts)
    assert report.bound.share == pytest.approx(0.05, abs=1e-4)


def test_a_program_on_huge_pages_is_told_so_and_how_to_do_without_them():
    report = WatchReport(watched(sample(mib=300, huge_mib=264, base_mib=37)), PRICES)
    assert report.is_huge and report.line == "tlb try --lever no-thp -- /bin/true"
    assert not WatchReport(watched(sample(mib=300, huge_mib=10)), PRICES).is_huge
    pool = WatchReport(watched(sample(mib=1, pool_mib=1024, base_mib=8)), PRICES)
    assert pool.is_huge and pool.line == ""  # no lever takes those away


@pytest.mark.parametrize(
    ("was_started", "ports", "line"),
    [
        (True, {}, "tlb try --lever advise -- /bin/true"),
        (True, {0}, "tlb try --lever advise --driver CLIENT -- /bin/true"),
        (False, {}, "tlb try --lever advise -- /bin/true"),
        (False, {0, 7399}, "tlb try --pid 1 --driver CLIENT"),
    ],
)
def test_a_server_is_tried_with_a_client(was_started, ports, line):
    seen = watched(sample(mib=64), ports=frozenset(ports), program={"was_started": was_started})
    assert WatchReport(seen, PRICES).line == line


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (ProcessStart(["/a b", "$c", "it's"]), ["--lever", "advise", "--", "/a b", "$c", "it's"]),
        (ProcessStart(["java", "X"], running_s=9), ["--lever", "jvm", "--", "java", "X"]),
        (
            ProcessStart(["a"], as_user=("as", "7"), input_file="/b c"),
            ["--lever", "advise", "--input", "/b c", "--", "as", "7", "a"],
        ),
        (ProcessStart(["a"], running_s=60), ["--lever", "advise", "--minutes", "16", "--", "a"]),
        (ProcessStart(["a"], running_s=7200), ["--pid", "1", "--driver", "CLIENT"]),
        (ProcessStart(["a"], worker_of=5), []),
    ],
)
def test_a_shell_reads_the_line_as_the_trial_that_suits_the_program(start, words):
    report = WatchReport(
        watched(sample(mib=64), program={"start": start._replace(cwd="/")}), PRICES
    )
    script = f"tlb() {{ printf '%s\\n' \"$@\"; }}\n{report.line}"
    assert report.line.startswith("cd / && ") is ("--" in words)
    read = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert read.stdout.splitlines() == (["try", *words] if words else [])


def test_a_server_with_huge_pages_of_its_own_is_compared_with_them_and_without():
    start = ProcessStart(["/usr/bin/postgres", "-D", "/a b"], cwd="/")
    seen = watched(sample(mib=64), ports=frozenset({0}), program={"start": start})
    report = WatchReport(seen, PRICES, forecast=CollapseForecast(0, 2 * MIB, 0, 5, 1 << 30))
    versus, _, without = report.line.partition(" -- ")
    assert "huge_pages=on" in versus and without == f"{shlex.join(start.command)} -c huge_pages=off"


def test_a_server_whose_memory_a_collapse_does_not_reach_is_told_so():
    seen = watched(sample(mib=64), ports=frozenset({1}))
    nothing = CollapseForecast(0, 2 * MIB, 0, 5, 1 << 30)
    report = WatchReport(seen, PRICES, forecast=nothing)
    assert not report.line and report.lever.code == "program-unfit"
    assert WatchReport(seen, PRICES, forecast=nothing._replace(blocks=1)).line


def test_a_server_with_one_hot_mapping_is_tried_on_it_alone():
    hot, cold = (TouchedMapping(1, n << 30, (n << 30) + MIB, "", MIB, 0, n * 4096) for n in (19, 1))
    seen = [sample(mib=20 * 4096 / MIB)._replace(hottest=(hot, cold), run_s=0.1)]
    found = hot_mappings(seen)
    assert [(each.start, each.share) for each in found] == [(hot.start, 0.95), (cold.start, 0.05)]
    large = sample(1.0, mib=64)
    server = watched(*seen, large, ports=frozenset({1}))
    only = f"--only {hot.start:x}-{hot.end:x}"
    assert WatchReport(server, PRICES).line == f"tlb try --pid 1 {only} --driver CLIENT"


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
        (["sleep: waits *:7399", *[""] * 17], ["sleep"]),
        (["sleeper *:7399", *[""] * 17], [SLEEP]),
        (["", "9"], [SLEEP, "9"]),
        (["-sleep", "9"], [SLEEP, "9"]),
    ],
)
def test_a_command_line_that_a_program_has_overwritten_is_replaced_by_its_file(
    words, again, tmp_path
):
    linked(tmp_path, words)
    assert watch.process_start_of(7, tmp_path)[:2] == (again, "/")


@linux
@pytest.mark.parametrize(
    ("count", "again"), [(3, ["sleep", ".read", "x"]), (2, ["sleep"]), (0, ["sleep"])]
)
def test_arguments_that_a_program_has_cut_up_are_not_repeated(count, again, tmp_path):
    """As SQLite's shell does. Linux keeps their number where the stack begins, here at byte 16."""
    linked(tmp_path, ["sleep", ".read", "x"])
    (tmp_path / "7/stat").write_text(f"7 (sleep) S {'0 ' * 24}16 0")
    (tmp_path / "7/mem").write_bytes(bytes(16) + count.to_bytes(8, "little"))
    start = watch.process_start_of(7, tmp_path)
    assert (start.command, start.has_lost_arguments) == (again, count != 3)
    report = WatchReport(watched(sample(mib=64), program={"start": start}), PRICES)
    assert report.line.endswith("-- " + shlex.join([*again, *["ARGUMENTS"] * (count != 3)]))


@linux
def test_a_worker_with_a_title_is_known_by_the_program_of_its_parent(tmp_path):
    linked(tmp_path, ["sleep: worker 1"])
    (tmp_path / "7/stat").write_text(f"7 (sleep) S 5 {'0 ' * 40}")
    (tmp_path / "5").mkdir()
    (tmp_path / "5/exe").symlink_to("/bin/sh")
    assert watch.process_start_of(7, tmp_path).worker_of == 0
    (tmp_path / "5/exe").unlink()
    (tmp_path / "5/exe").symlink_to(SLEEP)
    assert watch.process_start_of(7, tmp_path).worker_of == 5


@linux
def test_a_program_is_started_again_in_its_folder_with_its_input(tmp_path):
    given = tmp_path / "given"
    given.touch()
    began = time.monotonic()
    with subprocess.Popen(["sleep", "92.5"], cwd=tmp_path, stdin=given.open()) as child:
        start = watch.process_start_of(child.pid)
        child.kill()
    assert start[:4] == (["sleep", "92.5"], str(tmp_path), (), str(given))
    assert 0 <= start.running_s <= time.monotonic() - began + 1  # it counts ticks


@linux
def test_a_file_of_another_container_is_reached_by_the_process(tmp_path):
    linked(tmp_path, ["program", "9"], file=str(tmp_path / "elsewhere"))
    assert watch.process_start_of(7, tmp_path).command == [str(tmp_path / "7/exe"), "9"]
    assert watch.process_start_of(8, tmp_path).command == []
