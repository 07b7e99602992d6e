"""A release: refused unless it is what its commit says, else whole and the same bytes again."""

import hashlib
import re
import subprocess
import tarfile
import zipfile

import pytest
from support.copies import Copy, copy_of_checkout

from tlb.report import publish

# A release without executing the notebooks, which `make test` compares; `{}` is done instead.
MAKE = """
from pathlib import Path
from tlb.report import publish
publish.refresh = lambda name: {}
print(publish.release(Path("_build/release")))
"""


@pytest.mark.parametrize(
    ("changelog", "says"),
    [
        ("## [Unreleased]\n\n- New.\n\n## [1.2.3]\n\n- Old.\n", "under Unreleased"),
        ("## [Unreleased]\n\n## [1.2.2]\n\n- Old.\n", "no notes on 1.2.3"),
        ("## [1.2.3]\n\n## [1.2.2]\n\n- Old.\n", "no notes on 1.2.3"),
    ],
)
def test_a_version_without_notes_is_not_released(tmp_path, monkeypatch, changelog, says):
    (tmp_path / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    monkeypatch.setattr(publish, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=says):
        publish._notes("1.2.3")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Copy:
    """A copy of this checkout whose commit could be released."""
    copy = copy_of_checkout(tmp_path_factory.mktemp("release") / "checkout")
    text = (copy.path / "pyproject.toml").read_text(encoding="utf-8")
    text = re.sub(r'(?m)^version = ".*"$', 'version = "9.8.7"', text)
    (copy.path / "pyproject.toml").write_text(text, encoding="utf-8")
    copy.edit("CHANGELOG.md", ("## [Unreleased]\n", "## [Unreleased]\n\n## [9.8.7] - 2026-02-03\n"))
    copy.commit()
    return copy


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("change", "done", "says"),
    [
        ("README.md", "None", r"commit these changes first \(README.md\)"),
        ("", "open('book/code.ipynb', 'a').write(' ')", r"rows give: commit them \(book/code.ipyn"),
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
def test_a_release_is_whole_and_the_same_bytes_again(checkout):
    sums: list[str] = []
    for _ in range(2):
        folder = checkout.path / checkout.run("-c", MAKE.format("None")).stdout.splitlines()[-1]
        sums.append((folder / "SHA256SUMS").read_text())
    name = "every-load-is-two-loads-9.8.7"
    assert folder.name == name and sums[0] == sums[1]
    summed = {file: digest for digest, file in (line.split("  ") for line in sums[0].splitlines())}
    files = {f"{name}-site.zip", f"{name}-source.tar.gz", "NOTES.md"}
    assert summed.keys() == files == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    for file, digest in summed.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest
    assert "### Added" in (folder / "NOTES.md").read_text()
    with zipfile.ZipFile(folder / f"{name}-site.zip") as site:
        assert {f"{name}-site/index.html", f"{name}-site/book/index.html"} <= set(site.namelist())
        assert site.namelist() == sorted(site.namelist())
    with tarfile.open(folder / f"{name}-source.tar.gz") as source:
        wanted = {f"{name}/{file}" for file in ("Makefile", "book/index.ipynb", "data/reference")}
        assert wanted <= set(source.getnames())
