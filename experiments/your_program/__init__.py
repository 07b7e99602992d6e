"""Your program: what translation costs it, and what would help, before a line of it is changed."""

from experiments.your_program import claims, grid, programs
from experiments.your_program.analysis import Analysis
from experiments.your_program.cases import CASES
from experiments.your_program.programs import Programs
from experiments.your_program.quantities import Quantities

DOCUMENTS = {"your_program": Programs}  # beside the rows: name -> model
DOCUMENT_TEXTS = tuple(CASES)  # the texts in them that are this project's own
