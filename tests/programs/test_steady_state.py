"""Which samples are of a program at work: start-ups of several kinds, and programs without one."""

import pytest

from tlb.programs.activity import ActivitySample, phase_change_windows, samples_after_start

MIB = 1 << 20


def sample(
    at_s: float, window_s: float, touched: float, resident: float, cpu: float = 1
) -> ActivitySample:
    """Return a sample of a process; sizes in MiB."""
    mapped = {"4k": int(resident * MIB), "thp": 0}
    base = (window_s, 0.01, 1, {}, 20, mapped, MIB, int(touched * MIB), 0, 0)
    return ActivitySample(*base, at_s=at_s, cpu_share=cpu)


# At 8 MiB: windows of 10 ms to 1 s touch more and more.
WORK = [sample(2 + n, (0.01, 0.1, 1.0)[n % 3], (5, 7, 8)[n % 3], 8) for n in range(6)]
INPUT_FREED = [sample(0.1, 0.1, 48, 48), sample(0.4, 0.01, 20, 48)]
FILLING = [sample(0.1, 0.01, 1, 1), sample(0.4, 0.1, 3, 3)]
TOUCHED_ONCE = [sample(0.2, 0.1, 41, 8.5)]


@pytest.mark.parametrize("start", [INPUT_FREED, FILLING, TOUCHED_ONCE, FILLING + INPUT_FREED, []])
def test_a_start_up_is_left_out_and_no_sample_after_it(start):
    assert samples_after_start([*start, *WORK]) == WORK


@pytest.mark.parametrize(
    "samples",
    [
        [],
        INPUT_FREED[:1],
        [sample(1, 0.1, 300, 300), sample(9, 1, 310, 300), sample(10, 0.1, 2, 20)],  # it ends
        [sample(n, 0.1, 200, 300, cpu=n % 2) for n in range(9)],
        # busy at first, then waiting: no other phase
        [sample(n, 0.1, 200 if n < 4 else 2, 300, cpu=1 if n < 4 else 0.01) for n in range(9)],
        [sample(n, (0.1, 1)[n % 2], (200, 220)[n % 2] * 1.1**-n, 300) for n in range(5)],  # scatter
    ],
)
def test_without_a_start_up_all_samples_stay(samples):
    assert samples_after_start(samples) == samples


def test_two_samples_suffice_to_see_that_the_first_was_of_the_start_up():
    assert samples_after_start([INPUT_FREED[0], WORK[2]]) == [WORK[2]]


def test_a_longer_window_that_touches_less_is_a_contradiction():
    phases = [sample(1, 1, 20, 50), sample(5, 0.1, 40, 50), sample(9, 1, 22, 50)]
    assert phase_change_windows(phases) == (0.1, 1)
    assert (
        phase_change_windows(WORK)
        is phase_change_windows([])
        is phase_change_windows(phases[:1])
        is None
    )
