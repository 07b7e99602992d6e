"""Add what was measured here to what data/ has published of a machine. Nothing published is
dropped.

Pages show the newest campaign of each experiment (last_campaign.last_campaign). To begin anew,
delete the machine's folder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure.record import Record
from tlb.measure.store import PUBLISHED_ROWS, UNMEASURED_POINTS_DOCUMENT, Store, write_published
from tlb.system.files import new_folder, replace_file
from tlb.system.reasons import Unavailable

# Documents of this computer that are not published: what it lacked, and what its own pages recorded.
_NOT_SHARED = re.compile(rf"{UNMEASURED_POINTS_DOCUMENT}|claims|quantities(-.*)?")
RequestedRecord = tuple[Record, list[str]]  # a record, and the experiments that asked for its point


def publish(store: Store, machine: str) -> Path:
    """Put the union into data/<machine>/, whole or not at all; return the folder.

    Published rows come first, then own rows of new keys that an experiment asked for; documents are
    the own ones. machine.json describes the state of most rows, machine-<state>.json the other.
    Raises Unavailable("no-data") if nothing was measured.
    """
    target = store.folder(machine)
    measured = [(record, asked) for record, asked in store.own.asked_rows(machine) if asked]
    if not measured:
        raise Unavailable("no-data", f"nothing was measured of {machine} here")
    with new_folder(target) as made:
        made.mkdir()
        rows = merge_rows(store.published(machine), measured)
        for name, content in _files_beside(store, machine, rows).items():
            (made / name).parent.mkdir(exist_ok=True)
            replace_file(made / name, content)
        write_published(made / PUBLISHED_ROWS, rows)
    return target


def merge_rows(
    published: Iterable[RequestedRecord], new: Iterable[RequestedRecord]
) -> list[RequestedRecord]:
    """Return rows by kernel, each key once: the published row unless the new one has counters that
    it lacks, and the experiments of both."""
    rows = {record.key: (record, asked) for record, asked in published}
    for record, asked in new:
        before, experiments = rows.get(record.key, (record, []))
        kept = record if record.counts_more_than(before) else before
        rows[record.key] = kept, sorted({*experiments, *asked})
    return sorted(rows.values(), key=lambda row: row[0].kernel)


def _files_beside(store: Store, machine: str, rows: list[RequestedRecord]) -> dict[str, bytes]:
    """Return the files of the new folder beside its rows, by path in it."""
    files = _documents_and_card(store, machine)
    described = files.get("machine.json", b"")
    own = _documents_and_card(store.own, machine)
    files |= {
        name: content for name, content in own.items() if not _NOT_SHARED.fullmatch(Path(name).stem)
    }
    states = Counter(record.state for record, _ in rows)
    return files | _descriptions(described, files.get("machine.json", b""), states)


def _descriptions(published: bytes, own: bytes, states: Counter[str]) -> dict[str, bytes]:
    """Return machine.json for the state with more rows and machine-<state>.json for the other, if
    the two descriptions differ in state."""
    before, now = _host(published), _host(own)
    if before is None or now is None or hosts.state_digest(before) == hosts.state_digest(now):
        return {}
    pair = [(hosts.state_digest(before), published), (hosts.state_digest(now), own)]
    (_, main), (state, other) = sorted(pair, key=lambda one: states[one[0]], reverse=True)
    return {"machine.json": main, f"machine-{state}.json": other}


def _host(content: bytes) -> Host | None:
    try:
        return Host.model_validate_json(content)
    except ValidationError:
        return None


def _documents_and_card(store: Store, machine: str) -> dict[str, bytes]:
    """Return the documents and the card of a machine's folder, by path in it."""
    folder = store.folder(machine)
    cards = [p for p in folder.glob("*.md") if p.is_file() and not p.is_symlink()]
    paths = [*store.documents(machine).values(), *cards]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def of_another_state(store: Store, machine: str) -> dict[str, str]:
    """Return the state of each document whose state no row of the machine has."""
    states = {record.state for record in store.records(machine).values()}
    found = {}
    for name, path in store.documents(machine).items():
        state = store.read_document(machine, name).get("state")
        if isinstance(state, str) and states and state not in states:
            found[path.name] = state
    return found
