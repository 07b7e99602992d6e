"""What each lever needs of a computer, before anything runs: on computers that never were."""

import pytest
from support.common import refusal
from support.host import plant

from experiments.hugepages import jmh
from tlb.machine import settings
from tlb.programs import levers
from tlb.programs.levers import LEVERS

THP = "sys/kernel/mm/transparent_hugepage/enabled"
CGROUP = {
    "proc/self/cgroup": "0::/pod\n",
    "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
}


def pool(kib: int, free: int, overcommit: int = 0) -> dict[str, str]:
    values = {"nr": free, "free": free, "resv": 0, "surplus": 0, "nr_overcommit": overcommit}
    folder = f"sys/kernel/mm/hugepages/hugepages-{kib}kB"
    return {f"{folder}/{name}_hugepages": f"{value}\n" for name, value in values.items()}


def pages_of(kib: int, **limits: str) -> dict[str, str]:
    """What meminfo says of the default size, and the limits of a cgroup."""
    files = {f"sys/fs/cgroup/pod/hugetlb.{name}": f"{most}\n" for name, most in limits.items()}
    return CGROUP | files | {"proc/meminfo": f"MemTotal: 8 kB\nHugepagesize: {kib} kB\n"}


@pytest.mark.parametrize(
    ("files", "code"),
    [
        (pages_of(2048) | pool(2048, 8), ""),
        (pages_of(2048) | pool(2048, 0) | pool(1048576, 4), "pool-empty"),
        (pages_of(1048576) | pool(2048, 8) | pool(1048576, 0), "pool-empty"),
        (pages_of(1048576) | pool(2048, 0) | pool(1048576, 1), ""),
        (pages_of(2048) | pool(2048, 0, overcommit=8), ""),
        (pages_of(524288) | pool(2048, 8) | pool(524288, 2), ""),
        ({"proc/meminfo": "MemTotal: 8 kB\n"}, "page-size-unsupported"),
        (pages_of(2048, **{"2MB.max": "0", "1GB.max": "max"}) | pool(2048, 8), "pool-empty"),
        (pages_of(2048, **{"2MB.max": "0", "1GB.max": "2147483648"}) | pool(2048, 8), "pool-empty"),
        (pages_of(2048, **{"2MB.rsvd.max": "0"}) | pool(2048, 8), "pool-empty"),
        (pages_of(2048, **{"2MB.max": "max", "1GB.max": "0"}) | pool(2048, 8), ""),
        (pages_of(2048, **{"2MB.max": "16777216"}) | pool(2048, 8), ""),
    ],
)
def test_the_pool_that_a_program_takes_pages_from_has_some_for_it(files, code, tmp_path):
    root = plant(tmp_path, files)
    if code:
        assert refusal(levers._pool_filled, root) == code
    else:
        levers._pool_filled(root)


@pytest.mark.parametrize(
    ("files", "code"), [({}, "linux-lacks"), ({THP: "always madvise [never]\n"}, "thp-never")]
)
def test_a_kernel_without_transparent_pages_gets_no_command_for_a_file_that_is_absent(
    files, code, tmp_path
):
    root = plant(tmp_path, files)
    assert refusal(settings.require_thp, root) == code
    assert refusal(jmh.check_heap, "thp", [1 << 20], root) == code


def test_the_variable_of_jemalloc_has_the_prefix_that_a_program_has_built_in(monkeypatch):
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "narenas:1")
    with LEVERS["jemalloc"].environment() as added:
        assert added == {
            "MALLOC_CONF": "thp:always",
            "_RJEM_MALLOC_CONF": "narenas:1,thp:always",
            "JE_MALLOC_CONF": "thp:always",
        }
