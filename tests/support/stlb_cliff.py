"""Machines that never were, for the chapter about the cliff: what each is, and its Analysis."""

from functools import cache
from typing import Any

import nbformat
import numpy as np
import pandas as pd
from scipy.special import lambertw
from scipy.stats import binom

from experiments.stlb_cliff import Analysis
from support.common import ROOT, About
from support.synthetic import GIB, MIB, Stated, Truth, frame, grid, lru, tlbs
from tlb.measure.record import Point


def hashed(order: str, lines: np.ndarray, entries: int) -> np.ndarray:
    """Misses of sets of 12, chosen by a hash, that replace at random: in a set of k > 12 of the M
    pages, x = 1 - (1 - 1/12)^(x k); the set of a page has 1 + Binomial(M - 1, 1/sets)."""
    ways, pages = 12, np.ravel(lines)
    k = np.arange(1, int(pages.max() / (entries // ways) * 3) + 20 * ways)
    ratio = np.maximum(-np.log1p(-1 / ways) * k, 1 + 1e-6)
    lost = 1 + lambertw(-ratio * np.exp(-ratio)).real / ratio
    missed = np.where(k > ways, lost, 0.0)
    shares = [binom.pmf(k - 1, m - 1, ways / entries) @ missed for m in pages]
    return np.reshape(shares, np.shape(lines))


TEXTBOOK = Truth(climb=1.3)
PLAIN, SILENT = Stated(), Stated(tlb=())
MACHINES: dict[str, tuple[Truth, Stated, list[Point]]] = {
    "the textbook's": (TEXTBOOK, PLAIN, grid()),
    "no cliff": (Truth(hit_ns=0.0, walk_ns=0.0), PLAIN, grid()),
    "noise": (Truth(noise=0.3), PLAIN, grid()),
    "CPUID silent": (Truth(), SILENT, grid(entries=())),
    "one level stated": (Truth(), Stated(tlb=tlbs()[:1]), grid()),
    "tiny sizes": (Truth(), PLAIN, grid(64 << 10, per_octave=4)),
    "small sizes": (Truth(), PLAIN, grid(4 * MIB, per_octave=1)),
    "no zoom": (Truth(), PLAIN, grid(GIB, per_octave=1)),
}


@cache
def _rows(truth: Truth, points: tuple[Point, ...] | None, repeats: int, seed: int) -> pd.DataFrame:
    return frame(truth, points and list(points), repeats, seed)


def analysis(
    rows: pd.DataFrame | None = None, stated: Stated = PLAIN, machine: str = "made-up"
) -> Analysis:
    """Of rows, by default the textbook's."""
    return Analysis(
        _rows(TEXTBOOK, None, 7, 1) if rows is None else rows, About(stated.host(), machine)
    )


def of(
    truth: Truth,
    points: list[Point] | None = None,
    stated: Stated = PLAIN,
    repeats: int = 7,
    seed: int = 1,
) -> Analysis:
    return analysis(_rows(truth, None if points is None else tuple(points), repeats, seed), stated)


def kind(name: str, repeats: int = 7) -> Analysis:
    truth, stated, points = MACHINES[name]
    return of(truth, points, stated, repeats)


# --- counters

COUNTING = Stated(changes={"pmu": {"tier": "counters", "reason": None}})

# Misses of the textbook's TLB, whose walks get dearer with every octave past it: in time a slope,
# in walks a step.
DEARER = Truth(climb=1.8, climb_from=1536, noise=0.002)


def counted(truth: Truth = DEARER) -> Analysis:
    """Rows in which the walks of both orders are counted."""
    rows = frame(truth)
    past = [
        float(lru(order, np.array([lines]), truth.entries[1])[0])
        for order, lines in zip(rows["order"], rows["lines"], strict=True)
    ]
    return analysis(
        rows.assign(walk_per_access=np.where(rows["layout"] == "spread", past, 0.0)), COUNTING
    )


# --- the page


def after_cells(*ids: str, **names: Any) -> dict[str, Any]:
    """Run the page's cells that have these ids, and its imports. Return all names that there are
    then; names: those that the cells read."""
    cells = nbformat.read(ROOT / "book/stlb_cliff.ipynb", as_version=4).cells
    sources = {cell.id: cell.source for cell in cells}
    for one in ("cliff-01", *ids):
        exec(sources[one], names)
    return names
