"""The published JVM benchmark ByteArrayTouch on this computer: the survey, its document, and
comparisons of its scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel

from experiments.hugepages.languages.jvm import HEAP_PAGES, HeapPages, Score, run
from experiments.hugepages.languages.maven import build, java_version, jmh_version
from tlb.machine.host import inspect, state
from tlb.page_sizes import BASE
from tlb.reasons import Unavailable, required
from tlb.system import files

SIZES = (1_000, 10_000, 1_000_000, 10_000_000, 100_000_000)  # the published ones, bytes


class Lack(BaseModel, frozen=True, extra="forbid"):
    """Why a page size has no scores: a code of REASONS and its detail."""

    code: str
    detail: str = ""


class Jmh(BaseModel, frozen=True, extra="forbid"):
    """All that JMH measured on one machine in one `state`."""

    schema_version: Literal[1] = 1
    measured_at: str
    state: str
    jvm: str
    jmh: str
    scores: list[Score]
    lacking: dict[HeapPages, Lack]


def make(profile: str) -> dict[str, Any]:
    """The document `jmh` of data/: as much of the survey as a profile has time for. Raises
    Unavailable, as `survey` does."""
    return survey(SIZES[:1] if profile == "smoke" else SIZES, quick=profile != "full").model_dump(
        mode="json"
    )


def survey(sizes: Sequence[int] = SIZES, quick: bool = False) -> Jmh:
    """The benchmark on every page size there is here, in under three minutes, or one with `quick`;
    the build is not in it. A page size that cannot be had is in `lacking`. Raises Unavailable: what
    build() raises, not-linux, measuring-already."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    jar, jvm, now = build(), java_version(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # Three JVMs of five iterations are the published 15; a new JVM has new physical pages. Few
    # iterations make JMH's interval useless: of three it is 32 standard errors wide on each side,
    # of eight 5.4 (Student's t at 99.9 %).
    effort: dict[str, Any] = (
        {"warmup_s": 0.5, "measure_s": 0.12, "iterations": 8, "forks": 1}
        if quick
        else {"warmup_s": 0.9, "measure_s": 0.25, "iterations": 5, "forks": 3}
    )
    scores: list[Score] = []
    lacking: dict[HeapPages, Lack] = {}
    with files.measuring_lock():
        for pages in HEAP_PAGES:
            try:
                scores += run(jar, pages, sizes, **effort)
            except Unavailable as why:
                lacking[pages] = Lack(code=why.code, detail=why.detail)
    return Jmh(
        measured_at=now,
        state=state(inspect()),
        jvm=jvm,
        jmh=jmh_version(),
        scores=scores,
        lacking=lacking,
    )


def touches(doc: Jmh) -> pd.DataFrame:
    """A row a page size and array: pages, array_bytes, score (ns per access)."""
    rows = [
        (score.pages, score.array_bytes, score.ns_per_access)
        for score in doc.scores
        if score.quantity == "touch"
    ]
    return pd.DataFrame(rows, columns=["pages", "array_bytes", "score"])


def against(doc: Jmh, ours: pd.DataFrame) -> pd.DataFrame:
    """JMH beside our own kernel, a row for each pages and array_bytes that both have: jmh_ns,
    ours_ns, ratio (JMH over ours). ours: pages, array_bytes, median (ns per access)."""
    keys = ["pages", "array_bytes"]
    both = (
        touches(doc)
        .merge(ours[[*keys, "median"]], on=keys)
        .rename(columns={"score": "jmh_ns", "median": "ours_ns"})
    )
    return both.assign(ratio=both["jmh_ns"] / both["ours_ns"]).sort_values(keys, ignore_index=True)


def _apart(a: Score, b: Score) -> bool:
    """Whether JMH's intervals leave a gap between the two; without an interval, nothing is known to
    differ."""
    return (
        None not in (a.error_ns, b.error_ns)
        and abs(a.ns_per_access - b.ns_per_access) > a.error_ns + b.error_ns
    )


def smallest(doc: Jmh) -> tuple[Score, Score]:
    """Return the scores on base pages of reading the smallest array and of drawing an index alone.
    Raises Unavailable."""
    reads = required(
        [score for score in doc.scores if (score.pages, score.quantity) == (BASE, "touch")],
        "JMH has no scores on base pages",
    )
    draws = [score for score in doc.scores if (score.pages, score.quantity) == (BASE, "draw")]
    return min(reads, key=lambda score: score.array_bytes), required(
        draws, "JMH drew no index alone on base pages"
    )[0]


def paired(doc: Jmh) -> list[tuple[Score, Score]]:
    """Return each array's scores on base pages and on large ones, a pair for each kind of large
    pages."""
    reads = {
        (score.pages, score.array_bytes): score for score in doc.scores if score.quantity == "touch"
    }
    return [
        (reads[BASE, score.array_bytes], score)
        for (pages, size), score in reads.items()
        if pages != BASE and (BASE, size) in reads
    ]


def differing(doc: Jmh) -> list[tuple[Score, Score]]:
    """Return those of `paired` whose intervals leave a gap."""
    return [pair for pair in paired(doc) if _apart(*pair)]
