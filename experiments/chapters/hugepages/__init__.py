"""Huge pages: what larger pages buy, and whether they are as large as they are called."""

from experiments.chapters.hugepages import claims, figures, grid, prose, tables
from experiments.chapters.hugepages.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose", "tables"]
