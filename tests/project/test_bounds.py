"""Every loop in numba stays within its arrays: the tests of the kernels and of the simulator, once
more with numba's bounds checks on."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.common import ROOT

pytestmark = [pytest.mark.endurance, pytest.mark.measures, pytest.mark.measuring]

COMPILED = re.compile(r"@(?:njit\(cache=True.*\)|compiled)\ndef (\w+)")


def checked(folder: Path) -> dict[str, str]:
    """An environment in which numba checks bounds, and compiles anew: what it kept from other
    processes has no checks."""
    return os.environ | {
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "TLB_BUILD": str(folder / "build"),
    }


def test_no_loop_leaves_its_arrays_and_none_is_left_out(tmp_path):
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not endurance"]
    options += ["-k", "numba or places"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/kernels"],
        cwd=ROOT,
        env=checked(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    compiled = {
        (path.stem.partition(".")[0], path.stem.partition(".")[2].partition("-")[0])
        for path in tmp_path.rglob("*.nbi")
    }
    loops = {
        (path.stem, name)
        for folder in ("kernels", "tlb", "experiments")
        for path in (ROOT / folder).rglob("*.py")
        for name in COMPILED.findall(path.read_text(encoding="utf-8"))
    }
    assert compiled == loops


def test_the_published_array_in_python_is_read_within_its_bounds(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "kernels/runtimes/big_array.py", "plain", str(3 << 12)],
        env=checked(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["sum"] == said["accesses"] * len(said["batch_ns"])
