"""Pools, settings, limits and files of /proc: what they lack is a reason, and all else is
measured."""

import ctypes
from pathlib import Path

import pytest
from support.campaigns import POINTS, VICTIM
from support.common import needs_c
from support.stand_ins import in_a_child

from tlb.measure.record import Point
from tlb.system import procfs
from tlb.system.reasons import REASON_TEXTS

pytestmark = [pytest.mark.measures, pytest.mark.measuring]

# --- pool empty or partial; THP never; 1g unsupported (test_kernels.py)

SYS = Path("/sys/kernel/mm")


def on_pages(pages: str, **changes: object) -> list[Point]:
    """The victim on these pages, the others on 4k."""
    return [
        point.model_copy(update={"pages": pages, **changes} if point == VICTIM else {})
        for point in POINTS
    ]


@needs_c
def test_thp_forbidden_to_this_process_alone_never_passes_for_thp(own_lock, store, run):
    if procfs.chosen(SYS / "transparent_hugepage/enabled") not in ("always", "madvise"):
        pytest.skip("transparent huge pages are off here")

    def work() -> tuple[int, str, bool]:
        assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE
        outcome = run(on_pages("thp"))
        (why,) = outcome.lacking.values()
        return outcome.measured, why.code, REASON_TEXTS[why.code].remedy in str(why)

    count, code, remedy = in_a_child(work)
    assert count == 2 and code in ("backing-partial", "thp-never") and remedy
