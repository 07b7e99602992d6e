"""Add a bundle to data/: the only way in for another computer's rows.

A row is never rewritten; rows with new keys are added. Data card and profile are made
from rows, so a stranger's text is never shown, except the words of models.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tlb.fleet import plausible
from tlb.fleet.check import Bundle
from tlb.machine import host as hosts
from tlb.measure import states
from tlb.measure.publishing import merge_rows
from tlb.measure.record import Record
from tlb.measure.store import PUBLISHED_ROWS, Store, write_published
from tlb.report import card, discovery, parameters
from tlb.report.chapter import Chapter
from tlb.system.files import new_folder, sync_folder
from tlb.system.reasons import Unavailable, if_available

profile = discovery.load("overview.profile")


class Added(NamedTuple):
    """The machine's folder in data/, how many rows are new, and how many were there already."""

    folder: Path
    rows: int
    known: int


class Known:
    """What data/ has: the machine that each process and each state belongs to, and the checksum of
    each sequence of visited lines."""

    def __init__(self, data: Store) -> None:
        self.owners: dict[object, str] = {}
        self.checksums: dict[object, str] = {}
        for machine in data.machines():
            for record in data.records(machine).values():
                self.note(machine, record)

    def note(self, machine: str, record: Record) -> None:
        """Remember a row of data/."""
        self.owners.setdefault(hash(plausible.process(record)), machine)
        self.owners.setdefault(record.state, machine)
        self.checksums.setdefault(hash(plausible.visits(record)), record.checksum)

    def compare(self, machine: str, record: Record) -> None:
        """Raise Unavailable for a row that contradicts data/: bundle-known, bundle-impossible."""
        owner = self.owners.get(hash(plausible.process(record)), machine)
        if owner != machine:
            why = f"a row of {record.kernel} was measured on {owner}, at {record.started_at}"
            raise Unavailable("bundle-known", why)
        checksum = self.checksums.get(hash(plausible.visits(record)), record.checksum)
        if checksum != record.checksum:
            why = f"a row of {record.kernel} has another checksum than the same lines elsewhere"
            raise Unavailable("bundle-impossible", why)


def review(data: Store, bundle: Bundle, known: Known) -> list[Record]:
    """Return the records that data/ lacks.

    Raises Unavailable: bundle-known for rows of another machine; bundle-impossible for another
    computer of the same name, and for lines that were visited in another order than elsewhere.
    """
    machine = bundle.machine
    published = if_available(states.latest_description, data, machine)
    if published and hosts.identity_facts(published) != hosts.identity_facts(bundle.host):
        why = f"{machine} in data/ is another computer: {published.cpu_model}"
        raise Unavailable("bundle-impossible", why)
    there, new = data.records(machine), list[Record]()
    for row in bundle.lines():
        known.compare(machine, row.record)
        if row.key not in there or row.record.counts_more_than(there[row.key]):
            new.append(row.record)
    for state in sorted(bundle.states.keys() - bundle.hosts.keys()):
        if (owner := known.owners.get(state, machine)) != machine:
            why = f"rows of the state {state}, which is one of {owner}"
            raise Unavailable("bundle-impossible", why)
    return new


def add(data: Store, bundle: Bundle, known: Known | None = None) -> Added:
    """Add a bundle to data/<machine>/, whole or not at all; without new rows nothing changes.

    known: of `data`, if the caller keeps it; it is brought up to date. Raises Unavailable as
    `review` does, and disk-full, disk-read-only.
    """
    machine = bundle.machine
    target = data.root / machine
    with new_folder(target) as made:
        known = known or Known(data)
        if new := review(data, bundle, known):
            _write(made, data, bundle, new)
    records = [*bundle.records()]
    for record in records:
        known.note(machine, record)
    return Added(target, len(new), len(records) - len(new))


def _write(made: Path, data: Store, bundle: Bundle, new: list[Record]) -> None:
    """Write the machine's folder as it will be in data/, with its own data card and profile.
    Documents and description are those of the side with the newest row."""
    machine = bundle.machine
    there = {name: path.read_bytes() for name, path in data.documents(machine).items()}
    for name in profile.DERIVED:  # of rows that are others then
        there.pop(name, None)
    theirs = {name.removesuffix(".json"): bundle.files[name] for name in bundle.documents}
    sides = [(there, if_available(states.latest_description, data, machine)), (theirs, bundle.host)]
    last = max((record.started_at for record in data.records(machine).values()), default="")
    if max(record.started_at for record in bundle.records()) < last:
        sides.reverse()
    made.mkdir()
    store = staged(made.parent, machine)
    for files, host in sides:
        for name in files.keys() - {"machine"}:
            path = store.document_path(machine, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(files[name])
        if host:
            states.write_description(store, machine, host)
    write_published(made / PUBLISHED_ROWS, merge_rows(data.published(machine), bundle.asked(new)))
    derive_profile(store, machine)
    card.write(store, machine, states.latest_description(store, machine))
    for path in made.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    for folder in {path.parent for path in made.rglob("*")}:
        sync_folder(folder)


def derive_profile(store: Store, machine: str) -> None:
    """Work out a machine's profile from its rows, and write it beside them."""
    given = parameters.check(profile.PAGE, {"machine": machine, "minutes": 0.0})
    profile.write(store, profile.of_chapter(Chapter(profile.PAGE, given, store)))


def staged(root: Path, machine: str) -> Store:
    """Return an empty store in which this machine will be the reference."""
    (root / "reference").write_text(f"{machine}\n", encoding="ascii")
    return Store(root)
