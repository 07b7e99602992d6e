"""The built site against its own verdicts: no printed interval, count or sentence contradicts the
verdict it stands beside or speaks of."""

import copy
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from support.site import soup
from support.verdict_rows import Row, rows

from experiments.overview import chapter_name
from experiments.overview.scorecard import RERUNS
from tlb.report import notebooks
from tlb.report.verdicts import FAILS_HERE

PAGES = [*map(chapter_name, notebooks.chapter_modules()), "scorecard"]
# A claim, the verdicts, or reasons of an undecided one, that cannot be, and the sentence of the site
# that speaks of it. Whoever rewrites such a sentence rewrites its row.
SENTENCES = r"""
capacity-alone | fails | [Aa] gap between them is address translation
step-not-slow-degradation | no-step | the cost of translation leaves its plateau at about [\d,]+ pages
sequential-order-warms-the-walker | fails | Eight entries of 8 bytes share a cache line, so in sequential order
every-page-stride-misses | fails | show 1\.00 page walks per load at 4,096 bytes
stride-miss-penalty-10-ns | holds, not testable here | a TLB miss costs less than 10 ns in this loop
thp-an-eighth-faster | holds | so no gain is shown
prefetch-walks | fails | prefetched 8 hops ahead, a hop takes [\d.]+ ns, [\d.]+ \([\d.]+ to [\d.]+\) times as fast
prefetch-walks | fails | Our reference machine walks the page table for it
slowdown-512-to-4k-is-tlb | holds | ns that the added line saves are probably not translation
triple-digits-at-10gb | fails | GiB a load of the chase takes \d{3} \(\d+ to \d+\) ns, and a hop \d{3}
cow-copies-2-mib | holds | splits the huge page and copies 4 KiB
switch-flushes-walk-caches | holds | the switch itself does not empty the TLB
cow-copies-2-mib | holds | splits the huge page and copies 4 KiB
page-management-slows-a-loop | fails | The difference is page walks for translations
containers-add-nothing | fails | Namespaces add no second page table
walks-hide-from-profilers | fails | The page walker does not appear
per-thread-sharding-gains | fails | If each has \d+ MiB of its own, a read is [\d.]+
lscpu-tells-five-levels | fails | So lscpu \| grep la57 says what Linux uses there
madvise-drops-2-mib | holds | smaps shows 4 KiB less resident
"""


@cache
def verdicts(site: Path) -> dict[str, Row]:
    """By claim, as its chapter's page prints it."""
    return {
        row.claim: row for page in PAGES[:-1] for row in rows(soup(site / "book" / f"{page}.html"))
    }


@cache
def prose(page: Path) -> str:
    """What a page says, its verdicts left out, with single spaces."""
    article = copy.copy(soup(page).select_one("article"))
    for table in article.select(".tlb-verdicts, .tlb-scorecard, .tlb-beyond, pre"):
        table.decompose()
    return " ".join(article.text.split())


@pytest.mark.parametrize("page", PAGES[:-1])
def test_no_printed_interval_contradicts_its_verdict_and_each_undecided_one_says_why(site, page):
    found = rows(soup(site / "book" / f"{page}.html"))
    assert found
    assert [f"{row.claim}: {why}" for row in found for why in row.contradictions()] == []


@pytest.mark.parametrize("page", PAGES[:-1])
def test_the_counts_above_a_table_are_those_of_its_rows(site, page):
    shown = site / "book" / f"{page}.html"
    ((whole, counts),) = re.findall(r"Verdicts on these (\d+) claims: (.*?)\.", prose(shown))
    words = Counter(row.verdict for row in rows(soup(shown)))
    found = dict(re.findall(r"([a-z ]+?) (\d+)", re.sub(r" \(.*?\)|\band\b", "", counts)))
    assert int(whole) == words.total()
    assert {word.strip(): int(number) for word, number in found.items()} == dict(words)


def test_the_scorecard_counts_what_it_shows(site):
    page = site / "book" / "scorecard.html"
    words = Counter(row.verdict for row in rows(soup(page)) if row.verdict != "recomputed")
    lead = (
        r"We judged (\d+) published claims.*?On our reference machine, [^.]*?, (\d+) hold and (\d+) fail "
        r"\(.*?\)\. For (\d+) we cannot tell, and (\d+) are not testable here"
    )
    (numbers,) = re.findall(lead, prose(page))
    fail = words["fails"] + words[FAILS_HERE]
    shown = [words["holds"], fail, words["cannot tell"], words["not testable here"]]
    assert [*map(int, numbers)] == [words.total(), *shown]


def test_the_scorecard_says_what_the_chapters_say(site):
    known = verdicts(site)
    found = {
        row.claim: (row.verdict, row.reason) for row in rows(soup(site / "book" / "scorecard.html"))
    }
    assert found == {id: (row.verdict, row.reason) for id, row in known.items()}


@pytest.mark.parametrize("line", SENTENCES.strip().splitlines())
def test_no_sentence_contradicts_the_verdict_that_it_speaks_of(site, line):
    """Also that the sentence is there: else its row holds nothing."""
    claim, impossible, sentence = line.split(" | ", 2)
    saying = [
        page
        for page in [*PAGES, *RERUNS.values(), "index"]
        if re.search(sentence, prose(site / "book" / f"{page}.html"))
    ]
    assert saying, "no page says so; correct this row or remove it"
    row = verdicts(site)[claim]
    found = "fails" if row.verdict == FAILS_HERE else row.verdict
    assert not {*impossible.split(", ")} & {found, row.reason}, (
        f"{', '.join(saying)}: the claim's verdict is {row.verdict!r} ({row.reason})"
    )
