"""Make a release of a commit: notes, site, source and checksums, the same bytes each time.

All files have the time of the commit. Another zlib may compress to other bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
import time
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tlb.report import parameters, publish
from tlb.system.files import ROOT, disk_errors


def release(output: Path) -> Path:
    """Make the release of this checkout in a folder of `output` and return that folder.

    Raises SystemExit unless the checkout is a commit without changes, the changelog has notes on
    its version, and each notebook is what its code and rows give.
    """
    commit, _, committed = _git("log", "-1", "--format=%H %ct").partition(" ")
    if not commit:
        raise SystemExit("A release needs a commit, and this folder is not a git checkout.")
    _refuse_changes("A release needs a commit: commit these changes first")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    notes = _notes(project["version"])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(publish.refresh, parameters.table_of_contents()))
    _refuse_changes("These notebooks differed from what their code and rows give: commit them")
    name = f"{project['name']}-{project['version']}"
    folder = output / name
    with disk_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "NOTES.md").write_text(notes, encoding="utf-8")
        site = publish.build_site(ROOT, ROOT / "_build" / "site").parent
        _zip(site, folder / f"{name}-site.zip", int(committed))
        command = ["git", "archive", f"--prefix={name}/", commit]
        source = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        packed = gzip.compress(source, mtime=int(committed))
        (folder / f"{name}-source.tar.gz").write_bytes(packed)
        sums = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
            for path in sorted(folder.iterdir())
        ]
        (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return folder


def _git(*arguments: str) -> str:
    """Return what git prints about this checkout, or "" without git or outside a checkout."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _refuse_changes(sentence: str) -> None:
    if changed := [line.split()[-1] for line in _git("status", "--porcelain").splitlines()]:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise SystemExit(f"{sentence} ({', '.join(changed[:3])}{more}).")


def _notes(version: str) -> str:
    """Return the changelog's section on a version; "Unreleased" must be empty."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *sections = re.split(r"^## \[(.+?)\].*\n", text, flags=re.MULTILINE)
    notes = dict(zip(sections[::2], map(str.strip, sections[1::2]), strict=True))
    if notes.get("Unreleased"):
        raise SystemExit(
            "CHANGELOG.md has entries under Unreleased: give them a version, and set the same "
            "version in pyproject.toml and CITATION.cff."
        )
    if not notes.get(version):
        raise SystemExit(f"CHANGELOG.md has no notes on {version}, the version in pyproject.toml.")
    return notes[version] + "\n"


def _zip(folder: Path, output: Path, seconds: int) -> None:
    """Pack a folder, its files in the order of their names and all of the same time."""
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(filter(Path.is_file, folder.rglob("*")), key=Path.as_posix):
            name = f"{output.stem}/{path.relative_to(folder).as_posix()}"
            entry = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, path.read_bytes())
