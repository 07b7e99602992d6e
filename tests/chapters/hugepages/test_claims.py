"""What the articles say of page sizes, judged on machines whose truth is known."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hugepages import ENTRIES, LOUD, PAGES, QUIET, SPLIT, analysis, chased, median, only, rows, times
from support.synthetic import GIB, MIB, Paged, fit_to_be_shown, hugepages

from experiments.article.verdicts import Verdict, claims_of, verdicts
from experiments.chapters.hugepages import Analysis, claims
from experiments.words.reasons import REASONS

pytestmark = pytest.mark.filterwarnings("error")

FIVE, NOTHING, SPANS, LIKE_POOL, EIGHTH, SIX, GIGABYTES = IDS = (
    "large-pages-fivefold", "nothing-below-reach", "entry-spans-large-page", "thp-like-pool", "thp-an-eighth-faster",
    "thp-faults-six-times", "gigabyte-pages-gain")
H, F, C = "holds", "fails", "cannot tell"
BASE_TOUCH = {"kernel": "random_touch", "pages": "4k", "bytes": 10**8}


def judged(a: Analysis, **bands: dict) -> dict[str, Verdict]:
    """By id: each claim a sentence with evidence fit to be shown."""
    return {one.claim.id: one for one in fit_to_be_shown(verdicts(claims, a, **bands), len(IDS))}


def thp_touch(ratio: float, noise: float = 0.005) -> pd.DataFrame:
    """100 MB read on base pages in `ratio` times the time of transparent ones."""
    frame = rows(Paged(noise=noise))
    away = median(frame, **BASE_TOUCH) / median(frame, **{**BASE_TOUCH, "pages": "thp"})
    return times(frame, away / ratio, kernel="random_touch", pages="thp", bytes=10**8)


JUDGED: dict[str, tuple[str, Callable[[], pd.DataFrame], str, str]] = {
    "fivefold": (FIVE, lambda: rows(Paged(walk_ns=100.0, depth=0.3, noise=0.01)), H, "256 MiB"),
    "less than fivefold": (FIVE, lambda: rows(SPLIT), F, "by 1."),
    "fivefold here and not there": (FIVE, lambda: rows(Paged(noise=0.01)), F, "4 GiB"),
    "fivefold or not": (FIVE, lambda: rows(LOUD), C, "4 GiB"),
    "no size of 256 MiB": (FIVE, lambda: rows(most=128 * MIB), C, "256 MiB"),
    "nothing to gain": (NOTHING, lambda: rows(Paged(splintered=True, noise=0.004)), H, "between the two, 1.0"),
    "the second level's hit to gain": (NOTHING, lambda: rows(QUIET), F, "between the two, 3.0"),
    "too loud to see nothing": (NOTHING, lambda: rows(Paged(splintered=True, noise=0.4)), C, "2 MiB pages of the pool"),
    "whole pages": (SPANS, lambda: rows(), H, "translation costs"),
    "pieces": (SPANS, lambda: rows(SPLIT), F, "translation costs"),
    "no steps": (SPANS, lambda: rows(Paged(hit_ns=0.0, walk_ns=0.0)), C, "no step"),
    "thp is the pool's equal": (LIKE_POOL, lambda: rows(QUIET), H, "64 MiB"),
    "a hair's difference is none": (LIKE_POOL, lambda: times(rows(Paged(noise=0.002)), 1.02, pages="thp"), H, "1.02 ("),
    "thp is slower": (LIKE_POOL, lambda: times(rows(QUIET), 1.3, pages="thp"), F, "1.3"),
    "thp is too loud": (LIKE_POOL, lambda: rows(LOUD), C, "64 MiB"),
    "an eighth": (EIGHTH, lambda: thp_touch(1.13), H, "factor of 1.1"),
    "a half": (EIGHTH, lambda: thp_touch(1.5), F, "factor of 1.5"),
    "nothing on thp": (EIGHTH, lambda: thp_touch(1.0), F, "factor of 1.0"),
    "an eighth or a third": (EIGHTH, lambda: thp_touch(1.2, noise=0.2), C, "factor of 1.20"),
    "no array of 100 MB": (EIGHTH, lambda: rows(most=64 * MIB), C, "100 MB"),
    "sixfold": (SIX, lambda: rows(), H, "4 threads, memory is ready at 10."),
    "twofold": (SIX, lambda: times(rows(), 3.0, kernel="prefault", pages="thp"), F, "factor of 2.0"),
    "twentyfold": (SIX, lambda: times(rows(), 0.3, kernel="prefault", pages="thp"), F, "factor of 2"),
    "sixfold or threefold": (SIX, lambda: rows(Paged(noise=0.5)), C, "factor of"),
    "1 GiB pages gain": (GIGABYTES, lambda: rows(), H, "4 GiB"),
    "1 GiB pages gain nothing": (GIGABYTES, lambda: rows(Paged(splintered=True, noise=0.004)), F, "1.00 ("),
    "1 GiB pages are too loud": (GIGABYTES, lambda: rows(Paged(splintered=True, noise=0.4)), C, "4 GiB"),
    "1 GiB pages on small sizes": (GIGABYTES, lambda: rows(most=128 * MIB), C, "32 Ki"),
}


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_its_own_rows(name: str):
    claim, make, verdict, number = JUDGED[name]
    found = judged(analysis(make()))[claim]
    assert (found.verdict, number in found.evidence) == (verdict, True), found


def test_the_evidence_for_fivefold_is_the_ratio_of_the_medians():
    evidence = judged(analysis())[FIVE].evidence
    for size, name in ((256 * MIB, "256 MiB"), (GIB, "1 GiB"), (4 * GIB, "4 GiB")):
        told = float(re.search(rf"([\d.]+) \([\d.]+ to [\d.]+\) at {name}", evidence)[1])
        assert told == pytest.approx(chased(rows(), "4k", size) / chased(rows(), "2m", size), abs=0.006)


def test_one_thread_is_one():
    assert "one thread" in judged(analysis(rows(cpus=1)))[SIX].evidence


@pytest.mark.parametrize(("bands", "claim", "verdict"), [
    ({"five_times_as_fast": {"least": 1.1}}, FIVE, H),
    ({"nothing_below_the_reach": {"same": 5.0}}, NOTHING, H), ({"thp_is_an_eighth_faster": {"band": (2.0, 3.0)}}, EIGHTH, F),
    ({"thp_faults_six_times_as_fast": {"band": (1.0, 2.0)}}, SIX, F), ({"gigabyte_pages_gain": {"same": 50.0}}, GIGABYTES, F),
    ({"thp_is_like_the_pool": {"same": 0.5}}, LIKE_POOL, H)])
def test_another_band_is_another_verdict(bands: dict, claim: str, verdict: str):
    frame = times(thp_touch(1.13), 1.3, kernel="page_chase", pages="thp")
    assert judged(analysis(frame))[claim].verdict != verdict and judged(analysis(frame), **bands)[claim].verdict == verdict


@pytest.mark.parametrize(("missing", "unknown"), [
    (("2m", "thp"), set(IDS)), (("1g",), {GIGABYTES}), (("thp",), {LIKE_POOL, EIGHTH, SIX}), (("2m",), {LIKE_POOL}), (("64k",), set())])
def test_a_page_size_that_is_missing_gives_the_reason(missing: tuple[str, ...], unknown: set[str]):
    frame = rows(Paged(walk_ns=100.0, depth=0.3, noise=0.01))
    found, whole = judged(analysis(frame[~frame["pages"].isin(missing)])), judged(analysis(frame))
    sentences = tuple(REASONS[code].sentence.removesuffix(".") for code in ("pool-empty", "no-data", "too-few-points"))
    for claim, one in found.items():
        if claim in unknown:
            assert one.verdict == C and one.evidence.startswith(sentences)
        else:
            assert one.verdict == whole[claim].verdict
    assert "are switched off" not in "".join(one.evidence for one in found.values())  # why there are no rows is not for a frame to know


def test_where_cpuid_is_silent_the_claim_about_the_reach_cannot_be_told():
    silent, told = judged(analysis(entries=[])), judged(analysis())
    assert silent[NOTHING].verdict == C and "CPUID" in silent[NOTHING].evidence
    assert {claim for claim in IDS if silent[claim] != told[claim]} == {NOTHING}
    assert "between" not in judged(analysis(entries=[64]))[NOTHING].evidence


def test_each_claim_compares_points_of_the_grid_and_what_it_compares_decides_it():
    """The rows of the points that a claim names give the same verdict on it as all do."""
    points = hugepages()
    whole = judged(analysis())
    for claim in claims_of(claims):
        mine = [point for point in points if claim.points(point)]
        assert 0 < len(mine) < len(points)
        named = {(p.kernel, p.pages, p.layout, p.mode) for p in mine}
        kept = pd.MultiIndex.from_frame(rows()[["kernel", "pages", "layout", "mode"]]).isin(list(named))
        assert judged(analysis(rows()[kept]))[claim.id] == whole[claim.id]


KERNELS = ("page_chase", "random_touch", "prefault")


@given(st.sets(st.tuples(st.sampled_from(KERNELS), st.sampled_from(PAGES))), st.sampled_from([4 * GIB, 16 * MIB, 64 << 10]),
       st.sampled_from([[], [64], ENTRIES]), st.sampled_from(["kvm", "none"]))
@settings(max_examples=40, deadline=None)
def test_whatever_is_missing_there_are_seven_verdicts(there: set, most: int, entries: list[int], hypervisor: str):
    frame = rows(most=most, repeats=2)
    kept = frame[pd.MultiIndex.from_frame(frame[["kernel", "pages"]]).isin(list(there))]
    judged(analysis(kept, entries, hypervisor))


@given(st.sets(st.sampled_from(PAGES)))
@settings(deadline=None, max_examples=12)
def test_whatever_page_sizes_are_missing_there_are_seven_verdicts(there: set[str]):
    judged(analysis(only(*there, of=rows(SPLIT, repeats=2))))
