"""Which parts an atlas has: a pure function of the set of its inputs.

A part holds some machines whole. The machines of a group are halved by the next bit of a hash of their ids until a half has at most
MOST_ROWS. So one more input changes the one part of a group that its machine falls into (where that one is halved, two), a group that is
small stays one file, and nothing has to be compacted later: the thresholds are the plan's. A part is called by a digest of its inputs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from experiments.fleet.atlas_inputs import Staged
from experiments.fleet.atlas_schema import VERSION

# A row takes about 100 bytes, so parts have 3 to 7 MB: few enough for a fleet, small enough to be written again for one machine more.
MOST_ROWS = 1 << 16
MEAN_ROWS = math.log(2) * MOST_ROWS  # of a large group's parts: halving spreads the logarithms of their sizes evenly
GROUP_ROWS = 1 << 14  # of a row group, the least that a reader skips or fetches
# Of these, the data and pyarrow's version follows every byte.
WRITER = {"compression": "zstd", "compression_level": 3, "version": "2.6", "write_statistics": True, "row_group_size": GROUP_ROWS}


class Planned(NamedTuple):
    """A part as it follows from the inputs: of which group, of which machines, from which inputs."""

    group: str
    microarchitecture: str
    machines: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def path(self) -> str:
        of = json.dumps([VERSION, pa.__version__, sorted(WRITER.items()), self.group, self.microarchitecture, self.inputs])
        return f"{self.group}/microarchitecture={self.microarchitecture}/{hashlib.sha256(of.encode()).hexdigest()[:16]}.parquet"


def plan(inputs: Mapping[str, Staged]) -> list[Planned]:
    """The parts that these inputs make."""
    of_machine: dict[str, list[str]] = defaultdict(list)
    for digest in sorted(inputs):
        of_machine[inputs[digest].machine].append(digest)
    weights: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for machine, digests in of_machine.items():
        newest = max(digests, key=lambda digest: (inputs[digest].measured_until, digest))
        for digest in digests:
            for group, rows in inputs[digest].rows.items():
                each = weights[group, inputs[newest].microarchitecture]
                each[machine] = each.get(machine, 0) + rows
    return [Planned(group, name, machines, tuple(digest for machine in machines for digest in of_machine[machine]
                                                 if group in inputs[digest].rows))
            for group, name in sorted(weights) for machines in _halved(weights[group, name])]


def _halved(weights: Mapping[str, int], bit: int = 0) -> Iterator[tuple[str, ...]]:
    """The machines of each part, in order of their ids."""
    if len(weights) < 2 or sum(weights.values()) <= MOST_ROWS:
        yield tuple(sorted(weights))
        return
    for side in (0, 1):
        half = {machine: rows for machine, rows in weights.items() if _hash(machine) >> (255 - bit) & 1 == side}
        if half:
            yield from _halved(half, bit + 1)


def _hash(machine: str) -> int:
    return int.from_bytes(hashlib.sha256(machine.encode()).digest(), "big")
