"""The text of each chapter on two published machines, as a person reads it in review:
tests/snapshots/CHAPTER@MACHINE.md.

TLB_ACCEPT=1 writes them. The reference machine's is the committed notebook.
"""

import os
from pathlib import Path

import pytest
from support.common import ROOT
from support.rendered import CHAPTER_NAMES, analysis, render

from tlb.system.reasons import Unavailable

FOLDER = ROOT / "tests" / "snapshots"
# One whose host leaves large pages whole, and one that counts walks.
MACHINES = "emerald-rapids-64b9489c", "zen-3-a9ae1af8"


def has_rows(chapter: str, machine: str) -> bool:
    try:
        analysis(chapter, machine, {})
    except Unavailable:
        return False
    return (
        chapter != "your_program"
        or (ROOT / "data" / machine / "documents/your_program.json").exists()
    )


def path(chapter: str, machine: str) -> Path:
    return FOLDER / f"{chapter}@{machine}.md"


@pytest.mark.endurance
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("chapter", CHAPTER_NAMES)
def test_a_page_says_of_a_machine_what_its_snapshot_says(chapter, machine):
    if not has_rows(chapter, machine):
        assert not path(chapter, machine).exists()
        return
    text = "\n\n".join(render(chapter, machine).texts) + "\n"
    if os.environ.get("TLB_ACCEPT"):
        FOLDER.mkdir(exist_ok=True)
        path(chapter, machine).write_text(text, encoding="utf-8")
    assert text == path(chapter, machine).read_text(encoding="utf-8")
