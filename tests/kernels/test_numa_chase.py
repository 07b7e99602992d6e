"""numa_chase: which node holds the memory and which the page tables, and that nothing is measured
where that is not certain.

The kernel runs as it is, on the nodes that tests/support/other_nodes.c shows it, so that every
computer gives the same answers. Linux itself judges the arguments of each call.
"""

import os
import subprocess
from pathlib import Path

import pytest
from support.common import preloadable
from support.kernels import measured, why_not
from support.stand_ins import Files, put_before

from tlb.measure.record import Point, Record

pytestmark = [pytest.mark.measures, pytest.mark.measuring, pytest.mark.needs("a C compiler")]
CPU = max(getattr(os, "sched_getaffinity", lambda _: {0})(0))  # the one that kernels choose
NODES_OF = {
    "local-local": (0, 0),
    "remote-local": (1, 0),
    "local-remote": (0, 1),
    "remote-remote": (1, 1),
}  # memory, tables


@pytest.fixture(scope="session")
def other_nodes(tmp_path_factory) -> Path:
    """tests/support/other_nodes.c, compiled."""
    return preloadable("other_nodes", tmp_path_factory)


class Nodes(Files):
    """The files of the other computer. To begin with it has two nodes with 1 GiB free each, and our
    CPU is on node 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.are({0: f"{CPU}", 1: f"{CPU + 1}"}, {0: "10 21", 1: "21 10"})

    def are(
        self, cpus: dict[int, str], distances: dict[int, str], normal: str | None = None
    ) -> None:
        """Each node's CPUs, and its distances to all nodes; normal: those with memory for page
        tables."""
        self.set("node/online", ",".join(map(str, cpus)))
        self.set("node/has_normal_memory", ",".join(map(str, cpus)) if normal is None else normal)
        for node, text in cpus.items():
            self.set(f"node/node{node}/cpulist", text)
            self.set(f"node/node{node}/distance", distances[node])
            self.free(node, 1 << 20)

    def free(self, node: int, kib: int, page_cache_kib: int = 0) -> None:
        self.set(
            f"node/node{node}/meminfo",
            f"Node {node} MemTotal:  99999999 kB\nNode {node} MemFree:  {kib} kB\nNode {node} Active:  "
            f"99999999 kB\nNode {node} Active(file): {page_cache_kib} kB\nNode {node} Inactive(file):  0 kB\n",
        )

    def calls(self) -> list[list[object]]:
        """The calls that the kernel made, in order: each its name and its numbers."""
        lines = (self.folder / "log").read_text().splitlines()
        return [[line.split()[0], *map(int, line.split()[1:])] for line in lines]


@pytest.fixture
def nodes(tmp_path, other_nodes, monkeypatch) -> Nodes:
    put_before(monkeypatch, "env", f"LD_PRELOAD={other_nodes}", f"OTHER_NODES={tmp_path / 'other'}")
    return Nodes(tmp_path / "other")


def on(mode: str = "local-remote", **changes: object) -> Point:
    return Point(**{"kernel": "numa_chase", "mode": mode, "lines": 300, "region_ms": 1, **changes})


def where(record: Record) -> tuple[float, float, float]:
    return record.also["memory_node"], record.also["table_node"], record.also["remote_distance"]


@pytest.mark.parametrize("mode", NODES_OF)
def test_the_thread_is_bound_to_the_tables_node_only_while_it_touches_every_page(nodes, mode):
    """Linux makes a page table at a mapping's first touch, under the policy of the thread that
    touches."""
    memory, tables = NODES_OF[mode]
    record = measured(on(mode, lines=1300))
    assert nodes.calls() == [
        ["mbind", memory, 1300 * 4096, 0],
        ["set_mempolicy", tables, 0],
        ["set_mempolicy", -1, 1300],
        *[["move_pages", 512], ["move_pages", 512], ["move_pages", 276]] * 2,
    ]  # before and after the region
    assert where(record) == (memory, tables, 21)
    assert record.checksum == measured(Point(kernel="page_chase", lines=1300, region_ms=1)).checksum


# Cases: each node's CPUs, its distances, the nodes with normal memory, the cpuset's mask; and
# (memory, tables, distance) of remote-local.
CHOICES = {
    "the CPU is on node 1": (
        {0: f"{CPU + 1}", 1: f"{CPU}"},
        {0: "10 21", 1: "21 10"},
        None,
        0,
        (0, 1, 21),
    ),
    "the farthest": (
        {0: "", 3: f"{CPU}", 5: "", 9: ""},
        {0: "", 3: "20 10 12 32", 5: "", 9: ""},
        None,
        0,
        (9, 3, 32),
    ),
    "movable memory has no tables": (
        {0: f"{CPU}", 1: "", 2: ""},
        {0: "10 40 20", 1: "", 2: ""},
        "0,2",
        0,
        (2, 0, 20),
    ),
    "outside the cpuset": (
        {0: f"{CPU}", 1: "", 2: ""},
        {0: "10 40 20", 1: "", 2: ""},
        None,
        0b101,
        (2, 0, 20),
    ),
    "a list of ranges": (
        {0: "", 1: f"{CPU + 3}-{CPU + 4},{CPU}-{CPU + 2_000_000_000}"},
        {0: "", 1: "21 10"},
        None,
        0,
        (0, 1, 21),
    ),
}


@pytest.mark.parametrize("case", CHOICES)
def test_remote_is_the_farthest_usable_node(nodes, case):
    cpus, distances, normal, allowed, expected = CHOICES[case]
    nodes.are(cpus, distances, normal)
    if allowed:
        nodes.set("allowed", allowed)
    assert where(measured(on("remote-local"))) == expected


def test_a_computer_without_a_second_usable_node_has_its_reason(nodes):
    nodes.set("allowed", 0b01)
    assert (
        why_not(on(), "not-permitted") == "of 2 nodes with memory this process may use node 0 alone"
    )
    nodes.set("allowed", 0b10)
    why = f"CPU {CPU} is on node 0, on which this process may have no memory"
    assert why_not(on(), "not-permitted").startswith(why)
    nodes.set("allowed", 0b11)
    nodes.are({0: f"{CPU}", 1: ""}, {0: "10", 1: "21 10"})  # no distance to node 1
    assert "node 0 alone" in why_not(on(), "not-permitted")
    for listed in (f"{CPU + 1}-{CPU + 9}", "none", ",,,", "\0\0", "9" * 5000):
        nodes.are({0: listed, 1: listed}, {0: "10 21", 1: "21 10"})
        assert f"CPU {CPU} is on node -1" in why_not(on(), "not-permitted")
    nodes.are({0: f"0-{CPU}"}, {0: "10"})
    assert why_not(on(), "one-cpu") == "nodes online: 1, with memory for page tables: 1"


@pytest.mark.parametrize("looks", [0, 1])  # that find nothing: before the timed region, after it
def test_one_page_on_another_node_before_or_after_the_region_is_refused(nodes, looks):
    nodes.set("strays", 1)
    nodes.set("true_looks", looks)
    assert why_not(on("remote-remote"), "not-permitted") == "1 of 300 pages are not on node 1"


def test_no_more_than_half_of_a_nodes_spare_memory_is_taken(nodes):
    """Free memory and the page cache count, and the other node's does not."""
    needed = 300 * 4
    nodes.free(1, 2 * needed - 1)
    assert (
        why_not(on("remote-local"), "memory-short")
        == "1 MiB needed on node 1, which has 2 MiB free"
    )
    assert measured(on("local-remote")).lines == 300
    nodes.free(1, needed, page_cache_kib=needed)
    assert measured(on("remote-local")).lines == 300


def test_kernels_that_choose_no_node_count_the_pages_on_other_nodes(nodes):
    plain = [
        Point(kernel="page_chase", lines=300, region_ms=1),
        Point(kernel="page_gather", lines=300, region_ms=1),
        Point(kernel="random_touch", order="random", layout="packed", lines=300, region_ms=1),
    ]
    nodes.set("strays", 3)
    assert [measured(point).also["off_node_pages"] for point in plain] == [3, 3, 3]
    nodes.set("refused", "move_pages")
    assert "off_node_pages" not in measured(plain[0]).also
    nodes.set("refused", "")
    nodes.set("strays", 0)
    nodes.are({0: f"{CPU + 1}", 1: f"{CPU}"}, {0: "10 21", 1: "21 10"})
    assert measured(plain[0]).also["off_node_pages"] == 300  # the stand-in has them on node 0
    subprocess.run(["rm", "-r", nodes.folder / "node"], check=True)
    assert "off_node_pages" not in measured(plain[0]).also
