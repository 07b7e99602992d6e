"""Fixtures of tests/support/ that the tests of this folder use."""

from support.stand_ins import machine as machine
from support.stand_ins import other_machine as other_machine
