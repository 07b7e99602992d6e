"""The host: read from trees of files that stand for other computers, and from files that hold anything."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.host import ARM, CPUINFO, HERE, JUNK, SERVER, V2_MOUNT, cpuid_of_a_server, inspect, plant, topics, well_formed

from experiments.machine import doctor, host
from experiments.machine.cpuid import Registers

GIB = 2**30


# --- what is read


def test_a_server_is_read_field_by_field(tmp_path):
    found = inspect(tmp_path)
    assert (found.family, found.model, found.stepping) == (6, 106, 6)
    assert found.microarchitecture == "Ice Lake server"
    assert found.cpu_model == "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"
    assert (found.microcode, found.logical_cpus, found.usable_cpus) == ("0xd0003f6", 16, (2, 3))
    (cache,) = found.caches  # of the first CPU that may be used, which here is CPU 2
    assert cache.model_dump() == {
        "level": 1, "kind": "data", "size_bytes": 49152, "line_bytes": 64, "ways": 12, "sets": 64,
        "shared_cpus": (2, 10),
    }
    assert [(t.level, t.kind, t.pages, t.entries) for t in found.tlb][0] == (1, "data", ("4k",), 64)
    assert found.tlb_reason is None
    assert (found.page_table_levels, found.la57, found.gigabyte_pages) == (5, True, True)
    assert (found.thp.enabled, found.thp.defrag) == ("madvise", "defer+madvise")
    assert found.thp.khugepaged == {"pages_to_scan": 4096}
    assert found.mthp == {"64k": "madvise"}
    assert [pool.model_dump() for pool in found.pools] == [
        {"page": "2m", "total": 512, "free": 500, "reserved": 3, "surplus": 1},
        {"page": "1g", "total": 4, "free": 4, "reserved": 0, "surplus": 0},
    ]
    assert found.hypervisor == "none"
    assert found.pmu.model_dump() == {"tier": "counters", "reason": None, "devices": ("cpu",), "paranoid": 2}
    assert (found.noise.governor, found.noise.smt, found.noise.turbo, found.noise.load1) == (
        "performance", "off", False, 0.05,
    )
    assert (found.memory.total_bytes, found.memory.usable_bytes) == (31 * GIB, 16 * GIB)


def test_a_host_survives_the_way_through_json(tmp_path):
    found = inspect(tmp_path)
    assert host.Host.model_validate(json.loads(json.dumps(found.model_dump(mode="json")))) == found


def test_an_empty_root_is_a_host_that_knows_nothing(tmp_path):
    found = host.inspect(tmp_path, replace(HERE, cpuid=None))
    assert (
        found.cpu_model == found.vendor == found.microarchitecture == found.memory.limit_source == "unknown"
    )
    assert (found.tlb, found.tlb_reason, found.page_table_levels) == ((), "no-cpuid", None)
    assert (found.thp.enabled, found.mthp, found.pools) == ("absent", {}, ())
    assert found.memory.usable_bytes == 0 and found.installation == ""
    assert host.machine_id(found).startswith("cpu-")
    assert {"memory", "TLB", "THP", "mTHP"} <= topics(found)


def test_this_computer_can_be_inspected():
    found = host.inspect()
    assert re.fullmatch(r"[a-z0-9-]{1,64}", host.machine_id(found))
    assert found.usable_cpus and found.base_page_bytes >= 4096
    assert found.pmu.tier in ("counters", "software", "timing")
    assert (found.pmu.reason is None) == (found.pmu.tier == "counters")


def test_cpuid_stands_in_where_sysfs_shows_no_caches(tmp_path):
    def with_caches(leaf: int, subleaf: int) -> Registers:
        if (leaf, subleaf) == (4, 0):
            return Registers(0x1C004121, 0x02C0003F, 0x3F, 0)
        return cpuid_of_a_server(leaf, subleaf)

    bare = {name: content for name, content in SERVER.items() if "/cache/" not in name}
    (cache,) = host.inspect(plant(tmp_path, bare), replace(HERE, cpuid=with_caches)).caches
    assert (cache.size_bytes, cache.shared_cpus) == (48 * 1024, ())


def test_a_silent_cpuid_is_a_reason_and_an_unknown_descriptor_is_named(tmp_path):
    def silent(leaf: int, subleaf: int) -> Registers:
        return cpuid_of_a_server(leaf, subleaf) if leaf != 2 else Registers(1, 0, 0, 0)

    def strange(leaf: int, subleaf: int) -> Registers:
        return cpuid_of_a_server(leaf, subleaf) if leaf != 2 else Registers(0xC201, 0, 0, 0)

    assert inspect(tmp_path, here=replace(HERE, cpuid=silent)).tlb_reason == "no-geometry"
    found = inspect(tmp_path, here=replace(HERE, cpuid=strange))
    assert found.tlb_unknown_descriptors == ("0xc2",)
    assert any("0xc2" in advice.finding for advice in doctor.advice(found))


# --- identity


def test_the_id_stays_through_an_upgrade_a_load_and_a_mask(tmp_path):
    first = host.machine_id(inspect(tmp_path))
    files = {
        "proc/cpuinfo": CPUINFO.replace("0xd0003f6", "0xd000400"),
        "proc/loadavg": "9.00 1 1 1/2 3",
        "proc/meminfo": "MemTotal: 32500000 kB\nMemAvailable: 1000 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
    }
    second = inspect(tmp_path, files, replace(HERE, kernel_release="6.13.0", usable_cpus=(2,)))
    assert host.machine_id(second) == first == "ice-lake-server-" + first[-8:]


@pytest.mark.parametrize(
    "files",
    [
        {"etc/machine-id": "ffffffffffffffffffffffffffffffff"},
        {"proc/meminfo": "MemTotal: 65011712 kB\nMemAvailable: 1000 kB\n"},
        {"proc/cpuinfo": CPUINFO.replace("8375C", "8380")},
        {"sys/devices/system/cpu/present": "0-31"},
        {"sys/devices/system/cpu/cpu2/cache/index0/size": "32K"},
    ],
)
def test_another_computer_has_another_id(tmp_path, files):
    assert host.machine_id(inspect(tmp_path)) != host.machine_id(inspect(tmp_path, files))


@pytest.mark.parametrize(
    ("files", "release"),
    [
        ({"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"}, "6.12.1"),
        ({"sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan": "8"}, "6.12.1"),
        ({"sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled": "[never]"}, "6.12.1"),
        ({"proc/cpuinfo": CPUINFO.replace("0xd0003f6", "0xd000400")}, "6.12.1"),
        ({}, "6.12.2"),
    ],
)
def test_the_state_follows_kernel_microcode_and_thp(tmp_path, files, release):
    before = host.state(inspect(tmp_path))
    after = host.state(inspect(tmp_path, files, replace(HERE, kernel_release=release)))
    assert re.fullmatch(r"[0-9a-f]{12}", before) and after != before


def test_the_state_ignores_load_and_what_khugepaged_counts(tmp_path):
    before = host.state(inspect(tmp_path))
    files = {"proc/loadavg": "5.00 1 1 1/2 3",
             "sys/kernel/mm/transparent_hugepage/khugepaged/full_scans": "78"}
    assert host.state(inspect(tmp_path, files)) == before


def test_no_name_of_host_user_or_installation_leaves_the_computer(tmp_path):
    files = {"proc/self/cgroup": "0::/user.slice/alice\n", "proc/self/mountinfo": V2_MOUNT}
    found = inspect(tmp_path, files)
    shown = found.model_dump_json() + host.machine_id(found) + repr(doctor.describe(found) + doctor.advice(found))
    for secret in ("secret-host", "alice", "0123456789abcdef", str(tmp_path)):
        assert secret not in shown
    assert re.fullmatch(r"[0-9a-f]{16}", found.installation)


# --- files that hold anything

# Bytes, text with any alphabet, and damaged versions of what a kernel writes.
DAMAGED = [*SERVER, "proc/self/cgroup", "proc/self/mountinfo", "sys/fs/cgroup/memory.max", "proc/config.gz",
           "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(DAMAGED), JUNK, min_size=1, max_size=8), st.sampled_from([HERE, ARM]))
def test_files_of_any_bytes_give_a_host_and_a_proper_id(files, here):
    with tempfile.TemporaryDirectory() as folder:
        mounted = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2_MOUNT}
        well_formed(inspect(Path(folder), mounted | files, here))
