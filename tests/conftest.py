"""Fixtures that several test files share."""

from __future__ import annotations

import mmap
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from experiments.lab import build, perf
from experiments.lab.build import Kernel
from experiments.lab.record import Record
from experiments.machine.compiler import compiler
from experiments.system import files

ROOT = Path(__file__).resolve().parents[1]


def lacking(what: str) -> None:
    """Skips on a person's computer; where CI is "true", which has everything, that is a failure."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{what} is lacking here")


@cache
def software_plan() -> perf.Plan:
    """What perf counts without a PMU, as far as this computer lets this user."""
    return perf.plan("no table has a row for this")


# What `@pytest.mark.needs(...)` may name beside a program.
ABILITIES: dict[str, Callable[[], bool]] = {
    "a C compiler": lambda: compiler() is not None,
    "perf that counts faults": lambda: "minor_faults" in {event.quantity for event in software_plan().events},
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): programs, or ABILITIES; lacking is a failure in CI, else a skip")
    config.addinivalue_line("markers", "measures: runs a kernel, which takes Linux and pages of 4 KiB")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("measures") and (sys.platform != "linux" or mmap.PAGESIZE != 4096):
        pytest.skip("kernels run on Linux with base pages of 4 KiB")
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if not ABILITIES.get(name, lambda name=name: shutil.which(name) is not None)():
                lacking(name)


def in_turn(command: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    """Runs a command that takes the host-wide measuring lock; waits while somebody else on this computer has it."""
    for _ in range(60):
        done = subprocess.run(command, **{"capture_output": True, "text": True, "cwd": ROOT, **how})  # type: ignore[call-overload]
        if "Another measurement is running" not in done.stderr:
            return done
        time.sleep(2)
    pytest.fail("another measurement has been running on this computer for two minutes")


@pytest.fixture
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A measuring lock of the test's own: where kernels are faked, nothing is disturbed."""
    path = tmp_path / "measuring.lock"
    monkeypatch.setattr("experiments.lab.campaign.measuring_lock", lambda: files.measuring_lock(path=path))
    return path


def preloadable(name: str, factory: pytest.TempPathFactory) -> Path:
    """A program of tests/ as a library that stands in for a part of the computer (LD_PRELOAD)."""
    library = factory.mktemp(name) / f"{name}.so"
    cc = compiler()
    assert cc is not None
    flags = ["-std=gnu11", "-O2", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*cc.command, *flags, "-o", library, ROOT / f"tests/{name}.c", "-ldl"], check=True)
    return library


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a shell script in the place of every kernel; its arguments are written to the file returned."""

    def fake(text: str) -> Path:
        script, log = tmp_path / "kernel", tmp_path / "arguments"
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(log))}\n{text}\n')
        script.chmod(0o755)
        monkeypatch.setattr(build, "kernel", lambda name, engine="c": Kernel(name, engine, (str(script),), "0" * 16))
        return log

    return fake


def make_record(**changes: object) -> Record:
    """A valid record of one process; `changes` are fields of it. The sizes follow from lines and layout."""
    fields: dict = {
        "kernel": "page_chase", "engine": "c", "pages": "4k", "layout": "spread", "order": "cycle",
        "lines": 4096, "stride_bytes": 4096, "seed": 1, "cpu": 0, "accesses": 10_000_000,
        "elapsed_ns": 6.5e7, "ns_per_access": 6.5, "batch_ns_per_access": [6.4, 6.5, 6.6], "core_ghz": 3.2,
        "prepare_ns": 2e7, "minor_faults": 0, "major_faults": 0, "voluntary_switches": 0,
        "involuntary_switches": 1, "migrations": 0, "checksum": "0123456789abcdef", "repeat": 0,
        "region_ms": 60, "wall_ns": 1.2e8, "started_at": "2025-01-31T12:00:00Z", "state": "00112233aabb",
    } | changes
    size = fields["lines"] * (fields["stride_bytes"] if fields["layout"] == "spread" else 64)
    return Record(**({"backing": fields["pages"], "working_set_bytes": size, "arena_bytes": size} | fields))


@pytest.fixture
def record() -> Callable[..., Record]:
    """Makes a valid record; keyword arguments replace its fields."""
    return make_record
