"""The machine: what it has for translating addresses, what it states of that, and what a survey of half a minute says."""

from experiments.chapters.your_machine import claims as claims
from experiments.chapters.your_machine import figures as figures
from experiments.chapters.your_machine import grid as grid
from experiments.chapters.your_machine import prose as prose
from experiments.chapters.your_machine import tables as tables
from experiments.chapters.your_machine.analysis import Analysis as Analysis
