"""The machine: what it has for translating addresses, what it states of that, and what a survey of
half a minute says."""

from experiments.your_machine import claims, figures, grid, tables
from experiments.your_machine.analysis import Analysis
