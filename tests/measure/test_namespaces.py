"""Fresh namespaces: what runs in them is what runs outside, and where they are not fresh nothing is
measured."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.common import ROOT, alive, lacking, make_record, processes_with
from support.fake_perf import install
from support.kernels import measured as measured_point
from support.kernels import why_not as why_not_point

from tlb.measure import build, namespaces, perf
from tlb.measure.events import Event
from tlb.measure.record import KernelOutput, Point, Record

WALK = Event("walk", "cpu/event=0x45,umask=0xf0/u")
STATE = "00112233aabb"
PLAIN = Point(kernel="page_chase", lines=300, region_ms=1)
INSIDE = PLAIN.model_copy(update={"mode": namespaces.FRESH_NAMESPACES_MODE})
REPORT = make_record(lines=300).model_dump(include=set(KernelOutput.model_fields))
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces")


@pytest.fixture
def fresh() -> tuple[str, ...]:
    """The words before a command; a test that takes them needs a computer that has namespaces, by
    unshare's own word."""
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
    if (
        shutil.which("unshare") is None
        or (done := subprocess.run(by_hand, capture_output=True, text=True)).returncode
    ):
        lacking(
            "unshare"
            if shutil.which("unshare") is None
            else f"what namespaces take ({done.stderr.strip()})"
        )
    return namespaces.namespaces_prefix("/bin/sh")


def measured(point: Point = INSIDE, plan: perf.EventPlan = perf.NO_COUNTERS) -> Record:
    return measured_point(point, plan=plan)


def why_not(point: Point = INSIDE, code: str = "not-permitted") -> str:
    return why_not_point(point, code)


@pytest.fixture
def unshare(tmp_path, monkeypatch) -> Iterator[Callable[[str], None]]:
    """Puts a shell script in the place of unshare, before which the cache of what was proved is
    emptied, and after."""

    def fake(text: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "unshare").write_text(f"#!/bin/sh\n{text}\n")
        (folder / "unshare").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    namespaces._proved.cache_clear()
    yield fake
    namespaces._proved.cache_clear()


# --- what is in them


# --- the same kernel, measured in them


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.parametrize(
    "engine", [pytest.param("c", marks=pytest.mark.needs("a C compiler")), "numba"]
)
def test_the_same_walk_is_measured_inside_and_outside(fresh, engine):
    points = [point.model_copy(update={"engine": engine}) for point in (PLAIN, INSIDE)]
    plain, inside = (measured(point) for point in points)
    assert [plain.point, inside.point] == points and (plain.mode, inside.mode) == ("", "namespaces")
    for field in (
        "seed",
        "checksum",
        "cpu",
        "backing",
        "lines",
        "working_set_bytes",
        "arena_bytes",
        "stride_bytes",
    ):
        assert getattr(plain, field) == getattr(inside, field), field
    assert (plain.steal_ms is None) == (inside.steal_ms is None)


# --- what the kernel is told and what it says


def say(report: dict[str, object]) -> str:
    answer = json.dumps({"id": "0", "proved": 1} | report)
    return f"printf '%s\\n' {shlex.quote(answer)}"


# --- where there are none


def test_an_unshare_that_changes_nothing_is_found_out(unshare, kernel):
    unshare('while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    log = kernel(say(REPORT))
    assert why_not() == "unshare left the old ones: user, mnt, pid, net"
    assert not log.exists()


# --- nothing is left behind


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler", "setpriv")
@pytest.mark.parametrize("counts", [True], ids=["under perf"])
def test_a_runner_that_is_killed_leaves_no_process(fresh, tmp_path, monkeypatch, counts):
    """The kernel is perf's grandchild, and each of the three ends with its parent."""
    region_ms = 59_371 + counts
    plan = (
        f"perf.EventPlan({install(tmp_path, {WALK.event: 1.0})!r}, "
        f"(perf.Event(*{(WALK.quantity, WALK.event)}),))"
        if counts
        else "perf.NO_COUNTERS"
    )
    text = (
        "from tlb.measure import perf, plan; from tlb.measure.record import Point\n"
        f"plan.measure(Point(kernel='page_chase', lines=300, mode='namespaces', "
        f"region_ms={region_ms}), "
        f"state='{STATE}', usable_bytes=2**30, plan={plan})"
    )
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "built"))
    marker = build.kernel("page_chase").command[0]
    binary = Path(marker).name
    with subprocess.Popen([sys.executable, "-c", text], cwd=ROOT) as runner:
        while not any(one.info["cmdline"][0].endswith(binary) for one in processes_with(marker)):
            assert runner.poll() is None
            time.sleep(0.05)
        runner.kill()
    assert alive(marker) == [] and alive(str(tmp_path / "perf")) == []
