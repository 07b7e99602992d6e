"""Strides: what else than translation a wider stride pays for."""

from experiments.chapters.strides import analysis, claims, figures, grid, tables
from experiments.chapters.strides.analysis import Analysis

__all__ = ["Analysis", "analysis", "claims", "figures", "grid", "tables"]
