"""Many points in one mapping: what a process proves counts, what it does not is measured again, and
no fault of a point is another's."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import stand_in_session
from support.campaigns import GIB, MACHINE, STATE, run
from support.common import fake_kernel, make_record
from support.stand_in_session import starts

from tlb.measure import build, kernels, mapping
from tlb.measure import plan as plans
from tlb.measure.mapping import measured
from tlb.measure.plan import MeasuringConditions
from tlb.measure.record import KernelOutput, Point, Record
from tlb.system.reasons import Unavailable

SETTING = MeasuringConditions(STATE, GIB)
MIB = 1 << 20
SMALL = [
    Point(kernel="page_chase", lines=lines, region_ms=1) for lines in (16, 32, 64, 128, 256, 512)
]
LARGE = [
    Point(kernel="page_chase", lines=lines, region_ms=1) for lines in (1 << 13, 1 << 14, 1 << 15)
]  # 32, 64 and 128 MiB
REPORT = make_record().model_dump(include=set(KernelOutput.model_fields))


@pytest.fixture
def program(tmp_path, monkeypatch) -> Callable[..., Path]:
    """Puts the stand-in with these faults in the place of every session; its folder."""

    def use(**faults: Any) -> Path:
        folder = tmp_path / "session"
        command = (stand_in_session.install(folder, REPORT, **faults),)
        monkeypatch.setattr(build, "session", lambda name, engine: command)
        monkeypatch.setattr(build, "kernel", fake_kernel("a" * 16, *command))
        monkeypatch.setattr(build, "has_session", lambda point: bool(kernels.session_of(point)))
        return folder

    return use


def results(
    points: list[Point], repeat: int = 0, setting: MeasuringConditions = SETTING, **how: Any
) -> dict[Point, Record | Unavailable]:
    """The result of each point, each of which comes out once."""
    got = list(measured(points, repeat, setting, **how))
    assert len({point for point, _ in got}) == len(got)
    return dict(got)


def codes(got: dict[Point, Record | Unavailable]) -> dict[int, str]:
    """The reason of each point by its lines, "" for a record."""
    return {
        point.lines: result.code if isinstance(result, Unavailable) else ""
        for point, result in got.items()
    }


def asked(folder: Path) -> list[list[int]]:
    """The lines of the points that each process was asked for."""
    return [[int(line.split()[5]) for line in start["lines"]] for start in starts(folder)]


# --- one process


def test_points_that_sleep_do_so_side_by_side_and_a_failure_of_one_is_its_own(monkeypatch):
    both, started = threading.Barrier(2), list[int]()
    monkeypatch.setattr(plans, "STAGGER_S", 0.01)

    def alone(point: Point, repeat: int, setting: MeasuringConditions) -> Record:
        started.append(point.lines)
        both.wait()
        if point.lines == 128:
            raise Unavailable("memory-short", "128 lines")
        return make_record(**point.model_dump(include={"kernel", "lines", "options"}))

    monkeypatch.setattr(plans, "measure_alone", alone)
    sleepers = [
        Point(kernel="touch_again", order="sequential", lines=lines, options={"idle_ms": 5000})
        for lines in (64, 128)
    ]
    awake = Point(kernel="touch_again", order="sequential", lines=64, options={"idle_ms": 0})
    made = {
        len(group.points): group
        for group in mapping.group_points_by_process([*sleepers, awake], random.Random(1))
    }
    assert {*made[2].points} == {*sleepers} and made[1].points == [awake]
    assert codes(results(made[2].points)) == {64: "", 128: "memory-short"}
    assert sorted(started) == [64, 128]
    assert sum(map(made[2].cost_s, sleepers)) < 6 < sum(map(kernels.expected_s, sleepers))


@pytest.mark.parametrize(
    ("code", "cpu", "tries"),
    [
        ("backing-partial", None, 2),
        ("cpu-gone", None, 2),
        ("cpu-gone", 1, 1),
        ("linux-lacks", 1, 1),
    ],
)
def test_what_may_be_over_is_tried_once_more_in_another_process(program, code, cpu, tries):
    folder = program(at={"512": f"exit {code} once"})
    points = [
        Point(kernel="shootdown", order="sequential", lines=lines, mode="collapse")
        for lines in (256, 512, 1024)
    ]
    got = results(points, setting=SETTING._replace(cpu=cpu))
    assert codes(got) == {256: "", 512: "" if tries == 2 else code, 1024: ""}
    assert [512 in lines for lines in asked(folder)] == [True] * tries + [False] * (2 - tries)


def test_of_an_empty_pool_no_smaller_mapping_is_asked_for(monkeypatch):
    tried = list[int]()

    def start(self: object, mapped: int) -> None:
        tried.append(mapped)
        raise Unavailable("pool-empty", "32 pages of 2m needed, 0 free: no memory")

    monkeypatch.setattr(mapping._PointQueue, "_start", start)
    points = [point.model_copy(update={"pages": "2m"}) for point in LARGE]
    assert {*codes(results(points)).values()} == {"pool-empty"} and len(tried) == 1


def test_what_a_point_lacks_is_its_own_reason_and_the_next_one_is_measured(program):
    folder = program(
        at={"64": "fail pool-empty", "128": {"ns_per_access": -1.0}, "256": {"lines": 255}}
    )
    assert codes(results(SMALL)) == {
        16: "",
        32: "",
        64: "pool-empty",
        128: "kernel-failed",
        256: "kernel-failed",
        512: "",
    }
    assert len(starts(folder)) == 1


def test_a_point_for_which_there_is_no_time_is_left_out_and_those_before_it_are_proved(program):
    program()
    assert codes(results(SMALL, begin=lambda point: point.lines in (16, 256))) == {16: "", 256: ""}


# --- faults of a process


@pytest.mark.parametrize(
    ("what", "code"),
    [("crash", "kernel-failed"), ("garbage", "kernel-failed"), ("exit no-pmu", "no-pmu")],
)
def test_a_point_that_ends_its_process_has_the_reason_and_all_others_are_measured_in_another_one(
    program, what, code
):
    folder = program(at={"128": what})
    assert codes(results(SMALL)) == {point.lines: code * (point.lines == 128) for point in SMALL}
    first, second = asked(folder)
    assert first == [16, 32, 64, 128] and second == [
        16,
        32,
        64,
        256,
        512,
    ]  # what was not proved is measured again


def test_on_transparent_huge_pages_what_was_proved_before_a_crash_is_kept(program):
    folder = program(at={"128": "crash"})
    points = [point.model_copy(update={"pages": "thp"}) for point in SMALL]
    assert codes(results(points)) == {
        point.lines: "kernel-failed" * (point.lines == 128) for point in SMALL
    }
    assert asked(folder) == [
        [16, 32, 64, 128],
        [64, 256, 512],
    ]  # that 64 was proved, the answer to 128 would have said


def test_nothing_that_was_not_proved_is_a_record(program):
    program(proves=False)
    assert set(codes(results(SMALL)).values()) == {"kernel-failed"}


# --- memory


@pytest.mark.parametrize(
    ("refusal", "code"),
    [("memory-short", "memory-short"), ("pool-empty", "pool-empty"), ("kill", "memory-short")],
)
def test_a_mapping_that_is_refused_is_tried_half_as_large_without_the_points_that_do_not_fit(
    program, refusal, code
):
    folder = program(most_bytes=50 * MIB, refusal=refusal)
    assert codes(results([*SMALL[:2], *LARGE])) == {
        16: "",
        32: "",
        1 << 13: "",
        1 << 14: code,
        1 << 15: code,
    }
    assert [int(start["words"][3]) // MIB for start in starts(folder)] == [128, 64, 32]


@pytest.mark.parametrize("after", [0, 1])
def test_a_mapping_that_is_not_wholly_of_its_page_size_is_tried_again_and_then_half_as_large(
    program, after
):
    points = [point.model_copy(update={"pages": "thp"}) for point in LARGE]
    folder = program(partial=1, partial_after=after)
    assert set(codes(results(points)).values()) == {""}
    program(partial=3, partial_after=after)  # one of which it was already
    assert codes(results(points)) == {1 << 13: "", 1 << 14: "", 1 << 15: "backing-partial"}
    assert [int(start["words"][3]) // MIB for start in starts(folder)] == [128, 128, 128, 128, 64]


# --- noise


NOISY = {"migrations": 1}


def test_a_disturbed_point_is_measured_once_more_after_all_others(program):
    folder = program(at={"16": NOISY})
    got = results(SMALL, retry_share=0.5)
    assert asked(folder) == [[16, 32, 64, 128, 256, 512, 16]]
    record = got[SMALL[0]]
    assert (record.noisy, record.tries) == ("migrated", 2) and {
        got[p].tries for p in SMALL[1:]
    } == {1}
    results(SMALL, retry_share=0)
    assert asked(folder)[1:] == [[16, 32, 64, 128, 256, 512]]


# --- the real programs

PROGRAMS = [
    ("c", "page_chase page_gather page_store random_touch stride_sum"),
    ("c", "graph_walk"),
    ("numba", "page_chase page_gather"),
    ("numpy", "page_gather"),
]


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.slow
@pytest.mark.needs("a C compiler")
@pytest.mark.parametrize(("engine", "names"), PROGRAMS)
def test_a_campaign_measures_points_of_each_engine_in_one_mapping(store, own_lock, engine, names):
    def of_lines(name: str, lines: int) -> Point:
        size = {"": {}, "bytes": {"bytes": 64 * lines}, "vertices": {"vertices": lines}}[
            kernels.declaration(name).size
        ]
        return Point(
            kernel=name,
            engine=engine,
            mode=kernels.first_mode(name),
            options=size,
            region_ms=1,
            **kernels.shape(name, size) | {"lines": lines},
        )

    points = [of_lines(name, lines) for name in names.split() for lines in (256, 512)]
    outcome = run(store, points, retry_share=0)  # a second try would have a position of its own
    rows = [*store.records(MACHINE, names.split()).values()]
    assert (outcome.measured, outcome.lacking, {row.point for row in rows}) == (
        len(points),
        {},
        set(points),
    )
    assert sorted(row.position for row in rows) == [*range(len(points))]
    assert {row.mapping_bytes for row in rows} == {max(map(kernels.mapped_bytes, points))}
