"""Huge pages: what larger pages buy, and whether they are as large as they are called."""

from experiments.chapters.hugepages import calculator, claims, figures, grid, tables
from experiments.chapters.hugepages.analysis import Analysis
from experiments.chapters.hugepages.languages import jmh

__all__ = ["Analysis", "calculator", "claims", "figures", "grid", "jmh", "tables"]
