"""A host in words: each finding with its remedy, and nothing that need not be mended."""

from dataclasses import replace

import pytest
from support.host import HERE, SERVER, cpuid_of_a_server, inspect, plant, topics, v2

from tlb.machine import doctor, host
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


THP, POOLS = "sys/kernel/mm/transparent_hugepage", "sys/kernel/mm/hugepages"


def test_a_kernel_without_transparent_pages_gets_no_command_for_absent_files(tmp_path):
    found = host.inspect_machine(
        plant(tmp_path, {k: v for k, v in SERVER.items() if THP not in k}), HERE
    )
    assert topics(found) == {"THP"} and doctor.commands(doctor.advice(found)) == []


def test_no_command_undoes_another(tmp_path):
    files = {
        f"{POOLS}/hugepages-2048kB/free_hugepages": "0\n",
        f"{POOLS}/hugepages-1048576kB/free_hugepages": "0\n",
        "proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 1048572 0 -2\n",
        "proc/sys/vm/swappiness": "60\n",
    }
    assert doctor.commands(doctor.advice(inspect(tmp_path, files))) == [
        "tlb pool reserve --pages 2m --size 1GiB",
        "tlb pool reserve --pages 1g --size 4GiB",
        "sudo swapoff -a",
    ]


def test_a_pool_that_the_kernel_lacks_is_not_to_be_reserved(tmp_path):
    files = {name: text for name, text in SERVER.items() if "1048576kB" not in name}
    found = host.inspect_machine(plant(tmp_path, files), HERE)
    assert topics(found) == {"pool 1g"} and doctor.commands(doctor.advice(found)) == []


def test_with_base_pages_of_64_kib_none_of_that_size_is_missed(tmp_path):
    files = {f"{THP}/hugepages-64kB/enabled": "always [never]\n"}
    assert topics(inspect(tmp_path, files, replace(HERE, base_page_bytes=1 << 16))) == set()


def test_a_cpu_without_events_is_named_with_its_numbers(tmp_path):
    advice = doctor.no_events(inspect(tmp_path))
    assert "8375C" in advice.finding and "0x6, 0x6a, 0x6" in advice.finding


def test_a_virtual_machine_without_counters_is_called_one(tmp_path):
    def guest(leaf: int, subleaf: int) -> Registers:
        return {
            1: Registers(0, 0, 1 << 31, 0),
            0x40000000: Registers(0, 0x4B4D564B, 0x564B4D56, 0x4D),
        }.get(leaf) or cpuid_of_a_server(leaf, subleaf)

    here = replace(HERE, cpuid=guest, probe_pmu=lambda: ("software", "no-pmu"))
    (advice,) = doctor.advice(inspect(tmp_path, here=here))
    assert advice.topic == "virtual machine" and "kvm" in advice.finding
