"""The sections of the chapter about the graph that take more than its own rows: misses by page size, and the model."""

from __future__ import annotations

import pandas as pd

from experiments.article import chapter as chapters
from experiments.article import machine_words as findings
from experiments.article.machine_words import Prose
from experiments.article.render import Html, data_table, lacking_note
from experiments.chapters.graph_walk import figures as walk_figures
from experiments.chapters.hugepages.sections import Section, show
from experiments.inference import cost, holdout, splinter
from experiments.inference import hops as walks
from experiments.inference import intervals as stats
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

HELD_OUT = "every third size"  # of holdout.WAYS_TO_HOLD_OUT: what the fit does not see of the chase


def _kept(chapter: chapters.Chapter, name: str) -> pd.DataFrame:
    """Rows that another chapter measured; none are measured for this one. Raises Unavailable("no-data")."""
    frame = chapter.store.load(chapter.machine, name)
    if frame.empty:
        raise Unavailable("no-data", f"{name} on {chapter.machine}")
    return stats.newest(frame)


def splintering(chapter: chapters.Chapter) -> splinter.Splinter | None:
    """What the chapter about page sizes found, where it was measured and could tell."""
    try:
        return splinter.judge(_kept(chapter, "hugepages"), chapter.host.hypervisor)
    except Unavailable:
        return None


def show_misses(chapter: chapters.Chapter, frame: pd.DataFrame, published: pd.DataFrame) -> None:
    """The walks per hop: counted where the CPU counts them, predicted, and published."""
    found = splintering(chapter)
    pieces = found is not None and found.verdict == "splintered by the host"

    def make() -> walk_figures.Figure:
        reach = walks.capacities(chapter.host, chapter.tlb_entries(), pieces)
        there = set(frame["pages"])
        sizes = sorted({int(size) for size in frame["working_set_bytes"]} | {int(one) for one in reach.values() if one <= frame[
            "working_set_bytes"].max()})
        most = sizes[-1]
        near = published[published["working_set_from_bytes"] <= most]  # a figure for a range holds at both of its ends
        theirs = pd.concat([near.assign(working_set_bytes=near[f"working_set_{end}_bytes"].clip(upper=most)) for end in ("from", "to")])
        counted = "simulated" if findings.is_simulated(chapter.machine) else "counted"
        return walk_figures.misses({
            counted: walks.counted(frame),
            "predicted, 1 − C/M" + ", in pieces of 4 KiB" * pieces: walks.predicted(
                sizes, {pages: one for pages, one in reach.items() if pages in there}),
            "published": theirs.rename(columns={"misses_per_hop": "median"}).drop_duplicates(["pages", "working_set_bytes"])})

    show("walk_misses", make)


def model(chapter: chapters.Chapter, frame: pd.DataFrame) -> Section:
    """The model of a load's cost, fitted to two thirds of the sizes of the first chapter's chases, beside what it was not shown:
    the rest of them, and the walk of the graph. Glues the figure `model`; a table of the parameters, and what to say."""
    try:
        points = cost.points(_kept(chapter, "stlb_cliff"))
        out = holdout.WAYS_TO_HOLD_OUT[HELD_OUT](points)
        fitted = cost.fit(points[~out], cost.machine_of(chapter.host))
        asked = told(fitted, points, out, frame)
        show("model", lambda: walk_figures.model(asked))
        return Section(parameters(fitted), {"model_said": Prose(sentences(fitted, asked))})
    except Unavailable as why:
        reason = why  # `why` ends with this clause

    def lacking() -> walk_figures.Figure:
        raise reason

    show("model", lacking)
    return Section(lacking_note(str(reason)), {"model_said": Prose(f"The model cannot be fitted here. {reason}")})


_CHASE = {("random", "spread"): "chase, a line to a page", ("random", "packed"): "chase, packed"}
WALK = "walk of the graph, base pages"


def told(fitted: cost.CostFit, points: pd.DataFrame, out: pd.Series, frame: pd.DataFrame) -> pd.DataFrame:
    """What was measured in random order beside what the model says: series, seen, lines, measured_ns, predicted_ns.

    The walk is random order over packed lines. A hop picks an edge besides, which costs what a hop in four vertices takes longer
    than the fit's load from the first cache. points: of `cost.points`; out: which of them the fit did not see.
    """
    parts = []
    for (order, layout), name in _CHASE.items():
        chosen = (points["order"] == order) & (points["layout"] == layout)
        mine = points[chosen]
        each = 1 if layout == "spread" else cost.LINES_PER_PAGE
        parts.append(pd.DataFrame({"series": name, "seen": out[chosen].map({True: "held out", False: "fitted"}), "lines": mine["lines"],
                                   "measured_ns": mine["measured_ns"], "predicted_ns": fitted.interval(mine["lines"], order, each)[0]}))
    rows = walks.batched(frame)
    rows = rows[rows["pages"] == "4k"]
    floor = walks.option(rows, "four_vertices_ns_per_access", float("nan")).median()
    if len(rows) and floor > 0 and "load_random_ns" in fitted.parameters:
        found = stats.summarise(rows, ["lines"])
        said = fitted.interval(found["lines"], "random", cost.LINES_PER_PAGE)[0] + floor - fitted.parameters["load_random_ns"].value
        parts.append(pd.DataFrame({"series": WALK, "seen": "held out", "lines": found["lines"], "measured_ns": found["median"],
                                   "predicted_ns": said}))
    return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True).sort_values(["series", "lines"], ignore_index=True)


def parameters(fitted: cost.CostFit) -> Html:
    """Each parameter, its unit in its name, with its interval; an infinite bound is one that no point tells."""
    def text(value: float) -> str:
        return f"{value:,.3g}" if 1e-6 < abs(value) < 1e6 else "open"

    rows = [(name.replace("_", " "), text(one.value), f"{text(one.low)} to {text(one.high)}"
             + (" (at its bound)" if name in fitted.at_bound else "")) for name, one in fitted.parameters.items()]
    return data_table(pd.DataFrame(rows, columns=["parameter", "value", "95 % interval"]))


def _off(part: pd.DataFrame) -> pd.Series:
    return part["predicted_ns"] / part["measured_ns"] - 1


def sentences(fitted: cost.CostFit, asked: pd.DataFrame) -> str:
    """How far the model is off on what it saw and what it did not, and where it is wrong."""
    said = []
    for name, part in (("of the chase", asked[asked["series"] != WALK]), ("of the walk of the graph", asked[asked["series"] == WALK])):
        held = part[part["seen"] == "held out"]
        if len(held):
            off = _off(held)
            worst = held.loc[off.abs().idxmax()]
            said.append(f"On the {len(held)} points {name} that the fit did not see, its median error is {off.abs().median():.0%}, the "
                        f"largest {off.abs().max():.0%}, at {format_size(int(worst['lines']) * 64)} of lines.")
    if not (asked["series"] == WALK).any():
        said.append("No walk on base pages was timed per batch, so the model is tested on the chase alone.")
    return " ".join([*said, holdout.explains(fitted)])
