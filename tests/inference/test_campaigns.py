"""Which published rows a page shows: of each kernel one campaign, and never two versions of what it
measures."""

import pandas as pd
import pytest

from tlb.inference.campaigns import newest

COLUMNS = ["kernel", "engine", "kernel_digest", "state", "lines"]


def frame(rows: list[tuple], measures: int = 1, timed: str = "") -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).assign(
        measures=measures, timed=timed, schema_version=2 if timed else 1
    )


def both(*frames: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)


def test_only_rows_of_the_newest_kernel_and_state_are_kept_for_each_kernel_and_engine():
    measured = frame(
        [
            ("page_chase", "c", "old", "s1", 0),
            ("page_chase", "c", "new", "s1", 1),
            ("page_gather", "c", "gather", "s2", 2),
            ("page_chase", "c", "new", "s2", 3),
            ("page_chase", "numba", "old", "s1", 4),
            ("page_chase", "c", "new", "s2", 5),
        ]
    )
    kept = newest(measured)
    assert kept["lines"].tolist() == [2, 3, 4, 5]
    assert (
        kept.index.tolist() == [0, 1, 2, 3] and kept.columns.tolist() == measured.columns.tolist()
    )
    assert newest(measured[:0]).empty


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
    old = frame([("page_chase", "c", "k", "old", line) for line in range(10) for _ in range(5)])
    kept = newest(
        both(
            old,
            frame(
                [("page_chase", "c", "k", "new", line) for line in lines for _ in range(processes)]
            ),
        )
    )
    assert {*kept["state"]} == {"new" if is_kept else "old"} and len(kept) == (
        len(lines) * processes if is_kept else 50
    )


def chased(
    state: str = "s", *, follow: str = "f", draws: str = "d", points: int = 10, measures: int = 2
) -> pd.DataFrame:
    """A campaign of a kernel that times two functions, which have a digest each."""
    return both(
        *(
            frame(
                [
                    ("page_chase", "c", digest, state, line)
                    for line in range(points)
                    for _ in range(5)
                ],
                measures,
                timed,
            )
            for digest, timed in ((follow, "follow"), (draws, "follow_draws"))
        )
    )


def test_functions_of_one_kernel_are_one_campaign():
    old, new = chased("old"), chased("new")
    pd.testing.assert_frame_equal(newest(new), new)
    pd.testing.assert_frame_equal(newest(both(old, new)), new)


@pytest.mark.parametrize("points", [10, 1])
def test_rows_of_the_newest_measures_hide_all_others_however_few_they_are(points):
    """What was measured otherwise is no result to fall back on: its times are of something else."""
    old = both(
        frame([("page_chase", "c", "whole", "s", line) for line in range(10)]), chased(measures=1)
    )
    new = chased(points=points)
    for mixed in (both(old, new), both(new, old)):
        pd.testing.assert_frame_equal(newest(mixed), new)


def test_of_a_function_that_another_compiler_made_the_last_code_is_kept():
    kept = newest(both(chased(), chased(follow="g")))
    assert {*zip(kept["timed"], kept["kernel_digest"], strict=True)} == {
        ("follow", "g"),
        ("follow_draws", "d"),
    }
    kept = newest(both(chased(), chased(follow="g", points=3)))  # broken off
    assert {*kept["kernel_digest"]} == {"f", "d"}
