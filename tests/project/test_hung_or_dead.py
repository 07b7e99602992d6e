"""How a test run ends where something in it dies or hangs: a test process, killed or by itself, a
test, a fixture. What only takes long fails nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.common import ROOT

TWO_PROCESSES = (
    *("--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"),
    *("-p", "support.dead_worker"),
)
OURS = (f"--config-file={ROOT / 'pyproject.toml'}", "-p", "no:cacheprovider")


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder under the settings of this project."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *OURS, "--rootdir", folder, *options, folder],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
    )


@pytest.mark.endurance
def test_a_dead_worker_ends_the_run_as_a_failure_and_is_named(tmp_path):
    (tmp_path / "test_dies.py").write_text(
        "import os, signal\ndef test_first(): pass\n"
        "def test_dies(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_last(): pass\n"
    )
    (tmp_path / "test_long.py").write_text(
        "import time\ndef test_long(): time.sleep(6000)\ndef test_longer(): time.sleep(6000)\n"
    )
    done = run_pytest(tmp_path, *TWO_PROCESSES)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "died" in done.stdout and "test_dies.py::test_dies" in done.stdout


BUILT = """
import time, pytest
@pytest.fixture(scope="session")
def built(): time.sleep({build_s})
def test_first(built): pass
def test_second(built): time.sleep({test_s})
"""


@pytest.mark.slow
def test_no_test_pays_for_what_a_fixture_builds_and_one_that_hangs_fails(tmp_path):
    (tmp_path / "test_built.py").write_text(BUILT.format(build_s=1.5, test_s=6000))
    done = run_pytest(tmp_path, "-p", "no:xdist", "-o", "timeout=1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 passed" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("how", [("-p", "no:xdist"), TWO_PROCESSES], ids=["one", "two"])
def test_a_fixture_that_hangs_ends_the_run(how, tmp_path):
    (tmp_path / "test_built.py").write_text(BUILT.format(build_s=6000, test_s=0))
    done = run_pytest(tmp_path, *how, "-o", "faulthandler_timeout=3")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "in built" in done.stderr  # where it hung
