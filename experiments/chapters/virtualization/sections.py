"""The sections of the chapter about guests: whose matrix is shown where this machine has none, and each figure or why it is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from experiments.article import chapter as chapters
from experiments.article import machine_words as findings
from experiments.article.machine_words import Prose, Said, escape_markdown
from experiments.article.render import Html, data_table, lacking_note, verdict_table
from experiments.chapters.graph_walk.sections import splintering
from experiments.chapters.hugepages.sections import show
from experiments.chapters.virtualization import analysis as virtual
from experiments.chapters.virtualization import claims as virtual_claims
from experiments.chapters.virtualization import costs as virtual_costs
from experiments.chapters.virtualization import figures as virtual_figures
from experiments.chapters.virtualization import host_prose as host_words
from experiments.chapters.virtualization import prose as words
from experiments.chapters.virtualization import references as virtual_counts
from experiments.inference import intervals as stats
from experiments.inference.curves import PAGE
from experiments.inference.geometry import Backing
from experiments.machine.host import Host
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

NAME = "virtualization"


class Subject(NamedTuple):
    """Whose guests are shown: rows, the machine that they are from, and where they are another's, a sentence that says so."""

    frame: pd.DataFrame
    host: Host
    whose: str  # "" for the chapter's own machine

    @property
    def entries(self) -> list[int]:
        return [tlb.entries for tlb in findings.data_tlbs(self.host)]


def subject(chapter: chapters.Chapter, frame: pd.DataFrame) -> Subject:
    """This machine's guests, or the reference machine's where it has none; without either, its own rows, which have no guest."""
    own = Subject(frame, chapter.host, "")
    if virtual.cells(frame):
        return own
    try:
        name = chapter.store.resolve("reference")
        rows = chapter.store.load(name, NAME)
        host = Host.model_validate(chapter.store.read_machine(name))
    except (Unavailable, ValueError):
        return own
    if rows.empty or name == chapter.machine or not virtual.cells(stats.newest(rows)):
        return own
    said = findings.machine(host, name)["machine"]
    return Subject(stats.newest(rows), host, "No guest was measured on this machine. The guests in this chapter are those of the reference "
                   f"machine: {escape_markdown(said)}.")


def backing(chapter: chapters.Chapter) -> Backing | None:
    """What this machine's large pages are made of, where the chapter about page sizes or the geometry of 2 MiB pages was measured."""
    found = splintering(chapter)
    return None if found is None else Backing(verdict=found.verdict, evidence=found.evidence)


def say(chapter: chapters.Chapter, frame: pd.DataFrame, about: Subject, published: pd.DataFrame) -> Said:
    """Every sentence of the chapter, and the published ratios."""
    by = published.set_index("quantity")
    return (words.of_guests(about.frame, about.host) | host_words.say(frame, chapter.host, chapter.notes, backing(chapter))
            | {"whose": Prose(about.whose), "numa_published": float(by.loc["remote over local latency", "high_ratio"]),
               "practical_low": float(by.loc["guest over native cost", "low_ratio"]),
               "practical_high": float(by.loc["guest over native cost", "high_ratio"]),
               "most_references": float(by.loc["references of a cold nested walk", "references_count"])})


def show_matrix(about: Subject) -> None:
    show("guest_matrix", lambda: virtual_figures.matrix(about.frame))


def show_lines(about: Subject) -> None:
    show("guest_lines", lambda: virtual_figures.lines(about.frame, about.entries))


def show_ratios(about: Subject) -> None:
    show("guest_ratios", lambda: virtual_figures.ratios(about.frame))


def show_steps(about: Subject) -> None:
    show("guest_steps", lambda: virtual_figures.steps(about.frame, about.entries))


def show_references(about: Subject) -> None:
    show("guest_references", lambda: virtual_figures.references(_counted(about)))


def _counted(about: Subject) -> pd.DataFrame:
    return virtual_counts.counted(virtual.at(virtual.matrix(about.frame)), about.host)


def _table(make: Callable[[], Html]) -> Html:
    try:
        return make()
    except Unavailable as why:
        return lacking_note(str(why))


def counts_table(about: Subject) -> Html:
    """The references of each cell beside its price."""
    return _table(lambda: data_table(virtual_counts.table(_counted(about))))


def touch_table(about: Subject) -> Html:
    """What a line's first touch costs by cell."""
    def make() -> Html:
        found = virtual_costs.first_touches(about.frame)
        if found.empty:
            raise Unavailable("too-few-points", "no first touch was timed in a guest")
        return data_table(pd.DataFrame({
            "guest's page": found["guest"], "host's page": found["host"], "first touch, ns a line": found["median"].astype(float),
            "low": found["low"].astype(float), "high": found["high"].astype(float)}), decimals=0)

    return _table(make)


def containers_table(frame: pd.DataFrame) -> Html:
    """Namespaces and the plain process, point by point."""
    def make() -> Html:
        found = virtual_costs.containers(frame)
        if found.empty:
            raise Unavailable("too-few-points", "no chase was measured in fresh namespaces")
        return data_table(pd.DataFrame({
            "layout": found["layout"], "lines": [f"{n:,}" for n in found["lines"]], "working set": [
                format_size(n * (PAGE if layout == "spread" else 64)) for n, layout in zip(found["lines"], found["layout"], strict=True)],
            "plain, ns": found["plain"], "in namespaces, ns": found["inside"], "difference, ns": found["difference"], "low": found["low"],
            "high": found["high"]}), decimals=2)

    return _table(make)


def verdicts(frame: pd.DataFrame, about: Subject) -> Html:
    """The claims about guests on the rows shown, the one about containers on this machine's own."""
    theirs, own = virtual_claims.verdicts(about.frame), virtual_claims.verdicts(frame)
    if about.whose:
        theirs = [one._replace(evidence=f"On the reference machine. {one.evidence}") for one in theirs]
    return verdict_table([*theirs[:-1], own[-1]])
