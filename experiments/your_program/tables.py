"""The tables of the chapter about programs: what was measured, and the guide."""

from __future__ import annotations

import re

import pandas as pd

from experiments.your_program.analysis import Analysis
from experiments.your_program.cases import CASES, HEAPS
from tlb.reasons import REASONS, Unavailable, if_available
from tlb.report.render import Html, data_table
from tlb.units import format_size

MIB = 1 << 20


def results(a: Analysis) -> Html:
    """Return a row a program: its version, the gain here and on the reference machine, and the
    verdict; or why it was not measured."""
    measured, lacking, rows = a.measured().set_index("case"), a.lacking, []
    theirs = {} if a.theirs is None else dict(zip(a.theirs["case"], a.theirs["gain"], strict=True))
    for name, case in CASES.items():
        reference = f"{theirs[name]:.2f}" if name in theirs else ""
        if name in measured.index:
            row = measured.loc[name]
            # Our own programs have the compiler's version.
            number = re.search(r"\d+(?:\.\d+)+", row["version"])
            version, gain = number[0] if number else row["version"], f"{row['gain']:.2f}"
            rows.append((case.title, version, gain, reference, row["verdict"]))
        elif name in lacking:
            why = REASONS[lacking[name]].sentence
            if lacking[name] == "no-toolchain":
                why += f" apt install {case.tool.packages}"
            rows.append((case.title, "", "", reference, why))
    columns = ["program", "version", "times as fast", "the reference", "verdict"]
    table = pd.DataFrame(rows, columns=columns)
    return data_table(table if theirs else table.drop(columns="the reference"))


def taken(a: Analysis) -> Html:
    """Return a row a program: its lever, the share of its memory on large pages, its memory without
    and how it grows, and the share of its faults that is left."""
    rows = a.measured()
    resident = rows["resident_bytes"].map(lambda size: format_size(round(size / MIB) * MIB))
    columns = {
        "program": rows["title"],
        "change": rows["does"],
        "on huge pages": rows["large"].map("{:.0%}".format),
        "memory": resident,
        "grows to": rows["memory"].map("{:.2f} times".format),
        "faults left": rows["faults"].map("{:.1%}".format),
    }
    return data_table(pd.DataFrame(columns))


def _gains(a: Analysis, *cases: str) -> str:
    """Return the gains of some programs on this machine, or why there are none."""
    gains, why = [], ""
    for case in cases:
        try:
            gains.append(f"{CASES[case].title}: {a.gain(case):.2f}")
        except Unavailable as lacking:
            why = REASONS[lacking.code].sentence
    return "; ".join(gains) or why


def _helps(a: Analysis, case: str) -> bool:
    gain = if_available(a.gain, case)
    return gain is not None and gain.low > 1


def _guide(a: Analysis, rows: list[tuple[str, str, str]]) -> Html:
    """Return a row a symptom: what such programs gain on this machine, and what to try."""
    a.measured()
    columns = ["what you see", "times as fast here", "what to try"]
    return data_table(pd.DataFrame(rows, columns=columns))


def guide_to_pages(a: Analysis) -> Html:
    """Return the guide to page sizes."""
    hot = "nothing at first: the hot pages may fit the TLB"
    if _helps(a, "fare-cache-hot"):
        hot = "the same: the data are in the caches, their translations are not"
    keep = "leave them on" if _helps(a, "numpy") else "check that they help"
    rows = [
        (
            "random look-ups over far more than the TLB reaches",
            _gains(a, "fare-cache", "go-map", "dict"),
            "MADV_HUGEPAGE, or the allocator's setting: tlb try -- PROGRAM",
        ),
        ("most look-ups go to few pages", _gains(a, "fare-cache-hot"), hot),
        (
            "a runtime that asks for its own memory",
            _gains(a, "jvm-start", "javac"),
            "its own flag: tlb try --lever jvm -- java …",
        ),
        (
            "a server with clients",
            _gains(a, "redis", "redis-save"),
            "the same levers: tlb try --driver CLIENT -- SERVER",
        ),
        (
            "a running program, or one linked statically",
            _gains(a, "gofmt", "go-vet"),
            "collapse from outside: tlb try --lever collapse -- PROGRAM",
        ),
        (
            "huge pages are there already",
            _gains(a, "numpy"),
            f"{keep}: tlb try --lever numpy-off -- PROGRAM",
        ),
    ]
    return _guide(a, rows)


def guide_to_data(a: Analysis) -> Html:
    """Return the guide to the layout of data."""
    rows = [
        (
            "one large slice or table, read at random",
            _gains(a, "rules", "rules-beside"),
            "a mapping of its own, advised: tlb try --env RULES=large -- PROGRAM",
        ),
        (
            "the same, where every huge page must be there",
            _gains(a, "rules-pool", "rules-pool-beside"),
            "the mapping from the pool: tlb pool reserve --pages 2m --size 1GiB",
        ),
        (
            "threads that all read all of it",
            _gains(a, "sharded"),
            "a part for each thread: tlb try --env SHARDED=1 -- PROGRAM",
        ),
        (
            "a hash table beyond the reach",
            _gains(a, "join-parts", "join"),
            "partition first: tlb try --env JOIN=partitioned -- PROGRAM",
        ),
    ]
    return _guide(a, rows)


def guide_to_bills(a: Analysis) -> Html:
    """Return the guide to what huge pages cost."""
    try:
        others = a.of_pages(ours=False)
        more = sum(others["memory"] > a.much_more)
        bill = f"{others['faster'].sum()} of {len(others)} are faster, {more} take more memory"
    except Unavailable as why:
        bill = REASONS[why.code].sentence
    every, start = "many programs, one setting for all", "programs that start, fill memory and end"
    rows = [
        (every, bill, "on request, not for all: tlb try on each of the largest"),
        (start, _gains(a, *HEAPS), "the runtime's own flag, for those alone"),
    ]
    return _guide(a, rows)
