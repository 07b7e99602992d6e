"""Make a release of a commit: its notes, site, printed book and source, described by an RO-Crate
and summed, the same bytes each time.

Times are the commit's. What a later Chromium or zlib does otherwise is otherwise.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from tlb.lab.store import Store, data_root
from tlb.machine.host import Host
from tlb.report import crate, parameters, press, publish
from tlb.report.edition import Edition, git
from tlb.report.setting import name_of
from tlb.system.files import ROOT, disk_errors

_KINDS = {
    ".md": "text/markdown",
    ".zip": "application/zip",
    ".pdf": "application/pdf",
    ".gz": "application/gzip",
}


def release(output: Path) -> Path:
    """Make the release of this checkout in a folder of `output` named by project and version; that
    folder.

    Raises SystemExit where the checkout is none of git or has changes, the changelog does not tell
    of the version, or a notebook is not what its code and rows give; and what building and printing
    raise.
    """
    edition = Edition.of_checkout()
    if not edition.commit:
        raise SystemExit("A release is made of a commit, and this folder is no checkout of git.")
    _refuse_changes("A release is made of a commit: commit what is changed first")
    notes = _notes(edition.version)
    with ThreadPoolExecutor(2) as two:
        list(two.map(publish.refresh, parameters.table_of_contents()))
    _refuse_changes(
        "These notebooks were not what their code and rows give, and are now: commit them"
    )
    folder = output / (stem := f"{edition.name}-{edition.version}")
    with disk_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "NOTES.md").write_text(notes, encoding="utf-8")
        _zip(
            publish.build_site(ROOT, ROOT / "_build" / "site").parent,
            folder / f"{stem}-site.zip",
            edition,
        )
        press.pdf(folder / f"{stem}.pdf")
        source = subprocess.run(
            ["git", "archive", f"--prefix={stem}/", edition.commit],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        (folder / f"{stem}-source.tar.gz").write_bytes(
            gzip.compress(source.stdout, mtime=int(edition.date.timestamp()))
        )
        described = json.dumps(_crate(folder, edition), indent=1, ensure_ascii=False) + "\n"
        (folder / crate.NAME).write_text(described, encoding="utf-8")
        sums = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
            for path in sorted(folder.iterdir())
        ]
        (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return folder


def _refuse_changes(sentence: str) -> None:
    if changed := git("status", "--porcelain").splitlines():
        names = [line.split(maxsplit=1)[1] for line in changed]
        raise SystemExit(
            f"{sentence} ({', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''})."
        )


def _notes(version: str) -> str:
    """What the changelog tells of a version, which is the newest; nothing may wait for a later one."""
    sections = re.split(
        r"^## \[(.+?)\].*\n",
        (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    told = {name: text.strip() for name, text in zip(sections[1::2], sections[2::2], strict=True)}
    if told.get("Unreleased"):
        raise SystemExit(
            "CHANGELOG.md has entries under Unreleased: give them a version, and pyproject.toml and CITATION.cff the same."
        )
    if not told.get(version):
        raise SystemExit(
            f"CHANGELOG.md tells nothing of {version}, which is the version in pyproject.toml."
        )
    return told[version] + "\n"


def _zip(folder: Path, output: Path, edition: Edition) -> None:
    """A folder as an archive that any computer opens, its files in the order of their names."""
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(
                f"{output.stem}/{path.relative_to(folder).as_posix()}", edition.date.timetuple()[:6]
            )
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, path.read_bytes())


def _crate(folder: Path, edition: Edition) -> crate.Entity:
    """What the folder holds: files, licences, and the machines that were measured."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    store = Store(data_root())
    machines = crate.machines(
        {name: name_of(Host.model_validate(store.read_machine(name))) for name in store.machines()}
    )
    authors = [
        {"@id": f"#author-{n}", "@type": "Organization", "name": author["name"]}
        for n, author in enumerate(citation["authors"], 1)
    ]
    files = [
        {
            "@id": path.name,
            "name": words,
            "encodingFormat": _KINDS[path.suffix],
            "contentSize": str(path.stat().st_size),
            "license": {"@id": licence},
        }
        for path in sorted(folder.iterdir())
        for words, licence in [_words(path.name)]
    ]
    source = next(file["@id"] for file in files if "-source." in file["@id"])
    measured = crate.measured("Measured the rows in data/ of the source", machines, source)
    root = {
        "name": f"{edition.title} {edition.version}",
        "description": citation["abstract"].strip(),
        "datePublished": edition.date.isoformat(),
        "version": f"{edition.version}, commit {edition.commit}",
        "keywords": ", ".join(citation["keywords"]),
        "license": {"@id": crate.CC_BY},
        "author": crate.ids(authors),
        "mentions": {"@id": measured["@id"]},
    }
    return crate.crate(root, files, measured, *machines, *authors)


def _words(name: str) -> tuple[str, str]:
    """What a file of the release is, and its licence."""
    return {
        ".zip": ("The site, to open without a network", crate.CC_BY),
        ".pdf": ("The book on paper", crate.CC_BY),
        ".md": ("What is new", crate.CC_BY),
    }.get(Path(name).suffix, ("Code, notebooks and measured rows", crate.MIT))
