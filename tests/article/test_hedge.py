"""The site without Jupyter Book: its configuration, written out once, is all that Sphinx needs to build the same pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from experiments.article import publish


def articles(html: Path) -> dict[str, str]:
    """Each page's article as text, by its path; what is no article (search, 404) as ""."""
    pages = {path.relative_to(html): BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser").select_one("article.bd-article")
             for path in html.rglob("*.html") if "_static" not in path.parts}
    return {path.as_posix(): article.get_text() if article else "" for path, article in pages.items()}


@pytest.mark.endurance
@pytest.mark.site
def test_sphinx_alone_builds_the_same_pages_from_the_configuration_that_jupyter_book_writes(tmp_path):
    source = tmp_path / "source"
    publish.stage(source)
    written = subprocess.run([*publish._JUPYTER_BOOK, "config", "sphinx", str(source)], capture_output=True, text=True)
    assert (source / "conf.py").is_file(), written.stdout + written.stderr
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", *publish._STRICT, str(source), str(tmp_path / "plain")]
    environment = os.environ | {"PYTHONPATH": str(source / "book" / "_ext"), "NO_COLOR": "1"}  # our extensions' folder, which it leaves out
    built = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert built.returncode == 0 and not built.stderr, built.stderr
    plain, known = articles(tmp_path / "plain"), articles(publish.build_site(source, tmp_path / "book").parent)
    assert plain.keys() == known.keys() and len(plain) > 10
    assert [page for page in plain if plain[page] != known[page]] == []
