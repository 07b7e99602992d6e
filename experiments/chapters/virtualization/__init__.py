"""A walk in two dimensions: what a guest pays to have its addresses translated twice."""

from experiments.chapters.virtualization import claims as claims
from experiments.chapters.virtualization import figures as figures
from experiments.chapters.virtualization import grid as grid
from experiments.chapters.virtualization import prose as prose
from experiments.chapters.virtualization.analysis import Analysis as Analysis
