"""The fleet that never was, its atlas, and processes that end with their test."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.fleet import Processes

# `make fleet` adds what these need; test_extra.py holds that CI has it.
NEEDED = {"test_atlas*": "duckdb", "test_fleet*": "distributed"}
collect_ignore_glob = [files for files, package in NEEDED.items() if find_spec(package) is None]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder in the format of data/ (support.atlas)."""
    from support.atlas import fleet

    return fleet(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory) -> Path:
    """The atlas of all its machines."""
    from tlb.fleet import atlas

    folder = tmp_path_factory.mktemp("atlas") / "atlas"
    atlas.build(folder, [data])
    return folder


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    try:
        yield started
    finally:
        started.end()
