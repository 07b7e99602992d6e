"""How many page-table entries a walk loads in each cell of the matrix: by the formula, and
simulated, cold and warm."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import numpy as np

from tlb.machine.host import Host, data_tlbs
from tlb.page_sizes import HARDWARE, hardware

# Entries of the caches that shorten a walk: by the level of the table that a guest's entry points
# to, and of the nested TLB, by the level of the guest's table that is looked for, 0 for the data.
# No vendor states them. At 1 GiB half of them or twice as many change a count by a twentieth or so
# (a test holds it); just past the STLB's reach they may change it by a half.
WALK_CACHES = {2: 32, 3: 8, 4: 4}
NESTED = 32


def _simulator() -> ModuleType:
    """The simulator, imported as it is asked: its loop is in numba, 60 MB that whoever measures has
    no use for."""
    from tlb.inference import simulator

    return simulator


def smaller(guest: str, host: str) -> str:
    """The page that a TLB entry can span at most, which leads from the guest's address to the
    host's."""
    return min(hardware(guest), hardware(host), key=HARDWARE.index)


def at_most(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """Loads of page-table entries in a walk of two dimensions that no cache shortens:
    `inference.simulator.references_per_walk`."""
    return _simulator().references_per_walk(guest, hardware(host), levels, host_levels)


def of_shadow(guest: str, host: str) -> int:
    """The same for shadow tables: a walk of one dimension, down to the smaller page."""
    return _simulator().references_per_walk(smaller(guest, host))


def cold(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """What the simulator counts for a first load, with every cache of translations empty."""
    simulator = _simulator()
    machine = simulator.SimulatedMachine(
        levels=levels, host=simulator.SimulatedHost(host_levels, hardware(host))
    )
    return simulator.simulate(machine, [0], guest).references


def warm(guest: str, host: str, lines: int, machine: Host, scale: float = 1.0) -> float:
    """References per load of a chase over `lines` lines, one to each base page, in its second
    cycle: TLBs of the entries that the machine states for what an entry spans (for base pages where
    it is silent), walk caches and nested TLBs of WALK_CACHES and NESTED times `scale`, all of them
    LRU."""
    stated = data_tlbs(machine, smaller(guest, host)) or data_tlbs(machine)
    return _warm(
        guest,
        hardware(host),
        lines,
        tuple(tlb.entries for tlb in stated[:2]),
        machine.base_page_bytes,
        scale,
    )


@cache
def _warm(
    guest: str, host: str, lines: int, entries: tuple[int, ...], line_bytes: int, scale: float
) -> float:
    simulator, span = _simulator(), smaller(guest, host)
    tlbs = tuple(
        simulator.SimulatedTlb(level=level, entries=n, pages=(span,))
        for level, n in enumerate(entries, 1)
    )
    walk_caches = tuple(
        simulator.WalkCache(level=level, entries=max(int(n * scale), 1))
        for level, n in WALK_CACHES.items()
    )
    nested = tuple(
        simulator.NestedTlb(level=level, entries=max(int(NESTED * scale), 1)) for level in range(5)
    )
    cycle = np.random.default_rng(lines).permutation(lines)
    machine = simulator.SimulatedMachine(
        tlbs, walk_caches, host=simulator.SimulatedHost(4, host, nested)
    )
    return (
        simulator.simulate(
            machine, np.tile(cycle, 2), guest, unit_bytes=line_bytes, warm=lines
        ).references
        / lines
    )
