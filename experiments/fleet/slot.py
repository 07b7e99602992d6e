"""The one slot of a computer that measures: the functions that a worker runs. They know the book and no network.

Whoever measures holds the lock that all measurements of a computer take turns by, as by hand. What was measured is in this computer's own
ledger, synced, before anything is sent; the same task again measures what is missing, and sends what the client lacks.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from experiments.fleet.parcel import Sender, Task, pack, program, version
from experiments.lab import build, campaign, session, states
from experiments.lab.rig import Rig
from experiments.lab.store import Store, data_root
from experiments.machine import host as hosts
from experiments.words.reasons import Unavailable, if_available

# A worker that lost its scheduler and found it again may be asked while the thread of before still measures: that one ends first.
_TURN = threading.Lock()


@dataclass
class _Slot:
    rig: Rig | None = None


_SLOT = _Slot()


def rig() -> Rig:
    """This computer, inspected and probed. Raises Unavailable."""
    return Rig.of(hosts.inspect(), Store(data_root()).own)


def greet() -> str:
    """Who this computer is, as JSON of a `Sender`, inspected anew. Raises Unavailable where it cannot measure."""
    with _TURN:
        unpinned()
        _SLOT.rig = rig()
        states.describe(_SLOT.rig.store, _SLOT.rig.machine, _SLOT.rig.host)
        return Sender(version=version(), host=_SLOT.rig.host).model_dump_json()


def take(asked: str) -> dict[str, Any]:
    """Measure what is missing of a `Task`, given as JSON; a parcel of its rows. What stops it is in the parcel, beside what was measured
    before."""
    with _TURN:
        unpinned()
        _SLOT.rig = _SLOT.rig or rig()
        return measured(_SLOT.rig, Task.model_validate_json(asked))


def measured(rig: Rig, task: Task) -> dict[str, Any]:
    """The parcel of a task on a rig."""
    lacking, stopped = {}, None
    try:
        lacking = campaign.run(rig, task.grids, task.repeats, most=task.most, seconds=task.seconds, quiet=True).lacking
    except Unavailable as why:
        stopped = why
        if why.code == "state-changed":
            _SLOT.rig = None  # what the computer is now is found out when it is asked next
    programs, identity = {program(point): point for point in task.points}, build.identities()
    # What cannot be built has no rows now, and its points are lacking, or the campaign was stopped by it.
    built = {name: found[:2] for name, point in programs.items() if (found := if_available(identity, point))}
    rows = rig.store.records(rig.machine, sorted({programs[name].kernel for name in built}))
    return pack(Sender(version=version(), host=rig.host, identities=built), task, rows, lacking, stopped)


def unpinned() -> None:
    """This thread may run where the process could before its event loop was kept off the measured CPU: what it starts inherits that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, session.CPUS_AT_START)
