"""Which snapshots are of a program at work, for programs whose memory is known at each time."""

import pytest
from support.programs import look

from tlb.programs.snapshots import MemorySnapshot, at_peak, filled_s, typical


def run(*sizes: tuple[float, int]) -> list[MemorySnapshot]:
    """Return snapshots by their times in s and resident sizes in MiB."""
    return [look(at_s, resident_mib=mib) for at_s, mib in sizes]


WORK = [(n / 2, 8) for n in range(2, 40)]


@pytest.mark.parametrize(
    ("sizes", "peak", "filled"),
    [
        ([(0.1, 48), (0.4, 48), (0.6, 8), *WORK], (19.5, 8), 0.6),  # reads its input and frees it
        ([(0.1, 1), (0.3, 4), (0.6, 8), *WORK], (19.5, 8), 0.6),
        ([*WORK, (20, 90), (20.2, 90)], (19.5, 8), 1.0),  # its last words
        ([(0.1, 1), (1, 100), (9, 100), (9.2, 2)], (9, 100), 1),
        ([(0.1, 30), (3, 100), (6, 60), (9, 60)], (3, 100), 3),  # a phase that lasts
        ([(0.1, 7)], (0.1, 7), 0.1),
    ],
)
def test_the_size_that_lasts_is_that_of_the_work(sizes, peak, filled):
    found = at_peak(run(*sizes))
    assert (found.at_s, found.pages.resident_bytes >> 20) == peak
    assert filled_s(run(*sizes)) == filled


def test_without_snapshots_nothing_is_known():
    assert at_peak([]) is typical([]) is None and filled_s([]) == 0.0


def test_of_several_runs_the_typical_one_has_the_median_of_huge_pages():
    peaks = [look(huge_mib=huge, resident_mib=100) for huge in (0, 90, 80)]
    assert typical([*peaks, look(huge_mib=50, resident_mib=50)]).pages.huge_bytes == 80 << 20
