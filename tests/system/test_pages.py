"""Page sizes: one table, in the order of size, whose base page is the machine's."""

from itertools import pairwise

import pytest

from tlb.system.page_sizes import BASE_PAGES, PAGE_KINDS, page_bytes, page_labels, page_words

BASES = [4 << 10, 16 << 10, 64 << 10]  # of x86-64, and those that arm64 may have


@pytest.mark.parametrize("base", BASES)
def test_page_sizes_stand_from_small_to_large_whatever_the_base_page(base):
    sizes = [
        page_bytes(pages, base)
        for pages in PAGE_KINDS
        if pages == BASE_PAGES or page_bytes(pages, base) >= base  # others are none there
        if pages != "thp" or base == BASES[0]  # elsewhere it is larger than the pool's 2 MiB
    ]
    assert sizes == sorted(sizes) and sizes[0] == base == page_bytes(BASE_PAGES, base)
    assert all(large % small == 0 for small, large in pairwise(sizes))


@pytest.mark.parametrize(("base", "mib"), [*zip(BASES, (2, 32, 512), strict=True)])
def test_a_transparent_huge_page_is_what_one_table_of_the_machine_maps(base, mib):
    assert page_bytes("thp", base) == mib << 20
    assert page_words("thp", base) == f"transparent {mib} MiB pages"
    assert page_labels(base)["thp"] == f"{mib} MiB (THP)"
    assert page_bytes("2m", base) == 2 << 20
