"""Getting and keeping large pages: what each way of asking gives, how that is proved, and what it costs."""

from experiments.chapters.keeping_pages import analysis, claims, figures, grid, tables
from experiments.chapters.keeping_pages.analysis import Analysis

__all__ = ["Analysis", "analysis", "claims", "figures", "grid", "tables"]
