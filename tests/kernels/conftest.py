"""The other machines that the kernels of this folder's tests run on (tests/support/stand_ins.py),
and parts of graph_walk.c alone."""

from support.graph_walk import probe
from support.stand_ins import hosted, kvm, machine, other_kvm, other_machine

__all__ = ["hosted", "kvm", "machine", "other_kvm", "other_machine", "probe"]
