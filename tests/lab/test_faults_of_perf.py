"""A perf that is missing, hangs or is denied, and a computer without a PMU: times stay, with the
reason beside them."""

from __future__ import annotations

import ctypes
import errno
import os

import pytest
from support.kernels import measured
from support.lab import VICTIM
from support.stand_ins import in_a_child

from tlb.lab import perf
from tlb.lab.record import Record
from tlb.reasons import explain

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- perf missing, hanging, denied; no PMU

UNKNOWN_CPU = "no table has a row for this"


class _Filter(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter))]


def forbid_perf_event_open() -> None:
    """As the default filter of a container does, for this process and its children: seccomp(2),
    answer EPERM."""
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    steps = (_Filter * 4)(
        _Filter(0x20, 0, 0, 0),
        _Filter(0x15, 0, 1, number),
        _Filter(0x06, 0, 0, 0x50000 | errno.EPERM),
        _Filter(0x06, 0, 0, 0x7FFF0000),
    )  # load the number; equal? fail : allow
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.byref(_Program(4, steps)), 0, 0) == 0, os.strerror(
        ctypes.get_errno()
    )  # PR_SET_SECCOMP


@pytest.mark.needs("a C compiler", "perf that counts faults")
def test_a_real_seccomp_filter_denies_the_counters_and_not_the_times():
    def work() -> Record:
        forbid_perf_event_open()
        return measured(VICTIM, plan=perf.plan(UNKNOWN_CPU))

    record = in_a_child(work)
    assert record.ns_per_access > 0
    assert {
        record.counters[name].reason for name in ("minor_faults", "task_clock_ns", "core_cycles")
    } == {"perf-denied"}
    assert "in a container" in explain("perf-denied")
