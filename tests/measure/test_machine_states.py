"""States of one machine: what each was is kept, and a name means one of them or a sentence says why
not."""

import pytest
from support.campaigns import MACHINE
from support.synthetic import Stated

from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure import machine_states
from tlb.measure.store import Store


def booted(*words: str, **changes: object) -> Host:
    return Stated(changes={"boot": words} | changes).host()


PLAIN = booted()
FOUR_LEVELS = booted("pti=off", "no5lvl", page_table_levels=4)
NEWER = booted(kernel_release="6.12.1")
STATES = {hosts.state_digest(host): host for host in (PLAIN, FOUR_LEVELS, NEWER)}


def kept(store: Store) -> dict[str, Host]:
    for host in STATES.values():
        machine_states.write_description(store, MACHINE, host)
    return STATES


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("no5lvl", FOUR_LEVELS),
        ("pti=off", FOUR_LEVELS),
        ("6.12.1", NEWER),
        (hosts.state_digest(PLAIN), PLAIN),
        (hosts.state_digest(NEWER)[:4], NEWER),
    ],
)
def test_a_state_is_called_by_its_boot_its_linux_or_its_digits(store, name, host):
    kept(store)
    assert machine_states.state_by_name(store, MACHINE, name, STATES) == hosts.state_digest(host)
