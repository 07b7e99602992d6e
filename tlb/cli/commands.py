"""Write the reference of all commands into book/commands.md: `python -m tlb.cli.commands`. With a
folder, write the man pages of a wheel's commands into it.

click-man 0.6.0 finds no options: Typer carries a Click of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typer

from tlb import cli
from tlb.system.files import ROOT

PAGE = ROOT / "book" / "commands.md"
_MARK = "## All commands\n"
_WIDTH, _MAN_WIDTH = 100, 78


def reference() -> str:
    """Return the help of each command, as sections of Markdown."""
    sections = _sections(typer.main.get_command(cli.app), "tlb", None, _WIDTH)
    return "\n".join(f"### `{name}`\n\n```text\n{text}\n```\n" for name, text in sections)


def _sections(command: Any, name: str, parent: Any, width: int) -> Iterator[tuple[str, str]]:
    """Yield the name and the help of a command and of those below it."""
    context = _context(command, name, parent, width)
    yield name, command.get_help(context).strip()
    for below, child in getattr(command, "commands", {}).items():
        yield from _sections(child, f"{name} {below}", context, width)


def _context(command: Any, name: str, parent: Any, width: int) -> Any:
    """Return the context in which a command's help is `width` columns wide."""
    word = name.split()[-1]
    sizes = {"terminal_width": width, "max_content_width": width}
    return command.context_class(command, info_name=word, parent=parent, **sizes)


def man_pages() -> dict[str, str]:
    """Return the man pages, in roff, of `tlb` and of each command that a wheel has, by file name."""
    group = typer.main.get_command(cli.app)
    above = _context(group, "tlb", None, _MAN_WIDTH)
    pages = {"tlb.1": _man_page("tlb", cli.ABOUT, group.get_help(above))}
    for name, entry in cli.ENTRIES.items():
        if not entry.needs_book:
            command = group.commands[name]  # type: ignore[attr-defined]
            texts = [text for _, text in _sections(command, f"tlb {name}", above, _MAN_WIDTH)]
            pages[f"tlb-{name}.1"] = _man_page(f"tlb {name}", entry.help, "\n\n".join(texts))
    return pages


def _man_page(name: str, about: str, text: str) -> str:
    lines = (f"\\&{line}" for line in text.replace("\\", "\\\\").split("\n"))
    dashed, about = name.replace(" ", "-"), about.removesuffix(".")
    title = f'.TH "{dashed.upper()}" 1 "" "tlb {version("every-load-is-two-loads")}" ""'
    head = [title, ".SH NAME", f"{dashed} \\- {about}", ".SH USAGE", ".nf"]
    return "\n".join([*head, *lines, ".fi", ""])


def refreshed(page: str) -> str:
    """Return the page with its reference made anew; the text above it stays."""
    return f"{page.partition(_MARK)[0]}{_MARK}\n{reference()}"


if __name__ == "__main__" and sys.argv[1:]:
    cli.IS_REPOSITORY_CLONE = False  # as where a wheel is installed
    for file, text in man_pages().items():
        Path(sys.argv[1], file).write_text(text, encoding="utf-8")
elif __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
