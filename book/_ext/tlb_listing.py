"""The directive `listing`: a part of a source file as it stands now, highlighted and numbered, with its file and line.

    ```{listing} experiments/chapters/stlb_cliff/figures.py cliff
    :fold:
    How the figure is drawn.
    ```

shows a function or class of a Python file; of a C file, what stands between the marks [timed: NAME] and [end].
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.directives.code import container_wrapper
from sphinx.util.docutils import SphinxDirective

ROOTS = ("experiments/", "kernels/")  # nothing else of a source tree is shown


def python_part(text: str, name: str) -> tuple[int, list[str]]:
    """(first line, lines) of a function, a class, a method "Class.name", or an assignment. LookupError where there is none."""
    found: list[ast.stmt] = ast.parse(text).body
    for word in name.split("."):
        nodes_named = [node for node in found if getattr(node, "name", None) == word or word in _assigned(node)]
        if not nodes_named:
            raise LookupError(name)
        node = nodes_named[0]
        found = getattr(node, "body", [])
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return first, text.splitlines()[first - 1: node.end_lineno]


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def timed_part(text: str, name: str) -> tuple[int, list[str]]:
    """(first line, lines) between [timed: NAME] and [end] of a C file. LookupError where there is no such part."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip().startswith("/* [timed") and name in line]
    if not starts:
        raise LookupError(name)
    end = next(i for i in range(starts[0], len(lines)) if "[end]" in lines[i])
    return starts[0] + 2, lines[starts[0] + 1: end]


class Listing(SphinxDirective):
    """See the module."""

    required_arguments = 1  # the file
    optional_arguments = 1  # the part of it; without one, all of it
    has_content = True  # the caption
    option_spec: ClassVar = {"fold": directives.flag, "name": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        file, part = self.arguments[0], (self.arguments[1:] or [""])[0]
        try:
            if not file.startswith(ROOTS) or ".." in file:
                raise LookupError(file)
            text = (Path(self.env.srcdir) / file).read_text()
            find = python_part if file.endswith(".py") else timed_part
            first, lines = find(text, part) if part else (1, text.splitlines())
        except (LookupError, OSError):
            return [self.state.document.reporter.warning(f"{file} has no part {part!r} to list.", line=self.lineno)]
        self.env.note_dependency(str(Path(self.env.srcdir) / file))
        literal = nodes.literal_block("\n".join(lines), "\n".join(lines), language="python" if file.endswith(".py") else "c",
                                      linenos=True, highlight_args={"linenostart": first})
        self.set_source_info(literal)
        caption = f"{' '.join(self.content)} ``{file}``, line {first}.".strip().replace("``", "`")
        wrapped = container_wrapper(self, literal, caption)
        self.add_name(wrapped)
        if "fold" not in self.options:
            return [wrapped]
        start = nodes.raw("", f'<details class="tlb-listing"><summary>Code: <code>{file}:{first}</code></summary>', format="html")
        return [start, wrapped, nodes.raw("", "</details>", format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("listing", Listing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
