"""Page faults: what the first touch of a page costs, and whether a level of the table more matters."""

from experiments.chapters.page_faults import claims, figures, grid, tables
from experiments.chapters.page_faults.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "tables"]
