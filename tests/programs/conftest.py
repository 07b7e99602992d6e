"""What tests of programs share: a look at what they left behind."""

import gc
import os
from collections.abc import Iterator

import pytest
from support.where import SOURCE, built

from tlb.programs.snapshots import new_descendants
from tlb.system import processes


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    gc.collect()  # closes what earlier tests left to it
    before = set(processes.process_descendants(os.getpid()))
    files = set(os.listdir("/proc/self/fd"))
    yield
    assert new_descendants(before) == {} and set(os.listdir("/proc/self/fd")) <= files


@pytest.fixture(scope="module")
def known_walks(tmp_path_factory) -> str:
    return built(tmp_path_factory.mktemp("known"), SOURCE)
