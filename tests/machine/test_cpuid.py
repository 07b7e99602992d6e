"""CPUID: decoders against registers recorded on real CPUs, the live instruction against what Linux
reads."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host import ICE_LAKE, SILVERMONT, SKYLAKE, ZEN_2, ZHAOXIN, reader

from tlb.machine import cpuid
from tlb.machine.cpuid import Cache, Registers, Tlb, tlbs_stated_by_cpuid
from tlb.system.reasons import Unavailable


def stated(dump: str) -> set[tuple]:
    return stated_by(reader(dump))


def stated_by(read: cpuid.CpuidReader) -> set[tuple]:
    found, unknown = tlbs_stated_by_cpuid(read)
    assert not unknown
    return {
        (t.level, t.kind, t.pages, t.entries, t.ways or t.ways_between or t.ways) for t in found
    }


def test_skylake_states_what_table_3_12_says_of_its_five_descriptors():
    # SDM, volume 2A, table 3-12: 0x03, 0x63 (two arrays), 0x76, 0xB5, 0xC3 (two arrays).
    assert stated(SKYLAKE) == {
        (1, "data", ("4k",), 64, 4),
        (1, "data", ("2m", "4m"), 32, 4),
        (1, "data", ("1g",), 4, 4),
        (1, "instruction", ("4k",), 64, 8),
        (1, "instruction", ("2m", "4m"), 8, 0),
        (2, "unified", ("4k", "2m"), 1536, 6),
        (2, "unified", ("1g",), 16, 4),
    }


def test_ice_lake_states_separate_buffers_for_loads_and_stores_in_leaf_18():
    # Matthew Wilcox reads the same off a Core i7-1165G7 on linux-kernel (7 August 2021): 16 entries
    # for stores, 8 for loads of 1 GiB pages, 1024 in 8 ways at the second level for 4 KiB and 1 GiB
    # pages.
    assert stated(ICE_LAKE) == {
        (1, "instruction", ("4k", "2m", "4m"), 8, 0),
        (1, "store", ("4k", "2m", "4m", "1g"), 16, 0),
        (1, "load", ("4k",), 64, 4),
        (1, "load", ("2m", "4m"), 32, 4),
        (1, "load", ("1g",), 8, 0),
        (2, "unified", ("4k", "2m", "4m"), 1024, 8),
        (2, "unified", ("4k", "1g"), 1024, 8),
    }


def test_zen_2_has_64_entries_for_every_page_size_and_2048_without_1_gib_pages():
    # WikiChip, "Zen 2", lists the same sizes. Ways at the second level: the ranges of APM table
    # E-4.
    assert stated(ZEN_2) == {
        (1, "data", ("4k",), 64, 0),
        (1, "data", ("2m",), 64, 0),
        (1, "data", ("1g",), 64, 0),
        (1, "instruction", ("4k",), 64, 0),
        (1, "instruction", ("2m",), 64, 0),
        (1, "instruction", ("1g",), 64, 0),
        (2, "data", ("4k",), 2048, (8, 15)),
        (2, "data", ("2m",), 2048, (4, 5)),
        (2, "instruction", ("4k",), 1024, (8, 15)),
        (2, "instruction", ("2m",), 1024, (8, 15)),
    }


@pytest.mark.parametrize("vendor", [b"CentaurHauls", b"  Shanghai  "])
def test_zhaoxin_states_its_first_level_as_amd_does_and_its_caches_as_intel_does(vendor):
    ebx, edx, ecx = (int.from_bytes(vendor[at : at + 4], "little") for at in (0, 4, 8))
    read = reader(ZHAOXIN, **{"0.0": f"0000001F {ebx:08X} {ecx:08X} {edx:08X}"})
    assert stated_by(read) == {
        (1, "data", ("4k",), 96, 6),
        (1, "data", ("2m",), 32, 4),
        (1, "instruction", ("4k",), 96, 6),
        (1, "instruction", ("2m",), 32, 4),
    }
    assert [(c.level, c.size_bytes >> 10, c.ways) for c in cpuid.caches(read)] == [
        (1, 32, 8),
        (1, 64, 16),
        (2, 256, 8),
        (3, 8192, 16),
    ]


def test_descriptors_that_the_manual_leaves_in_doubt_are_unknown_not_guessed():
    found, unknown = tlbs_stated_by_cpuid(reader(SILVERMONT))
    assert unknown == (0xA0, 0xC2)
    assert [(t.kind, t.entries) for t in found] == [("data", 128), ("instruction", 48)]


def amd_second_level(code: int, entries: int) -> list[Tlb]:
    word = f"{code << 28 | entries << 16:08X}"
    found, _ = tlbs_stated_by_cpuid(
        reader(ZEN_2, **{"80000006.0": f"00000000 {word} 00000000 00000000"})
    )
    return [t for t in found if t.level == 2]


@pytest.mark.parametrize(
    ("code", "ways", "between"),
    [  # AMD64 Architecture Programmer's Manual, volume 3, table E-4
        (0x1, 1, None),
        (0x4, None, (4, 5)),
        (0x6, None, (8, 15)),
        (0x9, None, None),
        (0xA, None, (32, 47)),
        (0xD, None, (96, 127)),
        (0xF, 0, None),
    ],
)
def test_each_associativity_code_of_amd_is_a_number_a_range_or_nothing(code, ways, between):
    (tlb,) = amd_second_level(code, 512)
    assert (tlb.entries, tlb.ways, tlb.ways_between) == (512, ways, between)


KVM = "40000001 4B4D564B 564B4D56 0000004D"
HYPER_V = "4000000B 7263694D 666F736F 76482074"
GUEST = {"1.0": "00870F10 00100800 FED8320B 178BFBFF"}  # bit 31 of ecx


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "none"),
        ({"40000000.0": KVM}, "none"),  # without the bit, the leaf claims nothing
        (GUEST | {"40000000.0": KVM}, "kvm"),
        (GUEST | {"40000000.0": HYPER_V}, "hyper-v"),
        (GUEST | {"40000000.0": HYPER_V, "40000100.0": KVM}, "kvm"),
        (GUEST | {"40000000.0": "40000000 00414141 00000000 00000000"}, "unknown"),
        (GUEST, "unknown"),
    ],
)
def test_a_hypervisor_is_known_by_its_signature(changes, name):
    assert cpuid.hypervisor(reader(ZEN_2, **changes)) == name


REGISTER = st.integers(0, 2**32 - 1)
LEAVES = [
    0,
    1,
    2,
    4,
    7,
    0x18,
    0x80000000,
    0x80000001,
    0x80000005,
    0x80000006,
    0x80000019,
    0x8000001D,
    0x80000021,
]
NAMES = [(0x756E6547, 0x6C65746E, 0x49656E69), (0x68747541, 0x444D4163, 0x69746E65), (0, 0, 0)]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(LEAVES), st.integers(0, 9)),
        st.builds(Registers, REGISTER, REGISTER, REGISTER, REGISTER),
    ),
    st.sampled_from(NAMES),
    REGISTER,
)
def test_any_registers_decode_to_something_or_nothing(table, name, last):
    ebx, ecx, edx = name

    def read(leaf: int, subleaf: int) -> Registers:
        return (
            Registers(last, ebx, ecx, edx)
            if leaf == 0
            else table.get((leaf, subleaf), Registers(0, 0, 0, 0))
        )

    found, unknown = tlbs_stated_by_cpuid(read)
    assert all(isinstance(tlb, Tlb) for tlb in found) and all(0 < code < 256 for code in unknown)
    assert all(isinstance(cache, Cache) and cache.size_bytes > 0 for cache in cpuid.caches(read))
    assert cpuid.hypervisor(read) and isinstance(cpuid.has_la57(read), bool)


# --- this computer, against what the kernel read by itself ----------------------------------------

live = pytest.mark.skipif(not cpuid.available(), reason="needs the CPUID instruction of x86-64")
linux = pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs Linux")


def cpuinfo() -> dict[str, str]:
    block = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    return {
        key.strip(): value.strip()
        for key, _, value in (line.partition(":") for line in block.split("\n"))
    }


@live
@linux
def test_the_live_vendor_and_flags_agree_with_the_kernel():
    info = cpuinfo()
    assert cpuid.vendor(cpuid.read) == info["vendor_id"]
    flags = info["flags"].split()
    # The kernel may drop a flag that it does not use; it adds none.
    assert cpuid.has_la57(cpuid.read) or "la57" not in flags
    assert (cpuid.hypervisor(cpuid.read) != "none") == ("hypervisor" in flags)


@live
@linux
def test_the_live_caches_agree_with_sysfs():
    allowed = os.sched_getaffinity(0)
    cpu = min(allowed)
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/cache")
    if not (folder / "index0/size").exists():
        pytest.skip("sysfs shows no caches here")
    os.sched_setaffinity(
        0, {cpu}
    )  # on a hybrid CPU the caches depend on where the instruction runs
    try:
        found = cpuid.caches(cpuid.read)
    finally:
        os.sched_setaffinity(0, allowed)
    names = (
        "level",
        "type",
        "size",
        "coherency_line_size",
        "ways_of_associativity",
        "number_of_sets",
    )
    shown = [
        [(index / name).read_text().strip() for name in names]
        for index in sorted(folder.glob("index*"))
    ]
    assert [
        [
            str(c.level),
            c.kind.capitalize(),
            f"{c.size_bytes // 1024}K",
            *map(str, (c.line_bytes, c.ways, c.sets)),
        ]
        for c in found
    ] == shown


def test_where_no_memory_may_hold_code_cpuid_is_lacking_with_its_reason(monkeypatch):
    def refused(*given: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cpuid.mmap, "mmap", refused)
    with pytest.raises(Unavailable) as why:
        cpuid._code.__wrapped__()
    assert why.value.code == "no-geometry"
