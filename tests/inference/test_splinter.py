"""Whether large pages reach the TLB, judged on guests whose truth is known, in noise."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from support.synthetic import Paged

from tlb.inference import geometry_words as wording
from tlb.inference import splinter
from tlb.lab import survey
from tlb.lab.grid import octaves
from tlb.lab.record import Point
from tlb.reasons import REASONS, Unavailable

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
            splinter.backing(
                quiet.assign(ns_per_access=quiet["ns_per_access"] * factor), hypervisor
            ).verdict
            == verdict
        )
    return right / len(SEEDS)


@pytest.mark.endurance
@pytest.mark.parametrize("noise", [0.05])
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
def test_the_verdict_is_right_in_noise(guest: Paged, splintered: bool, noise: float):
    guest = Paged(**{**vars(guest), "splintered": splintered, "noise": noise})
    assert share_right(guest, HOST if splintered else WHOLE) >= 0.95


@pytest.mark.parametrize("splintered", [True, False])
def test_transparent_pages_serve_where_the_pool_has_none(splintered: bool):
    assert (
        share_right(Paged(splintered=splintered), HOST if splintered else WHOLE, large="thp")
        >= 0.95
    )
    found = splinter.judge(rows(Paged(splintered=splintered), "thp"), "kvm")
    assert (
        found.pages == "thp"
        and "transparent 2 MiB pages" in found.evidence
        and "pool" not in found.evidence
    )


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
def test_what_cannot_be_judged_is_a_reason_and_not_a_verdict(frame: pd.DataFrame, code: str):
    with pytest.raises(Unavailable) as why:
        splinter.judge(frame, "kvm")
    assert why.value.code == code
    backing = splinter.backing(frame, "kvm")
    assert (backing.verdict, backing.evidence) == (OPEN, str(why.value))
    assert REASONS[code].sentence.removesuffix(".") in wording.backing_sentence(backing)


# --- the evidence


def oracle(frame: pd.DataFrame, pages: str, between: tuple[int, int]) -> float:
    """The median price over the sizes, less that of the smallest: by pandas, in cycles."""
    mine = frame[frame["pages"] == pages].assign(
        cycles=lambda rows: rows["ns_per_access"] * rows["core_ghz"]
    )
    medians = mine.pivot_table(index="lines", columns="layout", values="cycles", aggfunc="median")
    price = medians["spread"] - medians["packed"]
    return float(price.loc[slice(*between)].median() - price.iloc[0])


COMPARED = re.compile(
    r"from ([\d,]+) to ([\d,]+) lines, one to each base page, translation costs (-?[\d.]+) cycles a load on base pages "
    r"and (-?[\d.]+) on ([^.;]+)[.;]",
    re.IGNORECASE,
)


@pytest.mark.parametrize("splintered", [True, False])
def test_the_evidence_names_the_numbers_that_were_compared(splintered: bool):
    frame = rows(Paged(splintered=splintered))
    found = splinter.judge(frame, "kvm")
    ((first, last, base, large, names),) = COMPARED.findall(found.evidence)
    assert names == "2 MiB pages of the pool" and (base, large) == (
        f"{found.first.base:z.1f}",
        f"{found.first.large:z.1f}",
    )
    assert (int(first.replace(",", "")), int(last.replace(",", ""))) == found.first.lines
    assert f" {found.walk.base:z.1f} and {found.walk.large:z.1f}" in found.evidence
    for compared, (above, below) in zip(
        (found.first, found.walk), ((64, 1536), (1536, survey.TO_LINES)), strict=True
    ):
        assert above <= compared.lines[0] <= compared.lines[1] <= below
        assert compared.base == pytest.approx(oracle(frame, "4k", compared.lines), abs=0.051)
        assert compared.large == pytest.approx(oracle(frame, "2m", compared.lines), abs=0.051)
    if splintered:
        assert found.walk.share.value == pytest.approx(found.walk.large / found.walk.base, rel=0.01)
        assert found.walk.share.low < (2 + 30 * 0.7) / 32 < found.walk.share.high
