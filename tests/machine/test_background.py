"""What else runs: read from other computers' /proc and /sys, named by doctor where it is active,
and part of no state."""

import json

import pytest
from support.common import ROOT
from support.host import V2_MOUNT, inspect

from tlb.machine import background, doctor, host
from tlb.machine.host import Host

DAMON, KSM, THP = (
    "sys/kernel/mm/damon/admin/kdamonds/0",
    "sys/kernel/mm/ksm",
    "sys/kernel/mm/transparent_hugepage",
)
RUNS = {
    f"{DAMON}/state": "on\n",
    f"{DAMON}/contexts/0/operations": "paddr\n",
    f"{DAMON}/contexts/0/schemes/0/action": "pageout\n",
}
SWAPS = "Filename\tType\tSize\tUsed\tPriority\n/home/alma/swapfile file 1048576 0 -2\n"
SWAPS += "/dev/sda2 partition 1048576 8 -3\n"
V1 = {
    "proc/self/cgroup": "7:hugetlb:/job\n4:memory:/job\n",
    "proc/self/mountinfo": "".join(
        f"31 23 0:28 / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
        for name in ("memory", "hugetlb")
    ),
}
V2 = {"proc/self/cgroup": "0::/pod/job\n", "proc/self/mountinfo": V2_MOUNT}


@pytest.mark.parametrize(
    ("files", "task", "words", "is_active"),
    [
        (RUNS, "DAMON", "on: kdamond 0, paddr, scheme pageout", True),
        (
            V2
            | {
                "sys/fs/cgroup/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/pod/cpu.max": "20000 100000\n",
                "sys/fs/cgroup/pod/job/cpu.max": "max 100000\n",
            },
            "CPU quota",
            "0.2 CPUs",
            True,
        ),
        (
            {"proc/self/status": "Name:\tsh\nTHP_enabled:\t0\n"},
            "THP of this process",
            "disabled by prctl",
            True,
        ),
        ({"proc/self/uid_map": "0 1000 1\n"}, "user namespace", "on: user 0 is the host's", True),
        ({"proc/self/uid_map": "0 0 4294967295\n"}, "user namespace", "none", False),
        ({f"{KSM}/run": "1\n", f"{KSM}/pages_sharing": "42\n"}, "KSM", "on; 42 pages shared", True),
        (
            {f"{KSM}/run": "2\n"},
            "KSM",
            "off; 0 pages shared",
            False,
        ),  # it undoes what it has merged
        ({f"{THP}/enabled": "[always] madvise never\n"}, "khugepaged", "on: 4096 pages", True),
        (
            {
                f"{THP}/hugepages-64kB/enabled": "always [inherit] madvise never\n",
                f"{THP}/enabled": "always madvise [never]\n",
            },
            "khugepaged",
            "off",
            False,
        ),
        (
            {
                "proc/swaps": SWAPS,
                "proc/sys/vm/swappiness": "60\n",
                "sys/module/zswap/parameters/enabled": "Y\n",
            },
            "swap",
            "on: 2 GiB on 2 devices; swappiness 60; zswap on",
            True,
        ),
        (
            V2
            | {
                "sys/fs/cgroup/pod/memory.max": "2147483648\n",
                "sys/fs/cgroup/pod/job/memory.max": "max\n",
                "sys/fs/cgroup/pod/job/memory.high": "1073741824\n",
            },
            "memory cgroup",
            "memory.high 1 GiB and memory.max 2 GiB",
            False,
        ),
        (
            V2
            | {
                "sys/fs/cgroup/pod/job/hugetlb.2MB.max": "1073741824\n",
                "sys/fs/cgroup/pod/hugetlb.2MB.max": "2097152\n",
                "sys/fs/cgroup/pod/hugetlb.2MB.rsvd.max": "0\n",
            },
            "hugetlb cgroup",
            "hugetlb.2MB.max 2 MiB",
            True,
        ),
        (
            V1
            | {
                "sys/fs/cgroup/hugetlb/job/hugetlb.1GB.limit_in_bytes": "0\n",
                "sys/fs/cgroup/hugetlb/hugetlb.2MB.limit_in_bytes": "9223372036854771712\n",
            },
            "hugetlb cgroup",
            "hugetlb.1GB.limit_in_bytes 0 B",
            True,
        ),
    ],
)
def test_a_task_is_read_and_named_where_it_is_active(tmp_path, files, task, words, is_active):
    found = inspect(tmp_path, files)
    assert found.background[task].startswith(words)
    assert (
        [advice.topic for advice in doctor.advice(found) if advice.topic in found.background]
        == [task]
    ) is is_active
    assert (task, found.background[task]) in doctor.host_description(
        found
    ) or task == background.NUMA
    assert "alma" not in found.model_dump_json() and "sda2" not in found.model_dump_json()


def test_neither_what_runs_nor_a_boot_is_a_state_or_another_machine(tmp_path):
    plain, busy = (
        inspect(tmp_path / "a"),
        inspect(
            tmp_path / "b",
            RUNS
            | {
                f"{KSM}/run": "1\n",
                "proc/swaps": SWAPS,
                "proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
            },
        ),
    )
    assert (
        plain.background != busy.background
        and (plain.boot_id, len(busy.boot_id)) == ("", 16)
        and "1111" not in busy.boot_id
    )
    assert (host.state_digest(plain), host.machine_id(plain)) == (
        host.state_digest(busy),
        host.machine_id(busy),
    )


@pytest.mark.parametrize(
    ("machine", "state"),
    [
        ("zen-3-a9ae1af8", "f151f78a70ea"),
        ("zen-4-b312e3a0", "302f29cdc9b5"),
        ("zen-5-b15e0e32", "fe87d89954bf"),
    ],
)
def test_a_published_description_keeps_its_state_and_its_name(machine, state):
    folder = ROOT / "data" / machine
    names = [
        folder / "machine.json",
        folder / f"machine-{state}.json",
    ]  # the second once another state was published since
    described = {
        host.state_digest(one): one
        for path in names
        if path.exists()
        for one in [Host.model_validate(json.loads(path.read_bytes()))]
    }
    assert host.machine_id(described[state]) == machine
