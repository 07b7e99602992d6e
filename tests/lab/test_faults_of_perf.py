"""A perf that is missing, hangs or is denied, and a computer without a PMU: times stay, with the reason beside them."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.common import needs_c
from support.kernels import measured
from support.lab import MACHINE, NAME, VICTIM
from support.stand_ins import in_a_child

from experiments.lab import build, perf
from experiments.lab.record import Record
from experiments.machine import doctor, host, pmu
from experiments.words.reasons import REASONS, explain

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- perf missing, hanging, denied; no PMU

LIMITED = """Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
access to performance monitoring and observability operations for processes
without CAP_PERFMON, CAP_SYS_PTRACE or CAP_SYS_ADMIN Linux capability.
perf_event_paranoid setting is {}:
  -1: Allow use of (almost) all events by all users
"""
EPERM = """Error:
The sys_perf_event_open() syscall returned with 1 (Operation not permitted) for event (cycles:u).
/bin/dmesg | grep -i perf may provide additional information.
"""
UNKNOWN_CPU = "no table has a row for this"
# Hardware events are not supported; software events count. Before it starts a kernel this perf gives up.
NO_PMU = r"""case "$*" in *--control*) exit 255;;
*faults*|*clock*) echo '{"counter-value": "1.0", "unit": "", "event": "x", "event-runtime": 1000, "pcnt-running": 100.00}' >&2;;
*) echo '{"counter-value": "<not supported>", "unit": "", "event": "x", "event-runtime": 0, "pcnt-running": 100.00}' >&2;; esac
"""


@pytest.fixture
def only_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """A PATH with this script as its perf, or without one."""

    def use(text: str | None) -> None:
        folder = tmp_path / "path"
        folder.mkdir()
        (folder / "true").symlink_to(shutil.which("true"))
        if text is not None:
            (folder / "perf").write_text(f"#!/bin/sh\n{text}\n")
            (folder / "perf").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr(perf, "_PROBE_S", 0.3)
        monkeypatch.setattr(pmu, "_TIMEOUT_S", 0.3)

    return use


@needs_c
@pytest.mark.parametrize(("text", "code"), [
    pytest.param(None, "no-perf", id="missing"),
    pytest.param(f"exec {shutil.which('sleep')} 60", "perf-failed", id="hanging"),
    pytest.param(f"cat >&2 <<'END'\n{LIMITED.format(3)}END\nexit 255", "perf-denied", id="denied at paranoid 3"),
    pytest.param(f"cat >&2 <<'END'\n{LIMITED.format(4)}END\nexit 255", "perf-denied", id="denied at paranoid 4"),
    pytest.param(f"cat >&2 <<'END'\n{EPERM}END\nexit 255", "perf-denied", id="denied by seccomp"),
    pytest.param(NO_PMU, "no-pmu", id="without a PMU"),
])
def test_a_perf_that_counts_nothing_leaves_the_times_with_the_reason_beside_them(only_perf, run, store, text, code):
    build.kernel("page_chase")  # which takes programs that this PATH does not have
    only_perf(text and text.replace("cat ", f"{shutil.which('cat')} "))
    outcome = run(plan=perf.plan(UNKNOWN_CPU))
    assert (outcome.measured, outcome.lacking) == (3, {})
    frame = store.load(MACHINE, NAME)
    assert (frame["ns_per_access"] > 0).all() and frame["core_cycles_per_access"].isna().all()
    assert set(frame["core_cycles_reason"]) == {code}
    here = host.inspect()
    assert (here.pmu.tier == "counters", here.pmu.reason) == (False, code)
    assert REASONS[code].remedy in [advice.remedy for advice in doctor.advice(here)]


class _Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter))]


def forbid_perf_event_open() -> None:
    """As the default filter of a container does, for this process and its children: seccomp(2), answer EPERM."""
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    steps = (_Filter * 4)(_Filter(0x20, 0, 0, 0), _Filter(0x15, 0, 1, number), _Filter(0x06, 0, 0, 0x50000 | errno.EPERM),
                          _Filter(0x06, 0, 0, 0x7FFF0000))  # load the number; equal? fail : allow
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.byref(_Program(4, steps)), 0, 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_SECCOMP


@pytest.mark.needs("a C compiler", "perf that counts faults")
def test_a_real_seccomp_filter_denies_the_counters_and_not_the_times():
    def work() -> Record:
        forbid_perf_event_open()
        return measured(VICTIM, plan=perf.plan(UNKNOWN_CPU))

    record = in_a_child(work)
    assert record.ns_per_access > 0
    assert {record.counters[name].reason for name in ("minor_faults", "task_clock_ns", "core_cycles")} == {"perf-denied"}
    assert "in a container" in explain("perf-denied")
