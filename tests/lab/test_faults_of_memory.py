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
from support.lab import POINTS, VICTIM, says
from support.stand_ins import in_a_child, put_before

from experiments.lab.campaign import Outcome
from experiments.lab.record import Point
from experiments.system import procfs
from experiments.words.reasons import REASONS

pytestmark = [pytest.mark.measures, pytest.mark.measuring]

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
