"""The sources, as pages cite them: by author and year, and those that share both by a letter,
`Chen, 2024a`, the same in every place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from string import ascii_lowercase

from pybtex.database import Entry, parse_file
from pybtex.richtext import Text

from tlb.system.files import ROOT

BIBLIOGRAPHY = ROOT / "book" / "references.bib"
UNDATED = "n.d."  # as sphinxcontrib-bibtex cites what has no year
_LETTER = re.compile(r"-?[a-z]$")


def authors(entry: Entry) -> str:
    """ "Chen", "Bhargava and Serebrin", "Basu et al."; "" where nobody is named."""
    last = [
        str(Text.from_latex(" ".join(person.last_names)))
        for person in entry.persons.get("author", [])
    ]
    return " and ".join(last) if len(last) < 3 else f"{last[0]} et al."


def years(entries: Mapping[str, Entry]) -> dict[str, str]:
    """By key: the year, or UNDATED, with a letter where an author has several of it, in the order
    of the file: "2024a", "n.d.-a". Of entries that have letters already, the same."""
    plain = {
        key: _LETTER.sub("", entry.fields.get("year", UNDATED)) for key, entry in entries.items()
    }
    cited: dict[tuple[str, str], list[str]] = {}
    for key, entry in entries.items():
        cited.setdefault((authors(entry), plain[key]), []).append(key)
    return {
        key: year if len(same) == 1 else f"{year}{'-' * (year == UNDATED)}{letter}"
        for (_, year), same in cited.items()
        for letter, key in zip(ascii_lowercase, same, strict=False)
    }


def label(entry: Entry) -> str:
    """An entry with its letter as a page cites it: "Chen, 2024a"."""
    return f"{authors(entry)}, {entry.fields.get('year', UNDATED)}"


@cache
def sources() -> dict[str, str]:
    """Each key of the bibliography, as a table names it: "Matthews (2022)", of several authors the
    first."""
    entries = parse_file(str(BIBLIOGRAPHY)).entries
    first = {
        key: authors(entry).split(" and ")[0].removesuffix(" et al.")
        for key, entry in entries.items()
    }
    return {
        key: f"{first[key]} ({year.replace(UNDATED, 'undated')})"
        for key, year in years(entries).items()
    }
