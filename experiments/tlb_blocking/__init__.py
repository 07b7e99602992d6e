"""Data layout: what a program can do by itself where it cannot choose the page size."""

from experiments.tlb_blocking import analysis, claims, grid
from experiments.tlb_blocking.analysis import Analysis, Quantities
