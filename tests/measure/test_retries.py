"""Noisy points: tried again once, the quiet one kept, the last one marked; never chosen by the time
that they measured."""

import pytest
from support.campaigns import MACHINE, NAME, POINTS, VICTIM
from support.common import needs_c

from tlb.measure import noise
from tlb.system.reasons import Unavailable

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


@needs_c
def test_a_point_that_stays_noisy_is_tried_once_more_and_then_marked(
    befall, run, store, monkeypatch
):
    monkeypatch.setattr(noise, "stolen_ms", lambda: {})  # this computer's hypervisor adds no mark
    befall('"$REAL" "$@" | sed -u \'s/"migrations": 0/"migrations": 2/\'')
    outcome = run(retry_share=1.0)  # whatever this computer's own noise costs the other two
    frame = store.load(MACHINE, NAME).set_index("lines")
    assert (frame["noisy"][VICTIM.lines], frame["tries"][VICTIM.lines]) == ("migrated", 2)
    assert outcome.noisy >= 1 and outcome.retries >= 1
