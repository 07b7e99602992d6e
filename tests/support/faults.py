"""Page faults on machines that never were: rows of them, and an Analysis of such rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from experiments.page_faults import Analysis, grid
from support.common import About
from support.synthetic import GIB, Stated, processes, scope
from tlb.measure.record import Point
from tlb.system.page_sizes import CACHE_LINE_BYTES

FANOUT, CLOCK_NS, TSC_GHZ = 512, 20.0, 2.0


@dataclass(frozen=True)
class Kernel:
    """What a fault takes: into the kernel and back, to find a page or to zero one; how many pages
    of a file it enters; what a charge to a group, a page that a host has to find, and a neighbour's
    changes add."""

    trap_ns: float = 300.0
    enter_ns: float = 20.0
    zero_ns: float = 80.0
    free_ns: float = 60.0  # a page, to take it away
    around: int = 16
    piece: int = 512  # pages of a file that one fault enters, where they were written at once
    charge: float = 1.02
    host_ns: float = 2000.0  # a base page, of memory that the host took
    taken_after_ms: float = 2000.0  # a huge page
    search_ns: float = 8000.0
    shared: float = 0.3  # of a mapping's time, for each thread more
    cpus: int = 4
    noise: float = 0.005

    def per_fault(self, mode: str, pages: str, written: int = 1) -> int:
        return (
            (self.piece if written > 1 else self.around)
            if mode == "file"
            else FANOUT
            if pages == "thp"
            else 1
        )

    def page_ns(self, mode: str, pages: str, populate: int, written: int = 1) -> float:
        per_fault = self.per_fault(mode, pages, written)
        trap = 0.0 if populate else self.trap_ns / per_fault
        return trap + self.enter_ns + (0.0 if mode == "file" else self.zero_ns) + self.free_ns

    def fields(self, point: Point) -> dict[str, Any]:
        """A record's ns a page or a record, and what its kernel tells beside."""
        options = dict(point.options)
        return getattr(self, point.kernel)(point, options)

    def page_fault(self, point: Point, options: dict[str, int]) -> dict[str, Any]:
        mode = "anonymous" if point.mode == "grouped" else point.mode
        ns = self.page_ns(mode, point.pages, options["populate"], options.get("written", 1))
        per_fault = self.per_fault(mode, point.pages, options.get("written", 1))
        slow, fast = per_fault * ns, 10.0
        bins = (
            [[fast + CLOCK_NS, 15 * per_fault], [slow + CLOCK_NS, 15]]
            if per_fault > 1
            else [[slow + CLOCK_NS, 100]]
        )
        also = {
            "faults_per_access": 1 / per_fault,
            "map_ns_per_access": 1.0,
            "later_mean_ns": 25.0,
            "mean_ns": ns,
            "p50_ns": ns,
            "p95_ns": ns,
            "p99_ns": 2 * ns,
            "unmap_ns_per_access": self.free_ns,
            "unmap_empty_ns_per_access": 0.4,
            "protect_ns_per_access": 75.0,
            "protect_empty_ns_per_access": 0.3,
            "fork_ns_per_access": 120.0,
            "fork_empty_ns_per_access": 15.0,
            "untouched_table_bytes": 0.0,
            "filled_table_bytes": 24576.0,
            "tsc_ghz": TSC_GHZ,
            "clock_ns": CLOCK_NS,
            "histogram": bins,
            "page_table_bytes": 73728,
        }
        if point.mode == "grouped":
            return also | {"ns_per_access": ns * self.charge, "outside_ns_per_access": ns}
        return also | {"ns_per_access": ns}

    def touch_again(self, point: Point, options: dict[str, int]) -> dict[str, Any]:
        ns = self.page_ns("anonymous", point.pages, 0)
        taken = options["idle_ms"] >= self.taken_after_ms and point.pages == "thp"
        again, first = ns + taken * self.host_ns, ns + self.host_ns
        return {"ns_per_access": again, "mean_ns": again, "first_ns_per_access": first}

    def map_churn(self, point: Point, options: dict[str, int]) -> dict[str, Any]:
        chunk = point.lines * CACHE_LINE_BYTES // grid.ARTICLE_CHUNK_COUNT
        pages, threads = chunk // 4096, options["threads"]
        fault = (
            self.page_ns("anonymous", point.pages, 0) * pages * (1 + self.shared * (threads - 1))
            if point.mode == "unmap"
            else 0.0
        )
        alone = self.search_ns * chunk / grid.ARTICLE_CHUNK_BYTES + fault
        faults = pages / (FANOUT if point.pages == "thp" else 1) if point.mode == "unmap" else 0.0
        return {
            "ns_per_access": alone / min(threads, self.cpus),
            "faults_per_access": faults,
            "cpus": float(min(threads, self.cpus)),
        }

    def prefault(self, point: Point, options: dict[str, int]) -> dict[str, Any]:
        ns = self.page_ns("anonymous", point.pages, 0) / min(options["threads"], self.cpus)
        return {
            "ns_per_access": ns,
            "free_ns_per_access": self.free_ns,
            "one_byte_resident_bytes": 4096.0 * (FANOUT if point.pages == "thp" else 1),
        }

    def frame(self, points: Iterable[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process."""

        def ns(point: Point) -> float:
            return self.fields(point)["ns_per_access"]

        def more(point: Point, took: float) -> dict[str, Any]:
            fields = self.fields(point)
            slower = took / fields["ns_per_access"]
            timed = {name: fields[name] * slower for name in ("mean_ns",) if name in fields}
            return fields | timed | {"ns_per_access": took}

        return processes(points, ns, self.noise, repeats, seed, more=more)


def points(most: int = GIB, cpus: int = 4) -> list[Point]:
    return grid.points(scope(most, cpus=cpus, per_octave=4))


@cache
def rows(kernel: Kernel = Kernel(), most: int = GIB, repeats: int = 5) -> pd.DataFrame:
    return kernel.frame(points(most, kernel.cpus), repeats)


def side(**changes: Any) -> dict[str, Any]:
    """The document of the kernel's side."""
    return {
        "schema_version": 1,
        "measured_at": "2026-01-01T00:00:00Z",
        "state": "a" * 12,
        "file_system": "ext4",
        "la57_flag": False,
        "no5lvl": False,
        "high_mapping": False,
        "balloon": ["statistics", "free-page-reports"],
        "report_order": 9,
        "profiles": {
            "4k": {"[k] exc_page_fault": 0.2, "[k] clear_page_erms": 0.1, "[.] write_pages": 0.05},
            "thp": {"[k] clear_page_erms": 0.6, "[.] write_pages": 0.1},
        },
        "lacking": {},
    } | changes


def analysis(
    frame: pd.DataFrame | None = None,
    *,
    hypervisor: str = "kvm",
    host: dict[str, Any] | None = None,
    cpus: int = 4,
    **changes: Any,
) -> Analysis:
    """changes: of `side`; host: of the machine's description."""
    described = Stated(
        hypervisor=hypervisor, changes={"usable_cpus": tuple(range(cpus))} | (host or {})
    ).host()
    return Analysis(
        rows() if frame is None else frame,
        About(described, documents={"kernel_side": side(**changes)}),
    )


NOTHING = rows().query("kernel == 'none'")
