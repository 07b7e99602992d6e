"""Context switches and cold starts: what they leave in the TLB, and what neighbours evict."""

from experiments.context_switches import analysis, claims, figures, grid
from experiments.context_switches.analysis import Analysis
