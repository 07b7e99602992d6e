"""What removes TLB entries: shootdowns, context switches, cold starts, and Linux's own work on pages."""

from experiments.flushes import analysis, claims, grid
from experiments.flushes.analysis import Analysis, Quantities
from experiments.flushes.document import KERNEL_HOUSEKEEPING_DOCUMENT, HousekeepingDocument

DOCUMENTS = {KERNEL_HOUSEKEEPING_DOCUMENT: HousekeepingDocument}  # beside the rows: name -> model
