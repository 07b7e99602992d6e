"""A walk through a graph: what one hop takes, and the slowest in twenty."""

from experiments.chapters.graph_walk import claims as claims
from experiments.chapters.graph_walk import figures as figures
from experiments.chapters.graph_walk import grid as grid
from experiments.chapters.graph_walk import prose as prose
from experiments.chapters.graph_walk.analysis import Analysis as Analysis
