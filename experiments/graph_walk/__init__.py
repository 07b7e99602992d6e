"""A walk through a graph: what one hop takes, and the slowest in twenty."""

from experiments.graph_walk import claims, figures, grid
from experiments.graph_walk.analysis import Analysis
