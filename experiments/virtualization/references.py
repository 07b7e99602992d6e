"""How many page-table entries a nested walk loads: by the formula, and simulated."""

from __future__ import annotations

from types import ModuleType

from tlb.page_sizes import hardware


def _simulator() -> ModuleType:
    """Return the simulator, imported late: its loop is in numba, 60 MB that measuring does without."""
    from tlb.inference import simulator

    return simulator


def at_most(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """Loads of page-table entries in a walk of two dimensions that no cache shortens:
    `inference.simulator.references_per_walk`."""
    return _simulator().references_per_walk(guest, hardware(host), levels, host_levels)


def cold(guest: str, host: str, levels: int = 4, host_levels: int = 4) -> int:
    """What the simulator counts for a first load, with every cache of translations empty."""
    simulator = _simulator()
    machine = simulator.SimulatedMachine(
        levels=levels, host=simulator.SimulatedHost(host_levels, hardware(host))
    )
    return simulator.simulate(machine, [0], guest).references
