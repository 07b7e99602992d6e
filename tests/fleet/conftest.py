"""Processes that end with their test."""

from collections.abc import Iterator

import pytest
from support import fleet


@pytest.fixture
def processes() -> Iterator[fleet.Processes]:
    with fleet.processes() as started:
        yield started
