"""Code: page walks for instructions."""

from experiments.code import analysis, claims, grid
from experiments.code.analysis import CODE_LOADING_METHODS, Analysis, CodeLoadingSurvey, Quantities

DOCUMENTS = {"texts": CodeLoadingSurvey}  # beside the rows: name -> model
DOCUMENT_TEXTS = tuple(CODE_LOADING_METHODS)  # the texts in it that are this project's own
