"""Anatomy of a page walk: four levels, usually one read."""

from experiments.walk_anatomy import claims, figures, grid, tables
from experiments.walk_anatomy.analysis import Analysis
