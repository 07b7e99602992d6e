"""A perf that is missing, hangs or is denied, and a computer without a PMU: times stay, with the
reason beside them."""

import errno
import os

import pytest
from support.campaigns import VICTIM
from support.kernels import measured
from support.stand_ins import in_a_child, seccomp

from tlb.measure import perf
from tlb.measure.record import Record
from tlb.system.reasons import explain_reason

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- perf missing, hanging, denied; no PMU

UNKNOWN_CPU = "no table has a row for this"


@pytest.mark.needs("a C compiler", "perf that counts faults")
def test_a_real_seccomp_filter_denies_the_counters_and_not_the_times():
    def work() -> tuple[Record, perf.EventPlan]:
        seccomp({"x86_64": 298, "aarch64": 241}[os.uname().machine], errno.EPERM)  # perf_event_open
        plan = perf.plan(UNKNOWN_CPU)
        return measured(VICTIM, plan=plan), plan

    record, plan = in_a_child(work)
    assert record.ns_per_access > 0 and record.counters["core_cycles"].reason == "perf-denied"
    assert plan.of_process == () and plan.lacking["task_clock_ns"] == "perf-denied"
    assert "in a container" in explain_reason("perf-denied")
