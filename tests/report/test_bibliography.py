"""Sources: each is cited by a name of its own and listed under the same name."""

from collections import Counter
from unittest.mock import Mock

from pybtex.database import parse_file
from pybtex.plugin import find_plugin
from support.common import extension

from tlb.report.claims import BIBLIOGRAPHY, citation_label, citation_years, source_names


def test_every_source_of_the_book_is_cited_by_a_name_of_its_own_and_listed_under_it():
    entries = parse_file(str(BIBLIOGRAPHY)).entries
    for key, year in citation_years(entries).items():
        entries[key].fields["year"] = year
    cite = extension("tlb_markup")
    labels = [*cite.Labels().format_labels([*entries.values()])]
    assert labels == [citation_label(each) for each in entries.values()]
    assert [name for name, times in Counter(labels).items() if times > 1] == []
    assert [name for name, times in Counter(source_names().values()).items() if times > 1] == []
    cite.setup(Mock())
    listed = find_plugin("pybtex.style.formatting", cite.STYLE)().format_entries(entries.values())
    assert {each.label for each in listed} == set(labels)
