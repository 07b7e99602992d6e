"""How a bundle comes into data/: the one way in for another computer's rows.

A row is never rewritten: new keys are added. What can be worked out from rows (data card, profile,
verdicts) is, so that nothing a stranger wrote is shown but numbers and words of models.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from tlb.fleet import check, documents, pack, plausible
from tlb.fleet.check import Bundle
from tlb.lab.lines import Stored
from tlb.lab.store import Store
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.reasons import Unavailable, if_available
from tlb.report import card, discovery
from tlb.system.files import OPEN_FLAGS, disk_errors, lock, put_folder, sync_folder, unfinished

profile = discovery.load("overview.profile")

VERDICTS = "verdicts.json"


class Added(NamedTuple):
    """folder: of the machine in data/. rows: new ones; known: how many of the bundle's were there,
    or have the key of one that is."""

    folder: Path
    rows: int
    known: int


class Known:
    """What data/ has: of each process and of each visited set of lines which machine has it, and of
    which machine each state is."""

    def __init__(self, data: Store) -> None:
        self.processes: dict[object, str] = {}
        self.checksums: dict[object, str] = {}
        self.states: dict[str, str] = {}
        for machine in data.machines():
            for rows in data.whole(machine).values():
                for row, _ in rows:
                    self.note(machine, row)

    def note(self, machine: str, row: Stored) -> None:
        self.processes.setdefault(hash(plausible.process(row.record)), machine)
        self.checksums.setdefault(hash(plausible.visits(row.record)), row.record.checksum)
        self.states.setdefault(row.record.state, machine)


def review(data: Store, bundle: Bundle, known: Known) -> dict[str, list[bytes]]:
    """Return the lines that data/ lacks, by kernel. Raises Unavailable: bundle-known for rows of
    another machine; bundle-impossible for another computer of the same name, and for lines that
    were visited in another order than elsewhere."""
    machine, is_there = bundle.machine, bundle.machine in data.machines()
    published = (
        if_available(lambda: Host.model_validate(data.read_machine(machine))) if is_there else None
    )
    if published and hosts.identity_facts(published) != hosts.identity_facts(bundle.host):
        raise Unavailable(
            "bundle-impossible", f"{machine} in data/ is another computer: {published.cpu_model}"
        )
    new: dict[str, list[bytes]] = {}
    for kernel in bundle.kernels:
        there = data.records(machine, [kernel]) if is_there else {}
        new[kernel] = []
        for row, line in bundle.rows(kernel):
            _compare(known, machine, row)
            if row.key not in there or row.record.counts_more_than(there[row.key]):
                new[kernel].append(line)
    for state in sorted(bundle.undescribed):
        if known.states.get(state, machine) != machine:
            raise Unavailable(
                "bundle-impossible",
                f"rows of the state {state}, which is one of {known.states[state]}",
            )
    return new


def _compare(known: Known, machine: str, row: Stored) -> None:
    owner = known.processes.get(hash(plausible.process(row.record)), machine)
    if owner != machine:
        raise Unavailable(
            "bundle-known",
            f"a row of {row.record.kernel} was measured on {owner}, at {row.record.started_at}",
        )
    if (
        known.checksums.get(hash(plausible.visits(row.record)), row.record.checksum)
        != row.record.checksum
    ):
        raise Unavailable(
            "bundle-impossible",
            f"a row of {row.record.kernel} has another checksum than the same lines elsewhere",
        )


def add(data: Store, bundle: Bundle, known: Known | None = None) -> Added:
    """Take a bundle into data/<machine>/, whole or not at all; one without new rows changes
    nothing. known: of `data`, if there is one; it is kept up to date. Raises Unavailable as
    `review` does, and disk-full, disk-read-only."""
    target, aside = data.root / bundle.machine, data.root / f".{bundle.machine}.old"
    with disk_errors(target):
        data.root.mkdir(parents=True, exist_ok=True)
        root = os.open(data.root, os.O_RDONLY | OPEN_FLAGS)
        try:
            lock(root)  # two who add take turns
            unfinished(target, aside)
            for left in data.root.glob(f".{bundle.machine}.new-*"):  # by a kill
                shutil.rmtree(left)
            known = known or Known(data)
            new = review(data, bundle, known)
            every, rows = (
                [row for kernel in bundle.kernels for row, _ in bundle.rows(kernel)],
                sum(map(len, new.values())),
            )
            if rows:
                files = _merged(data, bundle, new)
                with tempfile.TemporaryDirectory(
                    dir=data.root, prefix=f".{bundle.machine}.new-"
                ) as folder:
                    put_folder(_made(Path(folder), bundle.machine, files), target, aside)
            for row in every:
                known.note(bundle.machine, row)
            return Added(target, rows, len(every) - rows)
        finally:
            os.close(root)


def _merged(data: Store, bundle: Bundle, new: dict[str, list[bytes]]) -> dict[str, bytes]:
    """Return the files of the machine's folder but the derived ones. Documents and description come
    from the side with the newest row."""
    machine, there, before, last = bundle.machine, {}, {}, ""
    if machine in data.machines():
        there = {
            path.name: path.read_bytes()
            for path in (data.root / machine).glob("*.json*")
            if path.is_file() and path.name != VERDICTS
        }
        before = data.grids(machine)
        kernels = {kernel for grid in before.values() for kernel in grid}
        last = max(
            (record.started_at for record in data.records(machine, kernels).values()), default=""
        )
    ours = {
        name: content
        for name, content in bundle.files.items()
        if not name.endswith(".jsonl") and name != check.CARD
    }
    files = (
        there | ours
        if max(record.started_at for record in bundle.records()) >= last
        else ours | there
    )
    state = hosts.state(Host.model_validate_json(files["machine.json"]))
    for side in (there, ours):
        host = Host.model_validate_json(side["machine.json"]) if "machine.json" in side else None
        if host and hosts.state(host) != state:
            files.setdefault(
                f"machine-{hosts.state(host)}.json", documents.written(host.model_dump(mode="json"))
            )
    for kernel, lines in new.items():
        files[f"{kernel}.jsonl"] = there.get(f"{kernel}.jsonl", b"") + b"".join(
            line + b"\n" for line in lines
        )
    grids: dict[str, dict[str, list[str]]] = {}
    for name in {*before, *bundle.grids}:
        sides = before.get(name, {}), bundle.grids.get(name, {})
        grids[name] = {
            kernel: sorted(set().union(*(side.get(kernel, ()) for side in sides)))
            for kernel in {*sides[0], *sides[1]}
        }
    return files | {check.GRIDS_FILE: documents.written(grids)}


def _made(root: Path, machine: str, files: dict[str, bytes]) -> Path:
    """Return the folder as it will lie in data/, on disk, with a data card and a profile of its
    own."""
    store = pack.staged(
        root,
        machine,
        {name: content for name, content in files.items() if name != f"{profile.NAME}.json"},
    )
    profile.write(store, pack.profiled(store, machine))
    card.write(store, machine, Host.model_validate(store.read_machine(machine)))
    for path in (root / machine).iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(root / machine)
    return root / machine
