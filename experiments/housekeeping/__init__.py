"""The kernel's housekeeping: collapses, forks, merging, swapping and defrag."""

from experiments.housekeeping import analysis, claims, figures, grid, tables
from experiments.housekeeping.analysis import Analysis
from experiments.housekeeping.document import NAME, Housekeeping

DOCUMENTS = {NAME: Housekeeping}  # beside the rows: name -> model
