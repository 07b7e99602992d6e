"""The sums of a process' memory, as smaps_rollup states them."""

import mmap
import sys
from pathlib import Path

import pytest

from tlb.system import procfs, smaps
from tlb.system.smaps import Rollup, mappings, rollup

STATED = """5500-7fff ---p 00000000 00:00 0                          [rollup]
Rss:               10000 kB
Pss:                9000 kB
Anonymous:          8000 kB
AnonHugePages:      4096 kB
ShmemPmdMapped:     2048 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:    6144 kB
"""


def test_pages_of_a_pool_count_as_resident_and_as_large():
    seen = rollup(STATED)
    assert (
        seen == Rollup(16144 << 10, 8000 << 10, 6144 << 10, 6144 << 10)
        and seen.huge_bytes == 12288 << 10
    )
    assert seen + seen == Rollup(*(2 * value for value in seen))


def test_an_old_kernel_has_no_large_pages_of_files():
    assert rollup(STATED.replace("FilePmdMapped:         0 kB\n", "")) == rollup(STATED)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rss: 5 kB\n",
        STATED.replace("Anonymous:", "Anonymouse:"),
        STATED.replace("10000 kB", "ten kB"),
        STATED.replace("AnonHugePages:      4096 kB", ""),
    ],
)
def test_what_states_no_size_is_an_error(text):
    with pytest.raises(ValueError, match="is missing"):
        rollup(text)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_sums_are_those_of_all_mappings():
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as array:
        array[:: mmap.PAGESIZE] = b"1" * (len(array) // mmap.PAGESIZE)
        whole, parts = (
            procfs.text(Path("/proc/self") / name, 1 << 26) for name in ("smaps_rollup", "smaps")
        )
    total, listed = rollup(whole), mappings(parts)
    assert total.anonymous_bytes >= 64 << 20
    assert total.resident_bytes == pytest.approx(
        sum(mapping.resident_bytes for mapping in listed), rel=0.05
    )
    assert total.huge_bytes == pytest.approx(
        sum(mapping.huge_bytes for mapping in listed), abs=8 << 20
    )


POOL_MAPPING = (
    "7f0000000000-7f0000400000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)\n"
    "KernelPageSize: 2048 kB\nRss: 0 kB\nAnonHugePages: 0 kB\nShmemPmdMapped: 0 kB\n"
    "Private_Hugetlb: 2048 kB\nShared_Hugetlb: 2048 kB\n"
)


def test_a_mapping_of_a_pool_is_resident_and_a_repeated_field_is_an_error():
    (found,) = smaps.mappings(POOL_MAPPING)
    assert (found.resident_bytes, found.huge_bytes, found.private_anonymous) == (4 << 20,) * 2 + (
        True,
    )
    with pytest.raises(ValueError, match="twice"):
        smaps.mappings(POOL_MAPPING + "Rss: 0 kB\n")


def test_large_pages_of_a_file_count_as_large():
    sizes = dict.fromkeys(("AnonHugePages", "ShmemPmdMapped", "Private_Hugetlb"), 0)
    sizes |= {"Shared_Hugetlb": 0, "KernelPageSize": 4, "Rss": 4096, "FilePmdMapped": 2048}
    lines = [
        "10000000-10400000 r-xp 00000000 fe:01 7 /a",
        *(f"{n}: {kb} kB" for n, kb in sizes.items()),
    ]
    (mapping,) = mappings("\n".join(lines) + "\n")
    assert mapping.huge_bytes == 2 << 20


def test_mappings_that_touch_an_array_at_its_ends_are_no_part_of_it():
    array, large = 0x10000000, 2 << 20
    mapped = [
        smaps.Mapping(start, start + large, True, 4096, large, thp_bytes, 0)
        for start, thp_bytes in ((array - large, large), (array, 0), (array + large, large))
    ]
    assert smaps.pages(mapped, array, large)[:2] == (large, 0)
