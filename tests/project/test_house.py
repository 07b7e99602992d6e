"""The house rules hold here, and each breach is found. (tests/support/house.py has each rule as a
function of a tree.)"""

from importlib import import_module

import pytest
from support import house

from tlb.measure.grid import Scope, load_profile
from tlb.report.claims import claims_of
from tlb.system.files import ROOT

CHAPTERS = sorted(
    path.name for path in (ROOT / "experiments").iterdir() if (path / "claims.py").is_file()
)
LONG = "\n".join(
    [
        "@cache",
        "def long(x: int) -> int:",
        *(f"    x += {n}" for n in range(38)),
        "    return x",
        "",
    ]
)  # 41 lines
MODULE = "tlb/new.py"


@pytest.mark.parametrize("check", house.CHECKS, ids=lambda check: check.__name__)
def test_the_house_keeps_its_rules(check):
    breaches = list(check(ROOT))
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_claim_compares_points_of_its_chapter_s_grid(chapter):
    claims = claims_of(import_module(f"experiments.{chapter}.claims"))
    scope = Scope(load_profile("full"), entries=(64, 1536), cpus=2, base_page_bytes=4096)
    grid = import_module(f"experiments.{chapter}.grid").points(scope)
    assert (
        claims
        and [
            claim.place
            for claim in claims
            if claim.points and not any(claim.points(point, scope) for point in grid)
        ]
        == []
    )
