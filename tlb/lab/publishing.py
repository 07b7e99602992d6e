"""Add what was measured here to what data/ has published of a machine. Nothing published is
dropped.

Pages show the newest campaign of each experiment (inference.campaigns.newest). To begin anew,
delete the machine's folder.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tlb.lab import lines
from tlb.lab.grids import listed_grids
from tlb.lab.record import NAME
from tlb.lab.store import GRIDS, LACKS, Store
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.prose import listed
from tlb.reasons import Unavailable
from tlb.system.files import new_folder, replace


def publish(store: Store, machine: str) -> Path:
    """Put the union into data/<machine>/, whole or not at all; return the folder.

    Published rows come first, then own rows of new keys; grids are merged; documents are the own
    ones. machine.json describes the state of most rows, machine-<state>.json the other. Raises
    Unavailable("no-data") if nothing was measured, if no experiment asked for some rows, or for an
    unreadable grids.json.
    """
    target = store.folder(machine)
    if not store.own.whole(machine):
        raise Unavailable("no-data", f"nothing was measured of {machine} here")
    with new_folder(target) as made:
        files = _union(store, machine)
        made.mkdir()
        for name, content in files.items():
            replace(made / name, content)
    return target


def _union(store: Store, machine: str) -> dict[str, bytes]:
    """The files of the new folder."""
    own = store.own
    measured = own.whole(machine)
    _all_asked_for(own, machine)
    files = {path.name: path.read_bytes() for path in _files(store.folder(machine), "*")}
    described = files.get("machine.json", b"")
    files |= {
        path.name: path.read_bytes()
        for path in _files(own.folder(machine), "*.json")
        if path.stem != LACKS
    }
    states = Counter(row.record.state for rows in store.whole(machine).values() for row in rows)
    for kernel, rows in measured.items():
        name, there = f"{kernel}.jsonl", store.records(machine, [kernel])
        new = [
            row
            for row in rows
            if row.key not in there or row.record.counts_more_than(there[row.key])
        ]
        states.update(row.record.state for row in new)
        before = files.get(name, b"")
        files[name] = (
            before
            + b"\n" * (not before.endswith(b"\n") and bool(before))
            + lines.compact(row.line for row in new)
        )
    return (
        files
        | _descriptions(described, files.get("machine.json", b""), states)
        | {f"{GRIDS}.json": _document(listed_grids(store.grids(machine), own.grids(machine)))}
    )


def _all_asked_for(own: Store, machine: str) -> None:
    """Raise Unavailable("no-data") for rows that no experiment asked for: nobody would read
    them."""
    kernels = {path.stem for path in _files(own.folder(machine), "*.jsonl")}
    kernels -= {*own.kernels(machine)}
    # no NAME.quarantine
    lost = sorted(
        kernel for kernel in kernels if NAME.fullmatch(kernel) and own.records(machine, [kernel])
    )
    if lost:
        raise Unavailable(
            "no-data",
            f"{GRIDS}.json of {machine} does not say which experiment asked for the rows of "
            f"{listed(lost)}; run those chapters once more with `tlb run CHAPTER -p minutes 0`, "
            "which measures nothing, and publish again",
        )


def _descriptions(published: bytes, own: bytes, states: Counter[str]) -> dict[str, bytes]:
    """Return machine.json for the state with more rows and machine-<state>.json for the other, if
    the two descriptions differ in state."""
    before, now = _host(published), _host(own)
    if before is None or now is None or hosts.state(before) == hosts.state(now):
        return {}
    pair = [(hosts.state(before), published), (hosts.state(now), own)]
    (_, main), (state, other) = sorted(pair, key=lambda one: states[one[0]], reverse=True)
    return {"machine.json": main, f"machine-{state}.json": other}


def _host(content: bytes) -> Host | None:
    try:
        return Host.model_validate_json(content)
    except ValidationError:
        return None


def _files(folder: Path, pattern: str) -> list[Path]:
    return [
        path for path in sorted(folder.glob(pattern)) if path.is_file() and not path.is_symlink()
    ]


def _document(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"


def of_another_state(store: Store, machine: str) -> dict[str, str]:
    """Return the state of each document whose state no row of the machine has."""
    states = {row.record.state for rows in store.whole(machine).values() for row in rows}
    found = {}
    for path in _files(store.folder(machine), "*.json"):
        state = store.read_document(machine, path.stem).get("state")
        if isinstance(state, str) and states and state not in states:
            found[path.name] = state
    return found
