"""What a load costs, from few parameters: T = T_data + p1 T_stlb + p2 T_walk, fitted to a machine's curves and tested elsewhere.

T_data and T_walk grow as lines of data and of page tables leave the caches that they share (experiments/reuse.py). The
control, the same lines packed, is the same formula with 64 lines to a page; the price of translation is the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, inf, nan

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import least_squares
from scipy.stats import t as student

from experiments.article.machine_words import data_tlbs
from experiments.inference import curves as claims
from experiments.inference.intervals import Interval
from experiments.inference.misses import fit_step
from experiments.inference.reuse import LINE_BYTES, ORDERS, SHARING, Cache, Tlbs, places
from experiments.inference.robust import ORDINARY, ROBUST, jacobian, sandwich
from experiments.machine.host import Host
from experiments.words.reasons import Unavailable

LINES_PER_PAGE = claims.PAGE // LINE_BYTES
SPARE_POINTS = 6  # beyond as many points as parameters; at fewer the smears of the caches are free to follow the noise
SHARP, SMEARED = 200.0, 3.0  # ways between which a cache's end is looked for: 200 are a step of a tenth
ROUNDS = 4  # from one without rivals on; by then times move by less than the noise, but for those at the edge of a fall
WINDOW = (0.4, 2.0)  # of the entries: where the kind of the last TLB shows in a cycle
WAYS = (4, 6, 8, 12, 16)  # tried where nothing states them
CONFIDENCE = 0.95
# Where the points do not say what a walker's read takes (no control ever left the last cache), it takes what a load's does,
# give or take a third. Among points this guess counts as one of ordinary noise.
GUESS = {"walk_reads": (0.0, 0.3)}
FACTOR = 2.0  # a prediction with an upper bound so many times as high is none


@dataclass(frozen=True)
class Machine:
    """What is known before any fit: entries of each level of the data TLB, bytes of the caches for data, and whether the
    host's page table is walked too."""

    entries: tuple[int, ...]
    cache_bytes: tuple[int, ...]
    nested: bool = False
    ways: int | None = None  # of the last TLB

    def __post_init__(self) -> None:
        if not 1 <= len(self.entries) <= 2 or list(self.entries) != sorted(self.entries):
            raise Unavailable("no-geometry", f"the model takes one level of TLB or two, ascending, not {self.entries}")
        if not self.cache_bytes or list(self.cache_bytes) != sorted(self.cache_bytes):
            raise Unavailable("no-geometry", f"the model takes the sizes of the caches, ascending, not {self.cache_bytes}")

    @property
    def nearest_table(self) -> int:
        """The first cache that the tables can be in once there are walks: a smaller one is full of as many lines of data."""
        first = self.entries[-1] * (LINE_BYTES + LINE_BYTES // SHARING)
        return next((i for i, size in enumerate(self.cache_bytes) if size > first), len(self.cache_bytes))


def machine_of(host: Host) -> Machine:
    """What a machine states of itself, for 4 KiB pages. Unavailable("no-geometry") where it states too little."""
    found = data_tlbs(host)
    sizes = tuple(cache.size_bytes for cache in sorted(host.caches, key=lambda one: one.level) if cache.kind != "instruction")
    return Machine(tuple(tlb.entries for tlb in found), sizes, host.hypervisor != "none", found[-1].ways if found else None)


def names(machine: Machine) -> list[str]:
    """The parameters, each with its unit.

    load_<place>_adds_ns: what a read answered there takes longer than one answered by the place before. walk_ns: a walk
    whose reads are answered by the nearest place that has room for them; each of its last reads that goes further adds
    `walk_reads` times what a load adds (1 where the walker waits as a load does). rivals_bytes_per_ns: what other programs
    bring into the last cache, GB/s. smear_ways: how gradually a cache ends, infinite for a step. host_pages_per_table_line:
    8 where the guest's neighbouring pages are neighbours for the host, too, 1 where none are, 4096 where the host has 2 MiB
    pages, so that its table is as good as none.
    """
    beyond = [*(f"l{i}" for i in range(2, len(machine.cache_bytes) + 1)), "memory"]
    return [
        "load_cycle_ns", "load_random_ns", *(f"load_{place}_adds_ns" for place in beyond),
        *(["stlb_hit_ns"] if len(machine.entries) > 1 else []), "walk_ns", "walk_reads",
        *(["rivals_bytes_per_ns"] if len(machine.cache_bytes) > 1 else []),
        *(f"l{i}_smear_ways" for i in range(2, len(machine.cache_bytes) + 1)),
        *(["host_pages_per_table_line"] if machine.nested else []),
    ]


def time_ns(machine: Machine, parameters: Mapping[str, float], missed: Sequence[np.ndarray], pages: ArrayLike, order: str,
            lines_per_page: ArrayLike = 1) -> np.ndarray:
    """T in ns of a load from `pages` pages with `lines_per_page` lines each, of which so many miss each TLB (`Tlbs.misses`)."""
    p = parameters
    sizes = machine.cache_bytes
    # Pages are scattered over the sets of caches beyond the first, whose sets lie inside a page.
    caches = [Cache(size, p.get(f"l{i}_smear_ways", inf)) for i, size in enumerate(sizes, 1)]
    tables = [SHARING, *([p["host_pages_per_table_line"]] if machine.nested else [])]
    *first, walks = missed
    beyond = [*(f"l{i}" for i in range(2, len(sizes) + 1)), "memory"]
    alone = p[name] if (name := f"load_{order}_ns") in p else min(p[f"load_{one}_ns"] for one in ORDERS if f"load_{one}_ns" in p)
    flat = alone + (np.ravel(first[0] * p["stlb_hit_ns"]) if first else 0.0) + np.ravel(walks) * p["walk_ns"]
    rivals = p["rivals_bytes_per_ns"] if len(sizes) > 1 else 0.0  # nobody shares the first
    time = np.zeros(1)
    for _ in range(ROUNDS):  # a slower chase leaves others more time to take the last cache from it
        where = places(pages, order, caches, walks, tables, lines_per_page, np.ravel(time) * rivals)
        data = sum(share * p[f"load_{place}_adds_ns"] for place, share in zip(beyond, where.data, strict=True))
        reads = sum((share * p["walk_reads"] * p[f"load_{place}_adds_ns"] for table in where.tables
                     for place, share in list(zip(beyond, table, strict=True))[machine.nearest_table:]), start=np.zeros(1))
        before, time = time, flat + data + np.ravel(walks) * reads
        if np.allclose(before, time, rtol=1e-4):
            break
    return time


@dataclass(frozen=True)
class CostFit:
    """A fitted machine. Parameters are in the units that their names end on."""

    machine: Machine
    tlbs: Tlbs
    parameters: dict[str, Interval]
    at_bound: tuple[str, ...]  # those that the points would have moved further than is possible
    covariance: np.ndarray  # of the parameters' logarithms
    student: float  # the quantile that makes half of an interval of a standard error
    residuals: pd.DataFrame  # of `points`, with predicted_ns and relative = predicted / measured - 1

    def predict(self, lines: ArrayLike, order: str, lines_per_page: ArrayLike = 1) -> np.ndarray:
        """ns of a load from `lines` lines, so many to a page: 1 is the spread layout, 64 a dense array.

        NaN where the fitted points do not tell it to a factor of two: in a place that they never reached, or on the brink where
        rivals take the last cache over.
        """
        said, _, high = self.interval(lines, order, lines_per_page)
        return np.where(high < said * FACTOR, said, nan)

    def interval(self, lines: ArrayLike, order: str, lines_per_page: ArrayLike = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the same time: value, low and high, from the parameters' uncertainty alone, to first order."""
        m, each = np.broadcast_arrays(np.atleast_1d(lines).astype(float), np.asarray(lines_per_page, dtype=float))
        each = np.minimum(m, each)
        pages, missed = np.ceil(m / each), self.tlbs.misses(np.ceil(m / each), order, each)
        at = np.log([one.value for one in self.parameters.values()])

        def logs(x: np.ndarray) -> np.ndarray:
            return np.log(time_ns(self.machine, dict(zip(self.parameters, np.exp(x), strict=True)), missed, pages, order, each))

        slopes = jacobian(logs, at)
        half = self.student * np.sqrt(np.maximum(0, np.einsum("ij,jk,ik->i", slopes, self.covariance, slopes)))
        said = np.exp(logs(at))
        return said, said * np.exp(-half), said * np.exp(np.minimum(half, 700))

    def price(self, lines: ArrayLike, order: str) -> np.ndarray:
        """ns that translation adds: spread minus packed."""
        return self.predict(lines, order) - self.predict(lines, order, LINES_PER_PAGE)


def points(frame: pd.DataFrame, kernel: str = "page_chase") -> pd.DataFrame:
    """order, layout, lines, measured_ns, low_ns, high_ns of a frame's chases: the median over processes and its interval.

    A sequential order is left out: its prefetchers are no part of the model.
    """
    parts = []
    for order, layout in product(ORDERS, ("spread", "packed")):
        part = claims.curve(frame, layout, kernel, order).rename(columns={"median": "measured_ns", "low": "low_ns", "high": "high_ns"})
        parts.append(part.assign(order=order, layout=layout))
    kept = pd.concat(parts, ignore_index=True)
    return kept.loc[kept["measured_ns"] > 0, ["order", "layout", "lines", "measured_ns", "low_ns", "high_ns"]].reset_index(drop=True)


def fit(points: pd.DataFrame, machine: Machine) -> CostFit:
    """The parameters that leave the least of log(predicted / measured), large residuals counted by size (soft L1).

    points: `points` or rows of it. The bounds are of each parameter's logarithm, by Student and the sandwich of Huber (1967,
    Proc. 5th Berkeley Symposium 1): they hold for noise that differs from point to point, as it does here, which the plain
    Jacobian's do not; and no resampling of repeats can do it, since what the model lacks is the same in each. Where the model
    is wrong, neighbouring residuals are alike, and the bounds are too narrow. What no point tells has infinite bounds. `walk_reads`
    has a guess of 1 beside the points (GUESS).
    Unavailable("too-few-points").
    """
    spread = points[points["layout"] == "spread"]
    absent = [f"load_{order}_ns" for order in ORDERS if order not in set(points["order"])]  # predicted with the other order's
    found = [name for name in names(machine) if name not in absent]
    if len(points) < len(found) + SPARE_POINTS or spread["lines"].max() <= 2 * machine.entries[-1]:
        raise Unavailable("too-few-points", f"{len(found)} parameters take {len(found) + SPARE_POINTS} points, some of them past "
                          f"{2 * machine.entries[-1]} pages; here are {len(points)}")
    tlbs = _kind(points, machine)
    bounds = _bounds(points, machine)
    low, high = (np.log([bounds[name][i] for name in found]) for i in (0, 1))
    measured = points["measured_ns"].to_numpy()

    times = _timer(machine, tlbs, points)

    def residual(logs: np.ndarray) -> np.ndarray:
        off = np.log(times(dict(zip(found, np.exp(logs), strict=True))) / measured)
        return np.append(off, [ORDINARY * (logs[found.index(name)] - log) / give for name, (log, give) in GUESS.items()])

    starts = [np.clip(np.log([start[name] for name in found]), low + 1e-6, high - 1e-6) for start in _starts(points, machine)]
    tried = [least_squares(residual, start, bounds=(low, high), loss="soft_l1", f_scale=ROBUST, x_scale="jac", ftol=1e-6, xtol=1e-6,
                           max_nfev=100)
             for start in starts]
    best = min(tried, key=lambda one: one.cost)
    covariance, quantile = sandwich(residual, best.x, len(GUESS)), float(student.ppf((1 + CONFIDENCE) / 2, len(points) - len(found)))
    half = quantile * np.sqrt(np.diag(covariance))
    said = {name: Interval(exp(v), exp(max(v - w, -700)), exp(v + w) if w < 700 else inf, CONFIDENCE)
            for name, v, w in zip(found, best.x, half, strict=True)}
    stuck = tuple(name for name, v, a, b in zip(found, best.x, low, high, strict=True) if min(v - a, b - v) < 1e-3)
    ratio = np.exp(best.fun[:len(points)])
    left = points.assign(predicted_ns=measured * ratio, relative=ratio - 1)
    return CostFit(machine, tlbs, said, stuck, covariance, quantile, left)


def _timer(machine: Machine, tlbs: Tlbs, points: pd.DataFrame) -> Callable[[Mapping[str, float]], np.ndarray]:
    """The times of `points` for any parameters; what the TLBs miss depends on none of them."""
    parts = []
    for order in ORDERS:
        mine = np.flatnonzero(points["order"] == order)
        if mine.size:
            lines = points["lines"].to_numpy(float)[mine]
            each = np.where(points["layout"].to_numpy()[mine] == "packed", np.minimum(lines, LINES_PER_PAGE), 1.0)
            pages = np.ceil(lines / each)
            parts.append((mine, tlbs.misses(pages, order, each), pages, order, each))

    def times(parameters: Mapping[str, float]) -> np.ndarray:
        said = np.empty(len(points))
        for mine, *what in parts:
            said[mine] = time_ns(machine, parameters, *what)
        return said

    return times


def _kind(points: pd.DataFrame, machine: Machine) -> Tlbs:
    """How the last TLB replaces, by the cycle's price across its entries; LRU where no cycle crosses them."""
    c = machine.entries[-1]
    both = points[points["order"] == "cycle"].pivot(index="lines", columns="layout", values="measured_ns")
    both = both[(both.index >= WINDOW[0] * c) & (both.index <= WINDOW[1] * c)]
    if not {"spread", "packed"} <= set(both.columns):
        return Tlbs(machine.entries)
    price = (both["spread"] - both["packed"]).dropna()
    try:
        fits = [(step, ways) for ways in ([machine.ways] if machine.ways else WAYS) for step in fit_step(price.index, price, c, ways)]
    except Unavailable:
        return Tlbs(machine.entries)
    step, ways = min(fits, key=lambda one: one[0].residual_ns)
    return Tlbs(machine.entries, step.kind, ways if step.kind.startswith("hashed") else None)


def _bounds(points: pd.DataFrame, machine: Machine) -> dict[str, tuple[float, float]]:
    least, most = points["measured_ns"].min(), points["measured_ns"].max()
    within: dict[str, tuple[float, float]] = {}
    for name in names(machine):
        within[name] = (1e-3 * least, 64 * most)
    within["walk_reads"] = (0.05, 20.0)
    within["rivals_bytes_per_ns"] = (0.01, 100.0)  # GB/s: from nothing that shows to all that two memory channels bring
    within |= {name: (SMEARED, SHARP) for name in within if name.endswith("_ways")}
    if machine.nested:
        within["host_pages_per_table_line"] = (1.0, SHARING * 512.0)
    return within


def _starts(points: pd.DataFrame, machine: Machine) -> list[dict[str, float]]:
    """Costs as the curves show them, roughly, with each guess of what no curve shows at a glance."""
    least = points["measured_ns"].min()
    packed = points[points["layout"] == "packed"]
    packed = (points if packed.empty else packed).groupby("lines", as_index=False)["measured_ns"].median()
    size = packed["lines"].to_numpy(float) * LINE_BYTES
    start = dict.fromkeys(names(machine), least) | {f"l{i}_smear_ways": 8.0 for i in range(2, len(machine.cache_bytes) + 1)}
    sizes = np.array(machine.cache_bytes)
    heights = np.interp(np.log([*(0.4 * sizes), packed["lines"].max() * LINE_BYTES]), np.log(size), packed["measured_ns"])
    below = added = heights[0] / 2
    for i, ns in enumerate(np.diff(heights), 2):
        below += added
        added = ns if ns > 0.5 * least else 3 * below  # a place that no control reached: each takes some four times the one before
        start[f"load_{'memory' if i > len(sizes) else f'l{i}'}_adds_ns"] = added
    guesses = product((0.03, 5.0), (1.5, 6.0) if machine.nested else (8.0,))
    return [start | {"walk_ns": 5 * least, "walk_reads": 1.0} | ({"rivals_bytes_per_ns": rivals} if len(sizes) > 1 else {})
            | ({"host_pages_per_table_line": host} if machine.nested else {}) for rivals, host in guesses]
