"""Page sizes: one table, in the order of size, whose base page is the machine's."""

from itertools import pairwise

import pytest
from pydantic import TypeAdapter, ValidationError

from tlb.system.page_sizes import (
    BASE,
    PAGE_KINDS,
    PageKind,
    mapped_page_size,
    page_bytes,
    page_labels,
    page_words,
)

BASES = [4 << 10, 16 << 10, 64 << 10]  # of x86-64, and those that arm64 may have


@pytest.mark.parametrize("base", BASES)
def test_page_sizes_stand_from_small_to_large_whatever_the_base_page(base):
    sizes = [
        page_bytes(pages, base)
        for pages in PAGE_KINDS
        if pages == BASE or page_bytes(pages, base) >= base  # others are none there
        if pages != "thp" or base == BASES[0]  # elsewhere it is larger than the pool's 2 MiB
    ]
    assert sizes == sorted(sizes) and sizes[0] == base == page_bytes(BASE, base)
    assert all(large % small == 0 for small, large in pairwise(sizes))


@pytest.mark.parametrize(("base", "mib"), [*zip(BASES, (2, 32, 512), strict=True)])
def test_a_transparent_huge_page_is_what_one_table_of_the_machine_maps(base, mib):
    assert page_bytes("thp", base) == mib << 20
    assert page_words("thp", base) == f"transparent {mib} MiB pages"
    assert page_labels(base)["thp"] == f"{mib} MiB (THP)"
    assert page_bytes("2m", base) == 2 << 20


def test_a_page_size_that_is_not_in_the_table_is_refused_by_name():
    assert [TypeAdapter(PageKind).validate_python(pages) for pages in PAGE_KINDS] == list(
        PAGE_KINDS
    )
    for other in ("3m", "", "4K", "2M" * 50):
        with pytest.raises(ValidationError, match=f"one of {', '.join(PAGE_KINDS)}") as refused:
            TypeAdapter(PageKind).validate_python(other)
        assert len(refused.value.errors()[0]["msg"]) < 200


@pytest.mark.parametrize("pages", PAGE_KINDS)
def test_an_entry_maps_the_largest_page_of_the_hardware_that_fits(pages):
    """An mTHP is made of base pages, and a transparent page is one of 2 MiB."""
    size = page_bytes(pages, 4096)
    assert mapped_page_size(pages) == ("4k" if size < 2 << 20 else "2m" if size < 1 << 30 else "1g")
