"""Getting and keeping large pages: what each way of asking gives, how that is proved, and what it
costs."""

from experiments.keeping_pages import analysis, claims, grid
from experiments.keeping_pages.analysis import Analysis, Quantities
from experiments.keeping_pages.documents import WAYS_TO_MAP, Runtimes, WaysToGetHugePages

DOCUMENTS = {"runtimes": Runtimes, "ways": WaysToGetHugePages}  # beside the rows: name -> model
DOCUMENT_TEXTS = tuple(WAYS_TO_MAP)  # the texts in them that are this project's own
