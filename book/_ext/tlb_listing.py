"""The directive `listing`: a part of a source file as it stands now, highlighted and numbered, with
its file and line.

    ```{listing} experiments/stlb_cliff/figures.py cliff
    :fold:
    How the figure is drawn.
    ```

shows a function or class of a Python file; of another file, what stands between the marks [timed:
NAME] and [end]; of a program that shows recipes, of any language, the part `recipe` or `pool`: what
stands between that mark and [end]. Under a kernel's file stands which source measured the page's
rows.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.directives.code import container_wrapper
from sphinx.util.docutils import SphinxDirective

_LANGUAGES = {".py": "python", ".go": "go", ".rs": "rust", ".java": "java"}
ROOTS = ("tlb/", "experiments/", "kernels/")  # nothing else of a source tree is shown
_MARK = re.compile(r"(?:/\*|//|#) \[(?:timed: ([^\]]+)|(timed|recipe|pool))\]")


def python_part(text: str, name: str) -> tuple[int, list[str]]:
    """(first line, lines) of a function, a class, a method "Class.name", or an assignment.
    LookupError where there is none."""
    node: ast.Module | ast.stmt = ast.parse(text)
    for word in name.split("."):
        named = [child for child in getattr(node, "body", []) if word in _names(child)]
        if not named:
            raise LookupError(name)
        node = named[0]
    first = min(
        [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))]
    )
    return first, text.splitlines()[first - 1 : node.end_lineno]


def _names(node: ast.stmt) -> list[str | None]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return [getattr(target, "id", getattr(target, "name", None)) for target in targets]


def timed_part(text: str, name: str) -> tuple[int, list[str]]:
    """(first line, lines) between [timed: NAME], [timed], [recipe] or [pool] and [end]; the name is
    what stands last. LookupError without it."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if (mark := _MARK.search(line)) and name in (mark[1] or mark[2]).split(", "):
            ends = [i for i in range(start, len(lines)) if "[end]" in lines[i]]
            return start + 2, lines[start + 1 : ends[0] if ends else len(lines)]
    raise LookupError(name)


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
            if not file.startswith(ROOTS) or ".." in file:
                raise LookupError(file)
            text = (Path(self.env.srcdir) / file).read_text()
            find = (
                python_part
                if file.endswith(".py") and part not in ("recipe", "pool")
                else timed_part
            )
            first, lines = find(text, part) if part else (1, text.splitlines())
        except (LookupError, OSError):
            return [
                self.state.document.reporter.warning(
                    f"{file} has no part {part!r} to list.", line=self.lineno
                )
            ]
        self.env.note_dependency(str(Path(self.env.srcdir) / file))
        literal = nodes.literal_block(
            "\n".join(lines),
            "\n".join(lines),
            linenos=True,
            language=_LANGUAGES.get(Path(file).suffix, "c"),
            highlight_args={"linenostart": first},
        )
        self.set_source_info(literal)
        caption = f"{' '.join(self.content)} ``{file}``, line {first}.".strip().replace("``", "`")
        wrapped = container_wrapper(self, literal, caption)
        self.add_name(wrapped)
        if "fold" in self.options:  # to unfold at its caption
            marks = [
                nodes.raw("", mark, format="html")
                for mark in ("<details><summary>", "</summary>", "</details>")
            ]
            wrapped.children = [marks[0], wrapped[0], marks[1], wrapped[1], marks[2]]
        wrapped["classes"].append("tlb-listing")
        if measured := self._measured_by().get(file):
            wrapped += nodes.paragraph(
                measured,
                "",
                *self.state.inline_text(measured, self.lineno)[0],
                classes=["tlb-measured"],
            )
        return [wrapped]

    def _measured_by(self) -> dict[str, str]:
        """A line a file on what measured this page's rows, where the page is a notebook that left
        them (article/sources.py)."""
        page, known = (
            Path(self.env.doc2path(self.env.docname)),
            self.env.temp_data,
        )  # which is of this page alone
        if "tlb_measured_by" not in known:
            cells = (
                json.loads(page.read_text(encoding="utf-8"))["cells"]
                if page.suffix == ".ipynb"
                else []
            )
            kept = [
                output.get("metadata", {}).get("tlb", {})
                for cell in cells
                for output in cell.get("outputs", ())
            ]
            known["tlb_measured_by"] = {
                file: line for one in kept for file, line in one.get("measured_by", {}).items()
            }
        return known["tlb_measured_by"]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("listing", Listing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
