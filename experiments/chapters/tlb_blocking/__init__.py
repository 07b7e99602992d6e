"""TLB blocking: what a program can do by itself where nobody lets it choose the page size."""

from experiments.chapters.tlb_blocking import claims as claims
from experiments.chapters.tlb_blocking import figures as figures
from experiments.chapters.tlb_blocking import grid as grid
from experiments.chapters.tlb_blocking import prose as prose
from experiments.chapters.tlb_blocking.analysis import Analysis as Analysis
