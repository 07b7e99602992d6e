"""The published JVM benchmark ByteArrayTouch on this computer: the survey, its document, and what is said of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel

from experiments.chapters.hugepages.languages.jvm import HEAP_PAGES, HeapPages, Score, run
from experiments.chapters.hugepages.languages.maven import build, java_version, jmh_version
from experiments.machine.host import inspect, state
from experiments.system import files
from experiments.words.pages import BASE, words
from experiments.words.reasons import Unavailable, explain
from experiments.words.units import format_ns

SIZES = (1_000, 10_000, 1_000_000, 10_000_000, 100_000_000)  # the published ones, bytes
# JMH and a loop in C agree on a read that both make; what they differ by is what each puts around it.
AGREE = 0.10


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
    """The document `jmh` of data/: as much of the survey as a profile has time for. Raises Unavailable, as `survey` does."""
    return survey(SIZES[:1] if profile == "smoke" else SIZES, quick=profile != "full").model_dump(mode="json")


def survey(sizes: Sequence[int] = SIZES, quick: bool = False) -> Jmh:
    """The benchmark on every page size there is here, in under three minutes, or one with `quick`; the build is not in it. A page size
    that cannot be had is in `lacking`. Raises Unavailable: what build() raises, not-linux, measuring-already."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    jar, jvm, now = build(), java_version(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # Three JVMs of five iterations are the published 15; a new JVM has new physical pages. Few iterations make JMH's interval
    # useless: of three it is 32 standard errors wide on each side, of eight 5.4 (Student's t at 99.9 %).
    effort: dict[str, Any] = ({"warmup_s": 0.5, "measure_s": 0.12, "iterations": 8, "forks": 1} if quick
                              else {"warmup_s": 0.9, "measure_s": 0.25, "iterations": 5, "forks": 3})
    scores: list[Score] = []
    lacking: dict[HeapPages, Lack] = {}
    with files.measuring_lock():
        for pages in HEAP_PAGES:
            try:
                scores += run(jar, pages, sizes, **effort)
            except Unavailable as why:
                lacking[pages] = Lack(code=why.code, detail=why.detail)
    return Jmh(measured_at=now, state=state(inspect()), jvm=jvm, jmh=jmh_version(), scores=scores, lacking=lacking)


def touches(doc: Jmh) -> pd.DataFrame:
    """A row a page size and array: pages, array_bytes, score (ns per access)."""
    rows = [(score.pages, score.array_bytes, score.ns_per_access) for score in doc.scores if score.quantity == "touch"]
    return pd.DataFrame(rows, columns=["pages", "array_bytes", "score"])


def against(doc: Jmh, ours: pd.DataFrame) -> pd.DataFrame:
    """JMH beside our own kernel, a row for each pages and array_bytes that both have: jmh_ns, ours_ns, ratio (JMH over ours). ours:
    pages, array_bytes, median (ns per access)."""
    keys = ["pages", "array_bytes"]
    both = touches(doc).merge(ours[[*keys, "median"]], on=keys).rename(columns={"score": "jmh_ns", "median": "ours_ns"})
    return both.assign(ratio=both["jmh_ns"] / both["ours_ns"]).sort_values(keys, ignore_index=True)


def _bytes(size: int) -> str:
    """A size in powers of ten, as the published arrays have theirs: 100000000 -> "100 MB"."""
    unit, name = next(((u, n) for u, n in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")) if size >= u), (1, "B"))
    return f"{size / unit:g} {name}"


def _apart(a: Score, b: Score) -> bool:
    """Whether JMH's intervals leave a gap between the two; without an interval, nothing is known to differ."""
    return None not in (a.error_ns, b.error_ns) and abs(a.ns_per_access - b.ns_per_access) > a.error_ns + b.error_ns


def sentences(doc: Jmh) -> list[str]:
    """What the scores show: the generator's part, base pages against each kind of huge pages, and what was lacking."""
    scores = {(score.pages, score.quantity, score.array_bytes): score for score in doc.scores}
    sizes = sorted({score.array_bytes for score in doc.scores if score.quantity == "touch"})
    told = []
    if sizes and BASE not in doc.lacking:
        draw, least = scores[BASE, "draw", sizes[-1]], scores[BASE, "touch", sizes[0]]
        adds = least.ns_per_access - draw.ns_per_access
        rest = (f"the rest, {format_ns(adds)}, is the read" if _apart(draw, least) and adds > 0 else
                "what the read adds lies within JMH's own errors")
        told.append(f"In the JVM a read of an array of {_bytes(sizes[0])} takes {format_ns(least.ns_per_access)}, and drawing its index "
                    f"alone {format_ns(draw.ns_per_access)}: {rest}.")
    for pages in HEAP_PAGES[1:]:
        pairs = [(scores[BASE, "touch", size], scores[pages, "touch", size]) for size in sizes
                 if doc.lacking.keys().isdisjoint({BASE, pages})]
        if differing := [pair for pair in pairs if _apart(*pair)]:
            base, huge = differing[-1]
            told.append(f"On {words(pages)} a read of an array of {_bytes(base.array_bytes)} takes {format_ns(huge.ns_per_access)}, "
                        f"on base pages {format_ns(base.ns_per_access)}: {base.ns_per_access / huge.ns_per_access:.2f} times as long.")
        elif pairs:
            told.append(f"On {words(pages)} no array's reads differ from those on base pages by more than JMH's own errors.")
    return told + [f"JMH has no scores on {words(pages)}: {explain(lack.code, lack.detail)}" for pages, lack in doc.lacking.items()]


def compared(apart: pd.DataFrame, spare: pd.DataFrame) -> list[str]:
    """How JMH's time for a read compares with the kernel's (apart: `against`); where they differ, whether a longer loop in C explains
    it (spare: with as much work again before each read: pages, array_bytes, median_spare)."""
    if apart.empty:
        return ["No size was read on the same pages by both, so nothing compares the JVM with C here."]
    ratio = apart["ratio"]
    told = [f"JMH's time over that of the loop in C is {ratio.min():.2f} to {ratio.max():.2f}, {ratio.median():.2f} in the median over "
            f"{len(apart)} pairs of size and pages."]
    if not (off := int(((ratio - 1).abs() > AGREE).sum())):
        return [*told, "They agree to 10 %."]
    near = apart.loc[apart["array_bytes"].idxmin()]
    told.append(f"They differ by more than 10 % in {off} of them. In {int(near['array_bytes']):,} bytes, where every load hits, JMH takes "
                f"{near['jmh_ns']:.2f} ns and the loop in C {near['ours_ns']:.2f}: the JVM does more around each read.")
    both = apart.merge(spare, on=["pages", "array_bytes"])
    if both.empty:
        return told
    again = both["jmh_ns"] / both["median_spare"]
    small, agreeing = both.loc[both["array_bytes"].idxmin()], int(((again - 1).abs() <= AGREE).sum())
    return [*told, "That it does more also makes each miss dearer, because fewer reads fit into the core's window at once. The test: let "
            f"the loop in C throw one more draw away before each read. In {int(small['array_bytes']):,} bytes it then takes "
            f"{small['median_spare']:.2f} ns. JMH's times are {again.median():.2f} of its in the median, and "
            f"{agreeing} of the {len(both)} pairs agree to 10 %.",
            "So the work around the read is most of the difference." if abs(again.median() - 1) <= AGREE else
            "So the work around the read is a part of the difference and not all."]
