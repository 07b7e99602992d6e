"""Your program: what translation costs it, and what would help, before a line of it is changed."""

from experiments.your_program import claims, grid, programs
from experiments.your_program.analysis import Analysis, Quantities
from experiments.your_program.cases import PROGRAM_CASES
from experiments.your_program.programs import ProgramsDocument

DOCUMENTS = {"your_program": ProgramsDocument}  # beside the rows: name -> model
DOCUMENT_TEXTS = tuple(PROGRAM_CASES)  # the texts in it that are this project's own
