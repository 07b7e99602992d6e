"""Names of microarchitectures: those of the kernel of Linux."""

from __future__ import annotations

import pytest

from tlb.machine import microarchitecture


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [
        (0x41, 0xD0C, "Neoverse N1"),
        (0x41, 0xD49, "Neoverse N2"),
        (0x41, 0xD4F, "Neoverse V2"),
        (0x41, 0xD84, "Neoverse V3"),
        (0x6D, 0xD49, "Neoverse N2"),
        (0x61, 0xD0C, "unknown"),
        (None, 1, "unknown"),
    ],
)
def test_arm_parts_have_the_names_of_cputype_h(implementer, part, name):
    assert microarchitecture.arm_name(implementer, part) == name


@pytest.mark.parametrize(
    ("vendor", "signature", "name"),
    [
        ("GenuineIntel", (6, 0x5E, 3), "Skylake client"),
        ("GenuineIntel", (6, 0x55, 4), "Skylake server"),
        ("GenuineIntel", (6, 0x55, 7), "Cascade Lake"),
        ("GenuineIntel", (6, 0x55, 11), "Cooper Lake"),
        ("GenuineIntel", (6, 0x6A, 6), "Ice Lake server"),
        ("GenuineIntel", (6, 0x8F, 8), "Sapphire Rapids"),
        ("GenuineIntel", (15, 0x6, 8), "unknown"),
        ("AuthenticAMD", (0x17, 0x01, 2), "Zen 1"),
        ("AuthenticAMD", (0x17, 0x31, 0), "Zen 2"),
        ("AuthenticAMD", (0x19, 0x01, 1), "Zen 3"),
        ("AuthenticAMD", (0x19, 0x11, 1), "Zen 4"),
        ("AuthenticAMD", (0x19, 0x61, 2), "Zen 4"),
        ("AuthenticAMD", (0x1A, 0x44, 0), "Zen 5"),
        ("AuthenticAMD", (0x1A, 0xF0, 0), "unknown"),
        ("HygonGenuine", (0x18, 0x01, 1), "unknown"),
        ("GenuineIntel", (None, None, None), "unknown"),
    ],
)
def test_x86_cpus_have_the_names_of_intel_family_h_and_amd_c(vendor, signature, name):
    assert microarchitecture.x86_name(vendor, *signature) == name
