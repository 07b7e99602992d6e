"""Page faults: what the first touch of a page costs, and whether a level of the table more
matters."""

from experiments.page_faults import claims, grid
from experiments.page_faults.analysis import TOUCHED, Analysis, name_memory
from experiments.page_faults.kernel_side import BALLOON, KernelSide
from experiments.page_faults.quantities import Quantities

DOCUMENTS = {"kernel_side": KernelSide}  # beside the rows: name -> model
DOCUMENT_TEXTS = tuple(BALLOON.values())  # the texts in them that are this project's own
