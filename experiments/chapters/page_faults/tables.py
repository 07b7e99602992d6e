"""The tables of the chapter about page faults."""

from __future__ import annotations

import pandas as pd

from experiments.article.render import Html, data_table
from experiments.chapters.page_faults.analysis import WAYS, Analysis
from experiments.inference.student import Test, sample
from experiments.machine.host import is_x86
from experiments.words.reasons import Unavailable, if_available, required
from experiments.words.units import format_size

# A level of the tree: Linux' name (Documentation/mm/page_tables.rst), Intel's (SDM volume 3A, table 4-1), and the lowest of its nine bits.
NAMES = (("PGD", "PML5", 48), ("P4D", "PML4", 39), ("PUD", "PDPT", 30), ("PMD", "PD", 21), ("PTE", "PT", 12))


def ways(a: Analysis) -> Html:
    """A row a way of touching pages: what a page takes, how many faults, and what one takes."""
    rows = [(name, a.page_ns(way), float(a.touch(way)["faults_per_access"]), way.populate) for way, name in WAYS.items()
            if way in a.touches]
    required(rows, "no page was touched")
    return data_table(pd.DataFrame({
        "pages of": [name for name, *_ in rows], "ns a page": [f"{ns:,.0f}" for _, ns, *_ in rows],
        "pages a fault": ["none by a touch" if ready else f"{1 / faults:,.3g}" if faults else "" for *_, faults, ready in rows],
        "ns a fault": [f"{ns.value / faults:,.0f}" if faults and not ready else "" for _, ns, faults, ready in rows]}))


def statistics(a: Analysis) -> Html:
    """The published test and the same one of this machine's: means with their intervals, difference, t, p and effect."""
    tests = {"five levels less four, published": (a.published[4].interval(), a.published[5].interval(), a.published_test)}
    if own := if_available(lambda: a.own_test):
        tests["in a memory cgroup less outside, here"] = (*_means(a), own)
    rows = [(name, f"{first:.3f}", f"{second:.3f}", *_cells(test)) for name, (first, second, test) in tests.items()]
    return data_table(pd.DataFrame(rows, columns=["what", "mean, ns a page", "mean of the other", "difference", "t (degrees)", "p",
                                                  "in standard deviations"]))


def _means(a: Analysis) -> list:
    return [sample(a.grouped[name]).interval() for name in ("outside_ns", "inside_ns")]


def _cells(test: Test) -> tuple[str, ...]:
    return f"{test.difference.value:+.3f} ({test.relative:+.2%})", f"{test.t:.2f} ({test.freedom})", f"{test.p:.1e}", f"{test.effect:.1f}"


def levels(a: Analysis) -> Html:
    """The levels of x86-64's tree by both their names, the bits that index each, and what an entry covers. Raises Unavailable elsewhere."""
    if not is_x86(a.host):
        raise Unavailable("other-arch")
    rows = [(linux, intel, f"{low + 8}–{low}", format_size(1 << low), "five levels only" if low == NAMES[0][2] else "")
            for linux, intel, low in NAMES]
    return data_table(pd.DataFrame(rows, columns=["Linux", "Intel", "bits", "an entry covers", "where"]))
