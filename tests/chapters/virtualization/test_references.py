"""References of a nested walk: the formula and the cold simulation."""

from support.guests import GUESTS, HOSTS

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
