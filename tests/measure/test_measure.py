"""One point, one process: every way in which it can fail to give a number has its reason, and no
number is invented."""

import json
import shlex
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import make_record, software_plan

from tlb.measure import plan as plans
from tlb.measure import session
from tlb.measure.kernels import arena_bytes
from tlb.measure.record import KernelOutput, Point, Record
from tlb.system.reasons import Unavailable

STATE = "00112233aabb"
POINT = Point(kernel="page_chase", lines=4096, region_ms=60)
REPORT = make_record().model_dump(include=set(KernelOutput.model_fields))


def answer(report: dict[str, object]) -> str:
    """What a kernel prints for the one line of its plan."""
    return say(json.dumps({"id": "0", "proved": 1} | report))


def say(text: str, file: int = 1) -> str:
    return f"printf '%s\\n' {shlex.quote(text)} >&{file}"


def measured(point: Point = POINT, repeat: int = 0, **how: object) -> Record:
    return plans.measure(point, repeat, **{"state": STATE, "usable_bytes": 2**40, **how})


def why(point: Point = POINT, **how: object) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        measured(point, **how)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


# --- what a good kernel gives


def test_a_report_becomes_a_record_with_what_the_runner_knows(kernel):
    kernel(answer(REPORT))
    record = measured(repeat=3)
    assert record.model_dump(include=set(REPORT)) == REPORT
    assert (record.repeat, record.state, record.region_ms, record.point) == (3, STATE, 60, POINT)
    assert record.wall_ns > 0 and record.counters == {}


def test_a_kernel_gets_the_point_as_a_line_and_the_cpu_and_fifo_only_where_they_are_given(kernel):
    log = kernel(answer(REPORT))
    cpu = str(max(session.CPUS_ALLOWED_AT_START))
    line = f"0 page_chase - spread cycle 4096 1 {plans.order_seed(POINT, 2)} 60"
    for how, words in (({}, []), ({"cpu": int(cpu)}, ["--cpu", cpu]), ({"fifo": True}, ["--fifo"])):
        measured(repeat=2, **how)
        assert log.read_text().splitlines() == ["--pages", "4k", "--plan", *words, line]


# --- a kernel that dies


@pytest.mark.needs("perf that counts faults")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGKILL, "oom-killed"),
        (signal.SIGBUS, "memory-short"),
        (signal.SIGSEGV, "kernel-failed"),
    ],
)
def test_a_signal_is_recognised_although_perf_counts(kernel, number, code):
    kernel(f"kill -{int(number)} $$")
    assert why(plan=software_plan()).code == code
    assert code != "kernel-failed" or why(plan=software_plan()).detail.startswith(
        f"signal {number.name}"
    )


# --- a kernel that says what is lacking


@pytest.mark.parametrize("code", ["pool-empty", "backing-partial"])
def test_exit_3_gives_the_kernels_own_reason_and_detail(kernel, code):
    kernel(
        say("a warning of the C library", 2)
        + "\n"
        + say(json.dumps({"reason": code, "detail": "8 needed, 0 free"}), 2)
        + "\nexit 3"
    )
    assert (why().code, why().detail) == (code, "8 needed, 0 free")


def test_a_cpu_that_never_was_ours_is_a_bad_parameter_and_one_that_was_is_gone(kernel):
    kernel(say(json.dumps({"reason": "cpu-gone", "detail": "CPU 99"}), 2) + "\nexit 3")
    never, once = max(session.CPUS_ALLOWED_AT_START) + 1, max(session.CPUS_ALLOWED_AT_START)
    assert [why(cpu=cpu).code for cpu in (never, once, None)] == [
        "bad-parameter",
        "cpu-gone",
        "cpu-gone",
    ]
    assert why(cpu=once).detail == "CPU 99"


# --- a kernel that prints something else than its report


@pytest.mark.parametrize(
    "change",
    [
        {"ns_per_access": float("inf")},
        {"ns_per_access": "6.5"},
        {"minor_faults": -1},
        {"accesses": 10**30},
        {"surplus": 1},
    ],
)
def test_a_field_that_cannot_be_is_garbage_and_named(kernel, change):
    kernel(answer(REPORT | change))
    assert why().code == "kernel-failed"
    assert why().detail.startswith(next(iter(change)))


def test_a_number_whose_pages_were_not_proved_at_the_end_is_never_taken(kernel):
    for proved, code in ((0, "kernel-failed"), (1, "")):
        kernel(f"{answer(REPORT)}\n{say(json.dumps({'end': 1, 'proved': proved}))}\nexit 0")
        if code:
            assert why().code == code
        else:
            assert measured().ns_per_access == REPORT["ns_per_access"]


def test_a_number_on_another_page_size_is_never_taken(kernel):
    kernel(answer(REPORT | {"backing": "4k", "pages": "2m"}))
    assert why(POINT.model_copy(update={"pages": "2m"})).code == "kernel-failed"
    kernel(answer(REPORT | {"backing": "2m"}))
    assert why().code == "kernel-failed"


@pytest.mark.parametrize(
    ("kernel_name", "core_ghz", "least_ns"),
    [("page_chase", 4.0, 0.25), ("page_gather", 0.0, 0.01), ("random_touch", 4.0, 0.125)],
)
def test_accesses_faster_than_any_core_makes_them_were_not_made(
    kernel, kernel_name, core_ghz, least_ns
):
    """An engine that does not know its clock is taken for the fastest core there could be."""
    point = POINT.model_copy(update={"kernel": kernel_name})
    for share, code in ((0.99, "kernel-failed"), (1.01, "")):
        kernel(
            answer(
                REPORT
                | {"kernel": kernel_name, "core_ghz": core_ghz, "ns_per_access": share * least_ns}
            )
        )
        if code:
            assert (why(point).code, "left the accesses out" in why(point).detail) == (code, True)
        else:
            assert measured(point).ns_per_access == share * least_ns


@pytest.mark.parametrize(
    "change", [{"lines": 4095}, {"order": "random"}, {"kernel": "page_gather"}]
)
def test_a_report_of_another_point_is_never_taken(kernel, change):
    kernel(answer(REPORT | change))
    assert (why().code, "asked for" in why().detail) == ("kernel-failed", True)


# --- memory


def test_too_little_memory_is_said_before_anything_is_started(kernel):
    log = kernel(answer(REPORT))
    reason = why(usable_bytes=arena_bytes(POINT) - 1)
    assert (reason.code, reason.detail) == ("memory-short", "16 MiB needed, 16 MiB may be used")
    assert not log.exists()
    assert measured(usable_bytes=arena_bytes(POINT)).lines == POINT.lines


# --- seeds

points = st.builds(
    Point,
    kernel=st.sampled_from(["page_chase", "page_gather"]),
    lines=st.integers(1, 2**20),
    order=st.sampled_from(["cycle", "random", "sequential"]),
)


@given(points, points, st.integers(0, 1000), st.integers(0, 1000))
def test_repeats_and_points_have_orders_of_their_own_which_a_kernel_takes(a, b, i, j):
    assert (plans.order_seed(a, i) == plans.order_seed(b, j)) == (a == b and i == j)
    assert 0 <= plans.order_seed(a, i) < 2**63
