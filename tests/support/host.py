"""Other computers as files: a server's /proc and /sys, an arm64 machine's cpuinfo, and recorded
CPUID dumps."""

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from support.common import SUPPORT
from tlb.machine import cpuid, doctor, host
from tlb.machine.cpuid import Registers
from tlb.machine.memory import ResourceLimits
from tlb.system.reasons import none_if_unavailable

_XEON = """processor\t: {}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 106
model name\t: Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz
stepping\t: 6
microcode\t: 0xd0003f6
flags\t\t: fpu pdpe1gb la57 hypervisor
address sizes\t: 46 bits physical, 57 bits virtual

"""
CPUINFO = "processor\t: 0\nvendor_id\t: SomebodyElse\n\n" + _XEON.format(2) + _XEON.format(3)


def cache_of(
    cpu: int, size: str = "48K", level: int = 1, kind: str = "Data", ways: int = 12, sets: int = 64
) -> dict[str, str]:
    """A cache of a CPU in sysfs, which it shares with the CPU eight further on."""
    files = {
        "type": kind,
        "level": level,
        "size": size,
        "coherency_line_size": 64,
        "ways_of_associativity": ways,
        "number_of_sets": sets,
        "shared_cpu_list": f"{cpu},{cpu + 8}",
    }
    return {
        f"sys/devices/system/cpu/cpu{cpu}/cache/index{level - 1}/{name}": f"{content}\n"
        for name, content in files.items()
    }


SERVER = {
    "proc/cpuinfo": CPUINFO,
    "proc/meminfo": "MemTotal:       32505856 kB\nMemFree:  1000 kB\nMemAvailable:   16777216 kB\n",
    "proc/loadavg": "0.05 0.10 0.20 1/200 4242\n",
    "proc/sys/kernel/perf_event_paranoid": "2\n",
    "proc/sys/kernel/hostname": "secret-host\n",
    "etc/hostname": "secret-host\n",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "sys/devices/system/cpu/present": "0-15\n",
    "sys/devices/system/cpu/smt/control": "off\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
    "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpu3/cpufreq/cpuinfo_max_freq": "3500000\n",
    "sys/devices/system/cpu/cpu2/cpufreq/cpuinfo_max_freq": "3500000\n",
    **cache_of(2),
    **cache_of(3),
    "sys/devices/system/cpu/vulnerabilities/meltdown": "Mitigation: PTI\n",
    "sys/devices/system/cpu/vulnerabilities/l1tf": "Mitigation: PTE Inversion; VMX: SMT disabled\n",
    "sys/devices/system/cpu/vulnerabilities/itlb_multihit": "KVM: Mitigation: VMX disabled\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "sys/bus/event_source/devices/cpu/type": "4\n",
    "sys/bus/event_source/devices/software/type": "1\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer [defer+madvise] madvise never\n",
    "sys/kernel/mm/transparent_hugepage/hpage_pmd_size": "2097152\n",
    "sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan": "4096\n",
    "sys/kernel/mm/transparent_hugepage/khugepaged/full_scans": "77\n",
    "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled": "always inherit [madvise] never\n",
    "sys/kernel/mm/transparent_hugepage/hugepages-8kB/shmem_enabled": "always [never]\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "500\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages": "3\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages": "1\n",
    "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "4\n",
    "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "4\n",
}


def cpuid_of_a_server(leaf: int, subleaf: int) -> Registers:
    """Leaf 2 of Skylake, five levels, no hypervisor: enough for a TLB."""
    return {
        0: Registers(7, 0x756E6547, 0x6C65746E, 0x49656E69),
        2: Registers(0x76036301, 0x00F0B5FF, 0, 0x00C30000),
        7: Registers(0, 0, 1 << 16, 0),
        0x80000000: Registers(0x80000008, 0, 0, 0),
    }.get(leaf, Registers(0, 0, 0, 0))


HERE = host.Platform(
    os="Linux",
    arch="x86_64",
    kernel_release="6.12.1",
    base_page_bytes=4096,
    usable_cpus=(2, 3),
    rlimits=ResourceLimits(),
    cpuid=cpuid_of_a_server,
    pinned=lambda cpu: nullcontext(),  # this computer may have no such CPU
    probe_pmu=lambda: ("counters", None),
    find_compiler=lambda: "gcc: gcc 14.2.0",
    may_use_fifo=lambda: False,
)


def plant(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def inspect(
    root: Path, files: dict[str, str | bytes] | None = None, here: host.Platform = HERE
) -> host.Host:
    return host.inspect_machine(plant(root, SERVER | (files or {})), here)


# --- arm64

GRAVITON = """processor\t: 3
BogoMIPS\t: 2100.00
Features\t: fp asimd
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1

"""
ARM = replace(HERE, arch="aarch64", cpuid=None)


# --- CPUID

# Registers of real CPUs, "leaf.subleaf eax ebx ecx edx", each dump after the name of its CPU: as recorded in
# the raw dumps under tests/ of the repository anrieff/libcpuid, that of Zhaoxin in
# CentaurHauls00507B3_KX40000_01_CPUID.txt of the repository InstLatx64/InstLatx64.
SKYLAKE, ICE_LAKE, ZEN_2, ZHAOXIN, SILVERMONT = (
    (SUPPORT / "cpuid" / f"{name}.txt").read_text()
    for name in ("skylake", "ice_lake", "zen_2", "zhaoxin", "silvermont")
)


def reader(dump: str, **changes: str) -> cpuid.CpuidReader:
    """A reader of a dump. Asking past its last leaf, where a CPU answers nonsense, fails."""
    rows = dict(line.split(" ", 1) for line in dump.splitlines()[1:])
    table = {
        key: Registers(*(int(v, 16) for v in row.split())) for key, row in (rows | changes).items()
    }

    def read(leaf: int, subleaf: int) -> Registers:
        last = table["80000000.0"].eax if leaf >> 31 else table["0.0"].eax
        hypervisors = 0x40000000 <= leaf < 0x50000000
        assert leaf in (0, 0x80000000) or leaf <= last or hypervisors, (
            f"leaf {leaf:#x} does not exist"
        )
        return table.get(f"{leaf:X}.{subleaf}", Registers(0, 0, 0, 0))

    return read


# --- files that hold anything

WORDS = [
    *(b"model\t: ", b"flags : la57", b"address sizes : 57 bits virtual", b"CPU part\t: 0x"),
    *(b"MemAvailable: ", b"0::/", b"/../", b"kB", b" - cgroup2 x memory", b"[", b"]", b"-", b","),
    *(b"\n", b"\n\n", b"\0", b"\xff\xfe", b"9" * 40, "Größe: ١٢٣ 兆".encode()),
    *(b"0-99999", b"max", b"1e400", b"0x" + b"f" * 30),
]
JUNK = st.one_of(
    st.binary(max_size=200), st.lists(st.sampled_from(WORDS), max_size=12).map(b"".join)
)


def topics(found: host.Host) -> set[str]:
    return {advice.topic for advice in doctor.advice(found)}


def well_formed(found: host.Host) -> None:
    """What the command line and the pages rely on, whatever was read."""
    assert re.fullmatch(r"[a-z0-9-]{1,64}", none_if_unavailable(host.machine_id, found) or "none")
    assert re.fullmatch(r"[0-9a-f]{12}", host.state_digest(found))
    assert host.Host.model_validate_json(found.model_dump_json()) == found
    for texts in [*doctor.host_description(found), *doctor.advice(found)]:
        assert all(text.strip() and text.isprintable() for text in texts)


# --- cgroups

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"


def v2(path: str, **levels: dict[str, str]) -> dict[str, str]:
    """Files of a v2 tree: each keyword is a folder with "__" for "/", each value its memory.*
    files."""
    files = {"proc/self/cgroup": f"0::{path}\n", "proc/self/mountinfo": V2_MOUNT}
    for folder, contents in levels.items():
        below = folder.strip("_").replace("__", "/")
        files |= {f"sys/fs/cgroup/{below}/memory.{name}": text for name, text in contents.items()}
    return files
