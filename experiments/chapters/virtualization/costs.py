"""What a guest costs beside its loads, and what containers and memory nodes do to the same chase."""

from __future__ import annotations

import pandas as pd

from experiments.chapters.virtualization.analysis import (
    KERNEL,
    NAMESPACES,
    alike,
    cell,
    cells,
    guests,
    interval_at,
    matrix,
    native,
    over,
    sizes,
)
from experiments.inference import curves as claims
from experiments.inference import intervals as stats
from experiments.inference.intervals import Interval
from experiments.lab.grid import NODES
from experiments.words.reasons import Unavailable

LEAST_PAIRS = 5  # of a median, fewer have no interval worth the name


def clocks(frame: pd.DataFrame) -> pd.Series:
    """The time by the clock outside over that by the guest's clock, of each process of a guest."""
    mine = guests(frame)
    if "outside_ns_per_access" not in mine:
        return pd.Series(dtype=float)
    return (mine["outside_ns_per_access"] / mine["ns_per_access"]).dropna()


def first_touches(frame: pd.DataFrame) -> pd.DataFrame:
    """What a line's first touch in the guest costs, ns, a row a cell, at the largest size of `sizes`: guest, host, lines, median, low,
    high, n. Empty where none was measured."""
    mine = guests(frame)
    mine = mine[mine["layout"] == "spread"]
    columns = ["guest", "host", "lines", "median", "low", "high", "n"]
    if "first_touch_ns_per_access" not in mine or mine["first_touch_ns_per_access"].isna().all():
        return pd.DataFrame(columns=columns)
    mine = mine[mine["lines"] == sizes(matrix(frame))[-1]]
    found = stats.summarise(mine, ["mode", "pages", "lines"], "first_touch_ns_per_access")
    found = found.rename(columns={"mode": "guest", "pages": "host"}).set_index(["guest", "host"])
    return found.loc[[one for one in cells(frame) if one in found.index]].reset_index()[columns]


def five_levels(frame: pd.DataFrame) -> tuple[int, Interval]:
    """The largest number of lines that a guest with five levels of page tables walked on base pages, and its time over that of one with
    four. Raises Unavailable("too-few-points")."""
    four, five = (claims.curve(side[(side["mode"] == "4k") & (side["pages"] == "4k")], "spread", KERNEL).set_index("lines")
                  for side in (guests(frame), guests(frame, 5)))
    both = sorted(set(four.index) & set(five.index))
    if not both:
        raise Unavailable("too-few-points", "no guest with five levels was measured beside one with four")
    return int(both[-1]), stats.interval_of_ratio(interval_at(five, both[-1]), interval_at(four, both[-1]))


def containers(frame: pd.DataFrame) -> pd.DataFrame:
    """The chase in fresh namespaces and the plain one, a row a layout and number of lines: layout, lines, plain, inside (medians), and
    difference, low, high (inside minus plain), all ns per access."""
    rows = []
    for layout in ("spread", "packed"):
        plain, inside = (claims.curve(native(frame, "4k", mode), layout).set_index("lines") for mode in ("", NAMESPACES))
        for lines in sorted(set(plain.index) & set(inside.index)):
            a, b = interval_at(inside, lines), interval_at(plain, lines)
            rows.append((layout, int(lines), b.value, a.value, *stats.interval_of_difference(a, b)[:3]))
    return pd.DataFrame(rows, columns=["layout", "lines", "plain", "inside", "difference", "low", "high"])


def container_ratio(frame: pd.DataFrame) -> Interval:
    """Time in fresh namespaces over that of a plain process, the median over pairs, with its exact interval. A pair walked the same
    permutation in the same repeat, so what the order and an hour of drift do, they do to both; one interval over all sizes has one
    chance to miss, where one a size has as many. Raises Unavailable("too-few-points")."""
    keys = ["layout", "lines", "repeat"]
    plain, inside = (native(frame, "4k", mode).groupby(keys)["ns_per_access"].median() for mode in ("", NAMESPACES))
    pairs = (inside / plain).dropna()
    if len(pairs) < LEAST_PAIRS:
        raise Unavailable("too-few-points", f"{len(pairs)} pairs of a process in namespaces and a plain one")
    return stats.median_interval(pairs)


def nodes(frame: pd.DataFrame) -> pd.DataFrame:
    """The chase by where its memory and its page tables lie, seen from the CPU: memory, tables, lines, median, low, high (ns per
    access), over, over_low, over_high (over both near). Empty where no node but one was measured."""
    rows = frame[(frame["kernel"] == "numa_chase") & (frame["layout"] == "spread")]
    found = {mode: claims.curve(rows[rows["mode"] == mode], "spread", "numa_chase").set_index("lines") for mode in NODES}
    near = found[NODES[0]]
    told = []
    for mode, side in found.items():
        for lines in side.index:
            here = interval_at(side, lines)
            told.append((*mode.split("-"), int(lines), *here[:3], *over(here, interval_at(near, lines))[:3]))
    return pd.DataFrame(told, columns=["memory", "tables", "lines", "median", "low", "high", "over", "over_low", "over_high"])


def inside_a_cache(frame: pd.DataFrame, guest: str = "4k", host: str = "4k") -> Interval:
    """The guest's packed chase of the fewest lines over the plain process's: where nothing is translated twice and nothing missed, both
    run the same instructions on the same lines. Raises Unavailable("too-few-points")."""
    a = claims.curve(cell(frame, guest, host), "packed", KERNEL).set_index("lines")
    b = claims.curve(native(frame, alike(frame, guest) or "4k"), "packed").set_index("lines")
    both = sorted(set(a.index) & set(b.index))
    if not both:
        raise Unavailable("too-few-points", "no packed chase was measured both in a guest and outside")
    return stats.interval_of_ratio(interval_at(a, both[0]), interval_at(b, both[0]))
