"""Page faults: the kernel walks the same tree."""

from experiments.chapters.page_faults import claims, figures, grid, prose, tables
from experiments.chapters.page_faults.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose", "tables"]
