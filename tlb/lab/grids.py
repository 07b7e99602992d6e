"""The points that each experiment asked for, as data/<machine>/grids.json has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from tlb.lab.record import Slug

Grids = dict[str, dict[str, set[str]]]  # points' ids by experiment and kernel
GRIDS_SCHEMA = TypeAdapter(
    dict[Slug, dict[Slug, set[Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]]]]
)


def listed_grids(*all_grids: Grids) -> dict[str, dict[str, list[str]]]:
    """Return the union of grids as their document has it."""
    union: Grids = {}
    for grids in all_grids:
        for experiment, grid in grids.items():
            for kernel, points in grid.items():
                union.setdefault(experiment, {}).setdefault(kernel, set()).update(points)
    return {
        experiment: {kernel: sorted(points) for kernel, points in grid.items()}
        for experiment, grid in union.items()
    }
