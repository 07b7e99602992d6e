"""Pools, settings, limits and files of /proc: what they lack is a reason, and all else is measured."""

from __future__ import annotations

import ctypes
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.common import lacking, needs_c
from support.lab import MACHINE, NAME, POINTS, VICTIM, says
from support.stand_ins import in_a_child, put_before

from experiments.lab import kernels
from experiments.lab.campaign import Outcome
from experiments.lab.record import Point
from experiments.lab.rig import usable_bytes
from experiments.machine import doctor, host, memory
from experiments.system import procfs
from experiments.words.reasons import REASONS

pytestmark = [pytest.mark.measures, pytest.mark.measuring]
MIB = 2**20

# --- pool empty or partial; THP never; 1g unsupported (test_kernels.py)

SYS = Path("/sys/kernel/mm")


@pytest.fixture
def laid_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Kernels see other files in the place of those of /sys, in a mount namespace of each one's own: nobody else does."""

    def lay(*replaced: tuple[Path, str | None]) -> None:
        if shutil.which("unshare") is None:
            lacking("unshare")
        mounts = []
        for number, (path, content) in enumerate(replaced):
            if not path.exists():
                pytest.skip(f"this kernel has no {path}")
            other = tmp_path / f"other{number}"
            other.mkdir() if content is None else other.write_text(content)
            mounts.append(f"mount --bind {shlex.quote(str(other))} {path}")
        inside = ("unshare", "--map-root-user", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$0" "$@"']))
        if subprocess.run([*inside, "true"], capture_output=True).returncode:
            pytest.skip("needs the right to mount, in a namespace")
        put_before(monkeypatch, *inside)

    return lay


def on_pages(pages: str, **changes: object) -> list[Point]:
    """The victim on these pages, the others on 4k."""
    return [point.model_copy(update={"pages": pages, **changes} if point == VICTIM else {}) for point in POINTS]


def lacks(outcome: Outcome, code: str) -> str:
    """The detail of the one point that could not be measured."""
    (why,) = outcome.lacking.values()
    says(why, code)
    assert outcome.measured == 2
    return why.detail


@needs_c
@pytest.mark.parametrize(("pages", "kib"), [("2m", 2048), ("1g", 1048576)])
def test_an_empty_pool_is_a_reason_and_points_without_it_are_measured(run, pages: str, kib: int):
    pool = SYS / f"hugepages/hugepages-{kib}kB"
    lines = 2**32  # 16 TiB of pages, which no pool has
    outcome = run(on_pages(pages, lines=lines), usable_bytes=2**60)
    detail = lacks(outcome, "pool-empty" if pool.exists() else "page-size-unsupported")
    assert not pool.exists() or f"{lines * 4 // kib} pages of {pages} needed, " in detail


@needs_c
def test_thp_never_is_a_reason_and_points_without_it_are_measured(laid_over, run):
    laid_over((SYS / "transparent_hugepage/enabled", "always madvise [never]\n"))
    lacks(run(on_pages("thp")), "thp-never")


@needs_c
def test_thp_forbidden_to_this_process_alone_never_passes_for_thp(own_lock, store, run):
    if procfs.chosen(SYS / "transparent_hugepage/enabled") not in ("always", "madvise"):
        pytest.skip("transparent huge pages are off here")

    def work() -> tuple[int, str, bool]:
        assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE
        outcome = run(on_pages("thp"))
        (why,) = outcome.lacking.values()
        return outcome.measured, why.code, REASONS[why.code].remedy in str(why)

    count, code, remedy = in_a_child(work)
    assert count == 2 and code in ("backing-partial", "thp-never") and remedy


# --- RLIMIT_MEMLOCK, RLIMIT_AS, cgroup v1 and v2 (test_host.py)


ADDRESS_SPACE = 5 << 28  # 1.25 GiB, of which a kernel takes 1 to align its arena


@pytest.fixture
def little_address_space(monkeypatch: pytest.MonkeyPatch) -> host.Host:
    """Kernels run under a real RLIMIT_AS; this computer, inspected under it."""
    put_before(monkeypatch, "sh", "-c", f'ulimit -v {ADDRESS_SPACE >> 10} && exec "$0" "$@"')
    return host.inspect(computer=host.Platform(rlimits=memory.Rlimits(address_space_bytes=ADDRESS_SPACE)))


@needs_c
def test_a_limit_on_address_space_sizes_the_run_so_that_all_it_takes_is_measured(little_address_space, run, store):
    if little_address_space.memory.limit_source != "RLIMIT_AS":
        pytest.skip("less than 256 MiB of memory is free here")
    half = usable_bytes(little_address_space)
    most = half // (4096 + kernels.SIDE_BYTES_PER_LINE)
    outcome = run([Point(kernel="page_chase", lines=lines, region_ms=1) for lines in (64, most, most + 1)], usable_bytes=half)
    assert {point.lines for point in outcome.lacking} == {most + 1} and sorted(store.load(MACHINE, NAME)["lines"]) == [64, most]
    says(*outcome.lacking.values(), "memory-short")
    (advice,) = (advice for advice in doctor.advice(little_address_space) if advice.topic == "memory")
    assert advice.finding.startswith("RLIMIT_AS leaves 256 MiB") and "ulimit" in advice.remedy
