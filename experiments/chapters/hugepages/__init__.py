"""Huge pages: what larger pages buy and cost, and whether they are as large as they are called."""

from experiments.chapters.hugepages import claims as claims
from experiments.chapters.hugepages import figures as figures
from experiments.chapters.hugepages import grid as grid
from experiments.chapters.hugepages import prose as prose
from experiments.chapters.hugepages import tables as tables
from experiments.chapters.hugepages.analysis import Analysis as Analysis
