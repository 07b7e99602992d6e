"""What the machines of data/ show together, as numbers, and which kinds of machine are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from experiments.overview.machines import Analysis, Machine
from tlb.machine.host import is_arm
from tlb.measure import events
from tlb.system.prose import listed
from tlb.system.reasons import Unavailable

# as found or, where nothing was, as stated
ENTRY_QUANTITIES = {level: (f"entries_level_{level}", f"stated_level_{level}") for level in (1, 2)}


def off_stated(machines: Sequence[Machine]) -> pd.Series:
    """Return by which share the entries found at the last level differ from those stated, of
    machines that have both."""
    found, stated = ENTRY_QUANTITIES[2]
    return pd.Series(
        {
            each.name: abs(each.value(found) / each.value(stated) - 1)
            for each in machines
            if each.quantity(found) and each.quantity(stated)
        },
        dtype=float,
    )


def last_level_entries(each: Machine) -> str:
    """Return the entries of the last level as text: as found, with their interval, or as stated."""
    found, stated = (each.quantity(name) for name in ENTRY_QUANTITIES[2])
    known = found.interval if found else None
    return f"{known:,.0f}" if known else f"{stated.value:,.0f}" if stated else ""


def gains(a: Analysis, pages: str) -> str:
    """List the gains by 2 MiB pages of machines whose large pages are `pages`, with their
    intervals. Raises Unavailable("too-few-points")."""
    found = [
        (each.quantity("gain_thp") or each.quantity("gain_2m"), each.label)
        for each in a.with_value("gain_thp", "gain_2m")
        if each.pages == pages
    ]
    texts = [f"{quantity.interval:.2f} on {label}" for quantity, label in found if quantity]
    if not texts:
        raise Unavailable("too-few-points", "no gain by large pages was measured on such a machine")
    return listed(texts)


class Want(NamedTuple):
    """A kind of machine: whether one is of it, what it would show that a guest cannot, and the
    command to run on one."""

    what: str
    has: Callable[[Machine], bool]
    why: str
    command: str


def _times_walks(each: Machine) -> bool:
    """Whether it counts cycles of walks, which not every processor has an event for."""
    if not each.counts or each.host is None:
        return False
    known = events.quantities(each.host.microarchitecture)
    return any(event.quantity == "walk_cycles" and event.event for event in known)


WANTED = (
    Want(
        "Counters",
        lambda each: each.counts,
        "Without them, how often a load walks is inferred from a control. Counters count the walks.",
        ".venv/bin/tlb run stlb_cliff -p profile full && .venv/bin/tlb bundle",
    ),
    Want(
        "Counters of a walk's cycles",
        _times_walks,
        "Counters here give the number of walks, so how long one takes is inferred from run time. "
        "Intel's cores count the cycles spent in walks, also of those that overlap other work.",
        ".venv/bin/tlb run stlb_cliff -p profile full && .venv/bin/tlb bundle",
    ),
    Want(
        "arm64",
        lambda each: bool(each.host and is_arm(each.host)),
        "Every machine here is x86-64. An arm64 machine may have base pages of 16 or 64 KiB. Its "
        "Linux can mark neighbouring pages as contiguous, so that one TLB entry covers them, and its "
        "hardware broadcasts TLB flushes to the other cores.",
        "make book PROFILE=full MINUTES=40 && .venv/bin/tlb bundle",
    ),
    Want(
        "Two memory nodes",
        lambda each: each.has_nodes,
        "A walk through page tables on the other memory node pays for the distance at each step. A "
        "guest with one node cannot show that, nor can it see where its host puts its memory.",
        ".venv/bin/tlb run virtualization -p profile full && .venv/bin/tlb bundle",
    ),
    Want(
        "Bare metal with whole huge pages",
        lambda each: each.is_guest is False and each.pages == "whole",
        "A guest's page walks go through the host's page table too. Only bare metal shows the cost of "
        "a walk through a single page table, and what a TLB entry of 2 MiB gains with it.",
        ".venv/bin/tlb run hugepages -p profile full && .venv/bin/tlb bundle",
    ),
)


def wanted(a: Analysis) -> list[Want]:
    """Return the kinds of machine that data/ has none of. Counters of cycles are not wanted before
    there are counters."""
    lacks = [
        want for want in WANTED if not any(want.has(each) for each in a.machines if not each.is_own)
    ]
    return [want for want in lacks if want is not WANTED[1] or WANTED[0] not in lacks]
