"""TLB blocking: what can a program do by itself where it cannot choose the page size?"""

from experiments.tlb_blocking import analysis, claims, figures, grid
from experiments.tlb_blocking.analysis import Analysis, with_gain
