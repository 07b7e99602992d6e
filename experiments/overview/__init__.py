"""The pages about several chapters or machines: the first page, the claims, comparisons, and the
campaign that measures the book."""

from types import ModuleType

import pandas as pd

from tlb.report.analysis import Analysis
from tlb.report.chapter import Chapter


def chapter_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def chapter_analysis(module: ModuleType, chapter: Chapter) -> Analysis:
    """Return a chapter's Analysis of the rows that there are, as its own page has it. Raises
    Unavailable where there are none."""
    if chapter_name(module) == "your_program":  # a document
        return module.Analysis(pd.DataFrame(), chapter)
    rows = chapter.measure(module.grid.points(chapter.scope), chapter_name(module))
    return module.Analysis(rows, chapter)
