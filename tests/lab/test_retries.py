"""Noisy points: tried again once, the quiet one kept, the last one marked; never chosen by the time
that they measured."""

from __future__ import annotations

import pytest
from support.common import needs_c
from support.lab import MACHINE, NAME, POINTS, VICTIM

from tlb.reasons import Unavailable

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- migrations, context switches, steal (test_noise.py); noisy points retried and marked


MARKS = {
    "migrated": '"$REAL" "$@" | sed \'s/"migrations": 0/"migrations": 2/\'',
    "faulted": '"$REAL" "$@" | sed \'s/"major_faults": 0/"major_faults": 1/\'',
    # No switch beside it, which on a busy computer there is, and which is the stronger mark.
    "uneven": '"$REAL" "$@" | sed -e \'s/"batch_ns_per_access": [[][^]]*/"batch_ns_per_access": [1, 1, 2, 2/\' '
    '-e \'s/"involuntary_switches": [0-9]*/"involuntary_switches": 0/\'',
}


@needs_c
@pytest.mark.usefixtures("no_steal")
@pytest.mark.parametrize("mark", MARKS)
def test_a_point_that_stays_noisy_is_tried_once_more_and_then_marked(befall, run, store, mark: str):
    folder = befall(f'echo >> "$HERE/tries"; {MARKS[mark]}')
    outcome = run(retry_share=1.0)  # whatever this computer's own noise costs the other two
    assert (outcome.measured, outcome.lacking) == (3, {})
    frame = store.load(MACHINE, NAME).set_index("lines")
    assert (frame["noisy"][VICTIM.lines], frame["tries"][VICTIM.lines]) == (mark, 2)
    assert (folder / "tries").read_text().count("\n") == 2
    assert outcome.noisy >= 1 and outcome.retries >= 1 and "marked as noisy" in str(outcome)


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
