"""The grid of guests: each cell at each size, each spread chase with its control, nothing too
large."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.guests import CELLS, HOSTS, points

from experiments.virtualization import grid

pytestmark = pytest.mark.filterwarnings("error")
profiles = st.tuples(
    st.integers(64 << 10, 2**33),
    st.integers(1, 4),
    st.sampled_from(["c", "numba"]),
    st.sampled_from([(), (16,), (64, 1536), (72, 3072), (32, 64)]),
)


@given(profiles)
@settings(deadline=None, max_examples=30)
def test_each_size_of_the_matrix_has_all_twelve_cells_the_plain_process_and_one_in_namespaces(
    profile,
):
    found = {(p.kernel, p.mode, p.pages, p.lines) for p in points(*profile) if p.layout == "spread"}
    for lines in {n for kernel, mode, _, n in found if mode == "namespaces"}:
        assert {("guest_chase", guest, host, lines) for guest, host in CELLS} <= found
        assert {("page_chase", "", host, lines) for host in HOSTS} <= found
    assert {mode for kernel, mode, *_ in found if kernel == "numa_chase"} == set(
        grid.NUMA_PLACEMENTS
    )
