"""The STLB cliff: how many pages a program can touch before each of its loads costs two."""

from experiments.stlb_cliff import analysis, claims, figures, grid
from experiments.stlb_cliff.analysis import Analysis
from experiments.stlb_cliff.quantities import Quantities
