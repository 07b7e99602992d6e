"""A document of data/ that never was: JMH's scores."""

from typing import Any

from experiments.hugepages import jmh
from experiments.hugepages.jmh import HEAP_PAGES, Score
from support.hugepages import analysis

WHEN = {"measured_at": "2025-01-31T12:00:00Z", "state": "00112233aabb"}


def scores(times_ours: float = 1.0, forks: int = 1) -> dict[str, Any]:
    """JMH's times for the arrays that `rows()` has, so many times as long as the loop in C takes
    for them, in so many JVMs."""
    made = {"error_ns": 0.01, "iterations_count": 8, "forks": forks}
    touched = [
        Score(
            pages=row.pages,
            array_bytes=row.array_bytes,
            quantity="touch",
            ns_per_access=row.median * times_ours,
            **made,
        )
        for row in analysis().touches.itertuples()
        if row.array_bytes <= 10**8
    ]
    draws = [
        Score(pages=pages, array_bytes=10**8, quantity="draw", ns_per_access=1.5, **made)
        for pages in HEAP_PAGES
    ]
    return jmh.JmhDocument(
        **WHEN, jvm="21.0.1", jmh="1.37", scores=touched + draws, lacking={}
    ).model_dump(mode="json")
