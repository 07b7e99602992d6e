"""An experiment: its grid of points, and a run that repeats, remembers, goes on and never measures twice."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import ROOT, make_record

from experiments.lab import campaign as experiment
from experiments.lab import perf
from experiments.lab.build import Kernel
from experiments.lab.campaign import Profile, octaves, run
from experiments.lab.grid import hugepages, stlb_cliff
from experiments.lab.record import Point, Record
from experiments.lab.store import Store
from experiments.words.reasons import Unavailable

MACHINE, NAME, STATE = "test-machine", "stlb_cliff", "00112233aabb"
MIB = 2**20

# --- the grid


def test_octaves_of_the_docstring():
    assert octaves(16, 64, 2) == [16, 23, 32, 45, 64]


@given(st.integers(1, 2**22), st.integers(0, 20), st.integers(1, 16))
def test_octaves_hold_every_power_and_end_where_they_are_told(low: int, doublings: int, per_octave: int):
    found = octaves(low, low * 2**doublings, per_octave)
    assert {low * 2**k for k in range(doublings + 1)} <= set(found)
    assert (found[0], found[-1]) == (low, low * 2**doublings) and found == sorted(set(found))


@given(st.integers(16, 2**22), st.integers(16, 2**30), st.integers(1, 16))
def test_octaves_lie_evenly_in_the_logarithm_and_never_beyond_the_end(low: int, high: int, per_octave: int):
    expected = {round(low * math.exp(math.log(2) * k / per_octave)) for k in range(40 * per_octave)}
    found = octaves(low, high, per_octave)
    assert set(found) <= {n for n in expected if n <= high}
    assert all(n in found for n in expected if n < high)


profiles = st.builds(Profile, max_working_set=st.integers(64 << 10, 2**33), repeats=st.just(1), region_ms=st.integers(1, 100),
                     points_per_octave=st.integers(1, 4))
entry_lists = st.sampled_from([[], [64], [72, 3072], [64, 1536], [48, 1280], [96, 2048], [32, 64, 1536]])
engines = st.sampled_from(["c", "numba"])


@given(profiles, engines, entry_lists)
def test_every_spread_point_has_its_packed_control(profile: Profile, engine: str, entries: list[int]):
    points = stlb_cliff(profile, engine, entries)
    assert len(points) == len(set(points))
    spread = {point for point in points if point.layout == "spread"}
    assert {point.model_copy(update={"layout": "packed"}) for point in spread} == set(points) - spread
    assert all((point.engine, point.region_ms) == (engine, profile.region_ms) for point in points)


@given(profiles, engines, entry_lists)
def test_no_point_is_larger_than_max_working_set_and_the_sweep_comes_near_it(profile: Profile, engine: str, entries: list[int]):
    cycle = [p.lines for p in stlb_cliff(profile, engine, entries) if (p.kernel, p.order) == ("page_chase", "cycle")]
    most = profile.max_working_set
    assert max(cycle) * 4096 <= most < max(cycle) * 4096 * 2 * 1.01
    assert min(cycle) == 16
    assert all(p.lines * 4096 <= most for p in stlb_cliff(profile, engine, entries))


def cycle_lines(engine: str = "c", per_octave: int = 2, entries: tuple[int, ...] = (72, 3072)) -> list[int]:
    profile = Profile(max_working_set=2**30, repeats=1, region_ms=1, points_per_octave=per_octave)
    return sorted({p.lines for p in stlb_cliff(profile, engine, entries) if (p.kernel, p.order) == ("page_chase", "cycle")})


@pytest.mark.parametrize("entries", [72, 3072])
def test_the_grid_is_finer_around_what_cpuid_states_and_holds_it_and_its_double(entries: int):
    near = [n for n in cycle_lines() if entries / 2**0.75 <= n <= entries * 2]
    assert {entries, 2 * entries} <= set(near)
    assert all(b / a < 1.12 for a, b in zip(near, near[1:], strict=False) if a > 60)  # 9 %, and what rounding adds
    away = [n for n in cycle_lines() if n > 2 * 3072]
    assert all(b / a > 1.3 for a, b in zip(away, away[1:], strict=False))


def test_numba_has_a_coarser_grid_and_smoke_no_zoom():
    assert len(cycle_lines("numba")) < len(cycle_lines("c")) / 1.5
    assert {72, 3072, 6144} <= set(cycle_lines("numba"))
    assert cycle_lines(per_octave=1) == [2**k for k in range(4, 19)]


def test_the_gibibyte_and_its_half_are_measured_for_the_claim_about_them():
    for engine in ("c", "numba"):
        assert {2**17, 2**18} <= set(cycle_lines(engine))


def test_all_three_orders_and_the_gather_are_in_the_grid():
    points = stlb_cliff(experiment.profile("quick"), "c", [72, 3072])
    assert {(p.kernel, p.order) for p in points} == {
        ("page_chase", "cycle"), ("page_chase", "random"), ("page_chase", "sequential"), ("page_gather", "cycle")}


# --- profiles


def test_the_profiles_are_smoke_quick_and_full_and_grow():
    assert experiment.profile_names() == ["full", "quick", "smoke"]
    smoke, quick, full = (experiment.profile(name) for name in ("smoke", "quick", "full"))
    assert smoke.max_working_set < quick.max_working_set <= full.max_working_set == 4 << 30
    assert smoke.repeats < quick.repeats < full.repeats


@pytest.mark.parametrize("name", ["", "fast", "../profiles/quick", "quick.yaml"])
def test_an_unknown_profile_is_refused_with_the_names_there_are(name: str):
    with pytest.raises(Unavailable) as refused:
        experiment.profile(name)
    assert refused.value.code == "bad-parameter" and "full, quick, smoke" in refused.value.detail


# --- a run

POINTS = [Point(kernel="page_chase", lines=2**k, layout=layout, region_ms=1) for k in range(4, 9) for layout in ("spread", "packed")]


class FakeMeasure:
    """Stands for measure.measure: notes what it is asked, and fails where it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[Point, int]] = []
        self.trouble: Callable[[Point, int], None] = lambda point, repeat: None

    def __call__(self, point: Point, repeat: int, *, state: str, **_: object) -> Record:
        self.asked.append((point, repeat))
        self.trouble(point, repeat)
        return make_record(**point.model_dump(), repeat=repeat, state=state)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch, own_lock: Path) -> FakeMeasure:
    fake = FakeMeasure()
    monkeypatch.setattr(experiment.measure, "measure", fake)
    use_kernel(monkeypatch, "a" * 16)
    return fake


def use_kernel(monkeypatch: pytest.MonkeyPatch, digest: str) -> None:
    monkeypatch.setattr(experiment.build, "kernel", lambda name, engine: Kernel(name, engine, ("true",), digest))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


def go(store: Store, points: list[Point] = POINTS, repeats: int = 3, **how: object) -> experiment.Outcome:
    what = {"machine": MACHINE, "store": store, "state": STATE, "plan": perf.NO_COUNTERS, "usable_bytes": 2**30, "quiet": True}
    return run(NAME, points, repeats, **(what | how))


def test_each_point_is_measured_once_before_any_is_repeated(faked: FakeMeasure, store: Store):
    outcome = go(store)
    assert (outcome.measured, outcome.cached, outcome.lacking) == (30, 0, {})
    rounds = [faked.asked[i : i + 10] for i in (0, 10, 20)]
    for repeat, asked in enumerate(rounds):
        assert {(p, repeat) for p in POINTS} == set(asked)
    orders = [[POINTS.index(p) for p, _ in asked] for asked in rounds]
    assert orders[0] != orders[1] != orders[2] and orders[0] != list(range(10))  # shuffled, each round anew


def test_a_large_point_may_have_fewer_repeats(faked: FakeMeasure, store: Store):
    large = POINTS[0]
    assert go(store, repeats=lambda point: 1 if point == large else 3).measured == 28
    assert Counter(p for p, _ in faked.asked)[large] == 1 and {p for p, _ in faked.asked[:10]} == set(POINTS)
    assert go(store).measured == 2  # what was left out


def test_a_profile_asks_fewer_processes_of_points_from_a_gibibyte_on():
    quick, full = experiment.profile("quick"), experiment.profile("full")
    small, large = (Point(kernel="page_chase", lines=lines) for lines in (2**17, 2**18))
    assert (quick.repeats_of(small), quick.repeats_of(large)) == (quick.repeats, quick.large_repeats)
    assert quick.large_repeats < quick.repeats
    assert full.repeats_of(small) == full.repeats_of(large) == full.repeats


def test_the_order_is_a_function_of_the_seed(faked: FakeMeasure, tmp_path: Path):
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        faked.asked.clear()
        go(Store(tmp_path / name), seed=seed)
        orders.append(list(faked.asked))
    assert orders[0] == orders[1] != orders[2]


def test_what_is_stored_is_not_measured_again(faked: FakeMeasure, store: Store):
    go(store, repeats=2)
    faked.asked.clear()
    assert (go(store, repeats=2).measured, go(store, repeats=2).cached) == (0, 20)
    assert faked.asked == []
    assert go(store, repeats=3).measured == 10 and {repeat for _, repeat in faked.asked} == {2}


def test_a_run_with_nothing_to_do_takes_no_lock(faked: FakeMeasure, store: Store, own_lock: Path):
    go(store, repeats=1)
    with experiment.measuring_lock():
        assert go(store, repeats=1).cached == 10
        with pytest.raises(Unavailable) as refused:
            go(store, repeats=2)
    assert refused.value.code == "measuring-already"


def test_an_interruption_loses_the_point_in_flight_and_nothing_else(faked: FakeMeasure, store: Store):
    def interrupt(point: Point, repeat: int) -> None:
        if len(faked.asked) == 13 and not in_flight:
            raise KeyboardInterrupt

    in_flight: list[tuple[Point, int]] = []
    faked.trouble = interrupt
    with pytest.raises(KeyboardInterrupt):
        go(store)
    in_flight.append(faked.asked[-1])
    done = set(faked.asked[:-1])
    assert len(store.load(MACHINE, NAME)) == 12
    faked.asked.clear()
    assert (go(store).measured, len(faked.asked)) == (18, 18)
    assert in_flight[0] in faked.asked and not done & set(faked.asked)
    frame = store.load(MACHINE, NAME)
    assert Counter(zip(frame["lines"], frame["layout"], frame["repeat"], strict=True)) == Counter(
        (p.lines, p.layout, repeat) for p in POINTS for repeat in range(3))


def test_an_unforeseen_error_comes_through_and_what_was_measured_stays(faked: FakeMeasure, store: Store):
    def fail(point: Point, repeat: int) -> None:
        if len(faked.asked) == 5:
            raise ZeroDivisionError

    faked.trouble = fail
    with pytest.raises(ZeroDivisionError):
        go(store)
    assert len(store.load(MACHINE, NAME)) == 4
    with experiment.measuring_lock():
        pass  # it was let go


def test_a_point_that_the_machine_cannot_do_is_not_retried_and_the_others_go_on(faked: FakeMeasure, store: Store):
    lacking = POINTS[3]

    def refuse(point: Point, repeat: int) -> None:
        if point == lacking:
            raise Unavailable("memory-short", "too large")

    faked.trouble = refuse
    outcome = go(store)
    assert (outcome.measured, list(outcome.lacking), outcome.lacking[lacking].code) == (27, [lacking], "memory-short")
    assert Counter(p for p, _ in faked.asked) == {p: 1 if p == lacking else 3 for p in POINTS}
    assert "1 points could not be measured" in str(outcome)
    assert go(store).lacking.keys() == {lacking}  # a second run tries again: memory may be free by then


def test_what_numba_has_no_kernel_for_is_lacking_and_the_rest_is_measured(monkeypatch, own_lock: Path, store: Store):
    fake = FakeMeasure()
    monkeypatch.setattr(experiment.measure, "measure", fake)
    profile = Profile(max_working_set=64 << 10, repeats=1, region_ms=1, points_per_octave=1)
    points = hugepages(profile, "numba", [64, 1536], 2)
    without = {point for point in points if point.kernel == "prefault"}
    outcome = go(store, points, 1)
    assert without and outcome.lacking.keys() == without
    assert {(why.code, why.detail) for why in outcome.lacking.values()} == {("engine-lacks", "kernel prefault")}
    assert {point for point, _ in fake.asked} == set(points) - without and outcome.measured == len(points) - len(without)
    assert {point.kernel for point, _ in fake.asked} == {"page_chase", "random_touch"}


@pytest.mark.parametrize("changed", ["kernel", "state", "region_ms", "pages"])
def test_a_changed_kernel_machine_state_or_parameter_is_measured_again(faked: FakeMeasure, store: Store, monkeypatch, changed: str):
    go(store, repeats=1)
    points, state = POINTS, STATE
    if changed == "kernel":
        use_kernel(monkeypatch, "b" * 16)
    elif changed == "state":
        state = "ffffffffffff"
    else:
        points = [p.model_copy(update={changed: {"region_ms": 2, "pages": "thp"}[changed]}) for p in POINTS]
    assert go(store, points, 1, state=state).measured == 10
    assert go(store, points, 1, state=state).cached == 10
    assert len(store.load(MACHINE, NAME)) == 20  # nothing is replaced


def test_another_order_of_points_is_the_same_experiment(faked: FakeMeasure, store: Store):
    go(store)
    assert go(store, POINTS[::-1]).measured == 0


@pytest.mark.filterwarnings("error")
def test_the_progress_bar_goes_to_stderr_and_not_into_data(faked: FakeMeasure, store: Store, capsys):
    go(store, quiet=False)
    said = capsys.readouterr()
    assert said.out == "" and "30 of 30 points" in said.err and NAME in said.err


@given(st.sampled_from(["c", "numba"]), st.integers(1, 2**20), st.integers(1, 1000))
def test_a_guess_of_the_time_grows_with_the_work(engine: str, lines: int, region_ms: int):
    point = Point(kernel="page_chase", engine=engine, lines=lines, region_ms=region_ms)
    larger = point.model_copy(update={"lines": 2 * lines, "region_ms": 2 * region_ms})
    assert 0 < experiment.expected_s(point) < experiment.expected_s(larger)


# --- kill -9

REAL_RUN = """
import sys
from pathlib import Path
from experiments.lab import campaign as experiment, perf
from experiments.system import files
from experiments.lab.record import Point
from experiments.lab.store import Store
experiment.measuring_lock = lambda: files.measuring_lock(path=Path(sys.argv[1]) / "lock")
points = [Point(kernel="page_chase", lines=lines, layout=layout, region_ms=1) for lines in range(64, 84) for layout in ("spread", "packed")]
print(experiment.run("stlb_cliff", points, 2, machine="test-machine", store=Store(sys.argv[1]), state="0" * 12,
                     plan=perf.NO_COUNTERS, usable_bytes=1 << 30, quiet=True).measured)
"""


@pytest.mark.measures
@pytest.mark.needs("a C compiler")
def test_after_a_kill_9_the_same_run_goes_on_and_each_point_is_there_once(tmp_path: Path):
    command = [sys.executable, "-c", REAL_RUN, str(tmp_path)]
    path = tmp_path / MACHINE / f"{NAME}.jsonl"
    for lines in (5, 20, 41):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < lines):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stderr.read() == b""
        process.stderr.close()
    before = len(Store(tmp_path).keys(MACHINE, NAME))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{80 - before}\n"), done.stderr
    assert 41 <= before < 80
    store = Store(tmp_path)
    assert len(store.keys(MACHINE, NAME)) == path.read_bytes().count(b"\n") == len(store.load(MACHINE, NAME)) == 80
    assert store.check(MACHINE, NAME) == (80, 0, 0, 0)
