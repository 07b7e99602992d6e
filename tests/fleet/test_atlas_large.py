"""Questions over as many rows as ten thousand machines have: each is answered within the memory
that it may take, and prints its seconds.

`TLB_ATLAS_ROWS` says how many; the design's figures (10 s, 2 GiB) are of 100,000,000.
"""

import os
import subprocess
import sys

import pytest
from support.atlas import large

from tlb.fleet.ask import QUESTIONS
from tlb.system.files import ROOT

ROWS = int(os.environ.get("TLB_ATLAS_ROWS", "5000000"))
ASK = """
import re, sys, time
from tlb.fleet import ask
from pathlib import Path
start = time.perf_counter()
with ask.opened(Path(sys.argv[1])) as connection:
    rows = len([*ask.ask(connection, ask.QUESTIONS[sys.argv[2]][1])])
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print(rows, int(peak), round(time.perf_counter() - start, 2))
"""


@pytest.mark.endurance
def test_every_question_is_answered_over_many_rows_in_little_memory(tmp_path):
    atlas = large(tmp_path / "atlas", ROWS)
    for question in QUESTIONS:
        done = subprocess.run(
            [sys.executable, "-c", ASK, str(atlas), question],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        rows, peak_kib, seconds = done.stdout.split()
        print(f"{question}: {rows} rows, {int(peak_kib) >> 10} MiB, {seconds} s")
        assert int(rows) > 0 or question == "differ"
        assert int(peak_kib) < 2 << 20  # of the whole process, in KiB
