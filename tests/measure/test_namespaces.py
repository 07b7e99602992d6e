"""Fresh namespaces: what runs in them is what runs outside, and where they are not fresh nothing is
measured."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.common import ROOT, alive, lacking, processes_with
from support.fake_perf import install
from support.kernels import STATE, measured, why_not

from tlb.measure import build, namespaces
from tlb.measure.record import Point

WALK = "cpu/event=0x45,umask=0xf0/u"
PLAIN = Point(kernel="page_chase", lines=300, region_ms=1)
INSIDE = PLAIN.model_copy(update={"mode": namespaces.FRESH_NAMESPACES_MODE})
SAME = [
    "seed",
    "checksum",
    "cpu",
    "backing",
    "lines",
    "working_set_bytes",
    "arena_bytes",
    "stride_bytes",
]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces")


@pytest.fixture
def has_namespaces() -> None:
    """A test that takes them needs a computer that has them, by unshare's own word."""
    if shutil.which("unshare") is None:
        lacking("unshare")
    by_hand = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "true",
    ]
    done = subprocess.run(by_hand, capture_output=True, text=True)
    if done.returncode:
        lacking(f"what namespaces take ({done.stderr.strip()})")


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.usefixtures("has_namespaces")
@pytest.mark.parametrize(
    "engine", [pytest.param("c", marks=pytest.mark.needs("a C compiler")), "numba"]
)
def test_the_same_walk_is_measured_inside_and_outside(engine):
    points = [point.model_copy(update={"engine": engine}) for point in (PLAIN, INSIDE)]
    plain, inside = (measured(point) for point in points)
    assert [plain.point, inside.point] == points and (plain.mode, inside.mode) == ("", "namespaces")
    for field in SAME:
        assert getattr(plain, field) == getattr(inside, field), field
    assert (plain.steal_ms is None) == (inside.steal_ms is None)


def test_an_unshare_that_changes_nothing_is_found_out(tmp_path, monkeypatch, kernel):
    folder = tmp_path / "bin"
    folder.mkdir()
    script = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
    (folder / "unshare").write_text(script)
    (folder / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    log = kernel("exit 1")
    namespaces._proved.cache_clear()
    try:
        why = why_not(INSIDE, "not-permitted")
    finally:
        namespaces._proved.cache_clear()
    assert why == "unshare left the old ones: user, mnt, pid, net" and not log.exists()


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler", "setpriv")
@pytest.mark.usefixtures("has_namespaces")
def test_a_runner_that_is_killed_leaves_no_process(tmp_path, monkeypatch):
    """The kernel is perf's grandchild, and each of the three ends with its parent."""
    text = f"""
from tlb.measure import perf, plan
from tlb.measure.record import Point
counted = perf.EventPlan({install(tmp_path, {WALK: 1.0})!r}, (perf.PerfEvent("walk", {WALK!r}),))
point = Point(kernel="page_chase", lines=300, mode="namespaces", region_ms=59_372)
plan.measure(point, state="{STATE}", usable_bytes=2**30, plan=counted)
"""
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "built"))
    marker = build.kernel("page_chase").command[0]
    binary = Path(marker).name
    with subprocess.Popen([sys.executable, "-c", text], cwd=ROOT) as runner:
        while not any(one.info["cmdline"][0].endswith(binary) for one in processes_with(marker)):
            assert runner.poll() is None
            time.sleep(0.05)
        runner.kill()
    assert alive(marker) == [] and alive(str(tmp_path / "perf")) == []
