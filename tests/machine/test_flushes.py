"""What a computer states of flushes, read as it states it; nothing where it is silent."""

import pytest

from tlb.machine import stated_facts
from tlb.machine.cpuid import Registers

KVM = {0x40000000: b"KVMKVMKVM\0\0\0"}


def reader(signatures: dict[int, bytes], features: int = 0, hints: int = 0):
    """CPUID of a guest whose hypervisor has these signatures; features and hints in the leaf behind
    each."""

    def read(leaf: int, subleaf: int) -> Registers:
        if leaf == 1:
            return Registers(0, 0, 1 << 31 if signatures else 0, 0)
        if leaf in signatures:
            return Registers(
                leaf + 1,
                *(int.from_bytes(signatures[leaf][at : at + 4], "little") for at in (0, 4, 8)),
            )
        return Registers(features, 0, 0, hints) if leaf - 1 in signatures else Registers(0, 0, 0, 0)

    return read


@pytest.mark.parametrize(
    ("signatures", "features", "hints", "defers"),
    [
        (KVM, 1 << 9 | 1 << 5, 0, True),
        (KVM, 1 << 9, 0, False),
        (KVM, 1 << 5, 0, False),
        (KVM, 1 << 9 | 1 << 5, 1, False),
        ({0x40000000: b"Microsoft Hv", 0x40000100: b"KVMKVMKVM\0\0\0"}, 1 << 9 | 1 << 5, 0, True),
        ({0x40000000: b"XenVMMXenVMM"}, 1 << 9 | 1 << 5, 0, False),
        ({}, 1 << 9 | 1 << 5, 0, False),
    ],
)
def test_a_hypervisor_defers_flushes_where_it_offers_to_and_knows_who_runs(
    signatures, features, hints, defers
):
    assert stated_facts.defers(reader(signatures, features, hints)) is defers
