"""Chases in containers and on other memory nodes beside a plain process's."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from experiments.virtualization.grid import NODES
from tlb.inference.curves import Curve
from tlb.inference.intervals import UNKNOWN, Interval, median_interval
from tlb.reasons import Unavailable
from tlb.report import analysis

NODE = "numa_chase"
LEAST_PAIRS = 5  # of a median, fewer have no interval worth the name


class ContainersAnalysis(analysis.Analysis):
    """The rows of chases in fresh namespaces, and of `numa_chase`. The page defines plain and
    contained."""

    @cached_property
    def container_ratio(self) -> Interval:
        """Time in fresh namespaces over that of a plain process, the median over pairs, with its
        exact interval. A pair walked the same permutation in the same repeat, so what the order and
        an hour of drift do, they do to both; one interval over all sizes has one chance to miss,
        where one a size has as many. Raises Unavailable("too-few-points")."""
        plain, inside = (
            rows.groupby(["layout", "lines", "repeat"])["ns_per_access"].median()
            for rows in (self.plain, self.contained)
        )
        pairs = (inside / plain).dropna()
        if len(pairs) < LEAST_PAIRS:
            why = f"{len(pairs)} pairs of a process in namespaces and a plain one"
            raise Unavailable("too-few-points", why)
        return median_interval(pairs)

    @property
    def far_nodes(self) -> pd.DataFrame:
        """The rows of `nodes` at the largest size with something remote, beside both near; empty
        where there are none."""
        far = self.nodes.dropna(subset="over")
        far = far[(far[["memory", "tables"]] != "local").any(axis=1)]
        return far[far["lines"] == far["lines"].max()]

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """The chase by where its memory and page tables lie, seen from the CPU: memory, tables,
        lines, median, low, high, over, over_low, over_high (over both near). Empty where no node
        but one was measured."""
        curves = Curve.by(self.frame, NODES, "mode", kernel=NODE, layout="spread")
        rows = []
        for mode, curve in curves.items():
            over = dict(curve / curves[NODES[0]]) if NODES[0] in curves else {}
            rows += [
                (*mode.split("-"), int(lines), *here[:3], *over.get(lines, UNKNOWN)[:3])
                for lines, here in curve
            ]
        columns = ["memory", "tables", "lines", "median", "low", "high"]
        return pd.DataFrame(rows, columns=[*columns, "over", "over_low", "over_high"])
