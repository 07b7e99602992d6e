"""Print the book: Sphinx's page of all chapters, printed by Chromium with book/assets/print.css."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tlb.report.publish import build_site
from tlb.system.files import ROOT, disk_errors

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # the page is ours
    "--disable-gpu",
    "--no-pdf-header-footer",  # which would name the local file
    "--generate-pdf-document-outline",
    "--virtual-time-budget=60000",  # until MathJax has set the formulas
)


def pdf(output: Path) -> Path:
    """Print the book of the committed results into `output` and return its path.

    Raises SystemExit without Chromium or if it fails, SiteError if the book does not build.
    """
    chromium = shutil.which("chromium")
    if not chromium:
        raise SystemExit(
            "Printing needs Chromium (Debian, Ubuntu: apt install chromium fonts-liberation)."
        )
    with disk_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        html = build_site(ROOT, Path(folder), "singlehtml").parent
        # Sphinx writes its links as from the root, where index.html only leads to this page.
        page = (html / "book" / "index.html").replace(html / "book.html")
        command = [chromium, *_FLAGS, f"--print-to-pdf={output.resolve()}", page.as_uri()]
        printed = subprocess.run(command, capture_output=True, text=True)
    if printed.returncode or not output.is_file():
        raise SystemExit(f"Chromium could not print the book:\n{printed.stderr}".rstrip())
    return output
