"""What test files of several rooms share: the checkout, records, programs put before a kernel, and
a chapter that never was."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import psutil
import pytest

from tlb.machine.host import Host, compiler_on_path
from tlb.measure import perf
from tlb.measure.build import Kernel
from tlb.measure.record import KernelBuild, Point, Record
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable, UnmeasuredNote

SUPPORT = Path(__file__).parent
# What a test waits for takes seconds, and on a busy machine minutes; after so long it never comes.
LONG_S = 600.0
needs_c = pytest.mark.needs("a C compiler")
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root"
)


def lacking(what: str) -> None:
    """Skips on a person's computer; where CI is "true", which has everything, that is a failure."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{what} is lacking here")


def living(process: psutil.Process) -> bool:
    """Whether a process runs still, and is more than its parent's memory of it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def processes_with(word: str) -> list[psutil.Process]:
    """The living processes, but this one, with such a text in their command."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if word in " ".join(process.info["cmdline"] or ())
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and process.pid != os.getpid()
    ]


def descendants_with(word: str, pid: int) -> list[psutil.Process]:
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [process for process in processes_with(word) if process in children]


def wait_until(true: Callable[[], bool]) -> bool:
    """Return whether it becomes true."""
    deadline = time.monotonic() + LONG_S
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(true())


def alive(word: str) -> list[psutil.Process]:
    """What is left of them once they have had time to die; none if two looks find none, for between
    fork and exec none shows."""
    deadline, empty = time.monotonic() + LONG_S, 0
    while empty < 2:
        left = processes_with(word)
        empty = 0 if left else empty + 1
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
    return []


@cache
def software_plan() -> perf.EventPlan:
    """What perf counts without a PMU, as far as this computer lets this user."""
    return perf.plan("no table has a row for this")


def in_turn(command: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    """Runs a command that takes the host-wide measuring lock; waits while somebody else on this
    computer has it."""
    deadline = time.monotonic() + LONG_S
    while True:
        done = subprocess.run(command, **{"capture_output": True, "text": True, "cwd": ROOT, **how})
        if "Another measurement is running" not in done.stderr or time.monotonic() > deadline:
            return done
        time.sleep(2)


STRICT = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


def compiled(source: Path, target: Path, *flags: str) -> Path:
    """Compile a program, or with -shared a library."""
    subprocess.run([*compiler_on_path().command, *flags, "-o", target, source, "-ldl"], check=True)
    return target


def fake_kernel(digest: str = "a" * 16, *command: str, measures: int = 1) -> Callable[..., Kernel]:
    """What stands for build.kernel where nothing is compiled."""
    built = KernelBuild(measures, "")
    return lambda name, engine="c": Kernel(name, engine, command or ("true",), digest, built)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def preloadable(name: str, factory: pytest.TempPathFactory) -> Path:
    """A program of tests/support/ as a library that stands in for a part of the computer
    (LD_PRELOAD)."""
    flags = (*STRICT, "-U_FORTIFY_SOURCE", "-shared", "-fPIC")
    return compiled(SUPPORT / f"{name}.c", factory.mktemp(name) / f"{name}.so", *flags)


def make_record(**changes: object) -> Record:
    """A valid record of one process; `changes` are fields of it. The sizes follow from lines and
    layout."""
    fields: dict = {
        "kernel": "page_chase",
        "engine": "c",
        "pages": "4k",
        "layout": "spread",
        "order": "cycle",
        "lines": 4096,
        "stride_bytes": 4096,
        "seed": 1,
        "cpu": 0,
        "accesses": 10_000_000,
        "elapsed_ns": 6.5e7,
        "ns_per_access": 6.5,
        "batch_ns_per_access": [6.4, 6.5, 6.6],
        "core_ghz": 3.2,
        "prepare_ns": 2e7,
        "minor_faults": 0,
        "major_faults": 0,
        "voluntary_switches": 0,
        "involuntary_switches": 1,
        "migrations": 0,
        "checksum": "0123456789abcdef",
        "repeat": 0,
        "region_ms": 60,
        "wall_ns": 1.2e8,
        "started_at": "2025-01-31T12:00:00Z",
        "state": "00112233aabb",
        "boot_id": "00c0ffee00c0ffee",
    } | changes
    size = fields["lines"] * (fields["stride_bytes"] if fields["layout"] == "spread" else 64)
    return Record(
        **({"backing": fields["pages"], "working_set_bytes": size, "arena_bytes": size} | fields)
    )


@dataclass
class About:
    """What an Analysis asks of a chapter (`tlb.report.chapter.Chapter`), without a store: `rows` and
    `documents` are what data/ holds."""

    host: Host
    machine: str = "made-up"
    notes: list[UnmeasuredNote] = field(default_factory=list)
    left_out: dict[str, tuple[int, int]] = field(default_factory=dict)
    replaced: dict[Point, str] = field(default_factory=dict)
    rows: dict[str, pd.DataFrame] = field(default_factory=dict)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    other: About | None = None  # any other machine
    is_this: bool = False
    stands_in: bool = False
    is_reference: bool = False

    @property
    def shown_name(self) -> str:
        return self.machine

    def kept_quantities(self, machine: str) -> dict[str, Any]:
        return {}

    def counted_sessions(self) -> list[Any]:
        return []

    def described(self, state: str) -> Host:
        return self.host

    def kept(self, name: str, engine: str = "") -> pd.DataFrame:
        if name not in self.rows:
            raise Unavailable("no-data", name)
        return self.rows[name]

    def document(
        self,
        name: str,
        make: Callable[[str], dict[str, Any]] | None,
        whole: Callable[[dict[str, Any]], bool] = bool,
    ) -> dict[str, Any]:
        if name not in self.documents:
            raise Unavailable("no-data", name)
        return self.documents[name]

    @property
    def data(self) -> SimpleNamespace:
        return SimpleNamespace(machines=lambda: [self.other.machine] if self.other else [])

    def on(self, machine: str) -> About:
        if self.other is None:
            raise Unavailable("no-data", machine)
        return self.other


def refusal(call: Callable[..., Any], *given: Any, **how: Any) -> str:
    """Return the code of the reason with which a call ends: in one line, which ends with what to do
    about it."""
    with pytest.raises(Unavailable) as why:
        call(*given, **how)
    text = str(why.value)
    assert len(text.splitlines()) == 1 and text.endswith(why.value.remedy)
    return why.value.code


def ended(patch: pytest.MonkeyPatch, *words: str) -> int:
    """Run `tlb` with these words in this process; return its exit status."""
    from tlb import cli

    patch.setattr(sys, "argv", ["tlb", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def extension(name: str) -> ModuleType:
    """Return a module of book/_ext, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"book/_ext/{name}.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def settable_signals() -> int:
    """The signals that a program can set, as a mask like those of /proc/PID/status: the C library
    keeps 32 and 33 for its threads, and a container may start everything with one of them ignored.
    """
    return sum(1 << (number - 1) for number in signal.valid_signals())
