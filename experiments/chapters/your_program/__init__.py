"""Your program: what translation costs it, and what would help, before a line of it is changed."""

from experiments.chapters.your_program import claims, figures, grid, tables
from experiments.chapters.your_program.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "tables"]
