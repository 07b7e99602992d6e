"""What empties the TLB: shootdowns, context switches, cold starts, and Linux's own work on pages."""

from experiments.flushes import analysis, claims, grid
from experiments.flushes.analysis import Analysis
from experiments.flushes.document import NAME, Housekeeping
from experiments.flushes.quantities import Quantities

DOCUMENTS = {NAME: Housekeeping}  # beside the rows: name -> model
