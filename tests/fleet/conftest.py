"""The fleet that never was, its atlas, and processes that end with their test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleet import Processes


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder in the format of data/ (support.atlas)."""
    from support.atlas import fleet

    return fleet(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module", autouse=True)
def known_verdicts() -> Iterator[None]:
    """The verdicts on machines that never were, which no chapter could judge."""
    from support.atlas import VERDICTS

    from experiments.overview import machine_verdicts

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            machine_verdicts,
            "judge_claims",
            lambda chapter: VERDICTS.get(chapter.machine, machine_verdicts.MachineVerdicts()),
        )
        yield


@pytest.fixture(scope="module")
def whole(data, known_verdicts, tmp_path_factory) -> Path:
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
