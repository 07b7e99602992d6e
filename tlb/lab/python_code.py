"""Digest functions of a kernel in Python by syntax tree: comments, docstrings and imports do not
count."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

TWINS = "kernels.twins"


class _Imported(NamedTuple):
    """What an imported name means: a name in another module, or "" for the module itself."""

    module: Path
    name: str


Names = dict[str, ast.stmt | _Imported]


class _Modules:
    """The top-level names of modules of kernels/, each read once; other packages are left out."""

    def __init__(self, where: Callable[[str], Path]):
        self._where, self._read = where, dict[Path, Names]()

    def names(self, module: Path) -> Names:
        if module not in self._read:
            self._read[module] = dict(
                pair for node in ast.parse(module.read_text()).body for pair in self._named(node)
            )
        return self._read[module]

    def _named(self, node: ast.stmt) -> Iterator[tuple[str, ast.stmt | _Imported]]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                (name.id, node)
                for target in targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            )
        elif isinstance(node, ast.ImportFrom) and node.module == TWINS:
            yield from (
                (alias.asname or alias.name, _Imported(self._where(alias.name), ""))
                for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{TWINS}."):
            module = self._where(str(node.module).removeprefix(f"{TWINS}."))
            yield from (
                (alias.asname or alias.name, _Imported(module, alias.name)) for alias in node.names
            )

    def definition(self, module: Path, name: str) -> tuple[Path, ast.stmt] | None:
        """Return the module and statement that define a name."""
        meaning = self.names(module).get(name)
        if isinstance(meaning, _Imported):
            return self.definition(*meaning) if meaning.name else None
        return (module, meaning) if meaning else None

    def references(self, module: Path, node: ast.stmt) -> Iterator[tuple[Path, ast.stmt]]:
        """Yield the definitions in kernels/ that a statement refers to."""
        for inner in ast.walk(node):
            found = None
            if isinstance(inner, ast.Name):
                found = self.definition(module, inner.id)
            elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                meaning = self.names(module).get(inner.value.id)
                found = (
                    self.definition(meaning.module, inner.attr)
                    if isinstance(meaning, _Imported) and not meaning.name
                    else None
                )
            if found:
                yield found

    def function(self, module: Path, name: str) -> tuple[Path, ast.stmt]:
        """Return a function of a module or of one that it imports from. Raises LookupError."""
        imported = [
            meaning.module
            for meaning in self.names(module).values()
            if isinstance(meaning, _Imported)
        ]
        for path in [module, *imported]:
            if found := self.definition(path, name):
                return found
        raise LookupError(f"no function {name}")


def _tree(node: ast.stmt) -> str:
    """Return a statement's syntax tree without docstrings."""
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(inner, clean=False) is not None
        ):
            inner.body = inner.body[1:] or [ast.Pass()]
    return ast.dump(node)


def digest(
    module: Path, functions: Sequence[str], where: Callable[[str], Path], words: Sequence[str]
) -> str:
    """Return 16 hex digits of a kernel's functions, all of kernels/ that they refer to, and
    `words`.

    where: returns the file of a module of kernels/twins/. Raises LookupError for a missing
    function.
    """
    modules, whole = _Modules(where), hashlib.sha256("\0".join(words).encode())
    due = [modules.function(module, name) for name in functions]
    for path, node in due:  # which grows meanwhile
        whole.update(f"\n{_tree(node)}".encode())
        for reference in modules.references(path, node):
            if reference not in due:
                due.append(reference)
    return whole.hexdigest()[:16]
