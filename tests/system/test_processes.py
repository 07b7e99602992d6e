"""A command is ended with all that it started, and its pipes with it."""

from __future__ import annotations

import gc
import subprocess
import time
import warnings

import pytest
from support.fake_perf import alive

from experiments.system.processes import run_whole


def test_a_command_gives_its_output_its_words_and_its_status():
    done = run_whole(["sh", "-c", "echo out; printf '\\377' >&2; exit 7"], timeout=20)
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "\ufffd", 7)


def test_a_command_past_its_time_is_ended_with_its_children_and_leaves_no_pipe_open():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        begin = time.monotonic()
        with pytest.raises(subprocess.TimeoutExpired):
            run_whole(["sh", "-c", "sleep 97.25 & sleep 97.25; :"], timeout=0.3)
        gc.collect()
    assert time.monotonic() - begin < 20 and alive("sleep 97.25") == []
    assert [str(warning.message) for warning in seen if warning.category is ResourceWarning] == []


def test_what_does_not_start_is_an_os_error():
    with pytest.raises(OSError):
        run_whole(["/nonexistent/program"], timeout=1)
