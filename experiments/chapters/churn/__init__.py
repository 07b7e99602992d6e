"""Churn: who empties your TLB."""

from experiments.chapters.churn import claims, figures, grid, prose, tables
from experiments.chapters.churn.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose", "tables"]
