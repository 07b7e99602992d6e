"""Which state of the book is printed or released: its version, its commit, and the one date that
all its files have."""

from __future__ import annotations

import os
import subprocess
import time
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime

import yaml

from tlb.system.files import ROOT


@dataclass(frozen=True)
class Edition:
    """name: the project's, in names of files; title: the book's; commit: 40 digits, "" outside git;
    date: UTC."""

    name: str
    title: str
    about: str
    version: str
    commit: str
    date: datetime

    @classmethod
    def of_checkout(cls) -> Edition:
        """That of this checkout. The date is SOURCE_DATE_EPOCH (reproducible-builds.org), else the
        commit's, else now."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        title = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["title"]
        commit, _, committed = git("log", "-1", "--format=%H %ct").partition(" ")
        seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or committed or time.time())
        return cls(
            project["name"],
            title,
            project["description"],
            project["version"],
            commit,
            datetime.fromtimestamp(seconds, UTC),
        )


def git(*arguments: str) -> str:
    """What git says of this checkout, stripped; "" where it is none, or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
