"""What the README promises exists, and no tracked file says where or with what it was written."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
import yaml

import experiments
from experiments import cli
from experiments.article import parameters, readme
from experiments.lab import grid
from experiments.lab.store import Store
from experiments.system.files import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/literature/README.md"]


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


def test_the_readme_shows_only_programs_that_the_project_brings():
    assert {words[0] for words in shell_commands()} == {"make", "tlb", "papermill"}


def test_every_make_command_of_the_readme_is_a_target():
    inline = re.findall(r"`make ([a-z]+)", README)
    shown = [words[0] for words in commands_of("make")]
    assert {"book", "site", "test", "bench"} <= set(shown) | set(inline) <= set(make_targets())


def test_every_tlb_command_of_the_readme_is_understood_by_the_command_line():
    group = typer.main.get_command(cli.app)
    shown = set()
    for words in commands_of("tlb"):
        # `-p name value` is Papermill's form; the command line joins it to `-p name=value` before it reads.
        line = re.sub(r" -p (\w+) (\S+)", r" -p \1=\2", " ".join(words))
        name, *arguments = line.split()
        shown.add(name)
        group.commands[name].make_context(name, arguments)  # raises what does not parse; runs nothing
    assert shown == set(group.commands), "the README leaves a command out"


def test_two_machines_that_the_readme_compares_are_there_and_two():
    """`reference` is one of them by another name, and no machine is compared with itself."""
    data = Store(ROOT / "data")
    for _, a, b, *_ in filter(lambda words: words[0] == "compare" and "this" not in words, commands_of("tlb")):
        assert data.resolve(a) != data.resolve(b)


def test_every_papermill_command_of_the_readme_names_a_chapter_and_its_parameters():
    for words in commands_of("papermill"):
        (notebook,) = [word for word in words if word.startswith("book/")]
        assert (ROOT / notebook).exists()
        given = {words[i + 1] for i, word in enumerate(words) if word == "-p"}
        assert given <= set(parameters.declared(Path(notebook).stem))


def test_the_readme_lists_each_parameter_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", README, re.MULTILINE)
    declared = parameters.declared("stlb_cliff")
    assert dict(rows) == {name: str(default) for name, (_, default) in declared.items()}
    assert all(f"`{profile}` (" in README for profile in grid.profile_names())


def test_the_readme_shows_the_first_figure_as_it_is_now():
    words, drawing = readme.figure()
    assert README.count(words) == 1, "`tlb refresh index` puts it there"
    assert (ROOT / readme.FILE).read_text(encoding="utf-8") == drawing
    assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"  # a file of its own is XML


def test_the_readme_has_its_figure_and_the_two_commands_before_thirty_seconds_are_over():
    """Of reading, at 240 words a minute; the words of the figure are for whoever does not see it."""
    top = README[: README.index("make test")]
    assert readme.FILE in top and "make book" in top
    assert len(re.sub(r"!\[[^]]*\]", "", top).split()) <= 120


def test_ci_runs_the_readme_s_test_command_then_the_rest_and_builds_the_site():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)
    assert re.findall(r"^make \w+$", script, re.MULTILINE) == ["make test", "make endurance", "make site"]
    assert "## Tests\n\n```sh\nmake test\n```" in README


def test_the_rooms_are_the_same_in_the_package_its_table_the_readme_and_the_order_that_is_checked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    table = [re.split(r",? {2,}|, ", line) for line in experiments.__doc__.splitlines()[2:] if line]
    assert [name for names in table[:-1] for name in names[:1]] + table[-1] == [*layers[::-1][:-2], "bench", "cli"]
    folder = ROOT / "experiments"
    assert {path.stem for path in folder.iterdir() if path.name[0] not in "._" and (path.is_dir() or path.suffix == ".py")} == set(layers)
    rooms = re.search(r"the package, in rooms: (.+)$", README, re.MULTILINE)[1].replace("/<name>", "").split(", ")
    assert rooms == layers[::-1][:-2]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_to_a_file_resolves(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    folder = (ROOT / document).parent
    assert [target for target in targets if not (folder / target.split("#")[0]).exists()] == []


# What the Citation File Format 1.2.0 lets a file say, by its schema guide; a name that is none of these makes the file invalid.
CITED = {"abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license",
         "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact", "repository-code", "title",
         "type", "url", "version"}


def test_the_citation_agrees_with_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["cff-version"] == "1.2.0" and citation["type"] in ("software", "dataset")
    assert set(citation) <= CITED and all(citation[name] for name in ("message", "title", "abstract", "keywords"))
    assert citation["authors"] and all(set(author) == {"name"} and author["name"] for author in citation["authors"])  # who is no person
    assert len(set(citation["keywords"])) == len(citation["keywords"])
    url = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    assert citation.get("repository-code", "") == url
    assert citation["version"] == project["version"] and citation["license"] == project["license"]
    assert README.startswith(f"# {citation['title']}\n")


def test_the_changelog_has_a_section_for_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    sections = re.findall(r"^## \[([^\]]+)\]", changelog, re.MULTILINE)
    assert sections[0] == "Unreleased" and version in sections


# Where a file was written, or from where its packages came. Split, so that this file does not say it either.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.\]}])/(?:ro{2}t|hom{1}e/[a-z][\w-]*|Use{1}rs/\w+|wor{1}k|far{1}m)/\w",
    "a package index": r"(?:pyp{1}i|python-?hoste{1}d|crate{1}s|npmj{1}s)\.(?:org|io|com)"
    r"|--(?:extra-)?inde{1}x-url|--find-lin{1}ks",
}


def tracked_files() -> list[Path]:
    """What git tracks or would track; in a copy without git, every file outside the folders of .gitignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode == 0:
        return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]
    ignored = {".venv", "_build", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not ignored & set(path.parts)]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_holds(what):
    files = tracked_files()
    assert ROOT / "README.md" in files
    hits = {path.relative_to(ROOT): re.search(FORBIDDEN[what], path.read_text(encoding="utf-8", errors="ignore")) for path in files}
    assert [f"{path}: {hit[0]}" for path, hit in hits.items() if hit] == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a path of one machine", " ".join(["see", "/ro" + "ot/x"])),
        ("a path of one machine", '"/hom' + 'e/jane/y"'),
        ("a package index", "https://py" + "pi.org/simple"),
        ("a package index", "--inde" + "x-url x"),
    ],
)
def test_the_search_for_forbidden_text_finds_it(what, text):
    assert re.search(FORBIDDEN[what], text)
