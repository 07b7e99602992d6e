"""Names of sources on pages: author and year, and a letter for several of one year."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from string import ascii_lowercase

from pybtex.database import Entry, parse_file
from pybtex.richtext import Text

from tlb.system.files import ROOT

BIBLIOGRAPHY = ROOT / "book" / "references.bib"
READ = "read"  # before the year in which a source without a date was read
_LETTER = re.compile(r"(?<=\d)[a-z]$")


def authors(entry: Entry) -> str:
    """Return "Chen", "Bhargava and Serebrin" or "Basu et al."; "" without authors."""
    persons = entry.persons.get("author", [])
    last = [str(Text.from_latex(" ".join(person.last_names))) for person in persons]
    return " and ".join(last) if len(last) < 3 else f"{last[0]} et al."


def years(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return the year of each key, of a source without a date the year in which it was read; an
    author's several of one year get letters in the order of the file: "2024a", "read 2026a".
    Letters that a year already has are replaced."""
    same: dict[tuple[str, str], list[str]] = {}
    for key, entry in entries.items():
        read = entry.fields.get("urldate", "undated").split()[-1]
        year = entry.fields.get("year") or f"{READ} {read}"
        same.setdefault((authors(entry), _LETTER.sub("", year)), []).append(key)
    found = {}
    for (_, year), keys in same.items():
        for letter, key in zip(ascii_lowercase, keys, strict=False):
            found[key] = year if len(keys) == 1 else f"{year}{letter}"
    return found


def label(entry: Entry) -> str:
    """Return an entry as a page cites it: "Chen, 2024a"."""
    return f"{authors(entry)}, {entry.fields['year']}"


@cache
def sources() -> dict[str, str]:
    """Return the name of each key in tables, by its first author: "Matthews (2022)"."""
    entries = parse_file(str(BIBLIOGRAPHY)).entries
    names = {}
    for key, year in years(entries).items():
        first = authors(entries[key]).split(" and ")[0].removesuffix(" et al.")
        names[key] = f"{first} ({year})"
    return names
