"""Fixtures that several test files share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from experiments.record import Record


def make_record(**changes: object) -> Record:
    """A valid record of one process; `changes` are fields of it. The sizes follow from lines and layout."""
    fields: dict = {
        "kernel": "page_chase", "engine": "c", "pages": "4k", "layout": "spread", "order": "cycle",
        "lines": 4096, "stride_bytes": 4096, "seed": 1, "cpu": 0, "accesses": 10_000_000,
        "elapsed_ns": 6.5e7, "ns_per_access": 6.5, "batch_ns_per_access": [6.4, 6.5, 6.6], "core_ghz": 3.2,
        "prepare_ns": 2e7, "minor_faults": 0, "major_faults": 0, "voluntary_switches": 0,
        "involuntary_switches": 1, "migrations": 0, "checksum": "0123456789abcdef", "repeat": 0,
        "region_ms": 60, "wall_ns": 1.2e8, "started_at": "2025-01-31T12:00:00Z", "state": "00112233aabb",
    } | changes  # fmt: skip
    size = fields["lines"] * (fields["stride_bytes"] if fields["layout"] == "spread" else 64)
    return Record(**({"backing": fields["pages"], "working_set_bytes": size, "arena_bytes": size} | fields))


@pytest.fixture
def record() -> Callable[..., Record]:
    """Makes a valid record; keyword arguments replace its fields."""
    return make_record
