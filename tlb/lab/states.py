"""The states of one machine: what a boot, another Linux or a setting makes of it, and which of its
rows are of which.

Rows of all states lie in one folder, for each row knows its own (`Record.state`), which is a part
of its key. So nobody names a state before measuring: whoever boots with no5lvl and runs the same
command again gets rows beside those that are there. machine.json is the computer as it was
inspected last or, where published, in the state of most rows; what it was in another state is
machine-<state>.json beside it. A state is called by the first digits of its id, by its Linux, or by
a word of its kernel's command line (`settings.BOOT_WORDS`), as in zen-5-b15e0e32@no5lvl.

A row also knows its boot, which is no part of its key or its state. Virtual machines made from one
image are one machine here, and two of them in one state are told apart by nothing else:
zen-5-b15e0e32@1a2b3c are the rows of one boot, by its first digits.
"""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
from pydantic import ValidationError

from tlb.lab.store import Store
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.prose import listed
from tlb.reasons import Unavailable, if_available

LEAST_DIGITS = 4  # of an id: fewer may be of another state tomorrow


def describe(store: Store, machine: str, host: Host) -> None:
    """Writes machine.json. One of another state that was there before is kept under that state's
    id, and first."""
    before = if_available(latest, store, machine)
    if before is not None and hosts.state(before) != hosts.state(host):
        store.write_document(
            machine, _document(hosts.state(before)), before.model_dump(mode="json")
        )
    store.write_machine(machine, host.model_dump(mode="json"))


def latest(store: Store, machine: str) -> Host:
    """A machine as it was inspected last. Raises Unavailable("no-data")."""
    return _read(store, machine, "machine")


def are_several(store: Store, machine: str) -> bool:
    """Whether a machine is described in more than one state."""
    return any(store.folder(machine).glob("machine-*.json"))


def described(store: Store, machine: str, state: str) -> Host:
    """A machine as it was in a state. Raises Unavailable("no-data") where nothing says."""
    now = if_available(latest, store, machine)
    return (
        now
        if now is not None and hosts.state(now) == state
        else _read(store, machine, _document(state))
    )


def rows_of(store: Store, machine: str, name: str, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the state that a name means, or of the boot that it is the first digits of.
    Raises Unavailable: no-data where it means nothing, bad-parameter where it means several."""
    boots = boots_of(rows)
    meant = [boot for boot in boots if len(name) >= LEAST_DIGITS and boot.startswith(name)]
    states = {*rows["state"]}
    if meant and not any(state.startswith(name) for state in states):
        if len(meant) > 1:
            raise Unavailable(
                "bad-parameter",
                f"{machine}@{name[:80]} may be one of the boots {listed(meant)}: give more digits",
            )
        return rows[rows["boot_id"] == meant[0]]
    try:
        return rows[rows["state"] == chosen(store, machine, name, states)]
    except Unavailable as why:
        if why.code != "no-data" or not boots:
            raise
        raise Unavailable("no-data", f"{why.detail}; their boots are {listed(boots)}") from None


def boots_of(rows: pd.DataFrame) -> list[str]:
    """The boots that rows are of, sorted; rows from before boots were kept are of none of them."""
    return sorted({*rows["boot_id"]} - {""})


def chosen(store: Store, machine: str, name: str, there: Collection[str]) -> str:
    """The id of the state that a name means, of those that `there` are rows of. Raises Unavailable:
    no-data where it means none of them, bad-parameter where it means several."""
    called = {
        state: _names(if_available(described, store, machine, state)) for state in sorted(there)
    }
    meant = [
        state
        for state, names in called.items()
        if name in names or (len(name) >= LEAST_DIGITS and state.startswith(name))
    ]
    if len(meant) > 1:
        raise Unavailable(
            "bad-parameter",
            f"{machine}@{name[:80]} may be {listed(meant, 'or')}: name one by its digits",
        )
    if not meant:
        known = (
            listed(
                " ".join([state, *(f"({listed(names)})" for names in [called[state]] if names)])
                for state in called
            )
            or "none"
        )
        raise Unavailable(
            "no-data",
            f"{machine} has no rows of a state '{name[:80]}'; those that it has are of {known}",
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
