"""A walk in two dimensions: what a guest pays to have its addresses translated twice."""

from experiments.virtualization import claims, figures, grid, references
from experiments.virtualization.analysis import Analysis
