"""What a load costs, from few parameters: T = T_data + p1 T_stlb + p2 T_walk, fitted to a machine's
curves and tested elsewhere.

T_data and T_walk grow as lines of data and of page tables leave the caches that they share
(inference/reuse.py). The control, the same lines packed, is the same formula with 64 lines to a
page.

Two assumptions, since with both free the published rows leave each open by many powers of ten: the
page walker waits for a read as long as a load does, and a line of the host's page table holds as
many neighbours as one of the guest's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import exp, inf

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import stdtrit

from tlb.inference.cost_model import Known as Known
from tlb.inference.cost_model import time_ns as time_ns
from tlb.inference.curves import Curve
from tlb.inference.intervals import Interval
from tlb.inference.misses import fit_step
from tlb.inference.reuse import LINE_BYTES, ORDERS, Tlbs
from tlb.reasons import Unavailable
from tlb.units import rounded

# beyond as many points as parameters; at fewer the smears of the caches are free to follow the
# noise
SPARE_POINTS = 6
SHARP, SMEARED = 200.0, 3.0  # ways between which a cache's end lies: 200 are a step of a tenth
WINDOW = (0.4, 2.0)  # of the entries: where the kind of the last TLB shows in a cycle
WAYS = (4, 6, 8, 12, 16)  # tried where nothing states them
CONFIDENCE = 0.95
LOOSE = 10.0  # a factor between the bounds of a parameter: one this wide is not determined
# of log T: past what the book calls unstable a residual counts by its size, not its square
ROBUST = 0.05
UNTOLD = 1e6  # variance of the log of what no point determines
WRONG = 0.10  # of the time; half of it is what the book calls unstable in one point


@dataclass(frozen=True)
class CostFit:
    """A fitted machine. parameters: with bounds, wide if the points do not determine one. at_bound:
    those that reached the limit of what is possible. points: what it was fitted to."""

    known: Known
    tlbs: Tlbs
    parameters: dict[str, Interval]  # each with bounds, wide where the points do not determine it
    at_bound: tuple[str, ...]  # those that the points would have moved further than is possible
    points: pd.DataFrame  # that it was fitted to

    def predict(self, points: pd.DataFrame) -> np.ndarray:
        """Return ns of a load at each point's `lines`, `order` and `layout` (spread, one to a page,
        or packed)."""
        return _timer(self.known, self.tlbs, points)(
            {name: interval.value for name, interval in self.parameters.items()}
        )

    @property
    def undetermined(self) -> list[str]:
        """The parameters whose bounds are more than LOOSE times apart."""
        return [name for name, fit in self.parameters.items() if not fit.high <= LOOSE * fit.low]

    @property
    def residuals(self) -> pd.DataFrame:
        """`points` with predicted_ns and relative = predicted / measured - 1."""
        predicted_ns = self.predict(self.points)
        return self.points.assign(
            predicted_ns=predicted_ns, relative=predicted_ns / self.points["measured_ns"] - 1
        )

    def wrong(self) -> list[pd.DataFrame]:
        """Return the runs of neighbouring points of one curve that are off by over a tenth to one
        side, those of `residuals`, the largest sum first."""
        runs = []
        for _, part in self.residuals.sort_values("lines").groupby(["order", "layout"]):
            sign = np.sign(part["relative"]) * (part["relative"].abs() > WRONG)
            grouped = part.groupby((sign != sign.shift()).cumsum())
            runs += [run for _, run in grouped if abs(run["relative"].iloc[0]) > WRONG]
        return sorted(runs, key=lambda run: -np.abs(np.log1p(run["relative"])).sum())


def points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return order, layout, lines, measured_ns of a frame's chases: medians over processes.

    A sequential order is left out: prefetchers are no part of the model.
    """
    parts = [
        Curve.of(frame, kernel="page_chase", order=order, layout=layout).table.assign(
            order=order, layout=layout
        )
        for order, layout in product(ORDERS, ("spread", "packed"))
    ]
    kept = pd.concat(parts, ignore_index=True).rename(columns={"median": "measured_ns"})
    return kept.loc[
        kept["measured_ns"] > 0, ["order", "layout", "lines", "measured_ns"]
    ].reset_index(drop=True)


def fit(points: pd.DataFrame, known: Known) -> CostFit:
    """Return the parameters that minimise log(predicted / measured) under the soft L1 loss.

    points: `points` or rows of it. The bounds are of each parameter's log, by Student and the
    sandwich of Huber (1967, Proc. 5th Berkeley Symposium 1), which holds for noise that differs
    from point to point. If the model is wrong, neighbouring residuals are alike and the bounds too
    narrow. What no point determines has infinite bounds. The search ends far below the four digits
    that are kept, so they are the same on every CPU. Raises Unavailable("too-few-points").
    """
    orders = set(points["order"])  # another order is predicted with this one's parameter
    absent = [f"load_{order}_ns" for order in ORDERS if order not in orders]
    names = [name for name in known.parameters if name not in absent]
    past, needed = 2 * known.entries[-1], len(names) + SPARE_POINTS
    if len(points) < needed or points.loc[points["layout"] == "spread", "lines"].max() <= past:
        needs = f"{needed} points, some past {past} pages, for {len(names)} parameters"
        raise Unavailable("too-few-points", f"{needs}; there are {len(points)}")
    tlbs, bounds = _kind(points, known), _bounds(points, known)
    low, high = (np.log([bounds[name][i] for name in names]) for i in (0, 1))
    residual = _residual(points, known, tlbs, names)
    best, half = _solved(residual, _log_starts(points, known, names, low, high), low, high)
    ends, stuck = {}, []
    for name, v, w, a, b in zip(names, best, half, low, high, strict=True):
        bound = exp(max(v - w, -700)), exp(v + w) if w < 700 else inf
        ends[name] = Interval(*map(rounded, (exp(v), *bound)), CONFIDENCE)
        if min(v - a, b - v) < 1e-3:
            stuck.append(name)
    return CostFit(known, tlbs, ends, tuple(stuck), points)


def _residual(points: pd.DataFrame, known: Known, tlbs: Tlbs, names: list[str]) -> Callable:
    times, measured = _timer(known, tlbs, points), points["measured_ns"].to_numpy()
    return lambda logs: np.log(times(dict(zip(names, np.exp(logs), strict=True))) / measured)


def _log_starts(
    points: pd.DataFrame, known: Known, names: list[str], low: np.ndarray, high: np.ndarray
) -> list[np.ndarray]:
    logs = [np.log([start[name] for name in names]) for start in _starts(points, known)]
    return [np.clip(start, low + 1e-6, high - 1e-6) for start in logs]


def _solved(
    residual: Callable, starts: list[np.ndarray], low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best logs of the parameters, and half the widths of their intervals."""
    how = {"loss": "soft_l1", "f_scale": ROBUST, "x_scale": "jac", "ftol": 1e-12, "xtol": 1e-10}
    tried = [
        least_squares(residual, start, bounds=(low, high), max_nfev=200, **how) for start in starts
    ]
    best = min(tried, key=lambda solved: solved.cost).x
    freedom = residual(best).size - best.size
    width = np.sqrt(np.diag(_sandwich(residual, best)))
    return best, stdtrit(freedom, (1 + CONFIDENCE) / 2) * width


def _timer(
    known: Known, tlbs: Tlbs, points: pd.DataFrame
) -> Callable[[Mapping[str, float]], np.ndarray]:
    """Return a function from parameters to the times of `points`."""
    parts = []
    for order in ORDERS:
        mine = np.flatnonzero(points["order"] == order)
        if mine.size:
            lines = points["lines"].to_numpy(float)[mine]
            each = np.where(
                points["layout"].to_numpy()[mine] == "packed",
                np.minimum(lines, known.lines_per_page),
                1.0,
            )
            pages = np.ceil(lines / each)
            parts.append((mine, tlbs.misses(pages, order, each), pages, order, each))

    def times(parameters: Mapping[str, float]) -> np.ndarray:
        ns = np.empty(len(points))
        for mine, *what in parts:
            ns[mine] = time_ns(known, parameters, *what)
        return ns

    return times


def _kind(points: pd.DataFrame, known: Known) -> Tlbs:
    """Return how the last TLB replaces, by the cycle's price across its entries; LRU if unknown."""
    c = known.entries[-1]
    both = points[
        (points["order"] == "cycle") & points["lines"].between(WINDOW[0] * c, WINDOW[1] * c)
    ]
    both = both.pivot(index="lines", columns="layout", values="measured_ns").reindex(
        columns=["spread", "packed"]
    )
    price = (both["spread"] - both["packed"]).dropna()
    try:
        fits = [
            (step, ways)
            for ways in ([known.ways] if known.ways else WAYS)
            for step in fit_step(price.index, price, c, ways)
        ]
    except Unavailable:
        return Tlbs(known.entries)
    step, ways = min(fits, key=lambda pair: pair[0].residual)
    return Tlbs(known.entries, step.kind, ways if step.kind.startswith("hashed") else None)


def _bounds(points: pd.DataFrame, known: Known) -> dict[str, tuple[float, float]]:
    least, most = points["measured_ns"].min(), points["measured_ns"].max()
    within = {
        name: (SMEARED, SHARP) if name.endswith("_ways") else (1e-3 * least, 64 * most)
        for name in known.parameters
    }
    # GB/s of rivals: from nothing that shows to all that two memory channels bring.
    return within | {"rivals_bytes_per_ns": (0.01, 100.0)}


def _starts(points: pd.DataFrame, known: Known) -> list[dict[str, float]]:
    """Return rough costs from the curves, with each guess of what no curve shows directly."""
    least = points["measured_ns"].min()
    packed = points[points["layout"] == "packed"]
    packed = (points if packed.empty else packed).groupby("lines")["measured_ns"].median()
    size, sizes = packed.index.to_numpy(float) * LINE_BYTES, np.array(known.cache_bytes)
    start = {name: 8.0 if name.endswith("_ways") else least for name in known.parameters} | {
        "walk_ns": 5 * least
    }
    heights = np.interp(np.log([*(0.4 * sizes), size.max()]), np.log(size), packed)
    below = added = heights[0] / 2
    for place, ns in zip(known.beyond, np.diff(heights), strict=True):
        below += added
        # A place that no control reached takes some four times the one before.
        added = ns if ns > 0.5 * least else 3 * below
        start[f"load_{place}_adds_ns"] = added
    return [start | {"rivals_bytes_per_ns": rivals} for rivals in (0.03, 5.0)]


def _jacobian(f: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> np.ndarray:
    """Return central differences of 1e-4: a row for each value of f, a column for each
    parameter."""
    return np.stack(
        [(f(at + 1e-4 * axis) - f(at - 1e-4 * axis)) / 2e-4 for axis in np.eye(at.size)], axis=1
    )


def _sandwich(residual: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> np.ndarray:
    """Return the covariance of what minimises the soft L1 loss (Huber's sandwich); UNTOLD along a
    direction that changes nothing."""
    jac, r = _jacobian(residual, at), residual(at)
    z = 1 + (r / ROBUST) ** 2
    # the loss bends by z^(-3/2)
    _, size, directions = np.linalg.svd(jac / z[:, None] ** 0.75, full_matrices=False)
    known = size > 1e-5 * size.max()
    inverse = (directions[known].T / size[known] ** 2) @ directions[known]
    slopes = jac * (r / np.sqrt(z))[:, None]
    return (
        inverse @ (slopes.T @ slopes) @ inverse * r.size / (r.size - at.size)
        + UNTOLD * directions[~known].T @ directions[~known]
    )
