"""The states of one machine (boot options, Linux, settings) and the rows of each.

Rows of all states are in one folder; each has its state, part of its key. machine.json is the
computer as inspected last or, if published, in the state of most rows; machine-<state>.json
describes the others. A state is called by the first digits of its id, its Linux, or a word of its
command line (`settings.BOOT_WORDS`): zen-5-b15e0e32@no5lvl.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import ValidationError

from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure.store import Store
from tlb.system.prose import list_in_words
from tlb.system.reasons import Unavailable, if_available

LEAST_DIGITS = 4  # of an id: fewer may be of another state tomorrow


def write_description(store: Store, machine: str, host: Host) -> None:
    """Write machine.json; keep the description of another state under that state's id first."""
    before = if_available(latest_description, store, machine)
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
    now = if_available(latest_description, store, machine)
    return (
        now
        if now is not None and hosts.state_digest(now) == state
        else _read(store, machine, _document(state))
    )


def chosen(store: Store, machine: str, name: str, there: Collection[str]) -> str:
    """Return the id of the state that a name means among `there`. Raises Unavailable: no-data, or
    bad-parameter if it means several."""
    called = {
        state: _names(if_available(description_of_state, store, machine, state))
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
