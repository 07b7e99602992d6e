"""Fixtures of the tests of measure/: a store, a campaign of three small points."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support import campaigns
from support.campaigns import MACHINE, NAME, POINTS, Scripted, put
from support.common import fake_kernel, make_record

from tlb.measure import build, plan
from tlb.measure.campaign import CampaignOutcome
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
        monkeypatch.setattr(
            plan,
            "measure_alone",
            lambda point, repeat, setting: fake(point, repeat, state=setting.state),
        )
        monkeypatch.setattr(build, "kernel", fake_kernel())
        monkeypatch.setattr(build, "has_session", lambda point: False)
        return fake

    return use
