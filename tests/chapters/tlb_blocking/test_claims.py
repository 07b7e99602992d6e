"""What the articles say of blocking, judged by rows of machines that never were."""

import re
from collections.abc import Callable
from types import SimpleNamespace

import pandas as pd
import pytest
from support.blocking import Machine, analysis, only, rows, times
from support.synthetic import MIB, fit, words_of

from experiments.tlb_blocking import claims
from tlb.report.claims import REGISTRY
from tlb.report.verdicts import judge
from tlb.system.reasons import REASON_TEXTS

pytestmark = pytest.mark.filterwarnings("error")

H, F, C, N = "holds", "fails", "cannot tell", "not testable here"
STAY = "per_hop == 1 and block_vertices == 4194304"  # the published block
VANISHES, PREFETCH = ("blocking-removes-misses", "prefetch-walks")
AHEAD = "prefetch-helps-a-chase"


# The rows, the verdict, and a number of the evidence or the code of the reason.
JUDGED: dict[str, tuple[str, Callable[[], pd.DataFrame], str, str]] = {
    "the tail is gone": (VANISHES, lambda: times(rows(), 0.57, STAY), H, ""),
    "a block past the reach": (VANISHES, lambda: rows(), F, r"\b9\d%"),
    "no large pages to compare with": (VANISHES, lambda: only("4k"), C, "pool-empty"),
    "large pages that walk as often": (
        VANISHES,
        lambda: rows(Machine(splintered=True)),
        C,
        "no-step",
    ),
    "nearer in the caches too": (VANISHES, lambda: times(rows(), 0.3, STAY), C, "caches"),
    "prefetches walk": (PREFETCH, lambda: rows(), H, r"\b2\.0"),
    "prefetches are dropped": (
        PREFETCH,
        lambda: rows(Machine(walking_prefetch=False)),
        F,
        r"\b2\.0\d \(",
    ),
    "all in reach": (PREFETCH, lambda: rows(most=4 * MIB), C, "too-few-points"),
    "prefetches help": (AHEAD, lambda: rows(), H, ""),
}


@pytest.mark.parametrize("case", JUDGED)
def test_each_claim_is_judged_by_the_rows(case):
    claim, make, verdict, evidence = JUDGED[case]
    found = fit(judge(REGISTRY[claim], analysis(make())))
    assert found.verdict == verdict, found
    if evidence in REASON_TEXTS:
        assert REASON_TEXTS[evidence].sentence.removesuffix(".") in found.evidence, found
    else:
        assert re.search(evidence, found.evidence), found


def test_what_needs_whole_large_pages_is_not_testable_where_the_host_splinters_them():
    a = analysis(
        times(rows(Machine(splintered=True)), 1.2, "pages != '4k' and kernel == 'graph_walk'")
    )
    a.splintering = lambda: SimpleNamespace(is_splintered=True, is_of_few=False)
    assert words_of(claims, a)[VANISHES] == N


def test_without_the_entries_what_hangs_on_them_cannot_be_told():
    assert judge(REGISTRY[PREFETCH], analysis(rows(), [])).verdict == C
