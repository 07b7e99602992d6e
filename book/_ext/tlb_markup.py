"""Markup of pages: the directive `listing`, and citations.

`listing` shows a part of a source file as it stands now, highlighted and numbered, with
its file and line.

    ```{listing} experiments/stlb_cliff/grid.py points
    :fold:
    How the figure is drawn.
    ```

shows a function or class of a Python file; of another file, the lines between the marks [timed:
NAME] and [end]; of any file, the part `recipe` or `pool` between that mark and [end].

Sources of one author and year have letters, and sources without a date the year in which they were
read, where they are cited and in the list of references.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, cast

from docutils import nodes
from docutils.parsers.rst import directives
from pybtex.database import BibliographyData, Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx
from sphinx.directives.code import container_wrapper
from sphinx.util.docutils import SphinxDirective
from sphinxcontrib.bibtex.domain import BibtexDomain

from tlb.report.claims import READ_YEAR_PREFIX, citation_label, citation_years
from tlb.report.render import timed_source_part

_LANGUAGES = {".py": "python", ".go": "go", ".rs": "rust", ".java": "java"}
ROOTS = ("tlb/", "experiments/", "kernels/")  # nothing else of a source tree is shown


def python_part(text: str, name: str) -> tuple[int, list[str]]:
    """(first line, lines) of a function, a class, a method "Class.name", or an assignment.
    LookupError where there is none."""
    body: list[ast.stmt] = ast.parse(text).body
    for word in name.split("."):
        named = [child for child in body if word in _names(child)]
        if not named:
            raise LookupError(name)
        node = named[0]
        body = getattr(node, "body", [])
    first = min(
        [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))]
    )
    return first, text.splitlines()[first - 1 : node.end_lineno]


def _names(node: ast.stmt) -> list[str | None]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return [getattr(target, "id", getattr(target, "name", None)) for target in targets]


class Listing(SphinxDirective):
    """See the module."""

    required_arguments = 1  # the file
    optional_arguments = 1  # the part of it, which may be of several words; without one, all of it
    final_argument_whitespace = True
    has_content = True  # the caption
    option_spec: ClassVar = {"fold": directives.flag, "name": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        file, part = self.arguments[0], (self.arguments[1:] or [""])[0]
        try:
            first, lines = self._part(file, part)
        except (LookupError, OSError):
            warning = f"{file} has no part {part!r} to list."
            return [self.state.document.reporter.warning(warning, line=self.lineno)]
        self.env.note_dependency(str(Path(self.env.srcdir) / file))
        text = "\n".join(lines)
        literal = nodes.literal_block(
            text,
            text,
            linenos=True,
            language=_LANGUAGES.get(Path(file).suffix, "c"),
            highlight_args={"linenostart": first},
        )
        self.set_source_info(literal)
        caption = f"{' '.join(self.content)} ``{file}``, line {first}.".strip().replace("``", "`")
        wrapped = container_wrapper(self, literal, caption)
        self.add_name(wrapped)
        if "fold" in self.options:  # to unfold at its caption
            tags = ("<details><summary>", "</summary>", "</details>")
            begin, middle, end = (nodes.raw("", tag, format="html") for tag in tags)
            wrapped.children = [begin, wrapped[0], middle, wrapped[1], end]
        wrapped["classes"].append("tlb-listing")
        return [wrapped]

    def _part(self, file: str, part: str) -> tuple[int, list[str]]:
        """Return (first line, lines) of a part. Raises LookupError or OSError without it."""
        if not file.startswith(ROOTS) or ".." in file:
            raise LookupError(file)
        text = (Path(self.env.srcdir) / file).read_text()
        if not part:
            return 1, text.splitlines()
        if file.endswith(".py") and part not in ("recipe", "pool"):
            return python_part(text, part)
        return timed_source_part(text, part)


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
        if entry.fields.get("year", "").startswith(READ_YEAR_PREFIX):
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
    app.add_directive("listing", Listing)
    register_plugin("pybtex.style.formatting", STYLE, Listed)
    # after sphinxcontrib.bibtex has read it
    app.connect("builder-inited", add_letters, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
