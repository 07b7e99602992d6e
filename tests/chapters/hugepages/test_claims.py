"""What the articles say of page sizes, judged on machines whose truth is known."""

import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from support.hugepages import QUIET, SPLIT, analysis, median, rows, times
from support.page_sizes import Paged
from support.synthetic import GIB, MIB, fit

from experiments.hugepages import Analysis, claims, jmh
from experiments.hugepages.jmh import HEAP_PAGES, Score
from tlb.report.claims import REGISTRY
from tlb.report.verdicts import Verdict, chapter_verdicts, judge

pytestmark = pytest.mark.filterwarnings("error")

SPANS, EIGHTH, GIGABYTES = ("entry-spans-large-page", "thp-an-eighth-faster", "gigabyte-pages-gain")
FIVE = "gather-fivefold-at-256mib"
WORSE, FLAT, GROWN = ("base-pages-worse-with-size", "large-pages-flat", "jmh-grows-everywhere")
PURE, LEFT = "speedup-is-pure-translation", "large-page-latency-is-the-caches"
HELP = "code-and-settings-both-help"
H, F, C = "holds", "fails", "cannot tell"
FREE = Paged(depth=0.0, hit_ns=0.0, noise=0.004)  # a walk on large pages costs nothing
BASE_TOUCH = {"kernel": "random_touch", "pages": "4k", "bytes": 10**8}
WHEN = {"measured_at": "2025-01-31T12:00:00Z", "state": "00112233aabb"}


def judged(a: Analysis, **bands: dict) -> dict[str, Verdict]:
    return {one.claim.id: fit(one) for one in chapter_verdicts(claims, a, **bands)}


def scores(times_ours: float = 1.0, forks: int = 1) -> dict[str, Any]:
    """JMH's times for the arrays that `rows()` has, so many times as long as the loop in C takes
    for them, in so many JVMs."""
    made = {"error_ns": 0.01, "iterations_count": 8, "forks": forks}
    touched = [
        Score(
            pages=row.pages,
            array_bytes=row.array_bytes,
            quantity="touch",
            ns_per_access=row.median * times_ours,
            **made,
        )
        for row in analysis().touches.itertuples()
        if row.array_bytes <= 10**8
    ]
    draws = [
        Score(pages=pages, array_bytes=10**8, quantity="draw", ns_per_access=1.5, **made)
        for pages in HEAP_PAGES
    ]
    return jmh.JmhDocument(
        **WHEN, jvm="21.0.1", jmh="1.37", scores=touched + draws, lacking={}
    ).model_dump(mode="json")


def thp_touch(ratio: float, noise: float = 0.005) -> pd.DataFrame:
    """100 MB read on base pages in `ratio` times the time of transparent ones."""
    frame = rows(Paged(noise=noise))
    away = median(frame, **BASE_TOUCH) / median(frame, **{**BASE_TOUCH, "pages": "thp"})
    return times(frame, away / ratio, kernel="random_touch", pages="thp", bytes=10**8)


def touch(factor: float, of_bytes: int, pages: str = "thp") -> pd.DataFrame:
    """Quiet rows with one kind of random reads slower by a factor."""
    return times(rows(QUIET), factor, kernel="random_touch", pages=pages, bytes=of_bytes)


def gathered(size_bytes: int, gain: float, noise: float = 0.004) -> pd.DataFrame:
    """The published loop over so many bytes in `gain` times the time of the pool's pages."""
    frame, of = rows(Paged(noise=noise)), {"kernel": "page_gather", "lines": size_bytes // 4096}
    return times(
        frame,
        gain * median(frame, **of, pages="2m") / median(frame, **of, pages="4k"),
        **of,
        pages="4k",
    )


# The published program: the gains at a size with which the claim holds and with which it does not.
GAINS: dict[str, tuple[int, float, float]] = {
    FIVE: (256 * MIB, 5.2, 3.0),
    "two-mib-gains-nothing": (2 * MIB, 1.0, 1.2),
}


@pytest.mark.parametrize("claim", GAINS)
def test_the_gain_of_the_published_program_is_judged_at_its_size(claim):
    size, inside, outside = GAINS[claim]
    found = [
        fit(judge(REGISTRY[claim], analysis(gathered(size, gain)))) for gain in (inside, outside)
    ]
    assert [one.verdict for one in found] == [H, F]
    assert [
        float(re.search(r"([\d.]+) \([\d.]+ to [\d.]+\) times", one.evidence)[1]) for one in found
    ] == pytest.approx([inside, outside], abs=0.006)
    assert judge(REGISTRY[claim], analysis(gathered(size, inside, noise=0.4))).verdict == C


JUDGED: dict[str, tuple[str, Callable[[], pd.DataFrame], str, str]] = {
    "base pages that get worse": (WORSE, lambda: gathered(4 * GIB, 40.0), H, "4 GiB"),
    "base pages that do not": (WORSE, lambda: gathered(4 * GIB, 0.1), F, "4 GiB"),
    "an entry spans a page": (SPANS, lambda: rows(FREE), H, "2 MiB pages"),
    "layout and pages help": (HELP, lambda: rows(QUIET), H, "2 MiB pages"),
    "large pages cost the same": (FLAT, lambda: rows(FREE), H, "1.0"),
    "large pages that walk at 4 GiB": (FLAT, lambda: rows(QUIET), F, "4.0"),
    "the caches are left": (LEFT, lambda: rows(FREE), H, "0.99"),
    "walks are left": (LEFT, lambda: rows(QUIET), F, "8."),
    "it grows everywhere": (GROWN, lambda: rows(SPLIT), H, "4.5"),
    "it shrinks somewhere": (GROWN, lambda: touch(0.5, 10**8), F, "0.5"),
}


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_its_own_rows(name):
    claim, make, verdict, number = JUDGED[name]
    found = fit(judge(REGISTRY[claim], analysis(make())))
    assert (found.verdict, number in found.evidence) == (verdict, True), found


@pytest.mark.parametrize("packed, verdict", [(1.0, H), (3.0, F)])
def test_a_speedup_is_translation_where_it_is_as_large_as_its_price(packed, verdict):
    """Nine times as fast: the price is that of the loop less its packed control, which here takes a
    multiple of the loop's time on large pages."""
    frame = gathered(4 * GIB, 9.0)
    loop = frame[frame["kernel"] == "page_gather"]
    control = loop[loop["pages"] == "2m"].assign(pages="4k", layout="packed")
    control["ns_per_access"] *= packed
    cliff = pd.concat([loop[loop["pages"] == "4k"], control], ignore_index=True)
    reached = 64, 4 * GIB // 4096 // 64  # by the last level: all pages of the packed lines
    found = judge(REGISTRY[PURE], analysis(frame, reached, kept={"stlb_cliff": cliff}))
    assert found.verdict == verdict, found
    if verdict == H:  # where they walk too, the price has no upper end that shows it
        assert judge(REGISTRY[PURE], analysis(frame, kept={"stlb_cliff": cliff})).verdict == C


def test_splintered_pages_test_no_claim_about_what_an_entry_spans():
    found = judged(analysis(rows(SPLIT)))
    assert {found[id].verdict for id in (SPANS, FIVE, PURE, HELP, EIGHTH, GIGABYTES)} == {
        "not testable here"
    }
    assert found["misses-can-dominate"].verdict == H


def test_counts_of_a_read_are_judged_where_there_are_any():
    claim = "one-miss-an-operation"
    plain = rows().assign(walk_reason="no-pmu", walk_per_access=float("nan"))
    assert judge(REGISTRY[claim], analysis(plain)).verdict == "not testable here"
    for value, verdict in ((1.0, H), (0.2, F)):
        counted = plain.assign(walk_per_access=value, walk_reason=None)
        assert judge(REGISTRY[claim], analysis(counted)).verdict == verdict


@pytest.mark.parametrize(("forks", "java", "verdict"), [(1, 1.5, H), (3, 1.5, F), (3, 1.13, H)])
def test_jmh_is_judged_in_place_of_our_loop_where_three_jvms_ran(forks, java, verdict):
    document = scores(forks=forks)
    for score in document["scores"]:
        if (score["pages"], score["array_bytes"], score["quantity"]) == ("4k", 10**8, "touch"):
            score["ns_per_access"] = java * next(
                other["ns_per_access"]
                for other in document["scores"]
                if (other["pages"], other["array_bytes"], other["quantity"])
                == ("thp", 10**8, "touch")
            )
    found = fit(judge(REGISTRY[EIGHTH], analysis(thp_touch(1.13), jmh=document)))
    assert (found.verdict, f"{java:.2f}" in found.evidence) == (verdict, True)
