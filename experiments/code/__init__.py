"""Code: page walks for instructions."""

from experiments.code import analysis, claims, grid
from experiments.code.analysis import WAYS_TO_LOAD_CODE, Analysis, CodeLoadingDocument, Quantities

DOCUMENTS = {"texts": CodeLoadingDocument}  # beside the rows: name -> model
DOCUMENT_TEXTS = tuple(WAYS_TO_LOAD_CODE)  # the texts in it that are this project's own
