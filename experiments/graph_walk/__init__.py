"""A walk through a graph: what one hop takes, and the slowest in twenty."""

from experiments.graph_walk import (
    access_origin,
    claims,
    figures,
    grid,
    model,
    model_figures,
    two_terms,
)
from experiments.graph_walk.analysis import Analysis

__all__ = [
    "Analysis",
    "claims",
    "figures",
    "grid",
    "model",
    "model_figures",
    "two_terms",
    "access_origin",
]
