"""data/literature/: each published figure is there, has its source and agrees with what that
implies."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from pybtex.database import parse_file
from scipy.stats import t as student

from tlb.system.files import ROOT

FOLDER = ROOT / "data" / "literature"
FILES = sorted(FOLDER.glob("*.csv"))
FIGURES = [path for path in FILES if path.stem != "claims"]  # that are sentences: test_claims.py
EVERY_ROW_HAS = ["source", "where", "note"]
# What ends the name of a column of numbers. `pages` and `page_table_levels` are counts of what they
# name, and a test's own numbers have no unit; `score` and `value_*` stand beside a `unit` column.
UNITS = re.compile(
    r"(_bytes|_n?s|_ratio|_count|_gb_per_s|ns_per_(access|hop|fault)(_4k|_2m)?|misses_per_hop)$"
)
COUNTS = {"pages", "page_table_levels", "degrees_of_freedom", "t", "p_value"}
UNIT_BESIDE = {"score", "score_error", "value_low", "value_high"}


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / name)


@pytest.fixture(scope="module")
def bibliography():
    return parse_file(str(ROOT / "book" / "references.bib")).entries


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_every_row_names_its_source_and_the_place_in_it(path, bibliography):
    frame = pd.read_csv(path)
    assert len(frame) > 0
    assert list(frame.columns[-3:]) == EVERY_ROW_HAS
    assert frame["source"].notna().all() and frame["where"].notna().all()
    assert set(frame["source"]) <= set(bibliography)
    assert not frame.duplicated().any()


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_every_column_of_numbers_says_its_unit(path):
    frame = pd.read_csv(path)
    numbers = set(frame.select_dtypes("number").columns) - COUNTS
    beside = numbers & UNIT_BESIDE
    assert not beside or frame["unit"].notna().all()
    assert [column for column in numbers - beside if not UNITS.search(column)] == []
    assert (frame[list(numbers)].fillna(0) >= 0).all(axis=None)


def test_the_bibliography_is_complete_enough_to_be_printed(bibliography):
    for key, entry in bibliography.items():
        assert entry.persons.get("author"), f"{key}: no author"
        assert entry.fields.get("title"), f"{key}: no title"
        assert re.fullmatch(r"(\d{4})?", entry.fields.get("year", "")), f"{key}: year"
        assert entry.fields.get("url", "https://").startswith("https://"), f"{key}: url"
        assert re.fullmatch(r"10\.\d{4,}/\S+", entry.fields.get("doi", "10.0000/none")), (
            f"{key}: doi"
        )


def test_the_published_t_test_follows_from_the_published_intervals():
    single = read("page_fault_levels.csv").query("benchmark == 'lat_pagefault'")
    test, runs = read("page_fault_difference.csv").iloc[0], single["run_count"]
    half = (single["ci95_high_ns_per_fault"] - single["ci95_low_ns_per_fault"]) / 2
    of_means = half / student.ppf(
        0.975, runs - 1
    )  # standard errors; of as many runs each, pooling is adding
    error, freedom = float((of_means**2).sum() ** 0.5), int(runs.sum()) - 2
    assert (runs == test["run_count"]).all() and freedom == test["degrees_of_freedom"]
    assert test["difference_ns_per_fault"] == pytest.approx(single["ns_per_fault"].diff().iloc[-1])
    assert test["t"] == pytest.approx(
        test["difference_ns_per_fault"] / error, rel=1e-3
    )  # of the digits that are printed
    assert test["p_value"] == pytest.approx(2 * student.sf(test["t"], freedom), rel=1e-3)
    reach = error * student.ppf(0.975, freedom)
    ends = test["difference_ns_per_fault"] - reach, test["difference_ns_per_fault"] + reach
    assert (test["ci95_low_ns_per_fault"], test["ci95_high_ns_per_fault"]) == pytest.approx(
        ends, rel=1e-3
    )
