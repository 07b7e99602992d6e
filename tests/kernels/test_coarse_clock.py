"""Clocks that step by 40 ns (arm64's timers), 100 ns (Hyper-V) or 1,000 ns: kernels measure small
points as right as with a fine clock, or say that the clock is too coarse."""

import os
import subprocess
from pathlib import Path

import pytest
from support.common import ROOT
from support.kernels import changed, needs_c, reason_of, run_program

from tlb.measure import build
from tlb.measure.record import KernelOutput

pytestmark = [pytest.mark.measures, pytest.mark.measuring, pytest.mark.slow, needs_c]

COARSEST_NS = 1000
SMALL = [
    line.strip()
    for line in """
    page_chase --lines 16
    page_chase --lines 16 --layout packed
    page_chase --lines 16 --order random
    page_chase --lines 16 --layout alias
    page_chase --lines 23 --order sequential
    page_gather --lines 16
    first_touch --lines 16
    stride_sum --lines 64
    random_touch --lines 16 --order random --layout packed
    table_chase --lines 16 --layout alias --tables_1 1 --tables_2 1 --tables_3 1
    code_chase --lines 16 --mode listed
    code_chase --lines 16 --mode direct
    graph_walk --lines 16
    graph_walk --lines 16 --per_hop 1
    radix_partition --lines 1536 --mode naive
    map_churn --lines 448 --layout packed --order random
    switch_chase --lines 512 --mode alone
    page_fault --lines 16 --mode anonymous
    touch_again --lines 16
    fork_write --lines 16 --mode write
    shootdown --lines 1 --mode unmap
    neighbour_chase --lines 16 --mode alone
    cold_chase --lines 512
""".strip().splitlines()
]


def lengthy(step_ns: int) -> object:
    return pytest.param(step_ns, marks=pytest.mark.endurance)


EACH_STEP = [100, *map(lengthy, (1, 40, COARSEST_NS))]


def with_step(step_ns: int, kernel: str, *given: str) -> subprocess.CompletedProcess[str]:
    library = build.build_preload_library(ROOT / "tests/support/coarse_clock.c")
    environment = os.environ | {"LD_PRELOAD": str(library), "COARSE_CLOCK_NS": str(step_ns)}
    return run_program(*build.kernel(kernel).command, [*given, "--region-ms", "2"], env=environment)


@pytest.mark.parametrize("case", SMALL)
@pytest.mark.parametrize("step_ns", [COARSEST_NS, *map(lengthy, (40, 100))])
def test_small_points_are_records_by_a_coarse_clock(step_ns, case):
    # A warm-up that was interrupted for longer than it lasts leaves batches that are too short:
    # rare on a quiet machine, and on a busy one not so often that all of a hundred are.
    for _ in range(100):
        done = with_step(step_ns, *case.split())
        if done.returncode != 3 or reason_of(done)[0] not in ("linux-lacks", "unstable"):
            break
    if done.returncode == 3 and reason_of(done)[0] == "linux-lacks":
        pytest.skip(reason_of(done)[1])
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert min(KernelOutput.model_validate_json(done.stdout).batch_ns_per_access) > 0


@pytest.mark.parametrize(
    "case",
    [
        "page_store --lines 16 --mode load",
        "prefault --lines 1",
        "cold_chase --lines 4",
        "switch_chase --lines 4 --mode alone",
    ],
)
def test_what_ends_before_the_clock_steps_often_enough_has_a_reason(case):
    for _ in range(100):  # one that was interrupted has taken long enough
        done = with_step(COARSEST_NS, *case.split())
        if done.returncode:
            break
    assert reason_of(done)[0] == "linux-lacks"


# --- a clock of the test's own, which the work alone moves on, so that the right time is known

HOP_NS, READING_NS = 1.3, 20.3
NOW = "static inline uint64_t now_ns(void)\n{"
CLOCK_RATE = "    return (double)STEPS / (double)"
WORK = {
    "page_chase": ("follow(void **p, uint64_t hops)\n{", "hops"),
    "page_gather": ("uint64_t lines, uint64_t rounds)\n{", "lines * rounds"),
}


def clocked_by_work(kernel: str, step_ns: int, folder: Path) -> Path:
    """A kernel whose clock tells whole steps of HOP_NS a hop and READING_NS a reading."""
    loop, hops = WORK[kernel]
    return changed(
        kernel,
        {
            NOW: f"static double passed_ns;\n{NOW}\n    passed_ns += {READING_NS};\n"
            f"    return (uint64_t)(passed_ns / {step_ns}) * {step_ns};\n",
            loop: f"{loop}\n    passed_ns += {HOP_NS} * (double)({hops});\n",
            CLOCK_RATE: f"    passed_ns += 7e4;\n{CLOCK_RATE}",
        },
        folder,
    )


@pytest.mark.parametrize("step_ns", EACH_STEP)
@pytest.mark.parametrize("kernel", WORK)
def test_the_time_of_small_points_is_right_by_any_clock(kernel, step_ns, tmp_path):
    program = clocked_by_work(kernel, step_ns, tmp_path)
    for lines in (16, 17, 23, 32, 64, 512):
        done = run_program(program, ["--lines", str(lines), "--region-ms", "2"])
        report = KernelOutput.model_validate_json(done.stdout)
        assert report.ns_per_access == pytest.approx(HOP_NS, rel=0.01)
        assert report.batch_ns_per_access == pytest.approx([HOP_NS] * 16, rel=0.02)
        assert report.elapsed_ns == pytest.approx(2e6, rel=0.1)


# --- the same for the counter that times single hops and touches

HOP, FIRST_NS, LATER_NS, LOOPED_NS = 97, 1500, 60, 4
STAMP = "static inline uint64_t stamp(void)\n{"
READ_EDGE = "        w->at[0] = *edge;\n"
TOUCH = "            *word = t->order[i] + 1;\n"
TOUCH_ALL = "write_pages(char *base, uint64_t stride, const uint32_t *order, uint64_t n)\n{\n"


def stamped_by_work(
    kernel: str, step_ns: int, work: dict[str, str], folder: Path, *given: str
) -> KernelOutput:
    """The report of a kernel whose clock and counter tell whole steps; work: what takes time."""
    reading = f"    passed_ns += {READING_NS};\n"
    changes = {
        NOW: f"static double passed_ns;\n{NOW}\n{reading}    return (uint64_t)passed_ns;\n",
        STAMP: f"{STAMP}\n{reading}    return (uint64_t)(passed_ns / {step_ns});\n",
        CLOCK_RATE: f"    passed_ns += 7e4;\n{CLOCK_RATE}",
    }
    program = changed(kernel, changes | work, folder)
    done = run_program(program, ["--lines", "64", "--region-ms", "2", *given])
    assert (done.returncode, done.stderr) == (0, "")
    return KernelOutput.model_validate_json(done.stdout)


@pytest.mark.parametrize("step_ns", EACH_STEP)
def test_a_hop_is_told_to_a_step_of_the_counter_and_the_mean_to_a_part_of_it(step_ns, tmp_path):
    work = {READ_EDGE: f"        passed_ns += {HOP};\n{READ_EDGE}"}
    also = stamped_by_work("graph_walk", step_ns, work, tmp_path, "--per_hop", "1").also
    assert also["clock_step_ns"] == pytest.approx(step_ns, rel=0.01)
    assert also["mean_ns"] == pytest.approx(HOP, abs=0.02 * step_ns + 1)
    for name in ("p5_ns", "p50_ns", "p95_ns"):
        assert also[name] == pytest.approx(HOP, abs=step_ns)


@pytest.mark.parametrize("step_ns", EACH_STEP)
def test_first_and_later_touches_are_told_alike(step_ns, tmp_path):
    work = {
        TOUCH: f"            passed_ns += *word ? {LATER_NS} : {FIRST_NS}, {TOUCH.strip()}\n",
        TOUCH_ALL: f"{TOUCH_ALL}    passed_ns += (double)n * {LOOPED_NS};\n",
    }
    also = stamped_by_work("page_fault", step_ns, work, tmp_path, "--mode", "anonymous").also
    assert also["clock_step_ns"] == pytest.approx(step_ns, rel=0.01)
    assert also["mean_ns"] == pytest.approx(FIRST_NS, rel=0.01)
    assert also["later_mean_ns"] == pytest.approx(LATER_NS, abs=0.02 * step_ns + 1)
