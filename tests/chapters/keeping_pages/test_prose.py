"""The sentences: the numbers that they tell, which of several is chosen, and one or its reason on every machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pandas as pd
import pytest
from support import told
from support.keeping_pages import MACHINES, QUIET, SPLIT, analysis, asked, only, pool, programs, rows
from support.synthetic import MIB, Paged

from experiments.chapters.keeping_pages import Analysis, prose
from experiments.words.reasons import Note

pytestmark = pytest.mark.filterwarnings("error")


def spoken(a: Analysis, names: Iterable[str] = tuple(prose.__all__)) -> Mapping[str, str]:
    return told.spoken(prose, a, set(names) - {"machine"})


def said(name: str, frame: pd.DataFrame | None = None, **how: object) -> str:
    return spoken(analysis(frame, **how), [name])[name]


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_has_every_sentence_or_its_reason(name: str):
    spoken(analysis(MACHINES[name](), [Note("A note.", "pool-empty")], ways=asked(), runtimes=pool()))
    spoken(analysis(MACHINES[name]()))


def median(pages: str, mode: str, threads: int) -> float:
    return rows().query("kernel == 'prefault' and pages == @pages and mode == @mode and threads == @threads")["ns_per_access"].median()


def test_the_lead_counts_the_ways_that_gave_large_pages_and_has_the_rates_of_one_thread():
    text = said("lead", ways=asked())
    assert "Of 14 ways" in text and " 7 gave large pages throughout and 6 gave base pages" in text
    assert f"{4096 / median('4k', 'touch', 1):.1f} GB/s on base pages and at {4096 / median('thp', 'touch', 1):.1f}" in text
    assert "ways" not in said("lead") and "GB/s" in said("lead") and "GB/s" not in said("lead", only("2m"), ways=asked())


def test_what_was_not_asked_for_and_what_was_are_told_apart():
    text = said("ways_said", ways=asked())
    assert "0% of its bytes" in text and "`madvise`" in text and "advised 100%" in text and " nothing of the rest" in text
    assert "100% of its bytes" in said("ways_said", ways=asked("always", anonymous=16 * MIB))


def test_files_are_told_by_what_lies_under_them():
    large, none = said("files_said", ways=asked()).split(" Base pages lie under ")
    assert "hugetlbfs" in large and "mounted for it" in large and "on a disk with ext4" in none and "`never`" in none
    neither = said("files_said", ways=asked(memfd_pool=0, tmpfs_huge=0, hugetlbfs=0))
    assert "all of it is on base pages" in neither and "lie under" not in neither


@pytest.mark.parametrize(("huge", "split"), [(14 * MIB, True), (16 * MIB - 4096, False)])
def test_a_page_given_back_splits_a_large_one_or_does_not(huge: int, split: bool):
    text = said("freed_said", ways=asked(dropped=huge))
    assert "4 KiB less resident" in text and ("deferred split" in text) == split


def test_the_first_rung_that_is_cheaper_is_named_or_that_there_is_none():
    assert "The first rung that is cheaper is 16 KiB pages" in said("ladder_said", rows(QUIET))
    assert "No size between them is cheaper" in said("ladder_said", rows(SPLIT))
    assert "switched off" in said("ladder_said", only("4k"))
    assert "fewer than five processes" in said("ladder_said", rows(QUIET, repeats=4))


@pytest.mark.parametrize(("walks", "told"), [(0.9, "each walk is cheaper"), (0.2, "an entry spans more"),
                                             (float("nan"), "is 16 KiB pages.")])
def test_counted_walks_say_why_a_rung_is_cheaper(walks: float, told: str):
    text = said("ladder_said", rows(QUIET).assign(walk_per_access=[0.9 if pages == "4k" else walks for pages in rows(QUIET)["pages"]]))
    assert told in text and ("counters" in text) == (walks == walks)


def test_rates_of_faulting_in_are_told_for_one_thread_and_for_the_best_of_many():
    text = said("prefault_said")
    for value in (4096 / median("1g", "touch", 1), 4096 / median("2m", "populate", 4)):
        assert f"{value:.2f}" in text
    assert text.count(f"{Paged.FREE_NS:.1f} ns") == 2 and " 4 threads" in text
    assert "threads" not in said("prefault_said", rows(cpus=1))


def test_what_one_byte_costs_is_told_of_each_page_size():
    assert re.findall(r"(\d+ [KMG]iB) on", said("waste_said")) == ["4 KiB", "64 KiB", "2 MiB", "2 MiB", "1 GiB"]


def test_the_programs_are_a_list_of_sentences():
    text = said("runtimes_said", runtimes=programs())
    assert all(line.startswith("- ") and line.endswith(".") for line in text.splitlines()) and len(text.splitlines()) == 3
    assert len(said("runtimes_said", runtimes=pool()).splitlines()) == 4


def test_all_that_the_page_glues_is_a_function():
    assert len(prose.__all__) == len(set(prose.__all__)) and all(callable(getattr(prose, name)) for name in prose.__all__)
