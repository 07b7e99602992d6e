"""Anatomy of a walk: four loads that are mostly one."""

from experiments.chapters.walk_anatomy import claims, figures, grid, prose, tables
from experiments.chapters.walk_anatomy.analysis import Analysis

__all__ = ["Analysis", "claims", "figures", "grid", "prose", "tables"]
