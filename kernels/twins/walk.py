"""A graph of 64-byte vertices and walks of it: kernels/graph.h and kernels/walk.h. Here walkers are
in an array, not in registers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic

from kernels.twins.hops import ARM64, assembly, bin_of, ready, stamp
from kernels.twins.placement import FNV_BASIS, GOLDEN, draw, line_offset, mix, scramble

MULTIPLIER = 1664525


@intrinsic
def prefetch(typing, address):
    def emit(context, builder, signature, args):
        assembly(
            builder,
            "prfm pldl1keep, [$0]" if ARM64 else "prefetcht0 ($0)",
            "r",
            args,
            ir.VoidType(),
        )
        return context.get_dummy_value()

    return types.void(types.uint64), emit


@njit(inline="always")
def cyclic(v, block, step):
    mask = block - uint64(1)
    return (v & ~mask) | ((v * uint64(MULTIPLIER) + step) & mask)


@njit(inline="always")
def stand(v, stride, bits):
    """The line of a vertex."""
    return uint64(line_offset(v, stride, bits)) >> uint64(6)


@njit(cache=True, nogil=True)
def link_vertices(edges, first, last, block, key, step, stride, bits):
    mask = block - uint64(1)
    for i in range(first, last):
        v = uint64(i)
        two = scramble(key + uint64(2) * v * uint64(GOLDEN))
        third = scramble(key + (uint64(2) * v + uint64(1)) * uint64(GOLDEN))
        base, at = v & ~mask, stand(v, stride, bits) << uint64(4)
        edges[at] = stand(cyclic(v, block, step), stride, bits)
        edges[at + uint64(1)] = stand(base | (two & mask), stride, bits)
        edges[at + uint64(2)] = stand(base | ((two >> uint64(32)) & mask), stride, bits)
        edges[at + uint64(3)] = stand(base | (third & mask), stride, bits)


@njit(cache=True, nogil=True)
def count_wrong(edges, first, last, block, step, stride, bits):
    mask, wrong, apart = block - uint64(1), 0, uint64(stride) >> uint64(6)
    for i in range(first, last):
        v = uint64(i)
        away, at = uint64(0), stand(v, stride, bits) << uint64(4)
        for k in range(4):
            away |= (uint64(edges[at + uint64(k)]) // apart ^ v) & ~mask
        wrong += away != uint64(0) or uint64(edges[at]) != stand(
            cyclic(v, block, step), stride, bits
        )
    return wrong


def seeded(seed: int, times: int) -> tuple[int, list[int]]:
    drawn, state = [], np.uint64(seed)
    for _ in range(times):
        state, number = draw(np.uint64(state))
        drawn.append(int(number))
    return int(state), drawn


# ---- the walk


# [timed: plain]
@njit(cache=True)
def walk_one(edges, at, state, turns):
    for _ in range(turns):
        state, random = draw(state)
        at = uint64(edges[(at << uint64(4)) + (random & uint64(3))])
    return at, state


@njit(cache=True)
def walk_many(edges, at, state, turns):
    for _ in range(turns):
        state, random = draw(state)
        for k in range(len(at)):
            at[k] = edges[(at[k] << uint64(4)) + (random & uint64(3))]
            random >>= uint64(2)
    return state


# [end]


# [timed: prefetch]
@njit(cache=True)
def walk_ahead(edges, base, at, state, path, first, turns):
    for i in range(first, first + turns):
        prefetch(base + (uint64(path[i]) << uint64(6)))
        state, random = draw(state)
        at = uint64(edges[(at << uint64(4)) + (random & uint64(3))])
    return at, state


# [end]


# [timed: per hop]
@njit(cache=True)
def walk_clocked(edges, at, state, turns, bins):
    total = uint64(0)
    for _ in range(turns):
        state, random = draw(state)
        edge = ready((at << uint64(4)) + (random & uint64(3)))
        begin = stamp()
        at = uint64(edges[edge])
        ticks = stamp() - begin
        total += ticks
        bins[bin_of(ticks)] += 1
    return at, state, total


# [end]


@njit(cache=True)
def jump(at, state, vertices, block, stride, bits):
    others, apart = vertices // block - uint64(1), uint64(stride) >> uint64(6)
    for k in range(len(at)):
        state, random = draw(state)
        to = (
            at[k] // apart // block + uint64(1) + (((random >> uint64(32)) * others) >> uint64(32))
        ) & others
        at[k] = stand(to * block + (random & (block - uint64(1))), stride, bits)
    return state


@njit(cache=True)
def begin_segment(at, state, vertices, block, stride, bits, path, path_state):
    """Restart the path or jump to another block; the new state."""
    if len(path):
        at[0] = path[0]
        return path_state
    return jump(at, state, vertices, block, stride, bits)


@njit(cache=True)
def walk(
    edges,
    at,
    state,
    left,
    segment,
    turns,
    vertices,
    block,
    stride,
    bits,
    path,
    path_state,
    distance,
    bins,
):
    """Moves `at` on; (state, left, ticks)."""
    ticks = uint64(0)
    while turns:
        now = min(turns, left)
        if len(bins):
            at[0], state, total = walk_clocked(edges, at[0], state, now, bins)
            ticks += total
        elif distance:
            at[0], state = walk_ahead(
                edges, uint64(edges.ctypes.data), at[0], state, path, segment - left + distance, now
            )
        elif len(at) == 1:
            at[0], state = walk_one(edges, at[0], state, now)
        else:
            state = walk_many(edges, at, state, now)
        turns -= now
        left -= now
        if left == 0:
            left, state = (
                segment,
                begin_segment(at, state, vertices, block, stride, bits, path, path_state),
            )
    return state, left, ticks


@njit(cache=True)
def retrace(
    edges, at, state, left, segment, turns, vertices, block, stride, bits, path, path_state, record
):
    """The same hop by hop; (state, left, checksum). record: where the lines go, as far as there is
    room."""
    checksum, written = uint64(FNV_BASIS), 0
    for _ in range(turns):
        state, random = draw(state)
        for k in range(len(at)):
            checksum = mix(checksum, at[k] // (uint64(stride) >> uint64(6)))
            if written < len(record):
                record[written] = at[k]
                written += 1
            at[k] = edges[uint64(16) * at[k] + (random >> uint64(2 * k)) % uint64(4)]
        left -= 1
        if left == 0:
            left, state = (
                segment,
                begin_segment(at, state, vertices, block, stride, bits, path, path_state),
            )
    return state, left, checksum


@dataclass
class Walk:
    edges: np.ndarray
    vertices: int
    block: int
    at: np.ndarray  # uint64, the line on which each walker stands
    state: int
    segment: int
    left: int
    path: np.ndarray  # uint32, empty without one
    path_state: int
    distance: int = 0
    stride: int = 64  # and bits: as of placement.places_in, of packed vertices
    bits: int = 0

    @property
    def _graph(self) -> list[np.uint64]:
        return [np.uint64(number) for number in (self.vertices, self.block, self.stride, self.bits)]

    def go(self, turns: int, bins: np.ndarray) -> int:
        state, left, ticks = walk(
            self.edges,
            self.at,
            np.uint64(self.state),
            self.left,
            self.segment,
            turns,
            *self._graph,
            self.path,
            np.uint64(self.path_state),
            self.distance,
            bins,
        )
        self.state, self.left = int(state), int(left)
        return int(ticks)

    def retraced(self, turns: int, room: int = 0) -> tuple[np.ndarray, int, np.ndarray]:
        """Where the walkers would stand, the checksum of the visits, the first of them; this walk
        stays where it is."""
        at, record = self.at.copy(), np.empty(room, dtype=np.uint32)
        _, _, checksum = retrace(
            self.edges,
            at,
            np.uint64(self.state),
            self.left,
            self.segment,
            turns,
            *self._graph,
            self.path,
            np.uint64(self.path_state),
            record,
        )
        return at, int(checksum), record


def unvisited(hops: float) -> float:
    """The share of lines that `hops` hops a line leave unvisited (walk.h derives it)."""
    return (1 + hops / 4) ** -4


def expected_lines(vertices: int, block: int, hops: float, stay: float) -> float:
    """Lines that so many hops are expected to visit; stay: hops in a block before the next one, 0
    for a graph of one block."""
    stay = min(stay, hops)
    stays = hops / stay * block / vertices if stay else 0
    if not stay or block >= vertices or stays > 8:
        return vertices * (1 - unvisited(hops / vertices))
    share, left = float(np.exp(-stays)), 0.0
    for k in range(64):
        left += share * unvisited(k * stay / block)
        share *= stays / (k + 1)
    return vertices * (1 - left)


def hops_for(vertices: int, distinct: float) -> int:
    """Hops of a plain walk that visit so many lines, or 96 % of all where that is less."""
    return int(4 * vertices * ((1 - min(distinct / vertices, 0.96)) ** -0.25 - 1)) + 1
