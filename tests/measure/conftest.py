"""Fixtures of the tests of measure/: a store, a campaign of three small points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import campaigns
from support.campaigns import MACHINE, NAME, POINTS, Scripted, put
from support.common import fake_kernel, make_record

from tlb.measure import build, mapping
from tlb.measure.campaign import CampaignOutcome
from tlb.measure.record import Point, Record
from tlb.measure.row_database import DATABASE_FILE
from tlb.measure.store import Store
from tlb.system.reasons import Unavailable


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "data")


@pytest.fixture
def path(store) -> Path:
    """The file of rows, with three that the experiment asked for: repeats 0, 1 and 2."""
    put(store, MACHINE, NAME, *(make_record(repeat=repeat) for repeat in range(3)))
    return store.root / MACHINE / DATABASE_FILE


@pytest.fixture
def run(store, own_lock) -> Callable[..., CampaignOutcome]:
    """Runs a campaign of three small points, one process each; `how` as support.campaigns.run takes
    it."""
    return lambda points=POINTS, *repeats, **how: campaigns.run(store, points, *repeats, **how)


@pytest.fixture
def scripted(monkeypatch, own_lock) -> Callable[..., Scripted]:
    """Puts a script in the place of every process, whatever rig asks for it."""

    def use(*tries: tuple[str, float] | Unavailable) -> Scripted:
        fake = Scripted(*tries)

        class Process:
            def __init__(self, first: Point, mapped: int, repeat: int, how: Any) -> None:
                self.repeat, self.state, self.answers = repeat, how.state, 0

            def ask(self, point: Point) -> tuple[Record | Unavailable, int]:
                self.answers += 1
                try:
                    return fake(point, self.repeat, state=self.state), self.answers
                except Unavailable as why:
                    return why, self.answers

            def end(self) -> int:
                return self.answers

            def __enter__(self) -> Process:
                return self

            def __exit__(self, *_: object) -> None:
                pass

        monkeypatch.setattr(mapping, "KernelProcess", Process)
        monkeypatch.setattr(build, "kernel", fake_kernel())
        monkeypatch.setattr(build, "has_session", lambda point: False)
        return fake

    return use
