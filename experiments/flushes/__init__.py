"""What removes TLB entries: shootdowns, context switches, cold starts, and Linux's own work on pages."""

from experiments.flushes import analysis, claims, grid
from experiments.flushes.analysis import Analysis
from experiments.flushes.document import HOUSEKEEPING_DOCUMENT, HousekeepingDocument
from experiments.flushes.quantities import Quantities

DOCUMENTS = {HOUSEKEEPING_DOCUMENT: HousekeepingDocument}  # beside the rows: name -> model
