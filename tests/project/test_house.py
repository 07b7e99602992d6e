"""The house rules hold here: tests/support/house.py has each as a function of a tree."""

from __future__ import annotations

from importlib import import_module

import pytest
from support import house

from experiments.article.bibliography import sources
from experiments.article.verdicts import claims_of
from experiments.lab.grid import Scope, profile
from experiments.system.files import ROOT

CHAPTERS = sorted(path.name for path in (ROOT / "experiments" / "chapters").iterdir() if (path / "claims.py").is_file())


@pytest.mark.parametrize("check", house.CHECKS, ids=lambda check: check.__name__)
def test_the_house_keeps_its_rules(check: house.Check):
    breaches = check(ROOT)
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_claim_is_registered_as_it_is_written(chapter: str):
    """Else a reader of files that reads nothing would find nothing to complain of."""
    module = import_module(f"experiments.chapters.{chapter}.claims")
    written = [(name, source) for place, name, source in house.claims_in(ROOT) if f"/{chapter}/" in place]
    assert written == [(claim.id, claim.source) for claim in claims_of(module)] and written
    assert {source for _, source in written} <= set(sources())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_claim_compares_points_of_its_chapter_s_grid(chapter: str):
    claims = claims_of(import_module(f"experiments.chapters.{chapter}.claims"))
    scope = Scope(profile("full"), entries=(64, 1536), cpus=2, base_page_bytes=4096)
    grid = import_module(f"experiments.chapters.{chapter}.grid").points(scope)
    assert [claim.place for claim in claims if claim.points and not any(claim.points(point, scope) for point in grid)] == []


def test_what_is_allowed_has_a_reason_and_is_there():
    for path, (_, reason) in house.OF_4096.items():
        assert (ROOT / path).is_file() and reason
    assert all((ROOT / path).is_file() and reason for path, reason in house.LONG_MODULES.items())
