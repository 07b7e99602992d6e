"""From a working set and a page size to reach, walks per access and nanoseconds: this machine's model, as a figure to ask.

A load of an independent random draw over M pages finds its translation in a level of C entries with probability C/M, whatever
the replacement (experiments/model.py). So T = packed + (1 - C1/M) hit + (1 - C2/M) walk, where packed, hit and walk were
measured here: walk is the price of translation of the same working set on the same pages, less the hit, and M counts pieces of
the size that an entry spans, which on a splintered large page is the host's. Where an entry spans more than 4 KiB, the chase itself
comes to each piece many times a cycle and in no order, as draws do: there its price is the answer as it was measured.
"""

from __future__ import annotations

from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from experiments.article.charts import Figure, bytes_axis, log_scale, ns_axis, time_scale
from experiments.article.render import MUTED, PALETTE
from experiments.chapters.hugepages import analysis as huge
from experiments.inference import curves as claims
from experiments.inference.curves import PAGE
from experiments.lab.record import PAGE_BYTES
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

ASKED_BYTES, ASKED_PAGES = 30, "2m"  # what the static figure answers: 1 GiB, as a power of two, on the pages most asked about
PAST = 2  # from twice the entries on nearly every access of a cycle walks, so there the price is that of walks
_TICKS = (1, 3, 10, 30, 100, 300, 1000, 3000)


class Tlb(NamedTuple):
    """Entries of the first and of the last level, and what a hit in the last adds, ns."""

    first: float
    last: float
    hit_ns: float


def model(frame: pd.DataFrame, tlb: Tlb, splintered: bool) -> pd.DataFrame:
    """A row a page size and power of two of bytes: pages, log2_bytes, span_bytes, reach_bytes, walks_per_access, ns.

    Only where the chase was measured. Raises Unavailable("too-few-points") where no page size was, past twice the last level.
    """
    rows = []
    for pages in huge.kinds(frame):
        mine = frame[frame["pages"] == pages]
        priced, packed = claims.price(mine), claims.curve(mine, "packed")
        priced = priced[priced["median"].notna()]
        far = priced[priced["lines"] >= PAST * tlb.last]
        if far.empty:
            continue
        span = PAGE if splintered else PAGE_BYTES[pages]
        least, most = np.log2(PAGE * priced["lines"].min()), np.log2(PAGE * priced["lines"].max())
        for log2_bytes in range(int(np.ceil(least)), int(most) + 1):
            lines = 2**log2_bytes / PAGE
            first, last = (max(0.0, 1 - entries * span / 2**log2_bytes) for entries in (tlb.first, tlb.last))
            walk = max(_at(far, max(lines, float(far["lines"].min()))) - tlb.hit_ns, 0.0)
            price = _at(priced, lines) if span > PAGE else first * tlb.hit_ns + last * walk
            rows.append((pages, log2_bytes, span, tlb.last * span, last, _at(packed, lines) + price))
    if not rows:
        raise Unavailable("too-few-points", f"nothing was measured past {PAST * tlb.last:,.0f} lines")
    return pd.DataFrame(rows, columns=["pages", "log2_bytes", "span_bytes", "reach_bytes", "walks_per_access", "ns"])


def _at(points: pd.DataFrame, lines: float) -> float:
    """The median at a number of lines, between two points in the logarithm of lines."""
    points = points.sort_values("lines")
    return float(np.interp(np.log2(lines), np.log2(points["lines"].to_numpy(float)), points["median"]))


def answer(row: pd.Series) -> str:
    """A row of `model` in words."""
    return (f"{format_size(2 ** int(row['log2_bytes']))} on {row['pages']} pages: reach {format_size(int(row['reach_bytes']))}, "
            f"{row['walks_per_access']:.2f} walks per access, about {row['ns']:,.1f} ns.")


def figure(rows: pd.DataFrame) -> Figure:
    """Expected ns of a random access against the working set, a line a page size, with a size and a page size to choose."""
    order = list(dict.fromkeys(rows["pages"]))
    sizes = sorted(set(rows["log2_bytes"]))
    first = ASKED_PAGES if ASKED_PAGES in order else order[-1]
    asked = {"pages": first, "size": min(ASKED_BYTES, int(rows.loc[rows["pages"] == first, "log2_bytes"].max()))}
    texts = {pages: {str(int(row["log2_bytes"])): answer(row) for _, row in part.iterrows()} for pages, part in rows.groupby("pages")}
    nothing = "This size was not measured on these pages."
    data = rows.assign(working_set_bytes=2.0 ** rows["log2_bytes"], median=rows["ns"], low=rows["ns"], high=rows["ns"])
    size = alt.param("size", value=asked["size"], bind=alt.binding_select(
        options=sizes, labels=[format_size(2**n) for n in sizes], name="Working set "))
    pages = alt.param("pages", value=asked["pages"], bind=alt.binding_select(options=order, name="Pages "))
    answers = alt.param("answers", value=texts)
    readout = alt.param("readout", expr=f"answers[pages][size] || '{nothing}'")
    scale = time_scale(data)
    x = alt.X("working_set_bytes:Q", axis=bytes_axis("Working set"), scale=log_scale())
    ticks = [tick for tick in _TICKS if data["ns"].min() * 0.5 <= tick <= data["ns"].max() * 1.3]
    y = alt.Y("ns:Q", axis=ns_axis("expected ns per random access", ticks), scale=scale)
    colours = alt.Scale(domain=order, range=list(PALETTE[: len(order)]))
    base = alt.Chart(data[["pages", "log2_bytes", "working_set_bytes", "reach_bytes", "walks_per_access", "ns"]])
    lines = base.mark_line().encode(x=x, y=y, color=alt.Color("pages:N", sort=order, scale=colours), strokeDash=alt.StrokeDash(
        "pages:N", sort=order, scale=alt.Scale(domain=order, range=[[1, 0], [6, 3], [2, 3], [8, 3, 2, 3], [4, 2]][: len(order)])))
    chosen = base.transform_filter("datum.pages == pages && datum.log2_bytes == size")
    rule = chosen.mark_rule(color=MUTED, strokeDash=[4, 4]).encode(x=x)
    dot = chosen.mark_point(size=140).encode(x=x, y=y, color=alt.Color("pages:N", sort=order, scale=colours))
    chart = alt.layer(lines, rule, dot).add_params(size, pages, answers, readout)
    default = texts[asked["pages"]].get(str(asked["size"]), nothing)
    return Figure(chart, "calculator", f"Expected time of a random access against the working set, a line a page size. {default}",
                  data[["pages", "working_set_bytes", "reach_bytes", "walks_per_access", "ns"]])
