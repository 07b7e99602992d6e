"""TLB shootdowns: what it costs to take a mapping away from a program that runs on several CPUs."""

from experiments.shootdowns import analysis, claims, figures, grid, tables
from experiments.shootdowns.analysis import Analysis
