"""Huge pages: what larger pages buy, and whether they are as large as they are called."""

from experiments.hugepages import calculator, claims, grid
from experiments.hugepages.analysis import Analysis
from experiments.hugepages.jmh import Jmh
from experiments.hugepages.quantities import Quantities

DOCUMENTS = {"jmh": Jmh}  # name in data/<machine>/ -> model
