"""What the README promises exists, and no tracked file says where or with what it was written."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from tlb import cli
from tlb.system.files import ROOT

README = "\n".join(
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "book/commands.md")
)


def shell_commands() -> list[list[str]]:
    """The command lines of the README's `sh` blocks, split into words, comments gone."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words for words in lines if words]


def commands_of(program: str) -> list[list[str]]:
    commands = [words[1:] for words in shell_commands() if words[0] == program]
    assert commands, f"the README shows no `{program}` command"
    return commands


def make_targets() -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split()


def test_every_make_command_of_the_readme_is_a_target():
    inline = re.findall(r"`make ([a-z]+)", README)
    shown = [words[0] for words in commands_of("make")]
    assert {"book", "site", "test", "bench"} <= set(shown) | set(inline) <= set(make_targets())


def test_every_tlb_command_of_the_readme_is_understood_by_the_command_line():
    group = typer.main.get_command(cli.app)
    shown = set()
    for words in commands_of("tlb"):
        # `-p name value` is Papermill's form; the command line joins it to `-p name=value` before
        # it reads.
        line = re.sub(r" -p (\w+) (\S+)", r" -p \1=\2", " ".join(words))
        name, *arguments = line.split()
        shown.add(name)
        group.commands[name].make_context(
            name, arguments
        )  # raises what does not parse; runs nothing
    assert shown == set(group.commands), "the README leaves a command out"


# Where a file was written, or from where its packages came. Split, so that this file does not say
# it either.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.\]}])/"
    r"(?:ro{2}t|hom{1}e/[a-z][\w-]*|Use{1}rs/\w+|wor{1}k|far{1}m)/\w",
    "a package index": r"(?:pyp{1}i|python-?hoste{1}d|crate{1}s|npmj{1}s)\.(?:org|io|com)"
    r"|--(?:extra-)?inde{1}x-url|--find-lin{1}ks",
}


def tracked_files() -> list[Path]:
    """What git tracks or would track; in a copy without git, every file outside the folders of
    .gitignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode == 0:
        return [
            ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()
        ]
    ignored = {".venv", "_build", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not ignored & set(path.parts)]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_holds(what):
    files = tracked_files()
    assert ROOT / "README.md" in files
    hits = {
        path.relative_to(ROOT): re.search(
            FORBIDDEN[what], path.read_text(encoding="utf-8", errors="ignore")
        )
        for path in files
    }
    assert [f"{path}: {hit[0]}" for path, hit in hits.items() if hit] == []
