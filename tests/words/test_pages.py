"""Page sizes: one table, in the order of size, whose base page is the machine's."""

from __future__ import annotations

import re
from itertools import pairwise

import pandas as pd
import pytest
from pydantic import TypeAdapter, ValidationError

from experiments.words.pages import BASE, HARDWARE, LARGE, PAGES, Pages, hardware, ordered, page_bytes, rank, words

BASES = [4 << 10, 16 << 10, 64 << 10]  # of x86-64, and those that arm64 may have


@pytest.mark.parametrize("base", BASES)
def test_page_sizes_stand_from_small_to_large_whatever_the_base_page(base: int):
    sizes = [page_bytes(pages, base) for pages in PAGES if pages == BASE or page_bytes(pages, base) >= base]  # others are none there
    assert sizes == sorted(sizes) and sizes[0] == base == page_bytes(BASE, base)
    assert all(large % small == 0 for small, large in pairwise(sizes))


def test_of_two_page_sizes_alike_the_one_that_takes_no_pool_comes_first():
    for before, after in pairwise(PAGES.values()):
        if before.size_bytes == after.size_bytes:
            assert before.source != "pool" and after.source == "pool"


def test_only_the_base_page_depends_on_the_machine():
    assert [pages for pages in PAGES if page_bytes(pages, 4096) != page_bytes(pages, 16 << 10)] == [BASE]
    assert [page_bytes(pages, 16 << 10) for pages in ("4k", "64k", "thp", "2m", "1g")] == [16 << 10, 64 << 10, 2 << 20, 2 << 20, 1 << 30]


def test_large_pages_are_the_two_of_2_mib_the_pool_s_first():
    assert LARGE == ("2m", "thp") and {page_bytes(pages, 4096) for pages in LARGE} == {2 << 20}


def test_each_page_size_has_words_of_its_own_and_no_code_in_them():
    texts = [words(pages) for pages in PAGES]
    assert len(set(texts)) == len(PAGES)
    assert not [(pages, text) for pages, text in zip(PAGES, texts, strict=True) if pages in text.lower().split()]
    assert not [text for text in texts if re.search(r"\b4 KiB", text)]  # base pages may be larger


def test_hardware_pages_are_those_that_an_entry_maps():
    known = {"4k": "4k", "64k": "4k", "thp": "2m", "2m": "2m", "1g": "1g"}
    assert {pages: hardware(pages) for pages in known} == known
    assert [page for page in HARDWARE if page in known.values()] == ["4k", "2m", "1g"] and len(set(HARDWARE)) == len(HARDWARE)


def test_the_sizes_that_occur_come_once_each_from_small_to_large():
    assert ordered(["1g", "4k", "thp", "4k", "2m"]) == ["4k", "thp", "2m", "1g"]
    assert ordered([]) == ordered(["none"]) == [] and ordered(pd.Series(list(reversed(PAGES)))) == list(PAGES)


def test_a_frame_is_sorted_by_rank_and_only_its_page_sizes_are_ranked():
    frame = pd.DataFrame({"pages": ["1g", "thp", "4k", "2m", "64k", "4k"], "n": [0, 1, 2, 3, 4, 1]})
    by_size = frame.sort_values(["pages", "n"], key=rank)
    assert by_size["pages"].tolist() == ["4k", "4k", "64k", "thp", "2m", "1g"] and by_size["n"].tolist()[:2] == [1, 2]
    with pytest.raises(ValueError, match="3m"):
        rank(pd.Series(["3m"], name="pages"))


def test_a_page_size_that_is_not_in_the_table_is_refused_by_name():
    assert [TypeAdapter(Pages).validate_python(pages) for pages in PAGES] == list(PAGES)
    for other in ("3m", "", "4K", "2M" * 50):
        with pytest.raises(ValidationError, match=f"one of {', '.join(PAGES)}") as refused:
            TypeAdapter(Pages).validate_python(other)
        assert len(refused.value.errors()[0]["msg"]) < 200


def test_every_page_size_says_where_it_comes_from():
    known = {"4k": "base", "64k": "mthp", "thp": "thp", "2m": "pool", "1g": "pool"}
    assert {pages: PAGES[pages].source for pages in known} == known
    assert all(size.asked.startswith("mmap") for size in PAGES.values())
