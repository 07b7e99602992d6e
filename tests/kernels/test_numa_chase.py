"""numa_chase: which node holds the memory and which the page tables, and that nothing is measured where that is not certain.

The kernel runs as it is, on the nodes that tests/support/other_nodes.c shows it: one CPU and one memory node are enough, and a computer
with many gives the same answers. Linux itself judges the arguments of each call.
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from support.common import preloadable
from support.kernels import measured, why_not
from support.stand_ins import put_before

from experiments.lab.record import Point, Record
from experiments.words.reasons import REASONS, Unavailable

pytestmark = [pytest.mark.measures, pytest.mark.measuring, pytest.mark.needs("a C compiler")]
CPU = max(getattr(os, "sched_getaffinity", lambda _: {0})(0))  # the one that kernels choose
MODES = ("local-local", "remote-local", "local-remote", "remote-remote")


@pytest.fixture(scope="session")
def other_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/support/other_nodes.c, compiled."""
    return preloadable("other_nodes", tmp_path_factory)


class Nodes:
    """The files of the other computer. To begin with it has two nodes with 1 GiB free each, and our CPU is on node 0."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder, self.library = folder, library
        self.are({0: f"{CPU}", 1: f"{CPU + 1}"}, {0: "10 21", 1: "21 10"})

    def set(self, path: str, value: object) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(f"{value}\n")

    def are(self, cpus: dict[int, str], distances: dict[int, str], normal: str | None = None) -> None:
        """Node -> its CPUs, and its distances to all, itself among them; normal: those with memory for page tables."""
        self.set("node/online", ",".join(map(str, cpus)))
        self.set("node/has_normal_memory", ",".join(map(str, cpus)) if normal is None else normal)
        for node, text in cpus.items():
            self.set(f"node/node{node}/cpulist", text)
            self.set(f"node/node{node}/distance", distances[node])
            self.free(node, 1 << 20)

    def free(self, node: int, kib: int, page_cache_kib: int = 0) -> None:
        self.set(f"node/node{node}/meminfo", f"Node {node} MemTotal:  99999999 kB\nNode {node} MemFree:  {kib} kB\nNode {node} Active:  "
                 f"99999999 kB\nNode {node} Active(file): {page_cache_kib} kB\nNode {node} Inactive(file):  0 kB\n")

    def words(self) -> list[str]:
        return ["env", f"LD_PRELOAD={self.library}", f"OTHER_NODES={self.folder}"]

    def asked(self) -> list[list[object]]:
        """The calls that the kernel made, in order: each its name and its numbers."""
        lines = (self.folder / "log").read_text().splitlines()
        return [[line.split()[0], *map(int, line.split()[1:])] for line in lines]


@pytest.fixture
def nodes(tmp_path: Path, other_nodes: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    there = Nodes(tmp_path / "other", other_nodes)
    put_before(monkeypatch, *there.words())
    return there


def on(mode: str = "local-remote", **changes: object) -> Point:
    return Point(**{"kernel": "numa_chase", "mode": mode, "lines": 300, "region_ms": 1, **changes})  # type: ignore[arg-type]


def where(record: Record) -> tuple[float, float, float]:
    return record.also["memory_node"], record.also["table_node"], record.also["remote_distance"]


# --- where memory and page tables go


@pytest.mark.parametrize(("mode", "memory", "tables"), [("local-local", 0, 0), ("remote-local", 1, 0), ("local-remote", 0, 1),
                                                        ("remote-remote", 1, 1)])
@pytest.mark.parametrize(("layout", "pages"), [("spread", 300), ("packed", 5)])
def test_the_thread_is_bound_to_the_tables_node_while_it_makes_every_page_and_no_longer(nodes, mode: str, memory: int, tables: int,
                                                                                      layout: str, pages: int):
    """Linux makes a page table at a mapping's first touch, under the policy of the thread that touches."""
    record = measured(on(mode, layout=layout))
    assert nodes.asked() == [["mbind", memory, pages * 4096, 0], ["set_mempolicy", tables, 0], ["set_mempolicy", -1, pages],
                             ["move_pages", pages], ["move_pages", pages]]
    assert where(record) == (memory, tables, 21) and record.point == on(mode, layout=layout)


def test_of_pages_that_stand_apart_each_is_made_and_looked_at(nodes):
    measured(on(lines=100, stride_pages=3))
    assert nodes.asked() == [["mbind", 0, 300 * 4096, 0], ["set_mempolicy", 1, 0], ["set_mempolicy", -1, 100],
                             ["move_pages", 100], ["move_pages", 100]]


# --- which nodes they are


def test_local_is_where_the_cpu_is(nodes):
    nodes.are({0: f"{CPU + 1}", 1: f"{CPU}"}, {0: "10 21", 1: "21 10"})
    assert where(measured(on("local-remote"))) == (1, 0, 21)


@pytest.mark.parametrize(("distances", "farthest"), [("12 10 32 20", 5), ("20 10 12 32", 9), ("32 10 12 20", 0)])
def test_remote_is_the_farthest_of_the_nodes_online_whatever_their_numbers(nodes, distances: str, farthest: int):
    nodes.are({0: "", 3: f"{CPU}", 5: "", 9: ""}, {0: "", 3: distances, 5: "", 9: ""})
    assert where(measured(on("remote-local"))) == (farthest, 3, 32)


def test_a_node_whose_memory_takes_no_page_tables_is_passed_over(nodes):
    nodes.are({0: f"{CPU}", 1: "", 2: ""}, {0: "10 40 20", 1: "40 10 40", 2: "20 40 10"}, normal="0,2")
    assert where(measured(on("remote-remote"))) == (2, 2, 20)


def test_a_node_outside_the_cpuset_is_passed_over(nodes):
    nodes.are({0: f"{CPU}", 1: "", 2: ""}, {0: "10 40 20", 1: "40 10 40", 2: "20 40 10"})
    nodes.set("allowed", 0b101)
    assert where(measured(on("remote-remote"))) == (2, 2, 20)


@pytest.mark.parametrize("listed", [f"{CPU}", f"0-{CPU}", f"{CPU + 2},{CPU}", f"0,{CPU}-{CPU + 2_000_000_000}",
                                    f"{CPU + 3}-{CPU + 4},{CPU}-{CPU}"])
def test_a_list_of_cpus_is_read_as_linux_writes_it(nodes, listed: str):
    nodes.are({0: "", 1: listed}, {0: "10 21", 1: "21 10"})
    assert where(measured(on("local-local"))) == (1, 1, 21)


# --- where there is but one


@pytest.mark.parametrize("mode", MODES)
def test_a_computer_with_one_node_has_no_remote_memory(nodes, mode: str):
    nodes.are({0: f"0-{CPU}"}, {0: "10"})
    assert why_not(on(mode), "single-node") == "nodes online: 1, with memory for page tables: 1"


def test_a_cpuset_of_one_node_is_another_reason(nodes):
    nodes.set("allowed", 0b01)
    assert why_not(on(), "node-refused") == "of 2 nodes with memory this process may use node 0 alone"


def test_a_cpu_whose_own_node_gives_no_memory_has_no_local_memory(nodes):
    nodes.set("allowed", 0b10)
    assert why_not(on(), "node-refused") == f"CPU {CPU} is on node 0, on which this process may have no memory"


def test_a_node_to_which_no_distance_is_stated_is_not_taken_for_the_farthest(nodes):
    nodes.are({0: f"{CPU}", 1: ""}, {0: "10", 1: "21 10"})
    assert "node 0 alone" in why_not(on(), "node-refused")


@pytest.mark.parametrize("mode", MODES)
def test_this_computer_is_measured_or_has_its_reason(mode: str):
    """Without a stand-in: on two nodes the four modes differ in what they say of themselves."""
    try:
        memory, tables, distance = where(measured(on(mode)))
    except Unavailable as why:
        assert why.code in ("single-node", "node-refused", "memory-short")
    else:
        assert (memory == tables) == (mode in ("local-local", "remote-remote")) and distance >= 10


# --- refusals


@pytest.mark.parametrize("call", ["get_mempolicy", "mbind", "set_mempolicy", "move_pages"])
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EINVAL])
def test_a_call_that_is_refused_is_named(nodes, call: str, number: int):
    nodes.set("refused", call)
    nodes.set("refusal", number)
    detail = why_not(on(), "node-refused")
    assert call in detail and detail.endswith(os.strerror(number))
    assert "--cap-add SYS_NICE" in REASONS["node-refused"].remedy


@pytest.mark.parametrize(("looks", "when"), [(0, "before"), (1, "after")])
def test_one_page_elsewhere_before_or_after_the_timed_region_is_enough_to_refuse(nodes, looks: int, when: str):
    nodes.set("strays", 1)
    nodes.set("true_looks", looks)
    assert why_not(on("remote-remote"), "node-refused") == "1 of 300 pages are not on node 1"
    assert len(nodes.asked()) == 4 + looks, when


def test_a_node_with_too_little_memory_is_not_filled_to_the_brim(nodes):
    """Half of it at most; what is free and what the page cache holds. The other node's does not count."""
    needed = 300 * 4
    nodes.free(1, 2 * needed - 1)
    assert why_not(on("remote-local"), "memory-short") == "1 MiB needed on node 1, which has 2 MiB free"
    assert measured(on("local-remote")).lines == 300
    nodes.free(1, needed, page_cache_kib=needed)
    assert measured(on("remote-local")).lines == 300
    subprocess.run(["rm", nodes.folder / "node/node1/meminfo"], check=True)
    assert "which has 0 MiB free" in why_not(on("remote-local"), "memory-short")


# --- kernels that choose no node: how many of their pages have spilled


def plain(**changes: object) -> Point:
    return Point(**{"kernel": "page_chase", "lines": 300, "region_ms": 1, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("strays", "order", "layout"), [(0, "cycle", "spread"), (7, "cycle", "spread"), (7, "random", "spread"),
                                                         (3, "sequential", "packed")])
def test_page_chase_counts_its_pages_on_other_nodes_than_its_cpus(nodes, strays: int, order: str, layout: str):
    nodes.set("strays", strays)
    record = measured(plain(order=order, layout=layout))
    assert record.also["off_node_pages"] == strays
    assert nodes.asked() == [["move_pages", 300 if layout == "spread" else 5]]


def test_a_cpu_of_another_node_finds_all_its_pages_elsewhere(nodes):
    nodes.are({0: f"{CPU + 1}", 1: f"{CPU}"}, {0: "10 21", 1: "21 10"})
    assert measured(plain()).also["off_node_pages"] == 300  # the stand-in has them on node 0


def test_where_nothing_can_have_spilled_or_linux_does_not_tell_there_is_no_count(nodes):
    nodes.set("refused", "move_pages")
    assert "off_node_pages" not in measured(plain()).also
    nodes.set("refused", "")
    assert "off_node_pages" not in measured(plain(layout="alias")).also  # its pages are a file's
    nodes.are({0: f"0-{CPU}"}, {0: "10"})
    assert "off_node_pages" not in measured(plain()).also
