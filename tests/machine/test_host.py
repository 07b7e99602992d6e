"""The host: read from trees of files that stand for other computers, and from files that hold anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.host import ARM, CPUINFO, GRAVITON, HERE, SERVER, cpuid_of_a_server, inspect, plant

from experiments.machine import doctor, host, pmu
from experiments.machine import memory as limits
from experiments.machine import microarchitecture as uarch
from experiments.machine.cpuid import Registers
from experiments.machine.memory import Rlimits
from experiments.system import files, procfs

GIB = 2**30
ROOT = files.ROOT
PYTHON = (sys.executable, "-c")


def topics(found: host.Host) -> set[str]:
    return {advice.topic for advice in doctor.advice(found)}


# --- what is read ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("flags", "bits", "levels"),
    [("la57", 57, 5), ("la57", 48, 4), ("fpu", 57, 4), ("fpu", 48, 4)],
)
def test_five_levels_need_the_address_bits_and_the_kernels_own_flag(tmp_path, flags, bits, levels):
    text = f"flags : {flags}\naddress sizes : 46 bits physical, {bits} bits virtual\n"
    assert inspect(tmp_path, {"proc/cpuinfo": text}).page_table_levels == levels


def test_a_silent_cpuid_is_a_reason_and_an_unknown_descriptor_is_named(tmp_path):
    def silent(leaf: int, subleaf: int) -> Registers:
        return cpuid_of_a_server(leaf, subleaf) if leaf != 2 else Registers(1, 0, 0, 0)

    def strange(leaf: int, subleaf: int) -> Registers:
        return cpuid_of_a_server(leaf, subleaf) if leaf != 2 else Registers(0xC201, 0, 0, 0)

    assert inspect(tmp_path, here=replace(HERE, cpuid=silent)).tlb_reason == "no-geometry"
    found = inspect(tmp_path, here=replace(HERE, cpuid=strange))
    assert found.tlb_unknown_descriptors == ("0xc2",)
    assert any("0xc2" in advice.finding for advice in doctor.advice(found))


# --- arm64 -------------------------------------------------------------------------------------------



def test_an_arm_cpu_is_known_by_its_part_and_has_no_cpuid(tmp_path):
    found = inspect(tmp_path, {"proc/cpuinfo": GRAVITON}, ARM)
    assert (found.microarchitecture, found.cpu_model) == ("Neoverse V1", "arm Neoverse V1 r1p1")
    assert (found.tlb, found.tlb_reason, found.gigabyte_pages) == ((), "no-cpuid", None)
    assert host.machine_id(found).startswith("neoverse-v1-")


@pytest.mark.parametrize(
    ("config", "levels"),
    [
        ("CONFIG_PGTABLE_LEVELS=4\nCONFIG_ARM64_VA_BITS=48\n", 4),
        ("CONFIG_PGTABLE_LEVELS=3\n", 3),
        ("CONFIG_PGTABLE_LEVELS=5\nCONFIG_ARM64_VA_BITS=52\n", None),  # the boot decides
        ("", None),
    ],
)
def test_an_arm_kernels_levels_are_those_it_was_built_with(tmp_path, config, levels):
    files = {"proc/cpuinfo": GRAVITON, "boot/config-6.12.1": config}
    assert inspect(tmp_path, files, ARM).page_table_levels == levels


@pytest.mark.parametrize(
    ("product", "name"), [("KVM Virtual Machine", "kvm"), ("QEMU x", "qemu"), ("c7g.metal", "unknown")]
)
def test_an_arm_hypervisor_is_named_only_where_the_firmware_tells(tmp_path, product, name):
    files = {"proc/cpuinfo": GRAVITON, "sys/class/dmi/id/product_name": product}
    assert inspect(tmp_path, files, ARM).hypervisor == name


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [(0x41, 0xD0C, "Neoverse N1"), (0x41, 0xD49, "Neoverse N2"), (0x41, 0xD4F, "Neoverse V2"),
     (0x41, 0xD84, "Neoverse V3"), (0x6D, 0xD49, "Neoverse N2"), (0x61, 0xD0C, "unknown"),
     (None, 1, "unknown")],
)
def test_arm_parts_have_the_names_of_cputype_h(implementer, part, name):
    assert uarch.arm_name(implementer, part) == name


@pytest.mark.parametrize(
    ("vendor", "signature", "name"),
    [
        ("GenuineIntel", (6, 0x5E, 3), "Skylake client"),
        ("GenuineIntel", (6, 0x55, 4), "Skylake server"),
        ("GenuineIntel", (6, 0x55, 7), "Cascade Lake"),
        ("GenuineIntel", (6, 0x55, 11), "Cooper Lake"),
        ("GenuineIntel", (6, 0x6A, 6), "Ice Lake server"),
        ("GenuineIntel", (6, 0x8F, 8), "Sapphire Rapids"),
        ("GenuineIntel", (15, 0x6, 8), "unknown"),
        ("AuthenticAMD", (0x17, 0x01, 2), "Zen 1"),
        ("AuthenticAMD", (0x17, 0x31, 0), "Zen 2"),
        ("AuthenticAMD", (0x19, 0x01, 1), "Zen 3"),
        ("AuthenticAMD", (0x19, 0x11, 1), "Zen 4"),
        ("AuthenticAMD", (0x19, 0x61, 2), "Zen 4"),
        ("AuthenticAMD", (0x1A, 0x44, 0), "Zen 5"),
        ("AuthenticAMD", (0x1A, 0xF0, 0), "unknown"),
        ("HygonGenuine", (0x18, 0x01, 1), "unknown"),
        ("GenuineIntel", (None, None, None), "unknown"),
    ],
)
def test_x86_cpus_have_the_names_of_intel_family_h_and_amd_c(vendor, signature, name):
    assert uarch.x86_name(vendor, *signature) == name


# --- memory ------------------------------------------------------------------------------------------

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
MEMINFO = {"proc/meminfo": SERVER["proc/meminfo"]}


def usable(root: Path, files: dict[str, str], rlimits: Rlimits = Rlimits()) -> tuple[int, str]:  # noqa: B008
    memory = limits.usable_memory(plant(root, MEMINFO | files), rlimits)
    return memory.usable_bytes, memory.limit_source


def v2(path: str, **levels: dict[str, str]) -> dict[str, str]:
    """Files of a v2 tree: each keyword is a folder with "__" for "/", each value its memory.* files."""
    files = {"proc/self/cgroup": f"0::{path}\n", "proc/self/mountinfo": V2_MOUNT}
    for folder, contents in levels.items():
        below = folder.strip("_").replace("__", "/")
        files |= {f"sys/fs/cgroup/{below}/memory.{name}": text for name, text in contents.items()}
    return files


def test_without_limits_what_is_available_is_usable(tmp_path):
    assert usable(tmp_path, {}) == (16 * GIB, "MemAvailable")


def test_a_kernel_without_memavailable_counts_what_is_free(tmp_path):
    assert usable(tmp_path, {"proc/meminfo": "MemTotal: 8 kB\nMemFree: 4 kB\n"}) == (4096, "MemFree")


def test_a_cgroup_leaves_its_limit_less_what_is_used(tmp_path):
    files = v2("/job", job={"max": str(4 * GIB), "current": str(GIB)})
    assert usable(tmp_path, files) == (3 * GIB, "cgroup v2 memory.max")


def test_page_cache_counts_as_reclaimable(tmp_path):
    stat = f"anon 5\nfile {GIB}\nactive_file {GIB // 4}\ninactive_file {GIB // 4}\n"
    files = v2("/job", job={"max": str(4 * GIB), "current": str(GIB), "stat": stat})
    assert usable(tmp_path, files) == (4 * GIB - GIB // 2, "cgroup v2 memory.max")


def test_an_ancestors_limit_binds_too(tmp_path):
    files = v2(
        "/a/b/c",
        a={"max": str(2 * GIB), "current": str(GIB)},
        a__b={"max": "max", "current": str(GIB)},
        a__b__c={"max": str(8 * GIB), "current": "0"},
    )
    assert usable(tmp_path, files) == (GIB, "cgroup v2 memory.max")


def test_beyond_memory_high_the_kernel_throttles_so_it_is_a_limit(tmp_path):
    files = v2("/job", job={"max": "max", "high": str(GIB), "current": "0"})
    assert usable(tmp_path, files) == (GIB, "cgroup v2 memory.high")


def test_a_cgroup_over_its_limit_leaves_nothing(tmp_path):
    files = v2("/job", job={"max": str(GIB), "current": str(2 * GIB)})
    assert usable(tmp_path, files) == (0, "cgroup v2 memory.max")


def test_a_v1_tree_is_walked_to_its_root(tmp_path):
    base = "sys/fs/cgroup/memory"
    files = {
        "proc/self/cgroup": "4:cpu,memory:/a/b\n1:name=systemd:/\n0::/\n",
        "proc/self/mountinfo": V1_MOUNT,
        f"{base}/memory.limit_in_bytes": "9223372036854771712\n",  # what v1 prints for no limit
        f"{base}/a/memory.limit_in_bytes": str(3 * GIB),
        f"{base}/a/memory.usage_in_bytes": str(2 * GIB),
        f"{base}/a/memory.stat": f"active_file 1\ntotal_active_file {GIB // 2}\ntotal_inactive_file {GIB}\n",
        f"{base}/a/b/memory.limit_in_bytes": str(9 * GIB),
    }
    assert usable(tmp_path, files) == (5 * GIB // 2, "cgroup v1 memory.limit_in_bytes")


@pytest.mark.parametrize("path", ["/docker/abc", "/docker/abc/sub", "/", "/../..", "/elsewhere"])
def test_in_a_container_the_mount_is_the_nearest_ancestor_there_is(tmp_path, path):
    # The mount shows /docker/abc of the host as its top; the process may see its path from inside or outside.
    files = {
        "proc/self/cgroup": f"0::{path}\n",
        "proc/self/mountinfo": "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
        "sys/fs/cgroup/memory.max": str(GIB),
        "sys/fs/cgroup/memory.current": "0",
    }
    assert usable(tmp_path, files) == (GIB, "cgroup v2 memory.max")


def test_a_mount_point_with_a_space_is_found(tmp_path):
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": r"31 23 0:28 / /my\040groups rw - cgroup2 none rw" + "\n",
        "my groups/memory.max": str(GIB),
    }
    assert usable(tmp_path, files) == (GIB, "cgroup v2 memory.max")


@pytest.mark.parametrize(
    ("rlimits", "size", "source"),
    [
        (Rlimits(3 * GIB, None, None), 2 * GIB, "RLIMIT_AS"),  # less the address space that a kernel aligns its arena in
        (Rlimits(GIB // 2, None, None), 0, "RLIMIT_AS"),
        (Rlimits(None, GIB, None), GIB, "RLIMIT_DATA"),
        (Rlimits(3 * GIB, GIB, None), GIB, "RLIMIT_DATA"),
    ],
)
def test_resource_limits_bind(tmp_path, rlimits, size, source):
    assert usable(tmp_path, {}, rlimits) == (size, source)


def test_the_limits_of_this_process_are_read():
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30));"
        "from experiments.machine.memory import usable_memory; m = usable_memory();"
        "print(m.usable_bytes, m.limit_source)"
    )
    if not Path("/proc/meminfo").exists():
        pytest.skip("needs Linux")
    done = subprocess.run([*PYTHON, script], capture_output=True, text=True, cwd=ROOT, timeout=60)
    size, source = done.stdout.split(" ", 1)
    assert int(size) <= GIB
    assert source.strip() == "RLIMIT_DATA" or int(size) < GIB


def test_the_source_of_a_limit_never_names_a_cgroup(tmp_path):
    files = v2("/user.slice/alice", **{"user.slice__alice": {"max": "1", "current": "0"}})
    assert "alice" not in usable(tmp_path, files)[1]


# --- counters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (0, "123456,,cycles:u,1000,100.00,,\n", ("counters", None)),
        (0, "123456,,cycles,1000,100.00,,\n", ("counters", None)),  # names come back altered
        (0, "<not supported>,,cycles:u,0,100.00,,\n", ("software", "no-pmu")),
        (0, "<not counted>,,cycles:u,0,0.00,,\n", ("software", "not-counted")),
        (0, "", ("timing", "perf-failed")),
        (0, "1.234,56,,cycles:u\n", ("timing", "perf-failed")),
        (255, "Error: perf_event_paranoid setting is 4:\n", ("timing", "perf-denied")),
        (255, "cycles:u: Operation not permitted\n", ("timing", "perf-denied")),
        (129, "event syntax error\n", ("timing", "perf-failed")),
        (2, "WARNING: perf not found for kernel 6.8.0-1\n", ("timing", "no-perf")),
        (-9, "123456,,cycles:u,1000,100.00,,\n", ("timing", "perf-failed")),
    ],
)
def test_the_answer_of_perf_decides_the_tier(status, stderr, expected):
    assert pmu.classify(status, stderr) == expected


@given(st.integers(-64, 255), st.text())
def test_any_answer_of_perf_is_a_tier_with_its_reason(status, stderr):
    tier, reason = pmu.classify(status, stderr)
    assert (tier == "counters") == (reason is None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(subprocess.TimeoutExpired("perf", 20), "perf-failed"), (OSError("exec format"), "perf-failed")],
)
def test_a_perf_that_hangs_or_does_not_start_leaves_times_alone(error, expected):
    def run(*_, **options):
        assert options["timeout"] and options["env"]["LC_ALL"] == "C"
        raise error

    assert pmu.probe(run, which=lambda name: f"/bin/{name}") == ("timing", expected)


def test_without_perf_there_are_times_alone():
    assert pmu.probe(which=lambda name: None) == ("timing", "no-perf")


def test_the_pmus_of_a_hybrid_cpu_are_both_named(tmp_path):
    root = plant(tmp_path, {f"sys/bus/event_source/devices/{name}/type": "8" for name in
                            ("cpu_core", "cpu_atom", "power", "uncore_imc_0", "armv8_pmuv3_0")})
    found = pmu.look(root, lambda: ("counters", None))
    assert found.devices == ("armv8_pmuv3_0", "cpu_atom", "cpu_core")


# --- identity ----------------------------------------------------------------------------------------


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


# --- advice and description --------------------------------------------------------------------------


def test_a_quiet_server_needs_no_advice(tmp_path):
    assert doctor.advice(inspect(tmp_path)) == []


@pytest.mark.parametrize(
    ("topic", "files"),
    [
        ("governor", {"sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "powersave\n"}),
        ("turbo", {"sys/devices/system/cpu/intel_pstate/no_turbo": "0\n"}),
        ("SMT", {"sys/devices/system/cpu/smt/control": "on\n"}),
        ("load", {"proc/loadavg": "3.00 1.00 1.00 3/200 1\n"}),
        ("THP", {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n"}),
        ("mTHP", {"sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled": "always [never]\n"}),
        ("pool 2m", {"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "3\n"}),
        ("pool 1g", {"sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "0\n"}),
        ("memory", v2("/job", job={"max": str(GIB), "current": "0"})),
    ],
)
def test_what_spoils_a_measurement_is_found_and_nothing_else(tmp_path, topic, files):
    assert topics(inspect(tmp_path, files)) == {topic}


@pytest.mark.parametrize("reason", ["no-perf", "perf-denied", "perf-failed", "no-pmu", "not-counted"])
def test_missing_counters_are_explained(tmp_path, reason):
    (advice,) = doctor.advice(inspect(tmp_path, here=replace(HERE, probe_pmu=lambda: ("timing", reason))))
    assert advice.topic == "perf" and advice.remedy


def test_a_virtual_machine_without_counters_is_called_one(tmp_path):
    def guest(leaf: int, subleaf: int) -> Registers:
        return {
            1: Registers(0, 0, 1 << 31, 0),
            0x40000000: Registers(0, 0x4B4D564B, 0x564B4D56, 0x4D),
        }.get(leaf) or cpuid_of_a_server(leaf, subleaf)

    here = replace(HERE, cpuid=guest, probe_pmu=lambda: ("software", "no-pmu"))
    (advice,) = doctor.advice(inspect(tmp_path, here=here))
    assert advice.topic == "virtual machine" and "kvm" in advice.finding


def test_without_a_compiler_the_other_engine_is_named(tmp_path):
    (advice,) = doctor.advice(inspect(tmp_path, here=replace(HERE, find_compiler=lambda: None)))
    assert advice.topic == "compiler" and "numba" in advice.remedy


def test_another_system_reads_and_does_not_measure(tmp_path):
    found = host.inspect(tmp_path, replace(HERE, os="Darwin"))
    assert (found.pmu.tier, found.pmu.reason) == ("timing", "not-linux")
    assert [advice.topic for advice in doctor.advice(found)] == ["system"]


def well_formed(found: host.Host) -> None:
    """What the command line and the pages rely on, whatever was read."""
    assert re.fullmatch(r"[a-z0-9-]{1,64}", host.machine_id(found))
    assert re.fullmatch(r"[0-9a-f]{12}", host.state(found))
    assert host.Host.model_validate_json(found.model_dump_json()) == found
    for texts in [*doctor.describe(found), *doctor.advice(found)]:
        assert all(text.strip() and text.isprintable() for text in texts)


def test_every_line_of_the_description_has_a_label_and_a_value(tmp_path):
    found = inspect(tmp_path)
    well_formed(found)
    values = dict(doctor.describe(found))
    assert values["CPU"] == "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz (Ice Lake server)"
    assert values["page table"] == "5 levels"
    assert values["pool 2m"] == "512 pages, 500 free, 3 reserved, 1 surplus"
    assert values["TLB level 2, unified"].endswith("(CPUID 0x2, descriptor 0xc3)")


# --- files that hold anything ------------------------------------------------------------------------

# Bytes, text with any alphabet, and damaged versions of what a kernel writes.
WORDS = [
    b"model\t: ", b"flags : la57", b"address sizes : 57 bits virtual", b"CPU part\t: 0x", b"MemAvailable: ",
    b"0::/", b"/../", b"kB", b" - cgroup2 x memory", b"[", b"]", b"\n", b"\n\n", b"-", b"9" * 40, b"\0", b",",
    b"\xff\xfe", "Größe: ١٢٣ 兆".encode(), b"0-99999", b"max", b"1e400", b"0x" + b"f" * 30,
]
JUNK = st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(WORDS), max_size=12).map(b"".join))
DAMAGED = [*SERVER, "proc/self/cgroup", "proc/self/mountinfo", "sys/fs/cgroup/memory.max", "proc/config.gz",
           "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"]


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(DAMAGED), JUNK, min_size=1, max_size=8), st.sampled_from([HERE, ARM]))
def test_files_of_any_bytes_give_a_host_and_a_proper_id(files, here):
    with tempfile.TemporaryDirectory() as folder:
        mounted = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2_MOUNT}
        well_formed(inspect(Path(folder), mounted | files, here))


@settings(max_examples=150, deadline=None)
@given(JUNK, JUNK, JUNK)
def test_cgroup_files_of_any_bytes_give_an_amount_of_memory(cgroup, mountinfo, value):
    with tempfile.TemporaryDirectory() as folder:
        files = {"proc/self/cgroup": b"0::/" + cgroup, "proc/self/mountinfo": V2_MOUNT.encode() + mountinfo,
                 "sys/fs/cgroup/memory.max": value}
        memory = limits.usable_memory(plant(Path(folder), MEMINFO | files), Rlimits())
        assert 0 <= memory.usable_bytes <= 16 * GIB


@given(st.text())
def test_any_text_becomes_a_label_of_one_line(text):
    label = procfs.label(text)
    assert len(label) <= 120 and label == label.strip() and (label.isprintable())


@given(st.sets(st.integers(0, 8191), max_size=40))
def test_a_cpu_list_reads_back_as_the_kernel_would_print_it(cpus):
    assert procfs.cpu_list(",".join(map(str, sorted(cpus)))) == tuple(sorted(cpus))


def test_a_cpu_list_with_ranges_is_read_and_any_other_text_is_none():
    assert procfs.cpu_list("0-2,7,9-9\n") == (0, 1, 2, 7, 9)
    assert procfs.cpu_list("0-2,x") == procfs.cpu_list("") == procfs.cpu_list("-1") == ()


def test_an_enormous_file_is_read_only_to_its_first_mebibyte(tmp_path):
    path = tmp_path / "cpuinfo"
    with path.open("wb") as file:
        file.write(b"model : 7\n")
        file.truncate(2**32)  # sparse: 4 GiB that take no room
    assert len(procfs.text(path)) == 2**20
    assert procfs.fields(procfs.text(path))["model"] == "7"


@pytest.mark.parametrize(
    "make", [Path.mkdir, lambda path: path.symlink_to(path), lambda path: path.touch(0o000)]
)
def test_a_folder_a_loop_or_an_unreadable_file_is_no_text(tmp_path, make):
    make(tmp_path / "odd")
    assert procfs.text(tmp_path / "odd") == ""
