"""Write the reference of all commands into book/commands.md: `python -m tlb.cli.commands`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from tlb import cli
from tlb.system.files import ROOT

PAGE = ROOT / "book" / "commands.md"
_MARK = "## All commands\n"
_WIDTH = 100


def reference() -> str:
    """Return the help of each command, as sections of Markdown."""
    sections = _sections(typer.main.get_command(cli.app), "tlb", None)
    return "\n".join(f"### `{name}`\n\n```text\n{text}\n```\n" for name, text in sections)


def _sections(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the help of a command and of those below it."""
    context = command.context_class(
        command,
        info_name=name.split()[-1],
        parent=parent,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
    )
    yield name, command.get_help(context).strip()
    for below, child in getattr(command, "commands", {}).items():
        yield from _sections(child, f"{name} {below}", context)


def refreshed(page: str) -> str:
    """Return the page with its reference made anew; the text above it stays."""
    return f"{page.partition(_MARK)[0]}{_MARK}\n{reference()}"


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
