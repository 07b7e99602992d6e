"""The tables of the chapter about programs: what was measured, the ladder of diagnosis, and the guide."""

from __future__ import annotations

import re

import pandas as pd

from experiments.article.render import Html, data_table
from experiments.chapters.your_program.analysis import Analysis
from experiments.chapters.your_program.cases import CASES, HEAPS
from experiments.words.reasons import REASONS, Unavailable, if_available
from experiments.words.units import format_size

MIB = 1 << 20

def results(a: Analysis) -> Html:
    """A row a program with its lever: its version, the gain, beside it the reference's where that is another machine, and the verdict; or
    why there is none."""
    theirs = {} if a.theirs is None else dict(zip(a.theirs["case"], a.theirs["gain"], strict=True))
    measured = {row["case"]: (row["title"], _number(row["version"]), f"{row['gain']:.2f}", row["verdict"])
                for row in a.measured().to_dict("records")}
    lacking = {name: (CASES[name].title, "", "", _why(name, code)) for name, code in a.lacking.items()}
    names = [name for name in CASES if name in measured or name in lacking]
    table = pd.DataFrame([(measured | lacking)[name] for name in names], columns=["program", "version", "times as fast", "with the lever"])
    if theirs:
        table.insert(3, "the reference", [f"{theirs[name]:.2f}" if name in theirs else "" for name in names])
    return data_table(table)


def _why(name: str, code: str) -> str:
    """Why a program was not measured, and what installs it where that is all that lacks."""
    sentence = REASONS[code].sentence
    return f"{sentence} apt install {CASES[name].tool.packages}" if code == "no-toolchain" else sentence


def _number(version: str) -> str:
    """The number in the line by which a program names itself; of our own, the compiler's."""
    found = re.search(r"\d+(?:\.\d+)+", version)
    return found[0] if found else version


def taken(a: Analysis) -> Html:
    """A row a program: its lever, what of it lies on large pages then, its memory without and how it grows, and what is left of its
    faults."""
    rows = a.measured()
    return data_table(pd.DataFrame({
        "program": rows["title"], "lever": rows["does"], "on large pages": rows["large"].map("{:.0%}".format),
        "memory": rows["resident_bytes"].map(lambda size: format_size(round(size / MIB) * MIB)),
        "grows to": rows["memory"].map("{:.2f} times".format),
        "faults left": rows["faults"].map("{:.1%}".format)}))


LADDER = (
    ("Is memory what it waits for?", "cycles and instructions: few a cycle",
     "tlb try with large pages: it is the question and the answer"),
    ("How many pages does it use?", "first-level misses beside second-level ones", "tlb watch counts what it touches in a "
     "while, beside the reach of the TLB, and says the most that translation can cost it"),
    ("Where does it wait?", "samples of the event that counts walks", "samples of a clock: they fall on the load that waits, though "
     "nothing says whether for data or for translation"),
    ("How much of that is translation?", "cycles in which a walk is active, over all", "nothing but the experiment: what large pages take "
     "off is the least that it was"),
    ("Did the lever reach it?", "walks fall", "AnonHugePages in smaps_rollup, at the peak"),
    ("Is it worth it?", "seconds, which no counter says", "the ratio with its interval, and the memory beside it"),
)


def steps(a: Analysis) -> Html:
    """The steps of a diagnosis: what each shows where walks are counted, and where nothing is."""
    return data_table(pd.DataFrame(LADDER, columns=["step", "with counters", "without"]))


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
    return data_table(pd.DataFrame(rows, columns=["what you see", "times as fast here", "what to try"]))


def guide_to_pages(a: Analysis) -> Html:
    """For whoever chooses page sizes."""
    return _guide(a, [
        ("random look-ups over far more than the TLB reaches", _range(a, "fare-cache", "go-map", "dict"),
         "MADV_HUGEPAGE, or the allocator's setting: tlb try -- PROGRAM"),
        ("most look-ups go to few pages", _range(a, "fare-cache-hot"),
         "the same: the lines are in the caches, their translations are not" if _helps(a, "fare-cache-hot") else
         "nothing first: what is hot may fit"),
        ("a runtime that asks for its own memory", _range(a, "jvm-start", "javac"), "its own flag: tlb try --lever jvm -- java …"),
        ("a server that others ask", _range(a, "redis", "redis-save"), "the same levers: tlb try --driver CLIENT -- SERVER"),
        ("a program that runs, or is linked statically", _range(a, "gofmt", "go-vet"),
         "joining from outside: tlb try --lever collapse -- PROGRAM"),
        ("large pages are there already", _range(a, "numpy"), ("leave them on" if _helps(a, "numpy") else "see whether they help")
         + ": tlb try --lever numpy-off -- PROGRAM"),
    ])


def guide_to_data(a: Analysis) -> Html:
    """For whoever lays out data."""
    return _guide(a, [
        ("one large slice or table, read at random", _range(a, "rules", "rules-beside"),
         "a mapping of its own, advised: tlb try --env RULES=large -- PROGRAM"),
        ("the same, where no large page may be missing", _range(a, "rules-pool", "rules-pool-beside"),
         "the mapping from the pool: tlb pool reserve --pages 2m --size 1GiB"),
        ("threads that all read all of it", _range(a, "sharded"), "a part for each thread: tlb try --env SHARDED=1 -- PROGRAM"),
        ("a hash table beyond the reach", _range(a, "join-parts", "join"),
         "partition first: tlb try --env JOIN=partitioned -- PROGRAM"),
    ])


def guide_to_bills(a: Analysis) -> Html:
    """For whoever pays for machines."""
    return _guide(a, [
        ("many programs, one setting for all", _bill(a), "on request, not for all: tlb try on each of the largest"),
        ("programs that start, fill memory and end", _range(a, *HEAPS), "the runtime's own flag, for those alone"),
    ])


def _helps(a: Analysis, case: str) -> bool:
    gain = if_available(a.gain, case)
    return gain is not None and gain.low > 1


def _bill(a: Analysis) -> str:
    """Of somebody else's programs, how many are faster and how many take a twentieth more memory."""
    try:
        rows = a.of_pages(ours=False)
    except Unavailable as why:
        return REASONS[why.code].sentence
    faster = sum(gain.low > 1 for gain in rows["gain"])
    return f"{faster} of {len(rows)} are faster, {sum(rows['memory'] > MORE)} take more memory"


MORE = 1.05  # times: less is as much as two runs of a program differ by
