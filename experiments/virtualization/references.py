"""How many page-table entries a nested walk loads: by the formula, and simulated."""

from __future__ import annotations

from tlb.system.page_sizes import HARDWARE, hardware


def _depth(page: str, levels: int) -> int:
    """Return how many tables are read to find a page."""
    return levels - HARDWARE.index(hardware(page))


def at_most(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """Loads of page-table entries in a walk of two dimensions that no cache shortens: (g + 1)(h +
    1) - 1, as each of the g entries and the data take h loads to find, and the g are loaded too
    (Bhargava et al., 2008)."""
    return (_depth(guest, levels) + 1) * (_depth(host, host_levels) + 1) - 1


def cold(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """Loads of page-table entries by a load with every cache of translations empty, one by one."""
    loads = 0
    for is_table in [True] * _depth(guest, levels) + [False]:  # at last the data
        loads += _depth(host, host_levels)  # of the host's, to find it
        loads += is_table  # its own entry
    return loads
