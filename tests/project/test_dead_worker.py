"""A test process that dies, by itself or killed, ends the whole run as a failure, whatever the
other process still has to do."""

import os
import subprocess
import sys

import pytest
from support.common import ROOT

pytestmark = pytest.mark.endurance


def test_a_dead_worker_ends_the_run_as_a_failure_and_is_named(tmp_path):
    (tmp_path / "test_dies.py").write_text(
        "import os, signal\ndef test_first(): pass\n"
        "def test_dies(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_last(): pass\n"
    )
    (tmp_path / "test_long.py").write_text(
        "import time\ndef test_long(): time.sleep(300)\ndef test_longer(): time.sleep(300)\n"
    )
    options = "--numprocesses 2 --dist loadfile --no-loadscope-reorder -p no:cacheprovider"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), "-p", "support.dead_worker", tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "died" in done.stdout and "test_dies.py::test_dies" in done.stdout
