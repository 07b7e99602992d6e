"""Who a CPU is, and how deep its page tables are: on x86-64, on arm64, in a guest."""

from dataclasses import replace

import pytest
from support.host import ARM, GRAVITON, inspect, topics

from tlb.machine import host
from tlb.measure.store import Store
from tlb.programs.walk_price import surveyed_tlb_entries
from tlb.system.reasons import Unavailable


@pytest.mark.parametrize(
    ("flags", "bits", "levels"), [("la57", 57, 5), ("la57", 48, 4), ("fpu", 57, 4), ("fpu", 48, 4)]
)
def test_five_levels_need_the_address_bits_and_the_kernels_own_flag(tmp_path, flags, bits, levels):
    text = f"flags : {flags}\naddress sizes : 46 bits physical, {bits} bits virtual\n"
    assert inspect(tmp_path, {"proc/cpuinfo": text}).page_table_levels == levels


# --- arm64


def test_an_arm_cpu_is_known_by_its_part_and_has_no_cpuid(tmp_path):
    found = inspect(tmp_path, {"proc/cpuinfo": GRAVITON}, ARM)
    assert (found.microarchitecture, found.cpu_model) == ("Neoverse V1", "arm Neoverse V1 r1p1")
    assert (found.tlb, found.tlb_reason, found.gigabyte_pages) == ((), "no-geometry", None)
    assert host.machine_id(found).startswith("neoverse-v1-")


def test_without_cpuinfo_sysfs_tells_the_same_arm_cpu(tmp_path):
    midr = "sys/devices/system/cpu/cpu3/regs/identification/midr_el1"
    shown = inspect(tmp_path / "cpuinfo", {"proc/cpuinfo": GRAVITON}, ARM)
    found = inspect(tmp_path / "midr", {"proc/cpuinfo": "", midr: "0x00000000411fd401"}, ARM)
    assert host.machine_id(found) == host.machine_id(shown)


def test_an_arm_cpu_that_nothing_names_has_no_id(tmp_path):
    found = inspect(tmp_path, {"proc/cpuinfo": "Processor\t: AArch64 Processor rev 3\n"}, ARM)
    assert (found.cpu_model, found.microarchitecture) == ("unknown", "unknown")
    with pytest.raises(Unavailable) as why:
        host.machine_id(found)
    assert why.value.code == "linux-lacks"


def test_two_cpus_of_unknown_makers_are_told_apart_by_their_numbers(tmp_path):
    two = [GRAVITON.replace("0x41", maker) for maker in ("0x70", "0x71")]
    found = [inspect(tmp_path / str(n), {"proc/cpuinfo": two[n]}, ARM) for n in range(2)]
    assert found[0].cpu_model == "implementer 0x70 part 0xd40 r1p1"
    assert host.machine_id(found[0]) != host.machine_id(found[1])


# --- other architectures

RISCV = """processor\t: 0
hart\t\t: 1
isa\t\t: rv64imafdc
mmu\t\t: sv39
uarch\t\t: sifive,u74-mc
"""


def test_on_another_architecture_nothing_is_measured_and_no_guest_is_claimed(tmp_path):
    here = replace(ARM, arch="riscv64", probe_pmu=lambda: ("software", "no-pmu"))
    found = inspect(tmp_path, {"proc/cpuinfo": RISCV}, here)
    assert (found.cpu_model, found.hypervisor) == ("sifive,u74-mc", "unknown")
    with pytest.raises(Unavailable) as why:
        host.machine_id(found)
    assert why.value.code == "other-arch"
    assert "virtual machine" not in topics(found)
    assert surveyed_tlb_entries(found, Store(tmp_path / "data")) == ()


@pytest.mark.parametrize(
    ("config", "levels"),
    [
        ("CONFIG_PGTABLE_LEVELS=4\nCONFIG_ARM64_VA_BITS=48\n", 4),
        ("CONFIG_PGTABLE_LEVELS=3\n", 3),
        ("CONFIG_PGTABLE_LEVELS=5\nCONFIG_ARM64_VA_BITS=52\n", None),  # the boot decides
        ("", None),
    ],
)
def test_an_arm_kernels_levels_are_those_it_was_built_with(tmp_path, config, levels):
    files = {"proc/cpuinfo": GRAVITON, "boot/config-6.12.1": config}
    assert inspect(tmp_path, files, ARM).page_table_levels == levels


@pytest.mark.parametrize(
    ("product", "name"),
    [("KVM Virtual Machine", "kvm"), ("QEMU x", "qemu"), ("c7g.metal", "unknown")],
)
def test_an_arm_hypervisor_is_named_only_where_the_firmware_tells(tmp_path, product, name):
    files = {"proc/cpuinfo": GRAVITON, "sys/class/dmi/id/product_name": product}
    assert inspect(tmp_path, files, ARM).hypervisor == name
