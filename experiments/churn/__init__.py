"""Churn: what empties a TLB, and what it costs to fill it again."""

from experiments.churn import analysis, claims, figures, grid, tables
from experiments.churn.analysis import Analysis

__all__ = ["Analysis", "analysis", "claims", "figures", "grid", "tables"]
