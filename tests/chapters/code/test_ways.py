"""Code made executable in each way, on this computer: called, proved from outside, and refused in
one sentence."""

import sys

import pytest

from experiments.code import analysis
from tlb.system.reasons import REASON_TEXTS, Unavailable

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux"),
]


@pytest.mark.parametrize("way", analysis.CODE_LOADING_METHODS)
def test_each_way_gives_code_that_is_whole_or_a_reason(way):
    try:
        got = analysis.load_code(way)
    except Unavailable as why:
        assert (
            why.code in ("thp-never", "pool-empty", "memory-short", "not-permitted", "linux-lacks")
            and why.code in REASON_TEXTS
        )
        return
    assert got.resident_bytes >= got.array_bytes == analysis.TEXT_BYTES and 0 <= got.huge_share <= 1
    if way == "memfd-pool":
        assert got.huge_share == 1


def test_the_document_says_of_each_way_what_it_gave_or_why_not():
    told = analysis.CodeLoadingSurvey.model_validate(analysis.make_code_loading_document("smoke"))
    assert {got.way for got in told.got} | set(told.lacking) == set(analysis.CODE_LOADING_METHODS)
    for way in told.lacking:
        with pytest.raises(Unavailable):
            told.of(way)
