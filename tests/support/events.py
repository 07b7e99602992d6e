"""Shootdowns, switches, starts, forks and collapses on made-up machines: rows, and an Analysis of
them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from experiments.flushes import Analysis, grid
from support.common import About
from support.synthetic import GIB, Stated, processes, scope
from tlb.measure.record import Point

PAGE, LARGE_PAGE, ACCESSES = 4096, 2 << 20, 1000
NEW_PROCESS_ROUNDS = tuple(1 << octave for octave in range(7))  # kernels/cold_chase.c


@dataclass(frozen=True)
class Events:
    """A machine by what it pays, in ns: for a call and each page of it, for each CPU that is told;
    for a page that a TLB has forgotten."""

    call_ns: float = 1000.0
    page_ns: float = 250.0
    told_ns: float = 10_000.0  # a CPU
    seen: float = 0.99  # of the flushes asked
    counted: bool = True  # whether the kernel counts them
    near_ns: float = 1.0  # a hop over lines side by side
    held_ns: float = 2.0  # a page that the TLB holds more than that
    cold_ns: float = 15.0  # a page that it does not
    exec_ns: float = 7e5  # the start of a program
    kept: float = 1.0  # of a TLB, over a switch of processes
    walks_kept: float = 1.0  # of what the walker holds
    copies_whole: bool = False  # a write after a fork copies a large page
    stream_ns: float = 0.2  # that a MiB beside adds to a hop's translation
    taken: float = 1.3  # of entries lost beside a thread that gives pages back
    interrupted: float = 1.1  # of its interrupts
    shared: float = 1.5  # beside a chase on the same core
    walk_ns: float = 40.0  # a page beyond the TLB's reach
    gain_ns: float = 10.0  # what large pages take off that
    noise: float = 0.005

    def ns(self, point: Point) -> float:
        own, packed = dict(point.options), point.layout == "packed"
        if point.kernel == "shootdown":
            told = own["threads"] * (own.get("apart", 0) == 0)
            part = 15_000.0 * (point.pages == grid.HUGE_PAGE_KIND)
            return self.call_ns + point.lines * self.page_ns + told * self.told_ns + part
        if point.kernel == "switch_chase":
            lost = (1 - self.kept) * (point.mode == "process")
            walk = self.cold_ns * (2 - self.walks_kept if point.mode == "process" else 1)
            if packed:
                return self.near_ns
            held = (1 - lost) * self.held_ns + lost * self.cold_ns
            return self.near_ns + (walk if own.get("hops") else held)
        if point.kernel == "cold_chase":
            return self.near_ns + (0 if packed else self.cold_ns)
        if point.kernel == "fork_write":
            return 2000.0 if point.pages == "4k" else 4000.0
        if point.kernel == "collapse_chase":
            return self.walk_ns
        loaded = 0 if packed else 20.0 + self.stream_ns * own.get("stream_kib", 0) / 1024
        taken = self.interrupted * (1 if packed else self.taken)
        factor = self.shared if own.get("walk_lines") else 1.0
        if own.get("discard_pages"):
            factor = taken
        near = self.near_ns + (0 if packed else self.held_ns)
        return (100.0 + loaded if point.lines > grid.PAGES_WITHIN_STLB else near) * factor

    def also(self, point: Point, ns: float, accesses: int) -> dict[str, float]:
        """What the kernel itself tells beside its time."""
        own = dict(point.options)
        if point.kernel == "shootdown":
            asked, found = float(accesses * own["threads"] * (own.get("apart", 0) == 0)), {}
            if point.pages == "4k" and point.mode != "collapse":
                found["flushes_asked"] = asked
            if self.counted and own["threads"]:
                found["flushes_seen"] = round(asked * self.seen)
            if point.pages == grid.HUGE_PAGE_KIND:
                found["huge_bytes_after"] = 0.0
            return found
        if point.kernel == "switch_chase":
            return {"switch_ns": 5000.0}
        if point.kernel == "cold_chase":
            later = self.near_ns + (self.held_ns if point.layout == "spread" else 0.0)
            return {"spawn_ns": 1e5, "exec_ns": self.exec_ns, "faults_in_passes": 0.0} | {
                f"pass_{n}_ns": ns if n == 1 else later for n in NEW_PROCESS_ROUNDS
            }
        if point.kernel == "fork_write":
            return self._forked(point)
        if point.kernel == "collapse_chase":
            return self._collapsed(point, ns)
        parts = {"p50_ns": ns, "p99_ns": 1.5 * ns, "p999_ns": 3 * ns}
        return parts | {"slices": 1000.0, "turns": 10.0, "flushes_seen": 0.0}

    def _forked(self, point: Point) -> dict[str, float]:
        used, page, touched = dict(point.options).get("used"), PAGE, float(point.lines * PAGE)
        resident = touched
        if point.pages == grid.HUGE_PAGE_KIND:
            page, rooms = LARGE_PAGE, -(-point.lines // used) if used else touched / LARGE_PAGE
            resident = float(rooms * LARGE_PAGE)
        found = {"resident_bytes": resident, "touch_ns_per_page": 800.0}
        if point.mode == "write":
            found["fork_ns"] = 1e5 + 100 * resident / page
            found["copied_bytes"] = resident if self.copies_whole else touched
        return found

    def _collapsed(self, point: Point, ns: float) -> dict[str, float]:
        own_pages = point.mode in ("address", "random")
        middle = {"before": ns, "during": ns, "after": ns - own_pages * self.gain_ns}
        tail = {phase: (200 if own_pages and phase == "during" else 2) * ns for phase in middle}
        return (
            {f"{phase}_p50_ns": value for phase, value in middle.items()}
            | {f"{phase}_p999_ns": tail[phase] for phase in tail}
            | {"joined_ns": 2e7, "joined_bytes": float(point.lines * PAGE), "huge_bytes_after": 0.0}
        )

    def frame(self, points: Iterable[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process, of a thousand calls each."""
        return processes(
            points,
            self.ns,
            self.noise,
            repeats,
            seed,
            fields=lambda point: {"accesses": ACCESSES},
            more=lambda point, ns: self.also(point, ns, ACCESSES),
        )


@cache
def rows(machine: Events = Events(), cpus: int = 4) -> pd.DataFrame:
    return machine.frame(grid.points(scope(GIB, cpus=cpus, per_octave=4)))


def larger_controls(ns: float) -> pd.DataFrame:
    """Packed chases without neighbours, of more lines than the one beside a stream: ns a hop."""
    of = scope(GIB)
    far = grid.lines_beyond_caches(of)
    larger = [of.point("page_chase", layout="packed", lines=times * far) for times in (2, 4)]
    return processes(larger, lambda point: ns, noise=1e-9, repeats=5, seed=1)


def stated(**changes: Any) -> dict[str, Any]:
    """The document of what a computer says of flushes."""
    return {
        "schema_version": 1,
        "state": "a" * 12,
        "pti": False,
        "broadcasts": False,
        "defers": True,
    } | changes


def housekeeping(*lacking: str, is_cheap: bool = False) -> dict[str, Any]:
    """The document of Linux's own work, on a machine where it costs what is said of it or, where
    is_cheap, does not. lacking: parts for which memory was short; "pieces" are those of memory that
    lies in pieces."""
    room = LARGE_PAGE
    first_ns = {"free": 100_000, "fragments": 1000 if is_cheap else 1_000_000}  # of a huge page
    short_ratio = {"free": 0.2, "fragments": 0.5 if is_cheap else 1.5}  # of times, huge over base

    def run(memory: str, mode: str) -> dict[str, Any]:
        is_huge = mode in ("always", "madvise") or (memory, mode) == ("free", "never")
        first = first_ns[memory] if is_huge else 2000
        times = {"room_ns": 10 * first, "p50_ns": 20, "p99_ns": 30, "p999_ns": first}
        return times | {"first_ns": [first] * 8, "large": 8 * is_huge, "longest_ns": 3 * first}

    sizes = {"bytes": 8 * room, "saved_bytes": 7 * room, "large_before": 8 * room, "large_after": 0}
    swapped = {"read_ns": [9000] * 8, "bytes": 8 * room, "out_bytes": 8 * room}
    idle = {"seconds": 30.0, "bytes": 32 * room, "large_bytes": 0 if is_cheap else 16 * room}
    whole = {
        "touched": [
            {"memory": memory, "mode": mode, "runs": [run(memory, mode)] * 6}
            for memory in first_ns
            for mode in ("always", "madvise", "never", "")
        ],
        "lives": [
            {
                "memory": memory,
                "mib": mib,
                "ns": {"4k": [mib * 10**6] * 6, "thp": [round(mib * 10**6 * ratio)] * 6},
            }
            for memory, ratio in short_ratio.items()
            for mib in (1, 64)
        ],
        "merged": [sizes | {"merged_write_ns": 2300, "own_write_ns": 80}] * 6,
        "swapped": [swapped | {"pages": pages, "in_bytes": 8 * PAGE} for pages in ("4k", "thp")]
        * 6,
        "pool_taken": [0.5 if is_cheap else 1.0] * 6,
        "pool_plain": float(is_cheap),
        "pool_pageout": False,
        "idle": idle | {"scan_sleep_ms": 10000, "pages_to_scan": 4096},
    }
    if "pieces" in lacking:
        for name in ("touched", "lives"):
            whole[name] = [one for one in whole[name] if one["memory"] == "free"]
    about = {"measured_at": "2026-01-01T00:00:00Z", "state": "a" * 12, "defrag": "madvise"}
    about |= {"room_bytes": room, "leave_bytes": GIB, "nodes": 1}
    measured = {name: value for name, value in whole.items() if name not in lacking}
    return about | {"lacking": dict.fromkeys(lacking, "memory-short")} | measured


def analysis(
    frame: pd.DataFrame | None = None,
    *,
    house: dict[str, Any] | None = None,
    hypervisor: str = "kvm",
    cpus: int = 4,
    pcid: bool | None = True,
    larger_ns: float = 100.0,
    **changes: Any,
) -> Analysis:
    """Return the chapter's Analysis. house: of `housekeeping`; None: no such document. larger_ns: of
    `larger_controls`. changes: of `stated`."""
    documents = {"flushes": stated(**changes)} | ({"housekeeping": house} if house else {})
    host = Stated(
        hypervisor=hypervisor, changes={"usable_cpus": tuple(range(cpus)), "pcid": pcid}
    ).host()
    frame = rows() if frame is None else frame
    others = {"stlb_cliff": larger_controls(larger_ns)}
    return Analysis(frame, About(host, rows=others, documents=documents))
