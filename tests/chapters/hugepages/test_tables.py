"""The tables: this machine's numbers beside the published ones, and a dash where nothing was
measured."""

from __future__ import annotations

import re

import pytest
from support.hugepages import analysis, chased, median, only, rows
from support.synthetic import GIB, MIB
from support.told import numbers_of as numbers
from support.told import read

from experiments.hugepages import tables

pytestmark = pytest.mark.filterwarnings("error")


def test_the_published_speedups_stand_beside_this_machines():
    table = read(tables.speedups(analysis()))
    assert table["working set"].tolist() == ["256 MiB", "1 GiB", "4 GiB"]
    assert numbers(table["published 4k, ns"]) == [58.6, 89.4, 127.1]
    assert numbers(table["published 2m, ns"]) == [11.2, 12.8, 14.1]
    assert numbers(table["published speedup"]) == [5.23, 6.98, 9.01]
    for k, size in enumerate((256 * MIB, GIB, 4 * GIB)):
        took = {
            pages: median(
                rows(), kernel="page_gather", engine="numpy", pages=pages, lines=size // 4096
            )
            for pages in ("4k", "2m")
        }
        assert [numbers(table[f"{pages} here, ns"])[k] for pages in took] == pytest.approx(
            [*took.values()], abs=0.006
        )
        assert numbers(table["2m speedup"])[k] == pytest.approx(took["4k"] / took["2m"], abs=0.006)
        assert numbers(table["chase, 2m speedup"])[k] == pytest.approx(
            chased(rows(), "4k", size) / chased(rows(), "2m", size), abs=0.006
        )
    assert "4k speedup" not in table


def test_what_was_not_measured_is_a_dash_beside_the_published_and_never_zero():
    small = read(tables.speedups(analysis(rows(most=256 * MIB))))
    for name in ("4k here, ns", "2m here, ns", "2m speedup", "chase, 2m speedup"):
        assert (small[name] == "–").tolist() == [False, True, True]
    base = read(tables.speedups(analysis(only("4k"))))
    assert [name for name in base if "here" in name] == ["4k here, ns"] and not [
        name for name in base if re.match("[1-9].* speedup", name)
    ]
    assert not {"thp speedup", "2m speedup"} & set(
        read(tables.speedups(analysis(only("thp", "2m"))))
    )
