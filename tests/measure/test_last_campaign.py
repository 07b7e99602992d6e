"""Which published rows a page shows: of each kernel one campaign, and never two versions of what it
measures."""

import pandas as pd
import pytest

from tlb.measure.row_tables import rows_of_last_campaign

COLUMNS = ["kernel", "engine", "state", "lines"]


def frame(rows: list[tuple], measures: int = 1) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).assign(measures=measures)


def both(*frames: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)


def test_only_rows_of_the_last_state_are_kept_for_each_kernel_and_engine():
    measured = frame(
        [
            ("page_chase", "c", "s1", 1),
            ("page_gather", "c", "s2", 2),
            ("page_chase", "c", "s2", 3),
            ("page_chase", "numba", "s1", 4),
            ("page_chase", "c", "s2", 5),
        ]
    )
    kept = rows_of_last_campaign(measured)
    assert kept["lines"].tolist() == [2, 3, 4, 5]
    assert kept.index.tolist() == [0, 1, 2, 3]
    assert kept.columns.tolist() == measured.columns.tolist()
    assert rows_of_last_campaign(measured[:0]).empty


@pytest.mark.parametrize(
    ("lines", "processes", "is_kept"),
    [
        (range(10), 5, True),
        (range(9), 5, True),
        (range(8), 9, False),  # of another experiment, which asked for eight of these ten points
        (range(10), 2, False),  # broken off
    ],
)
def test_only_a_campaign_of_the_experiment_itself_hides_an_older_one(lines, processes, is_kept):
    old = frame([("page_chase", "c", "old", line) for line in range(10) for _ in range(5)])
    new = frame([("page_chase", "c", "new", line) for line in lines for _ in range(processes)])
    kept = rows_of_last_campaign(both(old, new))
    assert {*kept["state"]} == {"new" if is_kept else "old"}
    assert len(kept) == (len(new) if is_kept else len(old))


@pytest.mark.parametrize("points", [10, 1])
def test_rows_of_the_newest_measures_hide_all_others_however_few_they_are(points):
    """What was measured otherwise is no result to fall back on: its times are of something else."""
    old = frame([("page_chase", "c", "s", line) for line in range(10)], measures=1)
    new = frame([("page_chase", "c", "s", line) for line in range(points)], measures=2)
    for mixed in (both(old, new), both(new, old)):
        pd.testing.assert_frame_equal(rows_of_last_campaign(mixed), new)
