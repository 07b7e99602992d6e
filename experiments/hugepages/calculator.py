"""From a working set and a page size to reach, walks per access and nanoseconds: this machine's
model, as a figure to ask.

A load of an independent random draw over M pages finds its translation in a level of C entries with
probability C/M, whatever the replacement (inference/misses.py). So T = packed + (1 - C1/M) hit + (1
- C2/M) walk, where packed, hit and walk were measured here: walk is spread minus packed of the same
working set on the same pages, less the hit, and M counts pieces of the size that an entry spans,
which on a splintered large page is the host's. Where the two layouts find their lines in different
caches, that difference is no price of translation, but it is part of the whole time, which is what
the model gives. Where an entry spans more than a base page, the chase itself comes to each piece
many times a cycle and in no order, as draws do: there the difference is the answer as it was
measured.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.hugepages.analysis import Analysis
from tlb.inference import geometry
from tlb.inference.curves import Curve
from tlb.lab import survey
from tlb.machine.host import data_caches
from tlb.page_sizes import BASE, page_bytes
from tlb.reasons import if_available, required
from tlb.units import format_size

# from twice the entries on nearly every access of a cycle walks, so there the price is that of
# walks
PAST = 2


class Basis(NamedTuple):
    """What the model counts with: entries of the first and of the last level, and who says so; what
    a hit in the last adds, ns; whether an entry spans no more than a base page of any page."""

    first: float
    last: float
    source: str
    hit_ns: float
    is_splintered: bool


def basis(a: Analysis) -> Basis:
    """Entries as measured, else as CPUID states them; the hit's price is that of base pages between
    the two levels. Raises Unavailable: no-geometry, too-few-points."""
    levels = (
        if_available(
            lambda: (
                geometry.infer(
                    a.about.kept(survey.NAME), a.stated_entries, data_caches(a.host)
                ).levels
            )
        )
        or []
    )
    if len(levels) > 1:
        first, last, source = (
            levels[0].entries.value,
            levels[-1].entries.value,
            "as measured in the chapter about your machine",
        )
    else:
        first, last, source = *map(float, a.two_levels()), "by CPUID"
    is_splintered = if_available(lambda: a.pieces.is_splintered) or False
    return Basis(first, last, source, a.price[BASE].level(1.3 * first, 0.6 * last), is_splintered)


def model(a: Analysis, counted: Basis) -> pd.DataFrame:
    """A row a page size and power of two of bytes at which it was chased: pages, log2_bytes,
    span_bytes, reach_bytes, walks_per_access, ns. Raises Unavailable("too-few-points") where no
    page size was measured past twice the last level."""
    rows, base = [], a.base_page_bytes
    for pages, spread in a.spread.items():
        price = spread - a.packed[pages]
        if not len(far := price.between(PAST * counted.last, inf)):
            continue
        span = base if counted.is_splintered else page_bytes(pages, base)
        least, most = np.log2(base * price.xs[0]), np.log2(base * price.xs[-1])
        for log2_bytes in range(int(np.ceil(least)), int(most) + 1):
            lines, pieces = 2**log2_bytes / base, 2**log2_bytes / span
            first, last = a.missed(counted.first, pieces), a.missed(counted.last, pieces)
            walk = max(_at(far, max(lines, far.xs[0])) - counted.hit_ns, 0.0)
            translation = _at(price, lines) if span > base else first * counted.hit_ns + last * walk
            rows.append(
                (
                    pages,
                    log2_bytes,
                    span,
                    counted.last * span,
                    last,
                    _at(a.packed[pages], lines) + translation,
                )
            )
    return pd.DataFrame(
        required(rows, f"nothing was measured past {PAST * counted.last:,.0f} lines"),
        columns=["pages", "log2_bytes", "span_bytes", "reach_bytes", "walks_per_access", "ns"],
    )


def _at(curve: Curve, lines: float) -> float:
    """The median at a number of lines, between two points in the logarithm of lines."""
    return float(np.interp(np.log2(lines), np.log2(np.array(curve.xs, dtype=float)), curve.medians))


def answer(row: pd.Series) -> str:
    """A row of `model` in words."""
    return (
        f"{format_size(2 ** int(row['log2_bytes']))} on {row['pages']} pages: reach {format_size(int(row['reach_bytes']))}, "
        f"{row['walks_per_access']:.2f} walks per access, about {row['ns']:,.1f} ns."
    )
