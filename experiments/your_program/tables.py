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
    """A row a program with its lever: its version, the gain, beside it the reference's where that
    is another machine, and the verdict; or why there is none."""
    theirs = {} if a.theirs is None else dict(zip(a.theirs["case"], a.theirs["gain"], strict=True))
    measured = {
        row["case"]: (row["title"], _number(row["version"]), f"{row['gain']:.2f}", row["verdict"])
        for row in a.measured().to_dict("records")
    }
    lacking = {
        name: (CASES[name].title, "", "", _why(name, code)) for name, code in a.lacking.items()
    }
    names = [name for name in CASES if name in measured or name in lacking]
    table = pd.DataFrame(
        [(measured | lacking)[name] for name in names],
        columns=["program", "version", "times as fast", "verdict"],
    )
    if theirs:
        table.insert(
            3, "the reference", [f"{theirs[name]:.2f}" if name in theirs else "" for name in names]
        )
    return data_table(table)


def _why(name: str, code: str) -> str:
    """Why a program was not measured, and what installs it where that is all that lacks."""
    sentence = REASONS[code].sentence
    return (
        f"{sentence} apt install {CASES[name].tool.packages}"
        if code == "no-toolchain"
        else sentence
    )


def _number(version: str) -> str:
    """The number in the line by which a program names itself; of our own, the compiler's."""
    found = re.search(r"\d+(?:\.\d+)+", version)
    return found[0] if found else version


def taken(a: Analysis) -> Html:
    """A row a program: its lever, what of it lies on large pages then, its memory without and how
    it grows, and what is left of its faults."""
    rows = a.measured()
    return data_table(
        pd.DataFrame(
            {
                "program": rows["title"],
                "change": rows["does"],
                "on huge pages": rows["large"].map("{:.0%}".format),
                "memory": rows["resident_bytes"].map(
                    lambda size: format_size(round(size / MIB) * MIB)
                ),
                "grows to": rows["memory"].map("{:.2f} times".format),
                "faults left": rows["faults"].map("{:.1%}".format),
            }
        )
    )


def _range(a: Analysis, *cases: str) -> str:
    """The gains of some programs on this machine, or why there are none."""
    told, why = [], ""
    for case in cases:
        try:
            told.append(f"{CASES[case].title}: {a.gain(case):.2f}")
        except Unavailable as lacking:
            why = REASONS[lacking.code].sentence
    return "; ".join(told) or why


def _guide(a: Analysis, rows: list[tuple[str, str, str]]) -> Html:
    """A row a symptom: what such a program gave on this machine, in times as fast, and what to try."""
    a.measured()
    return data_table(
        pd.DataFrame(rows, columns=["what you see", "times as fast here", "what to try"])
    )


def guide_to_pages(a: Analysis) -> Html:
    """Return the guide to page sizes."""
    return _guide(
        a,
        [
            (
                "random look-ups over far more than the TLB reaches",
                _range(a, "fare-cache", "go-map", "dict"),
                "MADV_HUGEPAGE, or the allocator's setting: tlb try -- PROGRAM",
            ),
            (
                "most look-ups go to few pages",
                _range(a, "fare-cache-hot"),
                "the same: the data are in the caches, their translations are not"
                if _helps(a, "fare-cache-hot")
                else "nothing at first: the hot pages may fit the TLB",
            ),
            (
                "a runtime that asks for its own memory",
                _range(a, "jvm-start", "javac"),
                "its own flag: tlb try --lever jvm -- java …",
            ),
            (
                "a server with clients",
                _range(a, "redis", "redis-save"),
                "the same levers: tlb try --driver CLIENT -- SERVER",
            ),
            (
                "a running program, or one linked statically",
                _range(a, "gofmt", "go-vet"),
                "collapse from outside: tlb try --lever collapse -- PROGRAM",
            ),
            (
                "huge pages are there already",
                _range(a, "numpy"),
                ("leave them on" if _helps(a, "numpy") else "check that they help")
                + ": tlb try --lever numpy-off -- PROGRAM",
            ),
        ],
    )


def guide_to_data(a: Analysis) -> Html:
    """Return the guide to the layout of data."""
    return _guide(
        a,
        [
            (
                "one large slice or table, read at random",
                _range(a, "rules", "rules-beside"),
                "a mapping of its own, advised: tlb try --env RULES=large -- PROGRAM",
            ),
            (
                "the same, where every huge page must be there",
                _range(a, "rules-pool", "rules-pool-beside"),
                "the mapping from the pool: tlb pool reserve --pages 2m --size 1GiB",
            ),
            (
                "threads that all read all of it",
                _range(a, "sharded"),
                "a part for each thread: tlb try --env SHARDED=1 -- PROGRAM",
            ),
            (
                "a hash table beyond the reach",
                _range(a, "join-parts", "join"),
                "partition first: tlb try --env JOIN=partitioned -- PROGRAM",
            ),
        ],
    )


def guide_to_bills(a: Analysis) -> Html:
    """Return the guide to what huge pages cost."""
    return _guide(
        a,
        [
            (
                "many programs, one setting for all",
                _bill(a),
                "on request, not for all: tlb try on each of the largest",
            ),
            (
                "programs that start, fill memory and end",
                _range(a, *HEAPS),
                "the runtime's own flag, for those alone",
            ),
        ],
    )


def _helps(a: Analysis, case: str) -> bool:
    gain = if_available(a.gain, case)
    return gain is not None and gain.low > 1


def _bill(a: Analysis) -> str:
    """Return how many programs of others are faster, and how many take more memory."""
    try:
        rows = a.of_pages(ours=False)
    except Unavailable as why:
        return REASONS[why.code].sentence
    return f"{rows['faster'].sum()} of {len(rows)} are faster, {sum(rows['memory'] > a.much_more)} take more memory"
