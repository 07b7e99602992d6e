"""The host: read from trees of files that stand for other computers, and from files that hold
anything."""

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.host import (
    ARM,
    CPUINFO,
    HERE,
    JUNK,
    SERVER,
    V2_MOUNT,
    cache_of,
    cpuid_of_a_server,
    inspect,
    plant,
    topics,
    well_formed,
)

from tlb.machine import doctor, host
from tlb.machine.cpuid import Registers
from tlb.system.reasons import Unavailable

GIB = 2**30


# --- what is read


def test_a_server_is_read_field_by_field(tmp_path):
    found = inspect(tmp_path)
    assert (found.family, found.model, found.stepping) == (6, 106, 6)
    assert found.microarchitecture == "Ice Lake server"
    assert found.cpu_model == "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"
    assert (found.microcode, found.logical_cpus, found.usable_cpus) == ("0xd0003f6", 16, (2, 3))
    (cache,) = found.caches  # of the last CPU that may be used, which here is CPU 3
    assert cache.model_dump() == {
        "level": 1,
        "kind": "data",
        "size_bytes": 49152,
        "line_bytes": 64,
        "ways": 12,
        "sets": 64,
        "shared_cpus": (3, 11),
    }
    assert found.core.model_dump() == {"number": 3, "kind": "", "highest_khz": 3_500_000}
    assert found.mitigations == {"l1tf": "Mitigation: PTE Inversion", "meltdown": "Mitigation: PTI"}
    assert (found.numa_balancing, found.thp.page_bytes, found.nested_paging) == (0, 2 << 20, False)
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
    assert found.pmu.model_dump() == {
        "tier": "counters",
        "reason": None,
        "devices": ("cpu",),
        "paranoid": 2,
    }
    assert (found.noise.governor, found.noise.smt, found.noise.turbo, found.noise.load1) == (
        "performance",
        "off",
        False,
        0.05,
    )
    assert (found.memory.total_bytes, found.memory.usable_bytes) == (31 * GIB, 16 * GIB)


def test_an_empty_root_is_a_host_that_knows_nothing(tmp_path):
    found = host.inspect_machine(tmp_path, replace(HERE, cpuid=None))
    assert (
        found.cpu_model
        == found.vendor
        == found.microarchitecture
        == found.memory.limit_source
        == "unknown"
    )
    assert (found.tlb, found.tlb_reason, found.page_table_levels) == ((), "no-geometry", None)
    assert (found.thp.enabled, found.mthp, found.pools) == ("absent", {}, ())
    assert found.memory.usable_bytes == 0 and found.installation == ""
    with pytest.raises(Unavailable, match="identified"):
        host.machine_id(found)
    assert {"memory", "TLB", "THP"} <= topics(found)


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
    ],
)
def test_another_computer_has_another_id(tmp_path, files):
    assert host.machine_id(inspect(tmp_path)) != host.machine_id(inspect(tmp_path, files))


THP = "sys/kernel/mm/transparent_hugepage"
CPU = "sys/devices/system/cpu"
SHADOWING = {
    "proc/cpuinfo": CPUINFO.replace("pdpe1gb", "pdpe1gb vmx"),
    "sys/module/kvm_intel/parameters/ept": "N\n",
}


@pytest.mark.parametrize(
    "files",
    [
        {f"{THP}/enabled": "[always] madvise never"},
        {f"{THP}/defrag": "[always] never"},
        {f"{THP}/hugepages-64kB/enabled": "[never]"},
        {"proc/cpuinfo": CPUINFO.replace("0xd0003f6", "0xd000400")},
        {"proc/cpuinfo": CPUINFO.replace(" la57", "")},
        {"proc/sys/kernel/numa_balancing": "1"},
        {f"{CPU}/cpu3/cpufreq/scaling_governor": "powersave"},
        {f"{CPU}/vulnerabilities/meltdown": "Vulnerable"},
        {f"{CPU}/cpu3/cpufreq/cpuinfo_max_freq": "3300000"},
        cache_of(3, "98304K", 3),
        SHADOWING,
        {"sys/module/kvm/parameters/nx_huge_pages": "Y"},
        {"proc/cmdline": "quiet nopcid"},
    ],
    ids=lambda files: next(iter(files)).rpartition("/")[2],
)
def test_each_setting_that_decides_a_number_is_a_state_of_its_own(tmp_path, files):
    before = host.state_digest(inspect(tmp_path))
    after = host.state_digest(inspect(tmp_path, files))
    assert re.fullmatch(r"[0-9a-f]{12}", before) and after != before


@pytest.mark.parametrize(
    "files",
    [
        {"proc/loadavg": "5.00 1 1 1/2 3"},
        {"proc/meminfo": "MemTotal: 32505856 kB\nMemAvailable: 5 kB\n"},
        {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "9999"},
        {
            f"{CPU}/vulnerabilities/itlb_multihit": "KVM: Mitigation: Split huge pages"
        },  # once a guest has run
        {
            f"{CPU}/vulnerabilities/l1tf": "Mitigation: PTE Inversion"
        },  # before KVM's module is loaded
        {"proc/cpuinfo": CPUINFO.replace("pdpe1gb", "pdpe1gb vmx")},
        {"sys/kernel/mm/ksm/run": "1\n"},
        {"proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n"},
        {"proc/cmdline": "root=UUID=0123 quiet hostname=secret-host no5lvls"},
        SHADOWING
        | {
            "sys/module/kvm_intel/parameters/ept": "Y\n",
            "sys/module/kvm/parameters/nx_huge_pages": "N\n",
        },  # and after it
    ],
    ids=lambda files: "-".join(name.rpartition("/")[2] for name in files),
)
def test_what_fluctuates_by_itself_is_no_state(tmp_path, files):
    assert host.state_digest(inspect(tmp_path, files)) == host.state_digest(inspect(tmp_path))


# --- what translates


def cpuid_under(hypervisor: str) -> Callable[[int, int], Registers]:
    """CPUID of a guest whose hypervisor signs so, or of a computer without one."""
    letters = [
        int.from_bytes(hypervisor.encode().ljust(12, b"\0")[at : at + 4], "little")
        for at in (0, 4, 8)
    ]

    def read(leaf: int, subleaf: int) -> Registers:
        if hypervisor and leaf in (1, 0x40000000):
            return Registers(0, 0, 1 << 31, 0) if leaf == 1 else Registers(0, *letters)
        return cpuid_of_a_server(leaf, subleaf)

    return read


XEN = "sys/hypervisor"


@pytest.mark.parametrize(
    ("signature", "flags", "files", "nested"),
    [
        ("", "npt", {}, False),  # bare metal, whatever it could offer
        (
            "",
            "fpu",
            {f"{XEN}/type": "xen", f"{XEN}/guest_type": "PV"},
            False,
        ),  # its CPUID is the processor's own
        ("XenVMMXenVMM", "npt", {f"{XEN}/type": "xen", f"{XEN}/guest_type": "HVM"}, True),
        ("KVMKVMKVM", "fpu", {}, None),  # ept=0 and a host that shadows look the same from inside
        ("KVMKVMKVM", "npt", {}, True),
    ],
)
def test_a_walk_has_two_dimensions_only_where_something_says_so(
    tmp_path, signature, flags, files, nested
):
    cpu = {"proc/cpuinfo": CPUINFO.replace("fpu pdpe1gb la57 hypervisor", flags)}
    found = inspect(tmp_path, cpu | files, replace(HERE, cpuid=cpuid_under(signature)))
    assert found.has_nested_walks is nested
    assert found.hypervisor == "xen" if XEN + "/type" in files else found.hypervisor != "xen"


@pytest.mark.parametrize(
    ("everybody", "own", "setting"),
    [
        ("never", "madvise", "madvise"),
        ("never", "inherit", "never"),
        ("madvise", None, "madvise"),
        (None, None, "absent"),
    ],
)
def test_huge_pages_follow_their_own_setting_and_then_everybodys(
    tmp_path, everybody, own, setting, mib=512
):
    files = {
        f"{THP}/hpage_pmd_size": f"{mib << 20}",
        f"{THP}/enabled": f"[{everybody}]" if everybody else "",
    }
    files |= {f"{THP}/hugepages-{mib << 10}kB/enabled": f"[{own}]"} if own else {}
    plant(tmp_path, files)
    if everybody is None:
        (tmp_path / THP / "enabled").unlink()
    bare = {name: content for name, content in SERVER.items() if THP not in name}
    assert host.inspect_machine(plant(tmp_path, bare), HERE).thp_setting == setting


# --- files that hold anything

# Bytes, text with any alphabet, and damaged versions of what a kernel writes.
DAMAGED = [
    *SERVER,
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "sys/fs/cgroup/memory.max",
    "proc/config.gz",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.stat",
]


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.dictionaries(st.sampled_from(DAMAGED), JUNK, min_size=1, max_size=8),
    st.sampled_from([HERE, ARM]),
)
def test_files_of_any_bytes_give_a_host_and_a_proper_id(files, here):
    with tempfile.TemporaryDirectory() as folder:
        mounted = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2_MOUNT}
        well_formed(inspect(Path(folder), mounted | files, here))


def test_no_name_of_host_user_or_installation_leaves_the_computer(tmp_path):
    files = {"proc/self/cgroup": "0::/user.slice/alice\n", "proc/self/mountinfo": V2_MOUNT}
    found = inspect(tmp_path, files)
    shown = (
        found.model_dump_json()
        + host.machine_id(found)
        + repr(doctor.host_description(found) + doctor.advice(found))
    )
    for secret in ("secret-host", "alice", "0123456789abcdef", str(tmp_path)):
        assert secret not in shown
    assert re.fullmatch(r"[0-9a-f]{16}", found.installation)
