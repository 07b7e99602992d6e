"""Machines that never were, for the chapter about the cliff: what each is, its Analysis, and rows
whose counters were computed."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from experiments.stlb_cliff import Analysis
from support.common import About, make_record
from support.lab import put
from support.synthetic import GIB, MIB, Stated, Truth, frame, grid, lru, tlbs
from tlb.inference import misses
from tlb.lab import events
from tlb.lab.perf import Plan
from tlb.lab.perf_json import derive
from tlb.lab.record import Point, Quantity
from tlb.lab.store import Store


def hashed(order: str, lines: np.ndarray, entries: int) -> np.ndarray:
    """Misses of sets of 12, chosen by a hash, that replace at random."""
    return misses.hashed_random_replacement(lines, entries // 12, 12)


TEXTBOOK = Truth(climb=1.3)
PLAIN, SILENT = Stated(), Stated(tlb=())
MACHINES: dict[str, tuple[Truth, Stated, list[Point]]] = {
    "the textbook's": (TEXTBOOK, PLAIN, grid()),
    "no cliff": (Truth(hit_ns=0.0, walk_ns=0.0), PLAIN, grid()),
    "noise": (Truth(noise=0.3), PLAIN, grid()),
    "CPUID silent": (Truth(), SILENT, grid(entries=())),
    "one level stated": (Truth(), Stated(tlb=tlbs()[:1]), grid()),
    "tiny sizes": (Truth(), PLAIN, grid(64 << 10, per_octave=4)),
    "small sizes": (Truth(), PLAIN, grid(4 * MIB, per_octave=1)),
    "no zoom": (Truth(), PLAIN, grid(GIB, per_octave=1)),
}


@cache
def _rows(truth: Truth, points: tuple[Point, ...] | None, repeats: int, seed: int) -> pd.DataFrame:
    return frame(truth, points and list(points), repeats, seed)


def analysis(
    rows: pd.DataFrame | None = None, stated: Stated = PLAIN, machine: str = "made-up"
) -> Analysis:
    """Of rows, by default the textbook's."""
    return Analysis(
        _rows(TEXTBOOK, None, 7, 1) if rows is None else rows, About(stated.host(), machine)
    )


def of(
    truth: Truth,
    points: list[Point] | None = None,
    stated: Stated = PLAIN,
    repeats: int = 7,
    seed: int = 1,
) -> Analysis:
    return analysis(_rows(truth, None if points is None else tuple(points), repeats, seed), stated)


def kind(name: str, repeats: int = 7) -> Analysis:
    truth, stated, points = MACHINES[name]
    return of(truth, points, stated, repeats)


# --- counters that were computed

CHAPTER, SIMULATED = "stlb_cliff", "simulated-ice-lake-server"
CYCLES_PER_WALK, GHZ, REPEATS = 28.0, 3.2, 4
COUNTED = Truth(noise=0.002)
COUNTING = Stated(changes={"pmu": {"tier": "counters", "reason": None}})


# Misses of the textbook's TLB, whose walks get dearer with every octave past it: in time a slope,
# in walks a step.
DEARER = Truth(climb=1.8, climb_from=1536, noise=0.002)


def counted(truth: Truth = DEARER) -> Analysis:
    """Rows in which the walks of both orders are counted."""
    rows = frame(truth)
    past = [
        float(lru(order, np.array([lines]), truth.entries[1])[0])
        for order, lines in zip(rows["order"], rows["lines"], strict=True)
    ]
    return analysis(
        rows.assign(walk_per_access=np.where(rows["layout"] == "spread", past, 0.0)), COUNTING
    )


def plan_of(cpu: str) -> Plan:
    rows = events.SOFTWARE + events.quantities(cpu)
    return Plan(
        "perf",
        tuple(row for row in rows if row.event),
        {row.quantity: row.reason for row in rows if row.reason},
        tuple(row for row in rows if row.derived),
    )


def count(row: dict, plan: Plan) -> dict[str, Quantity]:
    """The counters of one process over an LRU TLB of 64 and 1,536 entries, in the group that is
    this repeat's turn."""
    spread, lines, n = row["layout"] == "spread", np.array([float(row["lines"])]), row["accesses"]
    missed, walks = (
        float(lru(row["order"], lines, entries)[0]) * n * spread for entries in COUNTED.entries
    )
    counted = {
        "walk": walks,
        "stlb_hit": missed - walks,
        "l1_dtlb_miss": missed,
        "walk_cycles": walks * CYCLES_PER_WALK,
        "walk_pending": walks * CYCLES_PER_WALK,
        "core_cycles": row["ns_per_access"] * GHZ * n,
        "instructions": 1.1 * n,
    }
    groups = plan.groups()
    group = groups[row["repeat"] % len(groups)]
    found = {
        e.quantity: Quantity(
            value=counted.get(e.quantity, 0.0), event=e.event, running_percent=100.0
        )
        for e in group
    }
    found |= {
        e.quantity: Quantity(reason="other-repeat", event=e.event)
        for e in plan.events
        if e not in group
    }
    return (
        found
        | derive(found, plan.derived)
        | {name: Quantity(reason=why) for name, why in plan.lacking.items()}
    )


def simulate(
    store: Store,
    machine: str = SIMULATED,
    cpu: str = "Ice Lake server",
    points: list[Point] | None = None,
) -> pd.DataFrame:
    """Writes the machine and its records into `store`; the frame that a chapter gets."""
    stated = Stated(changes=COUNTING.changes | {"microarchitecture": cpu})
    store.write_machine(machine, stated.host().model_dump(mode="json"))
    plan = plan_of(cpu)
    rows = frame(COUNTED, points or grid(64 * MIB), REPEATS).to_dict("records")
    put(
        store,
        machine,
        CHAPTER,
        "a" * 16,
        *(
            make_record(
                **{
                    name: value
                    for name, value in row.items()
                    if name not in ("kernel_digest", "timed", "counters")
                },
                counters=count(row, plan),
            )
            for row in rows
        ),
    )
    return store.load(machine, CHAPTER)
