"""What numba compiled is kept between processes, and no change of a module, shared ones included,
is served what was compiled before it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.kernels import arguments

from tlb.measure import build

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


@pytest.fixture
def copy(tmp_path) -> Path:
    shutil.copytree(
        build.KERNELS / "twins",
        tmp_path / "kernels/twins",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return tmp_path


def checksum_of(copy: Path, **more: str) -> str:
    """Of draws by page_chase.py, which take next_random() from placement.py."""
    done = subprocess.run(
        [sys.executable, "-m", "kernels.twins.page_chase", *arguments("random", "packed", 300)],
        cwd=copy,
        check=True,
        env=os.environ | {"TLB_BUILD": str(copy / "built")} | more,
        capture_output=True,
        text=True,
    )
    return str(json.loads(done.stdout)["checksum"])


def compiled(copy: Path) -> dict[str, int]:
    return {
        str(path.relative_to(copy)): path.stat().st_mtime_ns
        for path in copy.glob("built/kernels/twins-*/*/*.nb[ci]")
    }


@pytest.mark.endurance
def test_a_second_process_compiles_nothing_and_a_change_of_a_shared_module_is_compiled_anew(copy):
    first, kept = checksum_of(copy), compiled(copy)
    assert checksum_of(copy) == first and compiled(copy) == kept and kept
    shared = copy / "kernels/twins/placement.py"
    text = shared.read_text()
    assert text.count("0x94D049BB133111EB") == 1
    shared.write_text(
        text.replace("0x94D049BB133111EB", "0x94D049BB133111ED")
    )  # other draws, in a file of the same size and lines
    assert checksum_of(copy) != first
    shared.write_text(text)
    after = compiled(copy)
    assert checksum_of(copy) == first and compiled(copy) == after and kept.items() <= after.items()


def test_where_nothing_can_be_written_it_runs_and_leaves_nothing(copy):
    (copy / "built").write_text("no folder")
    (copy / "temporary").mkdir()
    checksum_of(copy, TMPDIR=str(copy / "temporary"))
    assert not any((copy / "temporary").iterdir()) and not list(copy.rglob("*.nbc"))
