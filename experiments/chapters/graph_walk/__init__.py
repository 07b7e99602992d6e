"""A walk through a graph: what one hop takes, and the slowest in twenty."""

from experiments.chapters.graph_walk import claims, figures, grid, prose
from experiments.chapters.graph_walk.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose"]
