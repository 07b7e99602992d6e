"""Huge pages: what larger pages buy, and whether they are as large as they are called."""

from experiments.hugepages import claims, figures, grid
from experiments.hugepages.analysis import Analysis, Quantities
from experiments.hugepages.jmh import JmhDocument

DOCUMENTS = {"jmh": JmhDocument}  # name in data/<machine>/ -> model
