"""What smaps and smaps_rollup state, as kernels of all ages print them, however long."""

import mmap
import sys
from pathlib import Path

import pytest

from tlb.system import smaps
from tlb.system.reasons import Unavailable
from tlb.system.smaps import SmapsRollup, parse_smaps_mappings, parse_smaps_rollup

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
    seen = parse_smaps_rollup(STATED)
    assert (
        seen == SmapsRollup(16144 << 10, 8000 << 10, 6144 << 10, 6144 << 10)
        and seen.huge_bytes == 12288 << 10
    )
    assert seen + seen == SmapsRollup(*(2 * value for value in seen))


def test_a_kernel_without_some_large_pages_has_none_of_them():
    assert parse_smaps_rollup(
        STATED.replace("FilePmdMapped:         0 kB\n", "")
    ) == parse_smaps_rollup(STATED)
    assert parse_smaps_rollup("Rss: 8 kB\nAnonymous: 4 kB\n") == SmapsRollup(8 << 10, 4 << 10, 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rss: 5 kB\n",
        STATED.replace("Anonymous:", "Anonymouse:"),
        STATED.replace("10000 kB", "ten kB"),
    ],
)
def test_what_states_no_size_is_an_error(text):
    with pytest.raises(ValueError, match="is missing"):
        parse_smaps_rollup(text)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_sums_are_those_of_all_mappings():
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as array:
        array[:: mmap.PAGESIZE] = b"1" * (len(array) // mmap.PAGESIZE)
        whole, parts = (
            (Path("/proc/self") / name).read_text() for name in ("smaps_rollup", "smaps")
        )
    total, listed = parse_smaps_rollup(whole), parse_smaps_mappings(parts)
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
    (found,) = smaps.parse_smaps_mappings(POOL_MAPPING)
    assert (found.resident_bytes, found.huge_bytes, found.private_anonymous) == (4 << 20,) * 2 + (
        True,
    )
    with pytest.raises(ValueError, match="twice"):
        smaps.parse_smaps_mappings(POOL_MAPPING + "Rss: 0 kB\n")


def test_large_pages_of_a_file_count_as_large():
    sizes = dict.fromkeys(("AnonHugePages", "ShmemPmdMapped", "Private_Hugetlb"), 0)
    sizes |= {"Shared_Hugetlb": 0, "KernelPageSize": 4, "Rss": 4096, "FilePmdMapped": 2048}
    lines = [
        "10000000-10400000 r-xp 00000000 fe:01 7 /a",
        *(f"{n}: {kb} kB" for n, kb in sizes.items()),
    ]
    (mapping,) = parse_smaps_mappings("\n".join(lines) + "\n")
    assert mapping.huge_bytes == 2 << 20


def test_mappings_that_touch_an_array_at_its_ends_are_no_part_of_it():
    array, large = 0x10000000, 2 << 20
    mapped = [
        smaps.SmapsMapping(start, start + large, True, 4096, large, thp_bytes, 0)
        for start, thp_bytes in ((array - large, large), (array, 0), (array + large, large))
    ]
    assert smaps.measure_pages_of_array(mapped, array, large)[:2] == (large, 0)


# Fields of a mapping of 208 KiB in the order of Linux 6; an older one lacks some.
FIELDS = {
    "Size": 208,
    "KernelPageSize": 4,
    "Rss": 208,
    "Referenced": 200,
    "AnonHugePages": 0,
    "ShmemPmdMapped": 0,
    "FilePmdMapped": 0,
    "Shared_Hugetlb": 0,
    "Private_Hugetlb": 0,
}
HEAD = "7f0000000000-7f0000034000 rw-p 00000000 00:00 0 \n"


def printed(*other: str, lacks: tuple[str, ...] = (), head: str = HEAD) -> str:
    """Return a mapping as a kernel prints it that lacks these fields and has these other lines."""
    sizes = [f"{name + ':':15} {kib:8} kB" for name, kib in FIELDS.items() if name not in lacks]
    return head + "".join(f"{line}\n" for line in (*sizes, *other))


@pytest.mark.parametrize(
    "text",
    [
        printed("THPeligible:    0", "ProtectionKey:         0", "VmFlags: rd wr mr mw me sd "),
        printed("THPeligible:\t\t0", "VmFlags: rd wr "),  # Linux 5.3 to 5.8
        printed("VmFlags:"),
        printed("Name:           [anon:libc_malloc]"),  # Android
        printed(head=HEAD.replace(" \n", "\n")),
        printed("Size of a future kernel: 3 MB").replace("Size of a future kernel", "Future"),
        printed(lacks=("FilePmdMapped",)),  # before Linux 5.4
        printed(lacks=("FilePmdMapped", "ShmemPmdMapped")),  # 4.8
        printed(lacks=tuple(name for name in FIELDS if "P" in name or "H" in name)),
        printed("Nonlinear:             0 kB"),
    ],
)
def test_what_kernels_print_is_one_mapping(text):
    whole = smaps.SmapsMapping(
        0x7F0000000000, 0x7F0000034000, True, 4096, 208 << 10, 0, 0, 200 << 10
    )
    if "KernelPageSize" not in text:
        whole = whole._replace(page_bytes=mmap.PAGESIZE)
    assert (
        parse_smaps_mappings(text)
        == parse_smaps_mappings(text.splitlines(keepends=True))
        == [whole]
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (printed("no line"), "no line"),
        (printed(lacks=("Rss",)), "Rss"),
        (printed().replace("     208 kB", " 208 MB"), "208 MB"),
        (
            printed().replace("Rss:                 208", "Rss:                 209"),
            "212992|214016",
        ),
    ],
)
def test_a_refusal_names_what_is_wrong(text, named, tmp_path):
    with pytest.raises(ValueError, match=named):
        parse_smaps_mappings(text)
    (tmp_path / "7").mkdir()
    (tmp_path / "7/smaps").write_text(text)
    with pytest.raises(Unavailable, match=named) as why:
        smaps.mappings_of_process(7, tmp_path)
    assert why.value.code == "linux-lacks"


def test_a_process_that_runs_may_grow_a_mapping_between_two_looks(tmp_path):
    """Linux shows it again, from its first address: twice in the file, once in memory."""
    grown = "7f0000000000-7f0000068000 rw-p 00000000 00:00 0 \n"
    text = printed() + printed(head=grown)
    (tmp_path / "7").mkdir()
    (tmp_path / "7/smaps").write_text(text)
    (found,) = smaps.mappings_of_process(7, tmp_path)
    assert found.end == 0x7F0000068000
    with pytest.raises(ValueError, match="overlap"):
        parse_smaps_mappings(text)  # of a process that waited


def test_a_process_of_any_size_is_read_whole(tmp_path):
    number, size, flags = 4000, 0x34000, "VmFlags: " + "rd " * 6000
    (tmp_path / "7").mkdir()
    with (tmp_path / "7/smaps").open("w") as file:
        for n in range(number):
            head = f"{n * size:x}-{(n + 1) * size:x} rw-p 00000000 00:00 0 \n"
            file.write(printed(flags, head=head))
    assert (tmp_path / "7/smaps").stat().st_size > 1 << 26
    assert len(smaps.mappings_of_process(7, tmp_path)) == number
