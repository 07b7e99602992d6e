"""Code: page walks for instructions."""

from experiments.code import analysis, claims, grid
from experiments.code.analysis import Analysis
from experiments.code.quantities import Quantities
from experiments.code.ways import WAYS_TO_LOAD_CODE, CodeLoadingDocument

DOCUMENTS = {"texts": CodeLoadingDocument}  # beside the rows: name -> model
DOCUMENT_TEXTS = tuple(WAYS_TO_LOAD_CODE)  # the texts in them that are this project's own
