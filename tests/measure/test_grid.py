"""What a grid is made of: octaves, profiles, and a scope whose lines follow the machine's base
page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlb.measure.grid import MeasuringProfile, Scope, octaves

MIB = 2**20
PROFILE = MeasuringProfile(
    max_working_set=2**30, repeats=3, shape_repeats=3, region_ms=7, points_per_octave=2
)

# --- octaves


@given(st.integers(1, 2**22), st.integers(0, 20), st.integers(1, 16))
def test_octaves_hold_every_power_and_end_where_they_are_told(low, doublings, per_octave):
    found = octaves(low, low * 2**doublings, per_octave)
    assert {low * 2**k for k in range(doublings + 1)} <= set(found)
    assert (found[0], found[-1]) == (low, low * 2**doublings) and found == sorted(set(found))


# --- scopes: the base page is the machine's


@pytest.mark.parametrize("kib", [4, 16, 64])
def test_a_line_of_a_scope_has_a_base_page_of_the_machine(kib):
    scope = Scope(PROFILE, base_page_bytes=kib << 10)
    assert (scope.most_lines, scope.lines(64 * MIB)) == (
        2**30 // (kib << 10),
        64 * MIB // (kib << 10),
    )
    assert {pages: scope.pages_of(pages) for pages in ("4k", "64k", "thp", "2m", "1g")} == {
        "4k": 1,
        "64k": 64 // kib,
        "thp": {4: 512, 16: 2048, 64: 8192}[kib],  # 2, 32, 512 MiB
        "2m": 2048 // kib,
        "1g": MIB // kib,
    }
