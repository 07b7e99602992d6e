"""Code: page walks for instructions."""

from experiments.chapters.code import analysis, claims, figures, grid, tables
from experiments.chapters.code.analysis import Analysis

__all__ = ["Analysis", "analysis", "claims", "figures", "grid", "tables"]
