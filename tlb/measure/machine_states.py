"""The states of one machine (boot options, Linux, settings) and the rows of each.

Rows of all states are in one folder; each has its state, part of its key. machine.json is the
computer as inspected last or, if published, in the state of most rows; machine-<state>.json
describes the others. A state is called by the first digits of its id, its Linux, or a word of its
command line (`settings.BOOT_WORDS`): zen-5-b15e0e32@no5lvl.

`publish` adds what was measured here to what data/ has of a machine, and drops nothing. Pages show
the newest campaign of each experiment (row_tables.rows_of_last_campaign). To begin anew, delete the
machine's folder.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure.record import Record
from tlb.measure.store import (
    PUBLISHED_ROWS_FILE,
    UNMEASURED_POINTS_DOCUMENT,
    Store,
    write_published_rows,
)
from tlb.system.files import replace_file, replaced_folder
from tlb.system.reasons import Unavailable, none_if_unavailable
from tlb.system.units import list_in_words

LEAST_DIGITS = 4  # of an id: fewer may be of another state tomorrow


def write_description(store: Store, machine: str, host: Host) -> None:
    """Write machine.json; keep the description of another state under that state's id first."""
    before = none_if_unavailable(latest_description, store, machine)
    if before is not None and hosts.state_digest(before) != hosts.state_digest(host):
        store.write_document(
            machine, _document(hosts.state_digest(before)), before.model_dump(mode="json")
        )
    store.write_machine(machine, host.model_dump(mode="json"))


def latest_description(store: Store, machine: str) -> Host:
    """Return a machine as inspected last. Raises Unavailable("no-data")."""
    return _read(store, machine, "machine")


def has_several_states(store: Store, machine: str) -> bool:
    """Return whether a machine is described in more than one state."""
    return any(store.folder(machine).glob("machine-*.json"))


def description_of_state(store: Store, machine: str, state: str) -> Host:
    """Return a machine as it was in a state. Raises Unavailable("no-data")."""
    now = none_if_unavailable(latest_description, store, machine)
    return (
        now
        if now is not None and hosts.state_digest(now) == state
        else _read(store, machine, _document(state))
    )


def state_by_name(store: Store, machine: str, name: str, there: Collection[str]) -> str:
    """Return the id of the state that a name means among `there`. Raises Unavailable: no-data, or
    bad-parameter if it means several."""
    called = {
        state: _names(none_if_unavailable(description_of_state, store, machine, state))
        for state in sorted(there)
    }
    meant = [
        state
        for state, names in called.items()
        if name in names or (len(name) >= LEAST_DIGITS and state.startswith(name))
    ]
    if len(meant) > 1:
        raise Unavailable(
            "bad-parameter",
            f"{machine}@{name[:80]} may be {list_in_words(meant, 'or')}: name one by its digits",
        )
    if not meant:
        known = (
            list_in_words(
                " ".join(
                    [state, *(f"({list_in_words(names)})" for names in [called[state]] if names)]
                )
                for state in called
            )
            or "none"
        )
        raise Unavailable(
            "no-data", f"{machine} has nothing of a state '{name[:80]}'; there are {known}"
        )
    return meant[0]


def _names(host: Host | None) -> list[str]:
    return [host.kernel_release, *host.boot] if host else []


def _document(state: str) -> str:
    return f"machine-{state}"


def _read(store: Store, machine: str, document: str) -> Host:
    try:
        return Host.model_validate(store.read_document(machine, document))
    except ValidationError:
        raise Unavailable(
            "no-data", f"{machine} has a {document}.json of another version"
        ) from None


# --- publishing

# Documents of this computer that are not published: what it lacked, and what its own pages recorded.
_NOT_SHARED = re.compile(rf"{UNMEASURED_POINTS_DOCUMENT}|claims|quantities(-.*)?")
RecordWithExperiments = tuple[
    Record, list[str]
]  # a record, and the experiments that asked for its point


def publish(store: Store, machine: str) -> Path:
    """Add what was measured here to data/<machine>/, as `publish_rows` does; return the folder.

    Own rows are those that an experiment asked for. Raises Unavailable("no-data") if nothing was measured.
    """
    measured = [(record, asked) for record, asked in store.own.asked_rows(machine) if asked]
    if not measured:
        raise Unavailable("no-data", f"nothing was measured of {machine} here")
    own = _documents_and_card(store.own, machine)
    files = {path: text for path, text in own.items() if not _NOT_SHARED.fullmatch(Path(path).stem)}
    return publish_rows(store, machine, measured, files)


def publish_rows(
    store: Store, machine: str, rows: Iterable[RecordWithExperiments], files: Mapping[str, bytes]
) -> Path:
    """Put the union of rows and files into data/<machine>/, whole or not at all; return the folder.

    Published rows come first, then those of new keys. A file, named by its path in the folder, replaces
    the published one; but machine.json describes the state of most rows, machine-<state>.json each other.
    """
    target, content = store.folder(machine), io.BytesIO()
    with replaced_folder(target) as made:
        made.mkdir()
        merged = merge_rows(store.published(machine), rows)
        write_published_rows(content, merged)
        before = _documents_and_card(store, machine)
        states = Counter(record.state for record, _ in merged)
        old, new = (one.get("machine.json", b"") for one in (before, files))
        beside = {**before, **files, **_descriptions(old, new, states)}
        if main := _host(beside.get("machine.json", b"")):
            beside.pop(f"{_document(hosts.state_digest(main))}.json", None)
        for path, text in (beside | {PUBLISHED_ROWS_FILE: content.getvalue()}).items():
            (made / path).parent.mkdir(exist_ok=True)
            replace_file(made / path, text)
    return target


def merge_rows(
    published: Iterable[RecordWithExperiments], new: Iterable[RecordWithExperiments]
) -> list[RecordWithExperiments]:
    """Return rows by kernel, each key once: the published row unless the new one has counters that
    it lacks, and the experiments of both."""
    rows = {record.key: (record, asked) for record, asked in published}
    for record, asked in new:
        before, experiments = rows.get(record.key, (record, []))
        kept = record if record.counts_more_than(before) else before
        rows[record.key] = kept, sorted({*experiments, *asked})
    return sorted(rows.values(), key=lambda row: row[0].kernel)


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


def documents_of_another_state(store: Store, machine: str) -> dict[str, str]:
    """Return the state of each document whose state no row of the machine has."""
    states = {record.state for record in store.records(machine).values()}
    found = {}
    for name, path in store.documents(machine).items():
        state = store.read_document(machine, name).get("state")
        if isinstance(state, str) and states and state not in states:
            found[path.name] = state
    return found
