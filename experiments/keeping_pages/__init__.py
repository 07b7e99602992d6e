"""Getting and keeping large pages: what each way of asking gives, how that is proved, and what it
costs."""

from experiments.keeping_pages import analysis, claims, grid
from experiments.keeping_pages.analysis import Analysis, Quantities
from experiments.keeping_pages.documents import WAYS_TO_MAP, MappingWaysDocument, RuntimesDocument

DOCUMENTS = {
    "runtimes": RuntimesDocument,
    "ways": MappingWaysDocument,
}  # beside the rows: name -> model
