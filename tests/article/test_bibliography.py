"""Sources that share author and year: each has one letter, the same wherever it is cited."""

from __future__ import annotations

import importlib.util
from collections import Counter

import pytest
from pybtex.database import Entry, Person, parse_file
from pybtex.plugin import find_plugin

from experiments.article.bibliography import BIBLIOGRAPHY, UNDATED, authors, label, sources, years
from experiments.system.files import ROOT


def entry(year: str | None, *names: str) -> Entry:
    return Entry("misc", {"title": "Of"} | ({"year": year} if year else {}), {"author": [Person(name) for name in names]})


def test_of_one_author_and_year_each_has_a_letter_in_the_order_of_the_file():
    entries = {"b": entry("2024", "Chen, J"), "a": entry("2024", "Chen, J"), "c": entry("2025", "Chen, J"), "d": entry("2024", "Li, A"),
               "e": entry(None, "Oracle"), "f": entry(None, "Oracle"), "g": entry(None, "Red Hat")}
    found = years(entries)
    assert found == {"b": "2024a", "a": "2024b", "c": "2025", "d": "2024", "e": "n.d.-a", "f": "n.d.-b", "g": UNDATED}
    for key, year in found.items():
        entries[key].fields["year"] = year
    assert years(entries) == found  # as a second build finds them


@pytest.mark.parametrize(("names", "cited"), [
    (["Chen, Jiajie"], "Chen"), (["Li, A", "Xu, B"], "Li and Xu"), (["Li, A", "Xu, B", "Wu, C"], "Li et al."), ([], ""),
    (["{Advanced Micro Devices}"], "Advanced Micro Devices")])
def test_authors_are_named_as_a_citation_names_them(names: list[str], cited: str):
    assert authors(entry("2024", *names)) == cited


def test_those_who_wrote_with_others_are_not_those_who_wrote_alone():
    assert set(years({"a": entry("2024", "Li, A"), "b": entry("2024", "Li, A", "Xu, B")}).values()) == {"2024"}


def test_every_source_of_the_book_is_cited_by_a_name_of_its_own_and_listed_under_it():
    entries = parse_file(str(BIBLIOGRAPHY)).entries
    for key, year in years(entries).items():
        entries[key].fields["year"] = year
    spec = importlib.util.spec_from_file_location("tlb_cite", ROOT / "book/_ext/tlb_cite.py")
    cite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cite)
    labels = [*cite.Labels().format_labels([*entries.values()])]
    assert labels == [label(each) for each in entries.values()]
    assert [name for name, times in Counter(labels).items() if times > 1] == []
    assert [name for name, times in Counter(sources().values()).items() if times > 1] == []
    cite.setup(type("App", (), {"connect": lambda *_, **__: None})())
    listed = find_plugin("pybtex.style.formatting", cite.STYLE)().format_entries(entries.values())
    assert {each.label for each in listed} == set(labels)
