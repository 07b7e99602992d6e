"""A model of what a load costs, fitted to the chases of the chapter about the TLB cliff and tested
on the walk of the graph."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from tlb.inference import cost
from tlb.inference.curves import Curve, select
from tlb.page_sizes import BASE
from tlb.reasons import required
from tlb.report import analysis
from tlb.units import rounded

SIZE = "working_set_bytes"
CHASES = {"spread": "chase, spread", "packed": "chase, packed"}
WALK = "graph walk"


class ModelAnalysis(analysis.Analysis):
    """What the model predicts of the rows of `graph_walk`. The page defines held_out_sizes, a slice
    of the sizes of the chases."""

    def walks(self, per_hop: int, **where: object) -> pd.DataFrame:
        """The rows of plain walks that were timed hop by hop (1) or per batch (0)."""
        return select(self.frame, kernel="graph_walk", mode="plain", per_hop=per_hop, **where)

    @cached_property
    def chases(self) -> pd.DataFrame:
        """`cost.points` of the first chapter's chases, and held_out: whether `held_out_sizes` keeps
        their size from the fit. Of the sizes of both orders together, so that neither shows the
        other's. Raises Unavailable("no-data")."""
        points = cost.points(self.about.kept("stlb_cliff"))
        return points.assign(
            held_out=points["lines"].isin(sorted(set(points["lines"]))[self.held_out_sizes])
        )

    @cached_property
    def fitted(self) -> cost.CostFit:
        """The model of a load's cost, from the chases that are not held out. Raises Unavailable:
        no-data, no-geometry, too-few-points."""
        return cost.fit(
            self.chases[~self.chases["held_out"]], cost.Known.of(self.host, self.entries)
        )

    @cached_property
    def modelled(self) -> pd.DataFrame:
        """What was measured in random order beside what the model says: series, seen, lines,
        measured_ns, predicted_ns.

        The walk is random order over packed lines. A hop picks an edge besides, which costs what a
        hop in four vertices takes longer than the fit's load from the first cache.
        """
        chases = select(self.chases, order="random")
        parts = [
            chases.assign(
                series=chases["layout"].map(CHASES),
                seen=np.where(chases["held_out"], "held out", "fitted"),
                predicted_ns=self.fitted.predict(chases),
            )
        ]
        rows = self.walks(0, walkers=1, pages=BASE)
        edge_ns = rows.get("four_vertices_ns_per_access", pd.Series(dtype=float)).median()
        if edge_ns > 0 and (load := self.fitted.parameters.get("load_random_ns")):
            walk = (
                Curve.of(rows)
                .table.rename(columns={"median": "measured_ns"})
                .assign(order="random", layout="packed")
            )
            parts.append(
                walk.assign(
                    series=WALK,
                    seen="held out",
                    predicted_ns=self.fitted.predict(walk) + edge_ns - load.value,
                )
            )
        columns = ["series", "seen", "lines", "measured_ns", "predicted_ns"]
        modelled = pd.concat([part[columns] for part in parts]).sort_values(
            ["series", "lines"], ignore_index=True
        )
        return modelled.assign(predicted_ns=modelled["predicted_ns"].map(rounded))

    def errors(self, *series: str) -> pd.Series:
        """Return by how much the model is off on points of these series that it was not fitted to,
        as shares, by lines. Raises Unavailable."""
        held = select(self.modelled, series=[*series], seen="held out").set_index("lines")
        return required(
            (held["predicted_ns"] / held["measured_ns"] - 1).abs(),
            "no point of these series was held out of the fit",
        )
