"""Whether large pages reach the TLB, judged on guests whose truth is known, in noise."""

import numpy as np
import pandas as pd
import pytest
from support.page_sizes import Paged

from tlb.cli import computer
from tlb.measure import survey
from tlb.measure.grid import octaves
from tlb.measure.record import Point
from tlb.stats import splinter
from tlb.system.reasons import REASON_TEXTS, Unavailable

pytestmark = pytest.mark.filterwarnings("error")

WHOLE, HOST, OPEN = "not splintered", "splintered by the host", "cannot tell"
SEEDS = range(20)


def points(large: str = "2m", most: int = survey.TO_LINES) -> list[Point]:
    """What survey.pieces measures."""
    return [
        Point(kernel="page_chase", pages=pages, layout=layout, lines=lines)
        for pages in ("4k", large)
        for layout in ("spread", "packed")
        for lines in octaves(survey.FROM_LINES, most, 2)
    ]


def rows(
    guest: Paged, large: str = "2m", seed: int = 1, most: int = survey.TO_LINES
) -> pd.DataFrame:
    return guest.frame(points(large, most), repeats=survey.REPEATS, seed=seed)


def share_right(
    guest: Paged,
    verdict: str,
    hypervisor: str = "kvm",
    large: str = "2m",
    most: int = survey.TO_LINES,
) -> float:
    """How often, over seeds. The noise alone differs, so the rows are made once."""
    quiet = rows(Paged(**{**vars(guest), "noise": 0.0}), large, most=most)
    right = 0
    for seed in SEEDS:
        factor = np.exp(guest.noise * np.random.default_rng(seed).standard_normal(len(quiet)))
        right += (
            splinter.judge_page_backing(
                quiet.assign(ns_per_access=quiet["ns_per_access"] * factor), hypervisor
            ).verdict
            == verdict
        )
    return right / len(SEEDS)


@pytest.mark.endurance
@pytest.mark.parametrize("splintered", [True, False])
@pytest.mark.parametrize(
    "guest",
    [
        Paged(),
        Paged(entries=(72, 3072)),
        Paged(hit_ns=7 / 3.2, walk_ns=30 / 3.2),
        Paged(depth=1.0),
        Paged(depth=0.3),
    ],
    ids=["textbook", "Zen", "short walks", "as deep", "shallow"],
)
def test_the_verdict_is_right_in_noise(guest, splintered):
    guest = Paged(**{**vars(guest), "splintered": splintered, "noise": 0.05})
    assert share_right(guest, HOST if splintered else WHOLE) >= 0.95


@pytest.mark.parametrize("splintered", [True, False])
def test_transparent_pages_serve_where_the_pool_has_none(splintered):
    assert (
        share_right(Paged(splintered=splintered), HOST if splintered else WHOLE, large="thp")
        >= 0.95
    )
    found = splinter.judge_splintering(rows(Paged(splintered=splintered), "thp"), "kvm")
    assert (
        found.pages == "thp"
        and "transparent 2 MiB pages" in found.evidence
        and "pool" not in found.evidence
    )


def test_two_mappings_decide_nothing():
    every = rows(Paged(splintered=True))
    for mappings, verdict in ((2, OPEN), (3, HOST)):
        few = every[every["repeat"] < mappings]
        assert splinter.judge_splintering(few, "kvm").verdict == verdict


@pytest.mark.parametrize("above", [0, Paged().entries[1]])
def test_mappings_that_disagree_about_either_level_leave_the_verdict_open(above):
    """Small pages back every other mapping, or its part past the second level's entries."""
    whole, small = rows(Paged()), rows(Paged(splintered=True))
    is_small = (whole["repeat"] % 2 == 1) & (whole["lines"] > above)
    mixed = pd.concat([whole[~is_small], small[is_small]])
    assert splinter.judge_page_backing(mixed, "kvm").verdict == OPEN


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (rows(Paged(hit_ns=0.0, walk_ns=0.0)), "no-step"),
        (rows(Paged(pages=("4k",))), "pool-empty"),
        (rows(Paged(pages=("2m",))), "no-step"),
        (rows(Paged()).query("pages == '4k' or layout == 'spread'"), "too-few-points"),
    ],
    ids=["no step", "no large pages", "no base pages", "no control of large pages"],
)
def test_what_cannot_be_judged_is_a_reason_and_not_a_verdict(frame, code):
    with pytest.raises(Unavailable) as why:
        splinter.judge_splintering(frame, "kvm")
    assert why.value.code == code
    backing = splinter.judge_page_backing(frame, "kvm")
    assert (backing.verdict, backing.evidence) == (OPEN, str(why.value))
    assert REASON_TEXTS[code].sentence.removesuffix(".") in computer.backing_sentence(backing)
