"""The back of the book: every term and every source is used by a page, and every chapter uses terms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from pybtex.database import parse_file
from support.common import ROOT

from experiments.article.parameters import table_of_contents

CHAPTERS = [name for name in table_of_contents() if (ROOT / "experiments" / "chapters" / name).is_dir()]
_ROLE = re.compile(r"\{term\}`(?:[^`<]*<)?([^`>]+)>?`")
_CITED = re.compile(r"\{cite(?::[a-z]+)?\}`([^`]+)`")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of a page: of a notebook what its cells say and put there, each line by its cell's number."""
    if path.suffix == ".md":
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        return
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        said = [cell.source] if cell.cell_type == "markdown" else [
            text for output in cell.get("outputs", []) for kind, text in output.get("data", {}).items() if kind.endswith("text/markdown")]
        for text in said:
            yield from ((number, line) for line in "".join(text).splitlines())


def defined(glossary: Path) -> dict[str, int]:
    """The glossary's terms, each with its line."""
    lines = glossary.read_text(encoding="utf-8").splitlines()
    begin, end = lines.index("```{glossary}"), len(lines) - 1 - lines[::-1].index("```")
    return {line: number for number, line in enumerate(lines[begin + 1 : end], begin + 2) if line and not line[0].isspace()}


def unused_terms(book: Path) -> list[str]:
    """A sentence a term that no chapter uses, and a use of a term that is not there, with page and line."""
    terms = defined(book / "glossary.md")
    uses = {(path.name, line, term) for path in book.glob("*.ipynb") for line, text in texts(path) for term in _ROLE.findall(text)}
    return [f"book/glossary.md:{line}: no chapter uses the term '{term}'." for term, line in terms.items()
            if term not in {used for _, _, used in uses}] + [
            f"book/{page}: cell {line}: the glossary has no term '{term}'." for page, line, term in sorted(uses) if term not in terms]


def test_every_term_is_used_by_a_chapter():
    assert unused_terms(ROOT / "book") == []


def test_a_term_without_use_is_told_by_its_line(tmp_path):
    (tmp_path / "glossary.md").write_text("# Glossary\n\n```{glossary}\nhop\n  A step.\n\nreach\n  How far.\n```\n")
    cell = nbformat.v4.new_markdown_cell("One {term}`hop` and some {term}`leaps <leap>`.")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "page.ipynb")
    told = unused_terms(tmp_path)
    assert len(told) == 2 and told[0].startswith("book/glossary.md:7: ") and "page.ipynb: cell 0" in told[1]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_uses_terms(chapter: str):
    assert [term for _, text in texts(ROOT / "book" / f"{chapter}.ipynb") for term in _ROLE.findall(text)]


def test_terms_stand_in_the_order_of_the_alphabet():
    terms = list(defined(ROOT / "book" / "glossary.md"))
    assert terms == sorted(terms, key=str.lower)


def test_every_source_is_cited_by_a_page():
    book = ROOT / "book"
    cited = {key.strip() for path in [*book.glob("*.ipynb"), *book.glob("*.md")] for _, text in texts(path)
             for keys in _CITED.findall(text) for key in keys.split(",")}
    lines = (book / "references.bib").read_text(encoding="utf-8").splitlines()
    uncited = set(parse_file(str(book / "references.bib")).entries) - cited
    assert [f"book/references.bib:{number}: no page cites {key}." for number, line in enumerate(lines, 1)
            for key in uncited if re.match(rf"@\w+\{{{key},", line)] == []
