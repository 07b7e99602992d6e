"""The first page's results in brief: sentences from the first chapter's rows, or why there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite

import pandas as pd
from myst_nb import glue

from experiments.article import charts as figures
from experiments.article import machine_words as findings
from experiments.article.machine_words import Prose, Said, pages
from experiments.article.render import lacking_note
from experiments.chapters.graph_walk import prose as walk_words
from experiments.chapters.hugepages import prose as huge_words
from experiments.chapters.tlb_blocking import prose as blocking_words
from experiments.chapters.virtualization import prose as virtual_words
from experiments.inference import curves as claims
from experiments.inference import intervals as stats
from experiments.machine.host import Host
from experiments.words.reasons import Unavailable

_CLIFF = "index_cliff"
# What a machine may lack without the first page failing; a bad parameter is an error there too.
_LACKING = ("no-data", "not-linux", "arch-unsupported")


def attempt(measure: Callable[[str], pd.DataFrame], experiment: str) -> tuple[pd.DataFrame | None, str]:
    """(frame, "") of `Chapter.measure`, or (None, why in one line). Raises every other Unavailable."""
    try:
        return measure(experiment), ""
    except Unavailable as why:
        if why.code not in _LACKING:
            raise
        return None, str(why)


def overview(host: Host, frame: pd.DataFrame | None, lacking: str, machine: str, profile: str,
             others: Mapping[str, pd.DataFrame | None] | None = None) -> Said:
    """The page's sentences.

    frame, lacking: what `attempt` gave; machine, profile: the chapter's parameters; others: the rows of experiments in LEADS.
    """
    if frame is None:
        return {
            "scope": Prose(lacking),
            "results": Prose(f"- **How far the TLB reaches.** {findings.machine(host)['tlb']}"),
            "stable": Prose("For this machine there are no rows yet that could scatter."),
            "cliff_caption": Prose("Time per access against the memory that the touched pages span."),
        }
    said = findings.cliff(frame, host)
    return {
        "scope": Prose(_scope(frame, machine, profile)),
        "results": Prose("\n".join(f"- {item}" for item in _results(host, frame, said) + _more(host, others or {}))),
        "stable": Prose(said["stable"]),
        "cliff_caption": Prose(
            "Time per access against the memory that the touched pages span: one cache line on each page "
            "(*spread*), and the same number of lines side by side (*packed*). What lies between the two is "
            "the price of translation."
        ),
    }


def _scope(frame: pd.DataFrame, machine: str, profile: str) -> str:
    days = sorted({started[:10] for started in frame["started_at"]})
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    if machine == "this":
        said = f"These are results of the computer that built this page, measured {when}."
        short = " The profile was `smoke`: its numbers are too few and too short to quote."
        return said + (short if profile == "smoke" else "")
    whose = "the reference machine" if machine == "reference" else f"the machine `{machine}`"
    return f"These are the committed results of {whose}, measured {when}. Run `make book` for your own."


def _results(host: Host, frame: pd.DataFrame, said: Said) -> list[str]:
    items = [f"**How far the TLB reaches.** {findings.machine(host)['tlb']}"]
    if "walk_ns" in said:
        cycles = f", {said['hit_cycles']:.1f} cycles," if isfinite(said["hit_cycles"]) else ""
        items += [
            f"**What a first-level miss costs.** {said['hit_ns']:.2f} ns{cycles} on top of the load, where "
            "the second level knows the translation.",
            f"**What a walk costs.** Just past the second level, {said['walk_ns']:.1f} ns on top of the "
            f"load; at {said['largest']}, {said['price_last_ns']:.0f} ns. The tree is the same. What differs "
            "is where the entries lie that a walk reads.",
            f"**How sharp the cliff is.** {_sharpness(host, frame, said)}",
        ]
    else:
        items.append(f"**What translation costs.** {said['lead']} {said['steps']}")
    if (frame["kernel"] == "page_gather").any():
        items.append(
            "**What published loops measure.** The loop behind the best-known figures keeps several misses "
            f"in flight. {findings.overlap(frame)} Both numbers are right; they answer different questions."
        )
    return items


# Experiment -> what its chapter's lead is about, and the lead of its rows and the TLB's entries.
LEADS: dict[str, tuple[str, Callable[[pd.DataFrame, Sequence[int]], str]]] = {
    "hugepages": ("What larger pages buy.", lambda frame, _: huge_words.lead(frame)),
    "graph_walk": ("What one hop takes, and the slowest in twenty.", lambda frame, _: walk_words.lead(frame)),
    "tlb_blocking": ("What a program can do by itself.", blocking_words.lead),
    "virtualization": ("What a guest pays.", lambda frame, _: virtual_words.lead(frame)),
}


def _more(host: Host, others: Mapping[str, pd.DataFrame | None]) -> list[str]:
    """The leads of the other chapters; nothing of one without rows, or without what its lead compares."""
    entries, told = [tlb.entries for tlb in findings.data_tlbs(host)], []
    for name, (about, lead) in LEADS.items():
        if (frame := others.get(name)) is not None:
            with suppress(Unavailable):
                told.append(f"**{about}** {lead(frame, entries)}")
    return told


def _sharpness(host: Host, frame: pd.DataFrame, said: Said) -> str:
    entries = findings.data_tlbs(host)[-1].entries
    placed = (
        f"Half of the second step's rise is done at {pages(said['second_step'])} pages; CPUID says "
        f"{pages(entries)}. In a cycle the rise is steep; pages drawn at random stretch it to a curve."
    )
    try:
        ratio = stats.doubling_ratio(claims.curve(frame, "spread"), entries)
    except Unavailable:  # the sweep has no point at twice the entries, so no ratio is said
        return placed
    return (
        f"From {pages(entries)} pages to twice as many, a load slows by a factor of {ratio.value:.1f} "
        f"({ratio.low:.1f} to {ratio.high:.1f}). {placed}"
    )


def show_cliff(host: Host, frame: pd.DataFrame | None) -> None:
    """Glue the first chapter's cliff, under a name of this page's own, or a word in its place."""
    if frame is None:
        glue(_CLIFF, lacking_note("The cliff stands here as soon as this machine has been measured."))
        return
    entries = [tlb.entries for tlb in findings.data_tlbs(host)]
    drawn = figures.cliff(claims.curve(frame, "spread"), claims.curve(frame, "packed"), entries)
    figures.show(replace(drawn, name=_CLIFF))
