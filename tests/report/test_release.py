"""A release: refused where it would not be what its commit says, else whole, described, summed, and
the same bytes again."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from datetime import UTC, datetime

import pytest
from support.common import lacking
from support.copies import Copy, copy_of_checkout

from tlb.report import release
from tlb.report.edition import Edition

# A release without executing the notebooks, which `make test` compares with what they give; `{}` is
# done in the place of that.
MAKE = """
from pathlib import Path
from tlb.report import publish, release
publish.refresh = lambda name: {}
print(release.release(Path("_build/release")))
"""


def edition(**changes: object) -> Edition:
    return Edition(
        **{
            "name": "book",
            "title": "A book",
            "about": "",
            "version": "1.2.3",
            "commit": "0" * 40,
            "date": datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
        }
        | changes
    )


@pytest.mark.parametrize(
    ("changelog", "says"),
    [
        ("## [Unreleased]\n\n- New.\n\n## [1.2.3]\n\n- Old.\n", "under Unreleased"),
        ("## [Unreleased]\n\n## [1.2.2]\n\n- Old.\n", "tells nothing of 1.2.3"),
        ("## [1.2.3]\n\n## [1.2.2]\n\n- Old.\n", "tells nothing of 1.2.3"),
    ],
)
def test_a_version_of_which_the_changelog_does_not_tell_is_not_released(
    tmp_path, monkeypatch, changelog, says
):
    (tmp_path / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=says):
        release._notes("1.2.3")


def test_an_archive_is_the_same_bytes_whenever_its_files_were_written(tmp_path):
    for name, order in (("one", ("b/c", "a")), ("two", ("a", "b/c"))):
        for file in order:
            (path := tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file)
        release._zip(tmp_path / name, tmp_path / name / ".." / "book.zip", edition())
        (tmp_path / "book.zip").rename(tmp_path / f"{name}.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == ["book/a", "book/b/c"] and archive.read("book/b/c") == b"b/c"
        assert {entry.date_time for entry in archive.infolist()} == {(2026, 2, 3, 4, 5, 6)}


# --- of a copy of this checkout ---


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A commit that could be released: what is new has a version."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        lacking("Chromium")
    copy = copy_of_checkout(tmp_path_factory.mktemp("release") / "checkout")
    for name, old in (
        ("pyproject.toml", r'(?m)^version = ".*"$'),
        ("CITATION.cff", "(?m)^version: .*$"),
    ):
        text = (copy.path / name).read_text(encoding="utf-8")
        (copy.path / name).write_text(
            re.sub(old, lambda found: re.sub(r"\d+\.\d+\.\d+", "9.8.7", found[0]), text),
            encoding="utf-8",
        )
    copy.edit("CHANGELOG.md", ("## [Unreleased]\n", "## [Unreleased]\n\n## [9.8.7] - 2026-02-03\n"))
    copy.commit()
    return copy


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("change", "done", "says"),
    [
        ("README.md", "None", r"commit what is changed first \(README.md\)"),
        (
            "",
            "open('book/code.ipynb', 'a').write(' ')",
            r"not what their code and rows give, and are now: commit them \(book/code.ipynb\)",
        ),
    ],
)
def test_what_no_commit_holds_is_not_released(checkout, change, done, says):
    if change:
        with (checkout.path / change).open("a") as file:
            file.write(" ")
    refused = checkout.run("-c", MAKE.format(done), check=False)
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=checkout.path, check=True)
    assert refused.returncode == 1 and re.search(says, refused.stderr), refused.stderr
    assert not (checkout.path / "_build" / "release").exists()


@pytest.mark.endurance
@pytest.mark.site
@pytest.mark.timeout(900)
def test_a_release_is_whole_and_the_same_bytes_again(checkout):
    sums: list[str] = []
    for _ in range(2):
        folder = checkout.path / checkout.run("-c", MAKE.format("None")).stdout.splitlines()[-1]
        sums.append((folder / "SHA256SUMS").read_text())
    assert sums[0] == sums[1]
    assert folder.name == "every-load-is-two-loads-9.8.7"
    summed = {name: digest for digest, name in (line.split("  ") for line in sums[0].splitlines())}
    assert summed == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert len(summed) == 5 and "### Added" in (folder / "NOTES.md").read_text()

    with zipfile.ZipFile(folder / f"{folder.name}-site.zip") as site:
        assert {f"{folder.name}-site/index.html", f"{folder.name}-site/book/index.html"} <= set(
            site.namelist()
        )
    with tarfile.open(folder / f"{folder.name}-source.tar.gz") as source:
        assert {
            f"{folder.name}/{name}" for name in ("Makefile", "book/index.ipynb", "data/reference")
        } <= set(source.getnames())

    crate = json.loads((folder / "ro-crate-metadata.json").read_text())["@graph"]
    entities = {entity["@id"]: entity for entity in crate}
    assert len(entities) == len(crate)
    named = re.findall(r'\{"@id": "([^"]+)"\}', json.dumps(crate))
    assert {name for name in named if not name.startswith("https://w3id.org/")} <= set(entities)
    files = {entity["@id"]: entity for entity in crate if entity["@type"] == "File"}
    assert (
        set(files)
        == {part["@id"] for part in entities["./"]["hasPart"]}
        == set(summed) - {"ro-crate-metadata.json"}
    )
    assert all(
        int(entity["contentSize"]) == (folder / name).stat().st_size
        for name, entity in files.items()
    )
    assert {"name", "description", "datePublished", "license"} <= set(entities["./"])
    assert entities["./"]["version"].startswith("9.8.7, commit ")
