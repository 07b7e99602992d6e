"""The TLB cliff: how many pages a core's TLB holds, and what a load pays past them."""

from experiments.stlb_cliff import analysis, claims, grid
from experiments.stlb_cliff.analysis import Analysis, Quantities
