"""The tables: what each way of asking got, rates, and what programs got; a dash where there is
nothing."""

from __future__ import annotations

import pytest
from support.keeping_pages import analysis, rows
from support.told import numbers_of as numbers
from support.told import read

from experiments.keeping_pages import tables
from tlb.page_sizes import PAGES
from tlb.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")


def test_the_table_of_faults_has_rates_and_what_one_byte_costs():
    a = analysis()
    table = read(tables.faults(a))
    for ours, name in (
        ("median", "ns per 4 KiB"),
        ("gb_per_s", "GB/s"),
        ("free_ns", "freeing, ns per 4 KiB"),
    ):
        assert numbers(table[name]) == pytest.approx(a.faults[ours].tolist(), abs=0.006)
    of = dict(zip(table["pages"], table["resident for one byte"], strict=True))
    assert of == {
        pages: f"{pages[:-1]} {pages[-1].upper()}iB" for pages in PAGES if pages != "thp"
    } | {"thp": "2 MiB"}
    with pytest.raises(Unavailable) as why:
        tables.faults(analysis(rows().query("kernel != 'prefault'")))
    assert why.value.code == "engine-lacks"
