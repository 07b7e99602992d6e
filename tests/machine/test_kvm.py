"""What KVM's modules say of the tables that a guest here would have."""

from pathlib import Path

import pytest
from support.synthetic import Stated

from tlb.machine import doctor, settings
from tlb.machine.host import Host, machine_id, state_digest
from tlb.machine.settings import KvmSupport


def stated(found: KvmSupport | None) -> Host:
    return Stated(changes={"kvm": found}).host()


NPT = KvmSupport(device=True, module="kvm_amd", tables="NPT")


def planted(
    root: Path, module: str = "", parameter: str = "", value: str = "", device: bool = True
) -> Path:
    if module:
        folder = root / "sys/module" / module / "parameters"
        folder.mkdir(parents=True)
        if parameter:
            (folder / parameter).write_text(value)
    if device:
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev/kvm").write_text("")
    return root


@pytest.mark.parametrize(
    ("module", "parameter", "value", "flags", "expected"),
    [
        ("kvm_intel", "ept", "Y\n", {"vmx"}, ("kvm_intel", "EPT")),
        ("kvm_amd", "npt", "0\n", {"svm"}, ("kvm_amd", "shadow")),
        ("kvm_amd", "npt", "perhaps", {"svm"}, ("kvm_amd", "unknown")),
        ("kvm_intel", "ept", "Y\n", set(), ("", "none")),
        ("kvm_pvm", "", "", set(), ("kvm_pvm", "shadow")),
        ("", "", "", {"vmx"}, ("", "none")),
    ],
)
def test_kvms_module_says_what_translates(tmp_path, module, parameter, value, flags, expected):
    found = settings.kvm_here(planted(tmp_path, module, parameter, value), flags)
    assert (found.module, found.tables, found.device) == (*expected, True)
    assert settings.kvm_in_words(found).strip() == settings.kvm_in_words(found) != ""


def test_kvm_is_no_part_of_a_machines_id_and_of_its_state_only_where_guests_are_slower_for_it():
    with_it, without = stated(NPT), stated(None)
    assert machine_id(with_it) == machine_id(without) and state_digest(with_it) == state_digest(
        without
    )
    for other in (
        NPT.model_copy(update={"tables": "shadow"}),
        NPT.model_copy(update={"nx_huge_pages": True}),
    ):
        assert machine_id(stated(other)) == machine_id(with_it) and state_digest(
            stated(other)
        ) != state_digest(with_it)
    assert "kvm_amd with NPT" in dict(doctor.host_description(with_it)).values()
    assert not any("kvm_amd" in value for value in dict(doctor.host_description(without)).values())
