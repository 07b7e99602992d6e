"""References of a walk: the formula, the cold simulation, shadow tables, and warm counts."""

from __future__ import annotations

import pytest
from support.guests import GUESTS, HOSTS, of
from support.synthetic import Stated

from experiments.virtualization import references


def test_the_formula_and_the_cold_simulation_agree_in_every_cell_and_depth():
    for guest in GUESTS:
        for host in HOSTS:
            for levels, outer in ((4, 4), (4, 5), (5, 4), (5, 5)):
                assert references.at_most(guest, host, levels, outer) == references.cold(
                    guest, host, levels, outer
                )
    assert references.at_most("4k", "4k") == 24 and references.at_most("4k", "4k", 5, 5) == 35
    assert references.at_most("2m", "thp") == 15 and references.at_most("1g", "1g") == 8
    assert of().depths == {(4, 4): 24, (4, 5): 29, (5, 4): 29, (5, 5): 35}


def test_a_shadow_walk_goes_down_to_the_smaller_page():
    assert [
        references.of_shadow(*cell)
        for cell in (("4k", "1g"), ("2m", "4k"), ("2m", "1g"), ("1g", "1g"))
    ] == [4, 4, 3, 2]
    assert (
        references.smaller("2m", "thp") == references.smaller("1g", "thp") == "2m"
        and references.smaller("2m", "4k") == "4k"
    )


@pytest.mark.parametrize(("guest", "host"), [("4k", "4k"), ("2m", "4k")])
def test_at_1_gib_the_caches_that_nobody_states_hardly_change_a_warm_count(guest: str, host: str):
    counts = [
        references.warm(guest, host, 262144, Stated().host(), scale) for scale in (0.5, 1.0, 2.0)
    ]
    assert (
        max(counts) / min(counts) < 1.12
        and min(counts) >= 1
        and max(counts) < references.at_most(guest, host)
    )
