"""The STLB cliff: how many pages a program can touch before each of its loads costs two."""

from experiments.chapters.stlb_cliff import claims, figures, grid, prose
from experiments.chapters.stlb_cliff.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose"]
