"""Getting and keeping large pages: what each way of asking gives, how that is proved, and what it costs."""

from experiments.chapters.keeping_pages import claims, figures, grid, prose, tables
from experiments.chapters.keeping_pages.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose", "tables"]
