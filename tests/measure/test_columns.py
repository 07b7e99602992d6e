"""Columns: what a frame of records shows, and what no frame can show, which is refused before it is
written."""

import math

import pytest
from support.campaigns import MACHINE, NAME, put
from support.common import make_record

from tlb.measure.record import CounterReading


def test_a_kernels_own_numbers_are_columns_and_nan_where_another_kernel_has_none(store):
    touch = make_record(
        kernel="random_touch", options={"bytes": 1000}, also={"generator_ns_per_access": 1.5}
    )
    fault = make_record(
        kernel="prefault",
        mode="populate",
        options={"threads": 2},
        also={"free_ns_per_access": 50.0},
    )
    put(store, MACHINE, NAME, touch, fault, make_record())
    frame = store.load(MACHINE, NAME)
    assert frame["mode"].tolist() == ["", "populate", ""]  # page_chase, prefault, random_touch
    for name, values in {
        "bytes": [None, None, 1000],
        "generator_ns_per_access": [None, None, 1.5],
        "threads": [None, 2, None],
        "free_ns_per_access": [None, 50.0, None],
    }.items():
        assert (
            frame[name].dtype == "float64"
            and [None if math.isnan(value) else value for value in frame[name]] == values
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {"lines": 1}},
        {"also": {"experiments": 1.0}},
        {"also": {"walk_per_access": 1.0}, "counters": {"walk": CounterReading(value=1.0)}},
    ],
)
def test_an_own_number_that_would_hide_a_column_is_refused(store, changes):
    with pytest.raises(ValueError):
        store.append(MACHINE, make_record(**changes))
    assert not store.root.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"counters": {"ns": CounterReading(value=1.0)}},
        {"counters": {"<script>": CounterReading(value=1.0)}},
        {"accesses": 2**63},
    ],
)
def test_a_record_that_fits_no_column_is_refused_and_nothing_is_written(store, changes):
    with pytest.raises(
        ValueError,
        match="walk|counter cannot be called|does not fit 64 bits|lines|region_ms|accesses",
    ):
        store.append(MACHINE, make_record(**changes))
    assert not store.root.exists()
