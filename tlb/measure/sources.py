"""Source files of kernels: what one includes or imports, and digests of their text."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

_LITERAL = r"(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
_COMMENT = re.compile(_LITERAL + r"|/\*.*?\*/|//[^\n]*", re.DOTALL)
_SPACE = re.compile(_LITERAL + r"|\s+")


def closure(main: Path) -> tuple[Path, ...]:
    """Return a source in C or Python, the files that it names and those that they name, each
    once."""
    named = _imported if main.suffix == ".py" else _included
    paths = [main]
    for path in paths:  # which grows meanwhile
        paths += [other for other in named(path) if other not in paths]
    return tuple(dict.fromkeys(paths))


def _included(main: Path) -> Iterator[Path]:
    for name in re.findall(r'^#include "(\w+\.[ch])"', main.read_text(), re.MULTILINE):
        yield main.parent / name


def _imported(module: Path) -> Iterator[Path]:
    """Yield the files of the modules of kernels/ that one imports."""
    root = next(folder for folder in module.parents if folder.name == "kernels")
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernels."):
            yield root.parent.joinpath(*str(node.module).split(".")).with_suffix(".py")


@cache  # the same few files, for each point
def bare(text: str) -> str:
    """Return C text without comments. Other white space becomes one space; literals stay, and so do
    the lines of preprocessor directives."""
    text = _COMMENT.sub(lambda found: found[1] or " ", text.replace("\\\n", ""))
    lines = (_SPACE.sub(lambda found: found[1] or " ", line).strip() for line in text.splitlines())
    return "".join(f"\n{line}\n" if line.startswith("#") else f"{line} " for line in lines if line)


def digest(
    files: Iterable[Path], words: Sequence[str] = (), read: Callable[[str], str] = str
) -> str:
    """Return 16 hex digits of files, as `read` gives their text, and words."""
    texts = (hashlib.sha256(read(path.read_text()).encode()).hexdigest() for path in files)
    return hashlib.sha256("\0".join([*texts, *words]).encode()).hexdigest()[:16]
