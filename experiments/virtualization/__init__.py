"""Virtual machines: what a guest pays to have its addresses translated twice."""

from experiments.virtualization import claims, grid
from experiments.virtualization.analysis import Analysis, Quantities
