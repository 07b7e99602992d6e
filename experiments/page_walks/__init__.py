"""What a page walk costs: a random walk through a graph, and a chase through more page tables."""

from experiments.page_walks import claims, grid
from experiments.page_walks.analysis import Analysis, Quantities
