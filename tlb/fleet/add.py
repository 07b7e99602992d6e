"""Add a bundle to data/: the only way in for another computer's rows. A row is never rewritten;
rows with new keys are added."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tlb.fleet.bundle import IMPOSSIBLE, Bundle
from tlb.machine import host as hosts
from tlb.measure import states
from tlb.measure.publishing import merge_rows
from tlb.measure.store import PUBLISHED_ROWS, Store, write_published
from tlb.report import card
from tlb.system.files import new_folder, sync_folder
from tlb.system.reasons import Unavailable, if_available


class Added(NamedTuple):
    """The machine's folder in data/, how many rows are new, and how many were there already."""

    folder: Path
    rows: int
    known: int


def add(data: Store, bundle: Bundle) -> Added:
    """Add a bundle to data/<machine>/, whole or not at all; without new rows nothing changes.

    Raises Unavailable: bundle-refused for another computer of the same name, disk-refused.
    """
    machine = bundle.machine
    published = if_available(states.latest_description, data, machine)
    if published and hosts.identity_facts(published) != hosts.identity_facts(bundle.host):
        why = f"{machine} in data/ is another computer: {published.cpu_model}"
        raise Unavailable("bundle-refused", why, IMPOSSIBLE)
    there = data.records(machine)
    new = [
        (record, asked)
        for record, asked in bundle.rows
        if record.key not in there or record.counts_more_than(there[record.key])
    ]
    target = data.root / machine
    with new_folder(target) as made:
        if new:
            _write(made, data, bundle, published is None)
    return Added(target, len(new), len(bundle.rows) - len(new))


def _write(made: Path, data: Store, bundle: Bundle, is_first: bool) -> None:
    """Write the machine's folder as it will be in data/. Documents and the description are the
    bundle's if its last row is newer than those there."""
    machine = bundle.machine
    made.mkdir()
    (made.parent / "reference").write_text(
        f"{machine}\n", encoding="ascii"
    )  # of a store of its own
    store = Store(made.parent)
    published = data.published(machine)
    theirs = max(record.started_at for record, _ in bundle.rows)
    is_newer = is_first or theirs >= max(record.started_at for record, _ in published)
    for name, path in data.documents(machine).items():
        copy = store.document_path(machine, name)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    for name, document in bundle.documents.items():
        if is_newer or not store.document_path(machine, name).is_file():
            store.write_document(machine, name, document)
    described = [host for host in bundle.hosts.values() if host != bundle.host]
    for host in [*described, bundle.host] if is_newer else [bundle.host, *described]:
        before = if_available(states.latest_description, store, machine)
        states.write_description(store, machine, host)
        if before and not is_newer:
            states.write_description(store, machine, before)
    write_published(made / PUBLISHED_ROWS, merge_rows(published, bundle.rows))
    card.write(store, machine, states.latest_description(store, machine))
    for path in made.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    for folder in {path.parent for path in made.rglob("*")}:
        sync_folder(folder)
