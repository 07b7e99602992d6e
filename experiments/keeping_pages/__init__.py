"""Getting and keeping large pages: what each way of asking gives, how that is proved, and what it
costs."""

from experiments.keeping_pages import analysis, claims, grid
from experiments.keeping_pages.analysis import Analysis, Quantities
from experiments.keeping_pages.documents import (
    MEMORY_MAPPING_METHODS,
    MemoryMappingMethodsDocument,
    RuntimesDocument,
)

# Beside the rows: name -> model.
DOCUMENTS = {"runtimes": RuntimesDocument, "ways": MemoryMappingMethodsDocument}
DOCUMENT_TEXTS = tuple(MEMORY_MAPPING_METHODS)  # the texts in them that are this project's own
