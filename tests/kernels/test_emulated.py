"""The chases on the other architecture, under emulation: the same lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kernels import arguments, checksum, emulated, for_arm64, needs_emulator, on_x86, visits

pytestmark = [pytest.mark.measures, pytest.mark.slow, on_x86, needs_emulator]
ORDERS = {"page_chase": ("cycle", "random", "sequential"), "page_gather": ("cycle", "sequential")}
CASES = [(kernel, order, layout) for kernel, orders in ORDERS.items() for order in orders for layout in ("spread", "packed")]


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("arm64")
    return {kernel: for_arm64(kernel, folder) for kernel in ORDERS}


@pytest.mark.parametrize(("kernel", "order", "layout"), [*CASES, ("page_chase", "cycle", "alias"), ("page_chase", "random", "alias")])
def test_the_arm64_build_visits_the_same_lines_under_emulation(arm64, kernel: str, order: str, layout: str):
    for lines in (1, 65, 1000):
        assert emulated(arm64[kernel], *arguments(order, layout, lines)).checksum == checksum(visits(kernel, order, lines, 7, layout))
