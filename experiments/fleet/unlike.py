"""Which computers of a fleet are not like their kind: point by point, each one's median against that of all of its CPU and its Linux.

The rule is that of `tlb compare`. A computer *differs* at a point where the interval of its median over its kind's, as wide as one of so
many needs (Bonferroni), lies on one side of 1, and farther from it than its kind's computers themselves scatter. Their scatter is their
median absolute deviation, which odd ones do not widen, times the quantile of Student's t that one of so many needs. The deviation of n
normal values knows their scale as well as the standard deviation of 0.37 n does (Rousseeuw & Croux, J. Am. Stat. Assoc. 88, 1993), so these
are the degrees of freedom: of few computers only what is very odd is named. The kind's median is that of the computers that are there, and
so is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from math import exp, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from experiments.article.setting import point_columns
from experiments.article.verdicts import LEAST_COVERAGE, WRONG_BY_CHANCE, decided, inside
from experiments.front.compare import Compared
from experiments.front.compare_words import point_words
from experiments.inference.intervals import Interval, summarise
from experiments.inference.scatter import NORMAL_MAD
from experiments.lab import kernels, states
from experiments.lab.store import Store
from experiments.machine import host as hosts
from experiments.words.prose import count
from experiments.words.reasons import if_available

if TYPE_CHECKING:
    from experiments.fleet.collected import Collected
    from experiments.fleet.courier import Visited

LEAST_HOSTS = 4  # of a kind: of two that differ nobody knows which is the odd one, and three have next to no scatter
EFFICIENCY = 0.37  # of the median absolute deviation beside the standard deviation, of normal values
TIME = "ns_per_access"
_CODE = ["measures", "kernel_digest"]


class Unlike(NamedTuple):
    """A computer at a point where it differs. ratio: its median over its kind's, as wide as one of `among` needs."""

    machine: str
    point: dict[str, Any]
    ratio: Interval


class Kind(NamedTuple):
    """Computers of one CPU and one Linux. among: comparisons of five processes or more, all computers' together."""

    words: str
    machines: list[str]
    points: int
    among: int
    unlike: list[Unlike]


def kinds(store: Store, machines: Iterable[str]) -> list[Kind]:
    """The kinds that machines of a store are of, by name, each with its odd ones, the oddest first."""
    members: dict[str, list[str]] = {}
    for machine in sorted({*machines}):
        if host := if_available(states.latest, store, machine):
            members.setdefault(f"{host.cpu_model}, Linux {host.kernel_release}", []).append(machine)
    return [_kind(store, words, alike) for words, alike in sorted(members.items())]


def _kind(store: Store, words: str, machines: list[str]) -> Kind:
    if len(machines) < LEAST_HOSTS:
        return Kind(words, machines, 0, 0, [])
    rows = pd.concat([_rows(store, machine) for machine in machines], ignore_index=True)
    return of_rows(words, machines, rows)


def of_rows(words: str, machines: list[str], rows: pd.DataFrame) -> Kind:
    """Of rows with a column `machine`. A point counts where LEAST_HOSTS have it of one code, to the digest, and one version of its
    kernel."""
    if rows.empty:
        return Kind(words, machines, 0, 0, [])
    by = [*point_columns(rows), *_CODE]
    each = summarise(rows, [*by, "machine"], TIME)
    each = each[each["median"] > 0]
    points = [point for _, point in each.groupby(by, dropna=False) if len(point) >= LEAST_HOSTS]
    among = sum(int((point["coverage"] >= LEAST_COVERAGE).sum()) for point in points)
    unlike = [one for point in points for one in _unlike(point, by, max(among, 1))]
    return Kind(words, machines, len(points), among, sorted(unlike, key=lambda one: -abs(log(one.ratio.value))))


def _rows(store: Store, machine: str) -> pd.DataFrame:
    """A machine's rows in its present state, a process once, whoever asked for it."""
    state = hosts.state(states.latest(store, machine))
    frames = [frame[frame["state"] == state] for experiment in store.experiments(machine)
              if len(frame := kernels.with_defaults(store.load(machine, experiment)))]
    rows = pd.concat(frames or [pd.DataFrame()], ignore_index=True)
    if rows.empty:
        return rows
    return rows[~rows.duplicated([*point_columns(rows), *_CODE, "repeat"])].assign(machine=machine)


def _unlike(point: pd.DataFrame, by: list[str], among: int) -> Iterator[Unlike]:
    """Of the computers' summaries at one point, those that differ."""
    logs = np.log(point["median"].to_numpy(float))
    middle = float(np.median(logs))
    slack = float(np.median(np.abs(logs - middle))) / NORMAL_MAD * _quantile(len(logs), among)
    for row in point.to_dict("records"):
        apart = Interval(*(log(row[bound]) - middle if row[bound] > 0 else -np.inf for bound in ("median", "low", "high")),
                         row["coverage"], row["modes"])
        if decided(inside(apart, -slack, slack, among)) is False:
            wide = apart.widened(among)
            ratio = Interval(*(exp(bound) for bound in wide[:3]), apart.coverage, apart.modes)
            yield Unlike(row["machine"], {name: row[name] for name in by if row[name] == row[name]}, ratio)


@cache
def _quantile(n: int, among: int) -> float:
    """How many standard deviations from its kind one of n computers may lie by chance, in one of so many comparisons."""
    return float(stdtrit(EFFICIENCY * (n - 1), 1 - WRONG_BY_CHANCE / 2 / among))


# --- told


def told(collected: Collected, fleet: Iterable[Visited]) -> Iterator[str | pd.DataFrame]:
    """Each computer with what became of it; then, by kind, the odd ones."""
    visited = sorted(fleet, key=lambda one: (one.why is None, one.name))
    yield pd.DataFrame([_row(one) for one in visited], columns=["computer", "machine", "rows came", "left out", "cannot be had", "ended"])
    for one in visited:
        if one.why:
            yield f"{one.name}: {one.why}"
    if shared := [one.name for one in visited if one.shares_its_cpu]:
        yield f"On {', '.join(shared)} the worker shares the only CPU, and the times bear what it takes."
    names = {one.machine: one.name for one in visited if one.machine}
    for kind in kinds(collected.store, names):
        yield from _of_kind(kind, names)


def _row(one: Visited) -> tuple[str, str, str, str, str, str]:
    lacking = ", ".join(f"{number} {code}" for code, number in sorted(one.lacking.items()))
    return (one.name, one.machine or "unknown", f"{one.rows:,}", f"{one.left:,}", lacking or "none",
            one.why.code if one.why else "done" if one.over else "unfinished")


def _of_kind(kind: Kind, names: dict[str, str]) -> Iterator[str | pd.DataFrame]:
    n = len(kind.machines)
    if n < LEAST_HOSTS:
        yield f"{kind.words}: {count(n)} of this kind, and of fewer than {LEAST_HOSTS} nobody knows which is the odd one."
        return
    odd = "These differ from the median of their kind:" if kind.unlike else "None differs from the rest."
    yield (f"{kind.words}: {count(n)} computers at {count(kind.points)} points, {count(kind.among)} comparisons of five processes or "
           f"more; the interval of each ratio is as wide as one of {count(kind.among)} needs (Bonferroni), so of kinds whose "
           f"computers are all alike at most {WRONG_BY_CHANCE:.0%} have any that is named. {odd}")
    if kind.unlike:
        yield pd.DataFrame([_odd(kind, machine, names) for machine in dict.fromkeys(one.machine for one in kind.unlike)],
                           columns=["computer", "points that differ", "farthest", "over its kind"])


def _odd(kind: Kind, machine: str, names: dict[str, str]) -> tuple[str, str, str, str]:
    own = [one for one in kind.unlike if one.machine == machine]
    words = point_words(Compared("", own[0].point, TIME, None))  # type: ignore[arg-type]
    return names.get(machine, machine), f"{len(own):,} of {kind.points:,}", words, f"{own[0].ratio:.2f}"
