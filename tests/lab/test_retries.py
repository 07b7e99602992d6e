"""Noisy points: tried again once, the quiet one kept, the last one marked; never chosen by the time
that they measured."""

from __future__ import annotations

import pytest
from support.lab import MACHINE, NAME, POINTS

from tlb.reasons import Unavailable

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- migrations, context switches, steal (test_noise.py); noisy points retried and marked


@pytest.mark.parametrize(
    ("tries", "kept"),
    [
        ([("stolen", 1.0), ("", 9.0)], ("", 9.0, 2)),  # the quiet one, be it slower
        ([("stolen", 1.0), ("uneven", 2.0)], ("uneven", 2.0, 2)),  # the last, not the fastest
        ([("stolen", 4.0), ("uneven", 3.0)], ("uneven", 3.0, 2)),
        (
            [("stolen", 2.0), Unavailable("oom-killed")],
            ("stolen", 2.0, 1),
        ),  # a noisy number is better than none
    ],
)
def test_which_try_is_kept_is_decided_by_its_mark_and_never_by_its_time(
    scripted, run, store, tries, kept
):
    fake = scripted(*tries)
    run(POINTS[:1])
    (row,) = store.load(MACHINE, NAME).itertuples()
    assert (row.noisy, row.ns_per_access, row.tries) == kept and len(fake.asked) == 2
