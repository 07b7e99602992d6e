"""The tables of the chapter about churn."""

from __future__ import annotations

import pandas as pd

from experiments.article.render import Html, data_table
from experiments.chapters.churn.analysis import Analysis
from experiments.chapters.churn.grid import CALLS
from experiments.chapters.churn.housekeeping import FRAGMENTS, FREE
from experiments.words.pages import words
from experiments.words.reasons import required
from experiments.words.units import format_ns, format_size

CALL_WORDS = {"unmap": "munmap", "protect": "mprotect", "discard": "madvise(MADV_DONTNEED)"}


def flushes(a: Analysis) -> Html:
    """Return a row a call: how many flushes were asked of other CPUs, and how many those CPUs saw."""
    a.seen_share()
    sums = a.seen.groupby("call")[["flushes_asked", "flushes_seen"]].sum()
    sums = sums.loc[[call for call in CALLS if call in sums.index]]
    return data_table(pd.DataFrame({
        "call": sums.index.map(CALL_WORDS), "asked": sums["flushes_asked"].map("{:,.0f}".format),
        "seen": sums["flushes_seen"].map("{:,.0f}".format),
        "seen of asked": (sums["flushes_seen"] / sums["flushes_asked"]).map("{:.3f}".format)}))


def parts(a: Analysis) -> Html:
    """A row a call on one base page of a large one: its time beside that on a base page, and what stays large."""
    rows = required(a.parts, "no parts of large pages were taken")
    return data_table(pd.DataFrame({
        "call": rows["call"].map(CALL_WORDS), "of a large page": [format_ns(ns.value) for ns in rows["ns"]],
        "of base pages": [format_ns(ns.value) if ns.value == ns.value else "" for ns in rows["base_ns"]],
        "stays large": rows["large_share"].map("{:.0%}".format)}))


def sparse(a: Analysis) -> Html:
    """Arenas with a large page's room each, and side by side: what is resident of what is used, and what touching it takes."""
    rows = required(a.sparse, "no arenas were measured")
    return data_table(pd.DataFrame({
        "arenas": ["apart" if apart else "side by side" for apart in rows["apart"]], "on": rows["pages"].map(words),
        "used": rows["used_bytes"].map(format_size), "resident over used": [f"{per.value:.1f}" for per in rows["per_used"]],
        "a base page touched": [format_ns(ns.value) for ns in rows["ns"]]}))


def lives(a: Analysis) -> Html:
    """A row a size of programs that live briefly: their time on base pages, and that on large ones over it, on free memory and in
    pieces."""
    a.lives(FREE)
    free, pieces = (a.briefly[a.briefly["memory"] == memory].set_index("mib") for memory in (FREE, FRAGMENTS))
    return data_table(pd.DataFrame({
        "a program writes": [f"{mib} MiB" for mib in free.index],
        "on base pages": [format_ns(ns.value) for ns in free["base_ns"]],
        "on large ones, times that": [f"{ratio:.2f}" for ratio in free["ratio"]],
        "the same in pieces": [f"{pieces['ratio'][mib]:.2f}" if mib in pieces.index else "" for mib in free.index]}))
