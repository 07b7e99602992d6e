"""The tables: what each way of asking got, rates, and what programs got; a dash where there is nothing."""

from __future__ import annotations

import pytest
from support.keeping_pages import analysis, asked, rows
from support.told import numbers_of as numbers
from support.told import read

from experiments.chapters.keeping_pages import tables
from experiments.chapters.keeping_pages.ways import WAYS
from experiments.words.pages import PAGES
from experiments.words.reasons import REASONS, Unavailable

pytestmark = pytest.mark.filterwarnings("error")


def test_each_way_is_a_row_with_what_it_got_or_why_it_got_nothing():
    document = asked()
    document["got"] = [got for got in document["got"] if got["way"] != "pool"]
    table = read(tables.ways(analysis(ways=document | {"lacking": {"pool": "pool-empty"}}))).set_index("asked by")
    assert list(table.index) == [way.asked.replace("this disk", "a disk with ext4") for way in WAYS.values()]
    assert table.loc[WAYS["advised"].asked].tolist() == ["16 MiB", "16 MiB", "100 %"]
    assert table.loc[WAYS["arena"].asked].tolist() == ["100 KiB", "2 MiB", "100 %"]
    assert table.loc[WAYS["anonymous"].asked].tolist() == ["16 MiB", "16 MiB", "0 %"]
    assert table.loc[WAYS["pool"].asked].tolist() == ["–", "–", REASONS["pool-empty"].sentence]


def test_the_table_of_faults_has_rates_and_what_one_byte_costs():
    a = analysis()
    table = read(tables.faults(a))
    for ours, name in (("median", "ns per 4 KiB"), ("gb_per_s", "GB/s"), ("free_ns", "freeing, ns per 4 KiB")):
        assert numbers(table[name]) == pytest.approx(a.faults[ours].tolist(), abs=0.006)
    of = dict(zip(table["pages"], table["resident for one byte"], strict=True))
    assert of == {pages: f"{pages[:-1]} {pages[-1].upper()}iB" for pages in PAGES if pages != "thp"} | {"thp": "2 MiB"}
    with pytest.raises(Unavailable) as why:
        tables.faults(analysis(rows().query("kernel != 'prefault'")))
    assert why.value.code == "engine-lacks"
