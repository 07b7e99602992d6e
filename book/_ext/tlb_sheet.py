"""One style sheet in the place of ten: what all pages load, in the same order, without the rules of
classes that no page and no script has.

Nothing is drawn before the last sheet is there, and on a telephone each wait for an answer is half
a second. Most of the theme's sheet is icons and widgets that a book has not.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

# With other attributes, as `media`, a link is left as it is.
_LINK = re.compile(
    r'[ \t]*<link(?=[^>]* rel="stylesheet")(?: (?:rel="stylesheet"|type="text/css"|href="([^"?]+)(?:\?[^"]*)?"))+ */?>\n?'
)
_SCRIPT = re.compile(r'<script[^>]* src="([^"?]+)')
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_URL = re.compile(r"""url\((["']?)(?!data:|[a-z]+:|/|#)([^"')]+)\1\)""")
_IMPORT = re.compile(r"""@import\s+(?:url\()?["']([^"']+)["']\)?\s*;""")
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
_PIECE = re.compile(
    r"""\\.|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[{};,()\[\]]|[^\\"'{};,()\[\]]+""", re.DOTALL
)
_GROUPS = ("@media", "@supports", "@layer", "@container")
_LEAST_STEM = (
    4  # letters of a name's beginning that a script completes, as in `bs-tooltip-${place}`
)


def rules(css: str) -> Iterator[tuple[str, str | None]]:
    """(selectors or at-rule, body) of a sheet's outermost rules, in order; None as the body of a
    statement."""
    depth, head, body = 0, "", ""
    for piece in _PIECE.findall(css):
        depth += (piece == "{") - (piece == "}")
        if piece == "{" and depth == 1:
            body = ""
        elif piece == "}" and depth == 0:
            yield head.strip(), body
            head = ""
        elif depth:
            body += piece
        elif piece == ";":
            yield head.strip(), None
            head = ""
        else:
            head += piece


def selectors(head: str) -> Iterator[str]:
    """The selectors of a rule, apart."""
    depth, found = 0, ""
    for piece in _PIECE.findall(head):
        depth += (piece in "([") - (piece in ")]")
        if piece == "," and not depth:
            yield found.strip()
            found = ""
        else:
            found += piece
    yield found.strip()


def can_match(selector: str, names: set[str], stems: tuple[str, ...]) -> bool:
    """Whether a page could have an element of a selector: no class of it, but within parentheses,
    is unknown to all."""
    if "\\" in selector:
        return True
    outer, before = selector, ""
    while outer != before:
        outer, before = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", outer), outer
    return all(name in names or name.startswith(stems) for name in _CLASS.findall(outer))


def needed(css: str, names: set[str], stems: tuple[str, ...]) -> str:
    """A sheet with the rules alone that a page could use."""
    kept = []
    for head, body in rules(css):
        if body is None:
            kept.append(f"{head};")
        elif head.startswith(_GROUPS):
            if inner := needed(body, names, stems):
                kept.append(f"{head}{{{inner}}}")
        elif head.startswith("@"):
            kept.append(f"{head}{{{body.strip()}}}")
        elif mine := [
            selector for selector in selectors(head) if can_match(selector, names, stems)
        ]:
            kept.append(f"{','.join(mine)}{{{body.strip()}}}")
    return "\n".join(kept)


def whole(sheet: Path, static: Path) -> str:
    """A sheet with what it imports in place, without comments, its addresses relative to the folder
    of static files."""

    def place(address: str) -> str:
        return posixpath.normpath(
            posixpath.join(sheet.parent.relative_to(static).as_posix(), address)
        )

    text = _COMMENT.sub("", sheet.read_text(encoding="utf-8")).removeprefix('@charset "UTF-8";')
    imported = _IMPORT.sub(lambda found: f"/*{place(found[1])}*/", text)
    text = _URL.sub(lambda found: f"url({found[1]}{place(found[2])}{found[1]})", imported)
    return _COMMENT.sub(lambda found: whole(static / found[0][2:-2], static), text)


def known(pages: list[str], scripts: list[str]) -> tuple[set[str], tuple[str, ...]]:
    """Every word of pages and scripts; and the beginnings of names that a script completes."""
    words = {word for text in (*pages, *scripts) for word in _WORD.findall(text)}
    return words, tuple(
        word
        for text in scripts
        for word in set(_WORD.findall(text))
        if word.endswith("-") and len(word) >= _LEAST_STEM
    )


def join_sheets(app: Sphinx, error: Exception | None) -> None:
    """Put one sheet beside the others, and let the pages load it alone. Pages that load other
    sheets have one of their own."""
    if error or app.builder.name != "html":
        return
    out = Path(app.outdir)
    pages = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(out.rglob("*.html"))
        if "_static" not in path.parts
    }
    loaded = {
        (path.parent / source).resolve()
        for path, text in pages.items()
        for source in _SCRIPT.findall(text)
    }
    names = known(
        [*pages.values()],
        [path.read_text(encoding="utf-8") for path in sorted(loaded) if path.is_file()],
    )
    made: dict[tuple[Path, ...], str] = {}
    for path, text in pages.items():
        sheets = tuple((path.parent / found[1]).resolve() for found in _LINK.finditer(text))
        if len(sheets) < 2:
            continue
        if sheets not in made:
            css = "\n".join(
                needed(whole(sheet, (out / "_static").resolve()), *names) for sheet in sheets
            )
            made[sheets] = f"book-{hashlib.sha256(css.encode()).hexdigest()[:12]}.css"
            (out / "_static" / made[sheets]).write_text(css, encoding="utf-8")
        link = f'<link rel="stylesheet" href="{posixpath.relpath("_static", path.parent.relative_to(out).as_posix())}/{made[sheets]}" />\n'
        first = _LINK.search(text).start()
        path.write_text(text[:first] + link + _LINK.sub("", text[first:]), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", join_sheets, priority=900)  # after all pages are there
    return {"parallel_read_safe": True, "parallel_write_safe": True}
