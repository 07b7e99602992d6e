"""The STLB cliff: how many pages a program can touch before each of its loads costs two."""

from experiments.chapters.stlb_cliff import claims as claims
from experiments.chapters.stlb_cliff import figures as figures
from experiments.chapters.stlb_cliff import grid as grid
from experiments.chapters.stlb_cliff import prose as prose
from experiments.chapters.stlb_cliff.analysis import Analysis as Analysis
