"""What KVM's modules say of the tables that a guest here would have."""

from pathlib import Path

import pytest

from tlb.machine import settings


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
