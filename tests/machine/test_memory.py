"""How much memory may be used: what is free, less what cgroups and limits take away."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.common import ROOT
from support.host import SERVER, plant, v2

from tlb.machine.memory import ResourceLimits, cgroup_limits, usable_memory

GIB = 2**30


V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
MEMINFO = {"proc/meminfo": SERVER["proc/meminfo"]}


def usable(
    root: Path,
    files: dict[str, str],
    rlimits: ResourceLimits = ResourceLimits(),  # noqa: B008
) -> tuple[int, str]:  # noqa: B008
    found = usable_memory(plant(root, MEMINFO | files), rlimits)
    return found.usable_bytes, found.limit_source


def test_without_limits_what_is_available_is_usable(tmp_path):
    assert usable(tmp_path, {}) == (16 * GIB, "MemAvailable")


def test_an_ancestors_limit_binds_too(tmp_path):
    files = v2(
        "/a/b/c",
        a={"max": str(2 * GIB), "current": str(GIB)},
        a__b={"max": "max", "current": str(GIB)},
        a__b__c={"max": str(8 * GIB), "current": "0"},
    )
    assert usable(tmp_path, files) == (GIB, "cgroup v2 memory.max")


def test_a_container_sees_its_own_limit_at_the_top_of_its_mount(tmp_path):
    files = v2("/") | {"sys/fs/cgroup/memory.max": str(GIB), "sys/fs/cgroup/memory.current": "0"}
    assert usable(tmp_path, files) == (GIB, "cgroup v2 memory.max")


def test_beyond_memory_high_the_kernel_throttles_so_it_is_a_limit(tmp_path):
    files = v2("/job", job={"max": "max", "high": str(GIB), "current": "0"})
    assert usable(tmp_path, files) == (GIB, "cgroup v2 memory.high")


def test_a_v1_tree_is_walked_to_its_root(tmp_path):
    base = "sys/fs/cgroup/memory"
    files = {
        "proc/self/cgroup": "4:cpu,memory:/a/b\n1:name=systemd:/\n0::/\n",
        "proc/self/mountinfo": V1_MOUNT,
        f"{base}/memory.limit_in_bytes": "9223372036854771712\n",  # what v1 prints for no limit
        f"{base}/a/memory.limit_in_bytes": str(3 * GIB),
        f"{base}/a/memory.usage_in_bytes": str(2 * GIB),
        f"{base}/a/memory.stat": "active_file 1\n"
        f"total_active_file {GIB // 2}\ntotal_inactive_file {GIB}\n",
        f"{base}/a/b/memory.limit_in_bytes": str(9 * GIB),
    }
    assert usable(tmp_path, files) == (5 * GIB // 2, "cgroup v1 memory.limit_in_bytes")
    assert cgroup_limits(tmp_path, "memory") == {"memory.limit_in_bytes": 3 * GIB}
    (tmp_path / base / "a/memory.limit_in_bytes").unlink()
    (tmp_path / base / "a/b/memory.limit_in_bytes").unlink()
    assert cgroup_limits(tmp_path, "memory") == {}, "the root's is none"


@pytest.mark.parametrize(
    ("rlimits", "size", "source"),
    [
        (
            ResourceLimits(3 * GIB, None, None),
            2 * GIB,
            "RLIMIT_AS",
        ),  # less the address space that a kernel aligns its arena in
        (ResourceLimits(None, GIB, None), GIB, "RLIMIT_DATA"),
        (ResourceLimits(3 * GIB, GIB, None), GIB, "RLIMIT_DATA"),
    ],
)
def test_resource_limits_bind(tmp_path, rlimits, size, source):
    assert usable(tmp_path, {}, rlimits) == (size, source)
    assert (
        usable_memory(tmp_path, rlimits).address_space_bytes == size
    )  # which bind a pool's pages too


def test_the_limits_of_this_process_are_read():
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30));"
        "from tlb.machine.memory import usable_memory; m = usable_memory();"
        "print(m.usable_bytes, m.limit_source)"
    )
    if not Path("/proc/meminfo").exists():
        pytest.skip("needs Linux")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    size, source = done.stdout.split(" ", 1)
    assert int(size) <= GIB
    assert source.strip() == "RLIMIT_DATA" or int(size) < GIB
