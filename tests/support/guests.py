"""Machines that never were, with guests: their rows, what they state of KVM, and an Analysis of
both."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from experiments.virtualization import grid
from experiments.virtualization.analysis import Analysis
from support import synthetic
from support.common import About
from support.synthetic import GIB, PAGE_BYTES, Stated, lru, processes
from support.synthetic import median as median
from tlb.machine.host import Host
from tlb.machine.settings import KvmSupport
from tlb.measure.record import Point
from tlb.system.page_sizes import mapped_page_size

ENTRIES = [64, 1536]
GUESTS, HOSTS = ("4k", "2m", "1g"), ("4k", "thp", "2m", "1g")
CELLS = [(guest, host) for guest in GUESTS for host in HOSTS]


def _references(page: str, host: str = "") -> int:
    """Of a walk in one dimension, or in two."""
    g = 4 - GUESTS.index(page)
    return (g + 1) * (5 - GUESTS.index(host)) - 1 if host else g


@dataclass(frozen=True)
class Guests:
    """A machine with two LRU levels whose entries span the smallest page on the way: the guest's,
    the host's and, where the host is a guest itself, the outer host's. A walk costs so much a
    reference, of as many references as no cache shortens."""

    cells: tuple[tuple[str, str], ...] = tuple(CELLS)
    pages: tuple[str, ...] = HOSTS  # of the plain process
    outer: str = ""  # the outer host's pages; "" on bare metal
    shadow: bool = False
    load_ns: float = 1.0
    hit_ns: float = 2.0
    reference_ns: float = 4.0
    touch_ns: float = 3000.0  # of a fault in the guest
    namespaces: float = 1.0  # what they do to a load, as a factor
    far: tuple[float, ...] = (1.0, 1.5, 1.2, 1.7)
    five: float = 0.0  # what five levels do to a guest's load, as a factor; 0: no LA57
    outside: float = 1.002
    noise: float = 0.003
    ghz: float = 3.2

    def span(self, *pages: str) -> int:
        return min(PAGE_BYTES[page] for page in (*pages, self.outer) if page)

    def references(self, guest: str, host: str) -> int:
        """Two dimensions at the most: shadow tables and an outer host fold one."""
        if not guest:
            return _references(mapped_page_size(host), self.outer)
        if self.shadow:
            return _references(min(guest, mapped_page_size(host), key=GUESTS.index), self.outer)
        return _references(guest, mapped_page_size(host))

    def price_ns(self, guest: str, host: str, lines: int) -> float:
        span = self.span(*((guest, host) if guest else (host,)))
        order = "random" if span > 4096 else "cycle"
        first, second = (
            float(lru(order, np.array([max(4096 * lines / span, 1.0)]), n)[0]) for n in ENTRIES
        )
        return first * self.hit_ns + second * self.references(guest, host) * self.reference_ns

    def time_ns(self, point: Point) -> float:
        guest = point.mode if point.kernel == "guest_chase" else ""
        price = self.price_ns(guest, point.pages, point.lines) if point.layout == "spread" else 0.0
        factor = self.namespaces if point.mode == "namespaces" else 1.0
        if point.kernel == "numa_chase":
            factor = self.far[grid.NUMA_PLACEMENTS.index(point.mode)]
        if point.options:
            factor = self.five
        return (self.load_ns + price) * factor

    def has(self, point: Point) -> bool:
        if point.kernel == "guest_chase":
            return (point.mode, point.pages) in self.cells and bool(self.five or not point.options)
        return (
            point.kernel == "numa_chase"
            and bool(self.far)
            or point.kernel == "page_chase"
            and point.pages in self.pages
        )

    def also(self, point: Point) -> dict[str, float]:
        """What a guest writes down beside its chase."""
        if point.kernel != "guest_chase":
            return {}
        faults = max(1.0, 4096 * point.lines / self.span(point.mode, point.pages)) / point.lines
        levels = float(dict(point.options).get("levels", 4))
        return {
            "first_touch_ns_per_access": self.touch_ns * faults,
            "tsc_ghz": 2.5,
            "guest_levels": levels,
        }

    def frame(self, points: list[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process."""

        def fields(point: Point) -> dict[str, Any]:
            return {"core_ghz": self.ghz, "also": self.also(point)}

        def outside(point: Point, ns: float) -> dict[str, float]:
            guest = point.kernel == "guest_chase"
            return {"outside_ns_per_access": ns * self.outside} if guest else {}

        there = filter(self.has, points)
        return processes(
            there, self.time_ns, self.noise, repeats, seed, fields=fields, more=outside
        )


BARE = Guests(far=())
NESTED = Guests(far=(), outer="4k", shadow=True)


@cache
def rows(machine: Guests = BARE) -> pd.DataFrame:
    return machine.frame(grid.points(synthetic.scope(GIB, ENTRIES, per_octave=4)))


MACHINES: dict[str, Callable[[], pd.DataFrame]] = {
    "bare metal": lambda: rows(),
    "a guest's guest": lambda: rows(NESTED),
    "no guest": lambda: rows(Guests(cells=())),
    "no native": lambda: rows(Guests(pages=())),
    "no controls": lambda: rows().query("layout != 'packed'"),
    "far alone": lambda: rows(Guests()).query("kernel != 'numa_chase' or mode != 'local-local'"),
    "nothing": lambda: rows()[:0],
}
KVM: dict[str, KvmSupport] = {
    "npt": KvmSupport(device=True, module="kvm_amd", tables="NPT"),
    "shadow": KvmSupport(device=True, module="kvm_pvm", tables="shadow"),
    "hidden": KvmSupport(device=False, module="kvm_amd", tables="NPT"),
}


def stated(name: str = "npt", hypervisor: str = "none", **changes: object) -> Host:
    """A machine that says so of its KVM."""
    return Stated(hypervisor=hypervisor, changes={"kvm": KVM[name]} | changes).host()


def analysis(frame: pd.DataFrame, host: Host | None = None, **about: object) -> Analysis:
    return Analysis(frame, About(host or stated(), **about))


@cache
def of(name: str = "bare metal") -> Analysis:
    """The Analysis of one of MACHINES; tests share it, so none assigns to it."""
    return analysis(MACHINES[name]())
