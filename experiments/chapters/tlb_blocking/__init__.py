"""TLB blocking: what a program can do by itself where nobody lets it choose the page size."""

from experiments.chapters.tlb_blocking import claims, figures, grid, prose
from experiments.chapters.tlb_blocking.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose"]
