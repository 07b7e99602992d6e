"""The published JVM benchmark ByteArrayTouch on this computer: the survey, its document, and what is said of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict

from experiments.chapters.hugepages.languages.jvm import PAGES, Pages, Score, build, java_version, jmh_version, run
from experiments.machine.host import inspect, state
from experiments.system import files
from experiments.words.reasons import Unavailable, explain
from experiments.words.units import format_ns

SIZES = (1_000, 10_000, 1_000_000, 10_000_000, 100_000_000)  # the published ones, bytes
_NAMES = {"4k": "base pages", "thp": "transparent huge pages", "2m": "hugetlbfs pages"}


class Lack(BaseModel):
    """Why a page size has no scores: a code of REASONS and its detail."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    code: str
    detail: str = ""


class Jmh(BaseModel):
    """All that JMH measured on one machine in one `state`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    measured_at: str
    state: str
    jvm: str
    jmh: str
    scores: list[Score]
    lacking: dict[Pages, Lack]


def survey(sizes: Sequence[int] = SIZES, quick: bool = False) -> Jmh:
    """The benchmark on every page size there is here, in under three minutes, or one with `quick`; the build is not in it.

    A page size that cannot be had is in `lacking`. Raises Unavailable for what no page size can do without: what build() raises,
    not-linux, measuring-already.
    """
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    jar, jvm, now = build(), java_version(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # Three JVMs of five iterations are the published 15; a new JVM has new physical pages. Few iterations make JMH's interval
    # useless: of three it is 32 standard errors wide on each side, of eight 5.4 (Student's t at 99.9 %).
    effort: dict[str, Any] = ({"warmup_s": 0.5, "measure_s": 0.12, "iterations": 8, "forks": 1} if quick
                              else {"warmup_s": 0.9, "measure_s": 0.25, "iterations": 5, "forks": 3})
    scores: list[Score] = []
    lacking: dict[Pages, Lack] = {}
    with files.measuring_lock():
        for pages in PAGES:
            try:
                scores += run(jar, pages, sizes, **effort)
            except Unavailable as why:
                lacking[pages] = Lack(code=why.code, detail=why.detail)
    return Jmh(measured_at=now, state=state(inspect()), jvm=jvm, jmh=jmh_version(), scores=scores, lacking=lacking)


def _touches(doc: Jmh) -> pd.DataFrame:
    """array_bytes x pages: ns per access."""
    rows = [(score.array_bytes, score.pages, score.ns_per_access) for score in doc.scores if score.quantity == "touch"]
    return pd.DataFrame(rows, columns=["array_bytes", "pages", "ns"]).pivot(index="array_bytes", columns="pages", values="ns")


def table(doc: Jmh, literature: pd.DataFrame) -> pd.DataFrame:
    """A row an array size: `array_bytes`, then ns per access `here_<pages>_ns` and `published_<pages>_ns`; NaN for none.

    literature: data/literature/jmh_byte_array_touch.csv. Its second table is of runs under a profiler, and is left out.
    """
    first = literature[(literature["quantity"] == "time") & literature["where"].str.startswith("first table")]
    published = first.pivot(index="array_bytes", columns="pages", values="score").reindex(columns=PAGES)
    here = _touches(doc).reindex(columns=PAGES)
    both = here.add_prefix("here_").join(published.add_prefix("published_"), how="outer").add_suffix("_ns")
    return both.rename_axis(columns=None).sort_index().reset_index()


def against(doc: Jmh, ours: pd.DataFrame) -> pd.DataFrame:
    """JMH beside our own kernel, a row for each pages and array_bytes that both have.

    ours: pages, array_bytes, median (ns per access), generator_ns. Gives jmh_ns, ours_ns, ratio (JMH over ours), and what
    the two draws cost alone, jmh_draw_ns and ours_draw_ns.
    """
    draws = {score.pages: score.ns_per_access for score in doc.scores if score.quantity == "draw"}
    rows = _touches(doc).rename_axis(columns="pages").stack().rename("jmh_ns").dropna().reset_index()
    mine = ours.rename(columns={"median": "ours_ns", "generator_ns": "ours_draw_ns"})
    both = rows.merge(mine[["pages", "array_bytes", "ours_ns", "ours_draw_ns"]], on=["pages", "array_bytes"])
    both["ratio"] = both["jmh_ns"] / both["ours_ns"]
    both["jmh_draw_ns"] = both["pages"].map(draws).astype(float)
    columns = ["pages", "array_bytes", "jmh_ns", "ours_ns", "ratio", "jmh_draw_ns", "ours_draw_ns"]
    return both[columns].sort_values(["pages", "array_bytes"], ignore_index=True)


def _bytes(size: int) -> str:
    """A size in powers of ten, as the published arrays have theirs: 100000000 -> "100 MB"."""
    unit, name = next(((u, n) for u, n in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")) if size >= u), (1, "B"))
    return f"{size / unit:g} {name}"


def _apart(a: Score, b: Score) -> bool:
    """Whether JMH's intervals leave a gap between the two; without an interval, nothing is known to differ."""
    if a.error_ns is None or b.error_ns is None:
        return False
    return abs(a.ns_per_access - b.ns_per_access) > a.error_ns + b.error_ns


def sentences(doc: Jmh) -> list[str]:
    """What the scores show: the generator's part, base pages against each kind of huge pages, and what was lacking."""
    found = {(score.pages, score.quantity, score.array_bytes): score for score in doc.scores}
    sizes = sorted({score.array_bytes for score in doc.scores if score.quantity == "touch"})
    said = []
    if sizes and "4k" not in doc.lacking:
        draw, least = found["4k", "draw", sizes[-1]], found["4k", "touch", sizes[0]]
        rest = (f"the rest, {format_ns(least.ns_per_access - draw.ns_per_access)}, is the read"
                if _apart(draw, least) and least.ns_per_access > draw.ns_per_access
                else "what the read adds lies within JMH's own errors")
        said.append(f"In the JVM a read of an array of {_bytes(sizes[0])} takes {format_ns(least.ns_per_access)}, and drawing its index "
                    f"alone {format_ns(draw.ns_per_access)}: {rest}.")
    for pages in PAGES[1:]:
        pairs = [(found["4k", "touch", size], found[pages, "touch", size]) for size in sizes
                 if doc.lacking.keys().isdisjoint({"4k", pages})]
        differing = [pair for pair in pairs if _apart(*pair)]
        if differing:
            base, huge = differing[-1]
            said.append(f"On {_NAMES[pages]} a read of an array of {_bytes(base.array_bytes)} takes {format_ns(huge.ns_per_access)}, "
                        f"on base pages {format_ns(base.ns_per_access)}: {base.ns_per_access / huge.ns_per_access:.2f} times as long.")
        elif pairs:
            said.append(f"On {_NAMES[pages]} no array's reads differ from those on base pages by more than JMH's own errors.")
    return said + [f"JMH has no scores on {_NAMES[pages]}: {explain(lack.code, lack.detail)}" for pages, lack in doc.lacking.items()]
