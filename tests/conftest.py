"""Fixtures that several test files share."""

import mmap
import shlex
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.common import ROOT, fake_kernel, lacking, software_plan
from support.dead_worker import pytest_testnodedown as pytest_testnodedown  # a hook
from support.fuzzing import ENDURANCE

from tlb.machine.host import compiler_on_path
from tlb.measure import build
from tlb.system import files, processes

# What `@pytest.mark.needs(...)` may name besides a program.
ABILITIES: dict[str, Callable[[], bool]] = {
    "a C compiler": lambda: compiler_on_path() is not None,
    "perf that counts faults": lambda: (
        "minor_faults" in {event.quantity for event in software_plan().events}
    ),
}


# The same inputs in each run, so that none fails by chance; `make endurance` draws others. No test asserts a
# time, nor how long its inputs take to draw on a busy machine.
settings.register_profile(
    "by no chance",
    deadline=None,
    derandomize=not ENDURANCE,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("by no chance")


def pytest_configure(config: pytest.Config) -> None:
    # or nothing that a test starts under nohup, or in the background, ends by a signal
    processes.restore_signals_for_children()
    config.addinivalue_line(
        "markers", "needs(*names): programs, or ABILITIES; lacking is a failure in CI, else a skip"
    )
    config.addinivalue_line(
        "markers", "measures: runs a kernel, which takes Linux and pages of 4 KiB"
    )
    config.addinivalue_line(
        "markers",
        "measuring: takes the measuring lock or times a kernel; such tests run one by one",
    )
    config.addinivalue_line("markers", "site: builds the site or opens it in a browser")
    config.addinivalue_line(
        "markers", "slow: takes over a second for what `make check` can do without"
    )
    config.addinivalue_line(
        "markers", "endurance: takes long and is no reader's path; `make endurance` runs it"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run in one process all files that measure, all that open the built site, and else a file or a
    notebook.

    The process that hands out tests collects none, so the files' text decides. (xdist's own groups
    are lost under pytest 9.)
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(super()._split_scope(nodeid))

    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what measures first and the site's tests second: these are the longest groups, and single
    files are left for whichever process is done first."""
    first = {"measuring": 0, "site": 1}
    items.sort(key=lambda item: first.get(group_of(item.nodeid.partition("::")[0]), 2))


@cache
def group_of(file: str) -> str:
    text = (ROOT / file).read_text(encoding="utf-8")
    return (
        "measuring"
        if "mark.measuring" in text
        else "site"
        if "import support.site" in text or "from support.site" in text
        else file
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("measures") and (sys.platform != "linux" or mmap.PAGESIZE != 4096):
        pytest.skip("kernels run on Linux with base pages of 4 KiB")
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if not ABILITIES.get(name, lambda name=name: shutil.which(name) is not None)():
                lacking(name)


@pytest.fixture
def own_lock(tmp_path, monkeypatch) -> Path:
    """A measuring lock of the test's own: where kernels are faked, nothing is disturbed."""
    path = tmp_path / "measuring.lock"
    monkeypatch.setattr(
        "tlb.measure.campaign.measuring_lock", lambda wait=False: files.measuring_lock(wait, path)
    )
    return path


@pytest.fixture
def kernel(tmp_path, monkeypatch) -> Callable[[str], Path]:
    """Puts a shell script in the place of every kernel, which answers a plan of one line with what
    `text` prints; its arguments and the line are written to the file returned."""

    def fake(text: str) -> Path:
        script, log = tmp_path / "kernel", tmp_path / "arguments"
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(log))}\n'
            "printf '{\"mapped\": 0}\\n'; read -r line\n"
            f'printf "%s\\n" "$line" >> {shlex.quote(str(log))}\n{text}\n'
            'printf \'{"end": 1, "proved": 1}\\n\'\n'
        )
        script.chmod(0o755)
        monkeypatch.setattr(build, "kernel", fake_kernel("0" * 16, str(script)))
        monkeypatch.setattr(build, "has_session", lambda point: False)
        return log

    return fake
