"""A host in words: each finding with its remedy, and nothing that need not be mended."""

from dataclasses import replace

import pytest
from support.host import HERE, cpuid_of_a_server, inspect, topics, v2

from tlb.machine import doctor
from tlb.machine.cpuid import Registers

GIB = 2**30


# --- advice and description


def test_a_quiet_server_needs_no_advice(tmp_path):
    assert doctor.advice(inspect(tmp_path)) == []


@pytest.mark.parametrize(
    ("topic", "files"),
    [
        ("governor", {"sys/devices/system/cpu/cpu3/cpufreq/scaling_governor": "powersave\n"}),
        ("turbo", {"sys/devices/system/cpu/intel_pstate/no_turbo": "0\n"}),
        ("SMT", {"sys/devices/system/cpu/smt/control": "on\n"}),
        ("load", {"proc/loadavg": "3.00 1.00 1.00 3/200 1\n"}),
        ("THP", {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n"}),
        (
            "THP",
            {"sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled": "madvise [never]\n"},
        ),
        ("mTHP", {"sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled": "always [never]\n"}),
        ("pool 2m", {"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "3\n"}),
        ("memory", v2("/job", job={"max": str(GIB), "current": "0"})),
    ],
)
def test_what_spoils_a_measurement_is_found_and_nothing_else(tmp_path, topic, files):
    assert topics(inspect(tmp_path, files)) == {topic}


def test_a_virtual_machine_without_counters_is_called_one(tmp_path):
    def guest(leaf: int, subleaf: int) -> Registers:
        return {
            1: Registers(0, 0, 1 << 31, 0),
            0x40000000: Registers(0, 0x4B4D564B, 0x564B4D56, 0x4D),
        }.get(leaf) or cpuid_of_a_server(leaf, subleaf)

    here = replace(HERE, cpuid=guest, probe_pmu=lambda: ("software", "no-pmu"))
    (advice,) = doctor.advice(inspect(tmp_path, here=here))
    assert advice.topic == "virtual machine" and "kvm" in advice.finding
