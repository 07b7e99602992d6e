"""Machines' names in headings and notes."""

import pytest

from tlb.measure.store import Store
from tlb.report.card import machine_display_name

ZEN = {"microarchitecture": "Zen 4", "cpu_model": "AMD EPYC", "hypervisor": "kvm"}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


def test_two_machines_of_one_kind_do_not_share_a_name(store):
    for name in ("zen-4-00000001", "zen-4-00000002"):
        store.write_machine(name, ZEN)
    names = {machine_display_name(store, name) for name in store.machines()}
    assert names == {"Zen 4, EPYC guest 00000001", "Zen 4, EPYC guest 00000002"}
