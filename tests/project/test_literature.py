"""data/literature/: each published figure is there, has its source and agrees with what that
implies."""

import re

import pandas as pd
import pytest
from pybtex.database import parse_file

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
