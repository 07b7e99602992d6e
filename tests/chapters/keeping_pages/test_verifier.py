"""What an array got by its smaps: the strict reader, and what is sure of it, on smaps that never
were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import refusal

from experiments.keeping_pages import documents
from tlb.system import smaps
from tlb.system.reasons import Unavailable

HUGE = 2 << 20
BASE = 0x7F0000000000


def mapping(
    start: int,
    size: int,
    resident: int,
    thp: int = 0,
    pool: int = 0,
    head: str = "rw-p 00000000 00:00 0 ",
    **other: str,
) -> str:
    fields = {
        "Size": size >> 10,
        "KernelPageSize": 4,
        "Rss": resident >> 10,
        "AnonHugePages": thp >> 10,
        "ShmemPmdMapped": 0,
        "Shared_Hugetlb": 0,
        "Private_Hugetlb": pool >> 10,
    } | other
    lines = [
        f"{start:x}-{start + size:x} {head}",
        *(f"{name}: {kb:>8} kB" for name, kb in fields.items() if kb is not None),
    ]
    return "\n".join([*lines, "THPeligible:    1", "VmFlags: rd wr mr mw me ac sd hg "]) + "\n"


def checked(
    text: str, address: int | None = BASE, size: int = 100 * HUGE, refused: str = "backing-partial"
) -> smaps.PagesOfArray:
    found = smaps.measure_pages_of_array(smaps.parse_smaps_mappings(text), address, size)
    documents.verify_array_pages(found, address, size, refused)
    return found


WHOLE = 100 * HUGE


def test_an_array_all_on_huge_pages_passes_and_what_else_is_huge_is_told_apart():
    text = (
        mapping(0x1000, 4096, 4096, head="r-xp 00000000 fe:00 12   /usr/bin/a program")
        + mapping(BASE, WHOLE, WHOLE, WHOLE)
        + mapping(BASE + WHOLE, 8 * HUGE, 8 * HUGE, 3 * HUGE)
    )
    assert checked(text) == smaps.PagesOfArray(WHOLE, WHOLE, 3 * HUGE, WHOLE)


@pytest.mark.parametrize(
    ("share", "refused"),
    [(60, "backing-partial"), (98, "backing-partial"), (0, "thp-never"), (60, "pool-empty")],
)
def test_less_than_99_percent_is_refused(share, refused):
    assert refusal(checked, mapping(BASE, WHOLE, WHOLE, share * HUGE), refused=refused) == refused


def test_huge_pages_of_a_neighbour_in_the_same_mapping_prove_nothing():
    """Twice the array, half of it huge: all of the array may be on small pages."""
    assert refusal(checked, mapping(BASE, 2 * WHOLE, 2 * WHOLE, WHOLE)) == "backing-partial"


def test_without_an_address_the_array_is_in_the_largest_private_anonymous_mapping():
    text = (
        mapping(BASE, WHOLE, WHOLE, WHOLE)
        + mapping(BASE + WHOLE, 4 * WHOLE, 3 * WHOLE, head="rw-p 00000000 fe:00 99 /a/file")
        + mapping(
            BASE + 8 * WHOLE, 4 * WHOLE, 3 * WHOLE, head="rw-s 00000000 00:01 7 /dev/zero (deleted)"
        )
        + mapping(BASE + 16 * WHOLE, 4 * WHOLE, 3 * WHOLE, head="r--p 00000000 00:00 0 ")
    )
    assert checked(text, None) == smaps.PagesOfArray(WHOLE, WHOLE, 0, WHOLE)
    assert (
        refusal(checked, mapping(BASE, WHOLE, WHOLE, head="r-xp 00000000 00:00 0 "), None)
        == "kernel-failed"
    )


def test_a_hole_in_the_array_is_garbage_and_what_is_not_resident_is_short():
    text = mapping(BASE, 50 * HUGE, 50 * HUGE, 50 * HUGE) + mapping(
        BASE + 51 * HUGE, 50 * HUGE, 50 * HUGE, 50 * HUGE
    )
    assert refusal(checked, text) == "kernel-failed"
    assert refusal(checked, mapping(BASE, WHOLE, WHOLE - 4096, WHOLE - HUGE)) == "memory-short"


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 60),
    st.integers(1, 60),
)
def test_what_is_sure_never_exceeds_what_can_be(parts, first, count):
    """The oracle: whichever huge pages of a mapping are huge, and whichever part of it is resident,
    the array's own share."""
    text, at = "", BASE
    for size, resident, huge in parts:
        resident, huge = min(resident, size), min(huge, resident, size)
        text += mapping(at, size * HUGE, resident * HUGE, huge * HUGE)
        at += size * HUGE
    address, size = BASE + first * HUGE, count * HUGE
    try:
        found = smaps.measure_pages_of_array(smaps.parse_smaps_mappings(text), address, size)
    except Unavailable:
        return
    assert 0 <= found.sure_bytes <= min(found.huge_bytes, size)
    assert found.huge_bytes + found.rest_huge_bytes == sum(min(h, r, s) for s, r, h in parts) * HUGE


@pytest.mark.parametrize(
    ("every", "own", "process", "on"),
    [
        ("[madvise]", None, "", True),
        ("[never]", None, "", False),
        (None, None, "", False),
        ("[never]", "[madvise]", "", True),
        ("[always]", "[never]", "", False),
        ("[always]", "[inherit]", "", True),
        ("[always]", None, "THP_enabled:\t0", False),
    ],
)
def test_whether_huge_pages_are_on_is_read_from_the_settings(tmp_path, every, own, process, on):
    folder = tmp_path / "sys/kernel/mm/transparent_hugepage"
    (folder / "hugepages-2048kB").mkdir(parents=True)
    for path, text in ((folder / "enabled", every), (folder / "hugepages-2048kB/enabled", own)):
        if text is not None:
            path.write_text(f"one {text} other\n")
    assert documents.huge_pages_on(tmp_path, f"Name:\ta\n{process}\n") is on
