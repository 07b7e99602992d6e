"""The Makefile, run with a Python that only notes down what it is asked: no network, nothing
installed."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tlb.system.files import ROOT

# It answers the two questions that the Makefile asks of a Python (`-c`), makes a .venv whose
# programs are all itself, and appends everything else to the file "log".
FAKE = """#!/bin/sh
here=$(basename "$0")
if [ "$1" = -c ]; then
    case "$2" in
        *ensurepip*) exit {fits} ;;
        *) exit {new} ;;
    esac
fi
echo "$here $*" >> log
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p .venv/bin && for name in python tlb lint-imports; do cp "$0" ".venv/bin/$name"; done
fi
"""

LINT = [f"python -m ruff {how}" for how in ("check .", "format --check --quiet .")]
LINT += ["lint-imports --no-cache", "python -m mypy tlb experiments kernels book/_ext"]


@pytest.fixture
def checkout(tmp_path):
    """A folder with a space in its name that holds a Makefile and the files that .venv is made
    from."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def fake_python(folder: Path, name: str, fits: bool = True, new: bool = True) -> Path:
    path = folder / name
    path.write_text(FAKE.format(fits=int(not fits), new=int(not new)), encoding="utf-8")
    path.chmod(0o755)
    return path


def make(checkout: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess:
    inherited = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PROFILE", "MAX_WORKING_SET", "PYTHON"}
    env = {name: value for name, value in os.environ.items() if name not in inherited}
    env["HOME"] = "/nonexistent"
    env |= {"PATH": path} if path else {}
    command = [shutil.which("make"), *arguments]
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)


def log(checkout: Path) -> list[str]:
    lines = (checkout / "log").read_text(encoding="utf-8").splitlines()
    (checkout / "log").unlink()
    return lines


def test_the_environment_is_made_once_and_again_when_the_lock_changes(checkout):
    python = f"PYTHON={fake_python(checkout, 'python-new')}"
    made = make(checkout, "site", python)
    assert made.returncode == 0, made.stderr
    venv, packages, editable, site = log(checkout)
    assert venv == "python-new -m venv --clear .venv"
    assert packages == "python -m pip install --quiet --require-hashes -r requirements.lock"
    assert editable == "python -m pip install --quiet --no-deps --no-build-isolation --editable ."
    assert site == "tlb site"

    make(checkout, "site", python)
    assert log(checkout) == ["tlb site"]

    later = (checkout / ".venv/.project-installed").stat().st_mtime + 10
    os.utime(checkout / "pyproject.toml", (later, later))
    make(checkout, "lint", python)
    assert log(checkout) == [editable, *LINT]

    os.utime(checkout / "requirements.lock", (later + 10, later + 10))
    make(checkout, "lint", python)
    assert log(checkout)[:2] == [venv, packages]


def test_make_book_passes_its_parameters_on(checkout):
    python = f"PYTHON={fake_python(checkout, 'python-new')}"
    make(checkout, "book", python)
    assert log(checkout)[-1] == "tlb book --profile quick"
    made = make(
        checkout, "book", python, "PROFILE=full", "MINUTES=40", "MAX_WORKING_SET=4 GiB; touch owned"
    )
    assert made.returncode == 0
    assert log(checkout) == [
        "tlb book --profile full --minutes 40 -p max_working_set=4 GiB; touch owned"
    ]
    assert not (checkout / "owned").exists()


def test_a_release_is_of_a_commit_with_notes_and_the_same_bytes_again(checkout):
    python = f"PYTHON={fake_python(checkout, 'python-new')}"
    site = checkout / "_build" / "site" / "_build" / "html" / "index.html"
    site.parent.mkdir(parents=True)
    site.write_text("a page")
    (checkout / ".gitignore").write_text(".venv\n_build\nlog\npython-new\n")
    (checkout / "CHANGELOG.md").write_text("## [Unreleased]\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]

    def committed() -> None:
        subprocess.run([*git, "add", "-A"], cwd=checkout, check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", "x"], cwd=checkout, check=True)

    subprocess.run(["git", "init", "--quiet"], cwd=checkout, check=True)
    refused = make(checkout, "release", python)
    assert refused.returncode and "commit these changes first" in refused.stderr
    committed()
    refused = make(checkout, "release", python)
    assert refused.returncode and "no notes on" in refused.stderr
    version = re.search(r'^version = "(.*)"', (checkout / "pyproject.toml").read_text(), re.M)[1]
    notes = f"## [Unreleased]\n\n## [{version}] - 2026-01-01\n\n- New.\n\n## [0.0.1]\n\n- Old.\n"
    (checkout / "CHANGELOG.md").write_text(notes)
    committed()
    sums = []
    for _ in range(2):
        assert (made := make(checkout, "release", python)).returncode == 0, made.stderr
        folder = checkout / made.stdout.splitlines()[-1]
        sums.append((folder / "SHA256SUMS").read_text())
        os.utime(site, (0, 0))
    assert sums[0] == sums[1] and (folder / "NOTES.md").read_text().strip() == "- New."
    names = [name for line in sums[0].splitlines() for name in line.split()[1:]]
    assert names == ["NOTES.md", *(f"{folder.name}-{kind}.tar.gz" for kind in ("site", "source"))]
    with tarfile.open(folder / f"{folder.name}-site.tar.gz") as archive:
        assert f"{folder.name}-site/index.html" in archive.getnames()
