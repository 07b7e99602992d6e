"""Build the site of one machine from a source tree: the checkout, or a staged copy with executed chapters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# jupyter_book cannot be run by `-m`, and its script need not be on the PATH.
_JUPYTER_BOOK = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
# Warnings are errors, a missing reference is a warning, and all of them are shown at once.
_STRICT = ["-W", "-n", "--keep-going"]


class SiteError(RuntimeError):
    """The site did not build; the message holds what Jupyter Book said."""


def build_site(source: Path, output: Path) -> Path:
    """Build `source` (_config.yml, _toc.yml, book/) into `output`/_build/html; return its index.html.

    Always from nothing: one page shows numbers of another, so a page that is kept can be out of date, and two
    builds of one source shall be the same bytes. Silent unless it fails. Raises `SiteError`.
    """
    for needed in ("_config.yml", "_toc.yml"):
        if not (source / needed).is_file():
            raise SiteError(f"{source} holds no {needed}; build from the root of the book's source")
    html = output / "_build" / "html"
    shutil.rmtree(html, ignore_errors=True)
    command = [*_JUPYTER_BOOK, "build", str(source), "--path-output", str(output), "--all", "-q", *_STRICT]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    index = html / "index.html"
    if done.returncode or not index.exists():
        raise SiteError(f"the site did not build; Jupyter Book said:\n{done.stdout}{done.stderr}".rstrip())
    return index
