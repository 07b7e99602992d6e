"""Processes that end with their test."""

from collections.abc import Iterator

import pytest
from support.fleet import Processes


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    try:
        yield started
    finally:
        started.end()
