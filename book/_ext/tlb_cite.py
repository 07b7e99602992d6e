"""The Sphinx side of citing: sources of one author and year have letters, and sources without a date
the year in which they were read, where they are cited and in the list of references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from pybtex.database import BibliographyData, Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx
from sphinxcontrib.bibtex.domain import BibtexDomain

from tlb.report.claims import READ_BEFORE_YEAR, citation_label, citation_years

STYLE = "cited"  # bibtex_default_style of _config.yml


class Labels(BaseLabelStyle):
    """A source is found in the list under what a page cites it by."""

    def format_labels(self, sorted_entries: list[Entry]) -> Iterator[str]:
        return map(citation_label, sorted_entries)


class Listed(Style):
    default_sorting_style = "author_year_title"
    default_label_style = Labels

    def format_entry(self, label: str, entry: Entry, bib_data: BibliographyData | None = None):
        """Leave out the year of reading, since the list has its whole date."""
        if entry.fields.get("year", "").startswith(READ_BEFORE_YEAR):
            fields = {name: text for name, text in entry.fields.items() if name != "year"}
            key, entry = entry.key, Entry(entry.type, fields, entry.persons)
            entry.key = key
        return super().format_entry(label, entry, bib_data)


def add_letters(app: Sphinx) -> None:
    """Set the years that pages cite, in the bibliography as sphinxcontrib.bibtex has read it."""
    entries = cast(BibtexDomain, app.env.get_domain("cite")).bibdata.data.entries
    for key, year in citation_years(entries).items():
        entries[key].fields["year"] = year


def setup(app: Sphinx) -> dict[str, bool]:
    register_plugin("pybtex.style.formatting", STYLE, Listed)
    # after sphinxcontrib.bibtex has read it
    app.connect("builder-inited", add_letters, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
