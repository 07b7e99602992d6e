"""Page faults: what the first touch of a page costs, and whether a level of the table more
matters."""

from experiments.page_faults import claims, grid
from experiments.page_faults.analysis import (
    TOUCHED_MEMORY_KINDS,
    Analysis,
    Quantities,
    add_touched_memory_names,
)
from experiments.page_faults.kernel_side import BALLOON_FEATURE_BITS, KernelFaultDocument

DOCUMENTS = {"kernel_side": KernelFaultDocument}  # beside the rows: name -> model
DOCUMENT_TEXTS = (*BALLOON_FEATURE_BITS.values(),)  # the texts in it that are this project's own
