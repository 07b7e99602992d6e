"""Strides: what else than translation a wider stride pays for."""

from experiments.strides import analysis, claims, figures, grid, tables
from experiments.strides.analysis import Analysis
