"""Code: instructions are loads too."""

from experiments.chapters.code import claims, figures, grid, prose, tables
from experiments.chapters.code.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose", "tables"]
