"""Strides: what one number a stride hides."""

from experiments.chapters.strides import claims, figures, grid, prose, tables
from experiments.chapters.strides.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose", "tables"]
