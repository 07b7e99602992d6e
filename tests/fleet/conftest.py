"""The fleet that never was, and its atlas, for all that ask about them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the format of data/ (support.atlas)."""
    from support.atlas import fleet

    return fleet(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The atlas of all its machines."""
    from experiments.fleet import atlas_build

    atlas = tmp_path_factory.mktemp("atlas")
    atlas_build.build(atlas, [data], processes=1)
    return atlas
