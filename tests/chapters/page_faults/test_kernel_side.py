"""What a kernel says and lets be seen, on roots that were made up and on this computer; what it
does not has its reason."""

import sys
from pathlib import Path

import pytest
from support.common import needs_c, refusal
from support.host import plant

from experiments.page_faults import kernel_side
from experiments.page_faults.kernel_side import (
    KernelFaultDocument,
    function_shares,
    high_mapping,
    kernel_settings,
)
from tlb.machine import host
from tlb.system.reasons import REASON_TEXTS

REPORT = """
# Samples: 2K of event 'cpu-clock'
# Overhead  Symbol
    13.28%  [k] clear_page_erms
     6.86%  [.] write_pages
     0.40%  [k] rare
"""


def test_what_files_say_is_read(tmp_path):
    device = "sys/bus/virtio/devices/virtio"
    root = plant(
        tmp_path,
        {
            "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu la57 lm\n",
            "proc/cmdline": "quiet no5lvl\n",
            f"{device}0/device": "0x0002\n",
            f"{device}0/features": "1" * 64,
            f"{device}1/device": "0x0005\n",
            f"{device}1/features": "010001" + "0" * 58,
            "sys/module/page_reporting/parameters/page_reporting_order": "9\n",
        },
    )
    assert kernel_settings(root) == {
        "la57_flag": True,
        "no5lvl": True,
        "balloon": ("statistics", "free-page-reports"),
        "report_order": 9,
    }


def test_a_report_is_read_by_function_and_what_is_rare_left_out():
    assert function_shares(REPORT) == {"[k] clear_page_erms": 0.1328, "[.] write_pages": 0.0686}


@pytest.mark.parametrize(
    ("report", "code"),
    [
        ("", "perf-failed"),
        ("# nothing\n", "perf-failed"),
        ("  50.00%  [k] 0xffffffff81000000\n", "not-permitted"),
        ("  50.00%  [.] main\n", "not-permitted"),
    ],
)
def test_a_report_without_functions_is_a_reason(report, code):
    assert refusal(function_shares, report) == code


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("exit 1", "perf-failed"),
        ("echo 'No permission to enable cpu-clock event.' >&2; exit 255", "perf-denied"),
        (None, "no-perf"),
    ],
)
def test_a_perf_that_does_not_sample_is_a_reason(program, code, tmp_path):
    path = tmp_path / "perf"
    if program:
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)
    assert refusal(lambda: kernel_side.sampled(str(path), ["true"])) == code


@pytest.mark.measures
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_this_computer_gives_high_addresses_with_five_levels_alone():
    here = host.inspect_machine()
    assert high_mapping(here) == (None if here.arch != "x86_64" else here.page_table_levels == 5)


@needs_c
@pytest.mark.measures
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_the_document_is_whole_and_mounts_nothing():
    before = Path("/proc/self/mounts").read_text()
    told = KernelFaultDocument.model_validate(kernel_side.make_kernel_fault_document("smoke"))
    assert Path("/proc/self/mounts").read_text() == before
    assert bool(told.profiles) != ("profiles" in told.lacking)
    assert set(told.lacking.values()) <= set(REASON_TEXTS)
    for profile in told.profiles.values():
        assert 0 < sum(profile.values()) <= 1.01
