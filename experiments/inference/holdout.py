"""Whether the model of a load's cost predicts what it has not seen, and where it is wrong, in numbers and in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from experiments.inference import curves as claims
from experiments.inference.cost import FACTOR, LINES_PER_PAGE, CostFit, Machine, fit
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

BELOW = 2**28  # bytes of pages: the larger sizes are to be predicted from those up to here
WRONG = 0.10  # of the time; half of it is what the book calls unstable in one point
PRICED = 0.05  # of the time: a price below that drowns in the noise of its two sides, and has no relative error
COLUMNS = ["held_out", "order", "lines", "past_tlb", "measured_ns", "predicted_ns", "told", "error", "price_ns", "predicted_price_ns",
           "price_error", "with_control_error"]


def _third(points: pd.DataFrame) -> pd.Series:
    """Of the sizes of both orders together every third, so that neither shows the other's."""
    sizes = np.sort(points["lines"].unique())
    return points["lines"].isin(sizes[1::3])


# What each way leaves out of the fit, and is then asked for.
WAYS_TO_HOLD_OUT: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "every third size": _third,
    "random order, from the cycle": lambda points: points["order"] == "random",
    f"sizes above {format_size(BELOW)}, from those below": lambda points: points["lines"] > BELOW // claims.PAGE,
}


def held_out(points: pd.DataFrame, machine: Machine) -> pd.DataFrame:
    """A row for each spread point that a fit did not see, by what was held out.

    points: of `cost.points`. told: 1, or 0 where `CostFit.predict` says NaN, since the fit knows the time to no factor of two;
    predicted_ns is then what it says regardless. error: predicted / measured - 1 of the time, by the model alone.
    price_error: that of the price of translation, NaN where the price is under a twentieth of the time. with_control_error:
    that of the time, as the measured control plus the predicted price. A way of which there is nothing to fit, or nothing
    to ask, has no rows.
    Unavailable("too-few-points") where none has.
    """
    parts, why = [], None
    for name, chosen in WAYS_TO_HOLD_OUT.items():
        out = chosen(points)
        if not (out & (points["layout"] == "spread")).any():
            continue
        try:
            parts.append(_asked(points[out], fit(points[~out], machine)).assign(held_out=name))
        except Unavailable as one:
            why = one
    if not parts:
        raise why or Unavailable("too-few-points", "nothing to hold out")
    return pd.concat(parts, ignore_index=True)[COLUMNS]


def _asked(points: pd.DataFrame, fitted: CostFit) -> pd.DataFrame:
    wide = points.pivot(index=["order", "lines"], columns="layout", values="measured_ns").reindex(columns=["spread", "packed"])
    wide = wide[wide["spread"].notna()].reset_index().rename(columns={"spread": "measured_ns"})
    for order, rows in wide.groupby("order"):
        said, _, high = fitted.interval(rows["lines"], order)
        wide.loc[rows.index, ["predicted_ns", "told"]] = np.stack([said, high < FACTOR * said], axis=1)
        wide.loc[rows.index, "predicted_price_ns"] = said - fitted.interval(rows["lines"], order, LINES_PER_PAGE)[0]
    wide["past_tlb"] = wide["lines"] > fitted.machine.entries[-1]
    wide["error"] = wide["predicted_ns"] / wide["measured_ns"] - 1
    wide["price_ns"] = wide["measured_ns"] - wide["packed"]
    wide["price_error"] = (wide["predicted_price_ns"] / wide["price_ns"] - 1).where(wide["price_ns"] > PRICED * wide["measured_ns"])
    wide["with_control_error"] = (wide["packed"] + wide["predicted_price_ns"]) / wide["measured_ns"] - 1
    return wide


def median_errors(held: pd.DataFrame) -> pd.DataFrame:
    """Medians of the absolute errors of `held_out`, a row for each way and range; untold: points of which the fit knew little."""
    rows = []
    for (name, past), part in [(key, part) for key, part in held.groupby(["held_out", "past_tlb"], sort=False)] + [
            ((key, None), part) for key, part in held.groupby("held_out", sort=False)]:
        where = "all" if past is None else "past the last TLB" if past else "inside the TLBs"
        medians = {column: float(part[column].abs().median()) for column in ("error", "price_error", "with_control_error")}
        untold = int((part["told"] == 0).sum())
        rows.append({"held_out": name, "range": where, "points": len(part), "untold": untold} | medians)
    return pd.DataFrame(rows).sort_values(["held_out", "range"], ignore_index=True)


def explains(fitted: CostFit) -> str:
    """What the model explains of the points it was fitted to, and the range of sizes, the sign and the size of where it is
    most wrong: the run of neighbouring points of one curve, off by a tenth or more to one side, with the largest sum."""
    left = fitted.residuals
    said = f"The model comes within {left['relative'].abs().median():.0%} of half of the {len(left)} points"
    runs = []
    for (order, layout), part in left.sort_values("lines").groupby(["order", "layout"]):
        sign = np.sign(part["relative"]) * (part["relative"].abs() > WRONG)
        for _, run in part.groupby((sign != sign.shift()).cumsum()):
            off = run["relative"]
            if abs(off.iloc[0]) > WRONG:
                runs.append((float(np.abs(np.log1p(off)).sum()), order, layout, run))
    if not runs:
        return f"{said} and misses none by more than {WRONG:.0%}."
    _, order, layout, run = max(runs, key=lambda one: one[0])
    worst = run.loc[run["relative"].abs().idxmax()]
    a, b = int(run["lines"].min()), int(run["lines"].max())
    where = f"at {a:,} lines" if a == b else f"from {a:,} to {b:,} lines"
    wrong = sum(len(one[3]) for one in runs)
    predicts = "too much" if worst["relative"] > 0 else "too little"
    return (f"{said} and misses {wrong} by more than {WRONG:.0%}. It is most wrong {where} of the {layout} layout in {_ORDER[order]}, "
            f"where it predicts {predicts}: {worst['predicted_ns']:.3g} ns for {worst['measured_ns']:.3g} at {int(worst['lines']):,}.")


_ORDER = {"cycle": "cyclic order", "random": "random order"}
