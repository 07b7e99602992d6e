"""How many page-table entries a walk loads in each cell of the matrix: by the formula, and simulated, cold and warm."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
import pandas as pd

from experiments.article import machine_words as findings
from experiments.chapters.virtualization.analysis import cell_name, hardware, smaller
from experiments.inference.simulator import Host as Nested
from experiments.inference.simulator import Machine, NestedTlb, Tlb, WalkCache, references_per_walk, simulate
from experiments.machine.host import Host

# Entries of the caches that shorten a walk: by the level of the table that a guest's entry points to, and of the nested TLB, by
# the level of the guest's table that is looked for, 0 for the data. No vendor states them. At 1 GiB half of them or twice as many
# change a count by a twentieth or so (tests/test_virtual.py); just past the STLB's reach they may change it by a half.
WALK_CACHES = {2: 32, 3: 8, 4: 4}
NESTED = 32


def at_most(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """Loads of page-table entries in a walk of two dimensions that no cache shortens: `simulator.references_per_walk`."""
    return references_per_walk(guest, hardware(host), levels, host_levels)


def of_shadow(guest: str, host: str, levels: int = 4) -> int:
    """The same where KVM writes shadow tables: a walk of one dimension, down to the smaller page."""
    return references_per_walk(smaller(guest, host), levels=levels)


def cold(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """What the simulator counts for a first load, with every cache of translations empty."""
    return simulate(Machine(levels=levels, host=Nested(host_levels, hardware(host))), [0], guest).references


def warm(guest: str, host: str, lines: int, machine: Host, scale: float = 1.0) -> float:
    """References per load of a chase over `lines` lines, one to each 4 KiB, in its second cycle: TLBs of the entries that the
    machine states for what an entry spans (for base pages where it is silent), walk caches and nested TLBs of WALK_CACHES and
    NESTED times `scale`, all of them LRU."""
    stated = findings.data_tlbs(machine, smaller(guest, host)) or findings.data_tlbs(machine)
    return _warm(guest, hardware(host), lines, tuple(tlb.entries for tlb in stated[:2]), scale)


@cache
def _warm(guest: str, host: str, lines: int, entries: tuple[int, ...], scale: float) -> float:
    tlbs = tuple(Tlb(level=k, entries=n, pages=(smaller(guest, host),)) for k, n in enumerate(entries, 1))
    walk_caches = tuple(WalkCache(level=level, entries=max(int(n * scale), 1)) for level, n in WALK_CACHES.items())
    nested = tuple(NestedTlb(level=level, entries=max(int(NESTED * scale), 1)) for level in range(5))
    order = np.random.default_rng(lines).permutation(lines)
    found = simulate(Machine(tlbs, walk_caches, host=Nested(4, host, nested)), np.tile(order, 2), guest, unit_bytes=4096, warm=lines)
    return found.references / lines


def counted(priced: pd.DataFrame, machine: Host) -> pd.DataFrame:
    """Beside the rows of `virtual.at`: cell, guest, host, lines, formula, simulated (cold), warm (per load), shadow, and the measured
    median, price, price_low, price_high, ns. Four levels on four."""
    rows = [(cell_name(row.guest, row.host), row.guest, row.host, row.lines, at_most(row.guest, row.host), cold(row.guest, row.host),
             warm(row.guest, row.host, row.lines, machine), of_shadow(row.guest, row.host), row.median, row.price, row.price_low,
             row.price_high) for row in priced.itertuples()]
    return pd.DataFrame(rows, columns=["cell", "guest", "host", "lines", "formula", "simulated", "warm", "shadow", "median", "price",
                                       "price_low", "price_high"])


def table(found: pd.DataFrame) -> pd.DataFrame:
    """A frame of `counted` for people."""
    return pd.DataFrame({
        "guest on host": found["cell"], "by the formula": found["formula"], "simulated, cold": found["simulated"],
        "simulated, warm, per load": found["warm"].astype(float), "of a shadow table": found["shadow"],
        "price here, ns": found["price"].astype(float)})


def by_levels(depths: Iterable[int] = (4, 5)) -> pd.DataFrame:
    """The most references, base pages on base pages, by the levels of both tables: rows guest, columns host."""
    depths = list(depths)
    return pd.DataFrame([[f"guest, {g} levels", *(at_most("4k", "4k", g, h) for h in depths)] for g in depths],
                        columns=["", *(f"host, {h} levels" for h in depths)])
