"""The loop of the simulator, in numba: what the caches of translations hold and replace, and where each walk begins.

Each page has a row in one table, with the slot of each cache that holds it and the row of the page a table entry higher: so
whether a cache holds a page is one load, however many its ways, and a replacement under LRU turns a ring by one place. All
compiled code is in this file: numba compiles a file anew when it changed, and would not see a change in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic

LRU, TREE_PLRU, RANDOM, FIFO, NRU, SRRIP = range(6)
MODULO, XOR, HASHED = range(3)
MOST_TREE_WAYS = 64  # the inner nodes of one set's tree are the bits of one word, as are the marks of NRU
MOST_INTERVAL_WAYS = 32  # SRRIP's intervals have two bits each
DISTANT, LONG = 3, 2  # of an interval: what is replaced, and what is inserted
OFFSET_BITS, INDEX_BITS = 12, 9  # of a 4 KiB page, and of a table: 512 entries of 8 bytes fill one
MOST_PLACES = 2**32 - 1  # in the table of rows, whose numbers have 32 bits to keep it small: 16 GiB

# Records, as their size is known to the compiler; unsigned, as an index that may be negative costs a comparison.
_CACHE = np.dtype([(name, np.uint64) for name in (
    "column", "sets", "ways", "replacement", "placement", "first_set", "first_slot", "masked", "mask", "set_bits", "draws")])
_SET = np.dtype([("head", np.uint64), ("used", np.uint64), ("tree", np.uint64)])
_SLOT = np.dtype([("owner", np.uint32), ("before", np.uint32), ("after", np.uint32)])
_AHEAD = uint64(12)  # accesses in advance of which a row is fetched: the rows of a gigabyte's pages are past this computer's own L2
_INDEX = uint64(INDEX_BITS)
_ONE, _TWO, _HALF = uint64(1), uint64(2), uint64(32)
_EACH = uint64(0x5555555555555555)  # one in each field of two bits
_GAMMA, _MIX_1, _MIX_2 = uint64(0x9E3779B97F4A7C15), uint64(0xBF58476D1CE4E5B9), uint64(0x94D049BB133111EB)


class Shape(NamedTuple):
    """A cache: the column of a page's row that is its own, its sets and ways, and two of the codes above."""

    column: int
    sets: int
    ways: int
    replacement: int
    placement: int


class State(NamedTuple):
    """Caches and pages. 0 is no cache, no slot and no row."""

    caches: np.ndarray  # _CACHE from 1: its shape, its first set and slot, its state of splitmix64
    sets: np.ndarray  # _SET: the latest used slot, how many are filled, and the tree, whose node n is bit n
    slots: np.ndarray  # _SLOT from 1, an entry each: the place of its page, its neighbours in a ring from the latest used on
    places: np.ndarray  # uint32: of each page the place of its row at the next level, then its slot in each cache


class Plan(NamedTuple):
    """A machine and a stream, as far as the loop needs them. Of the arrays, element n is the cache of level n."""

    shift: int  # from an element of the stream to the number of the page that a TLB entry spans
    key_shift: int  # and from its key to the number of its row,
    first_key: int  # less this
    columns: int  # of such a row
    span: int  # the level of the tables whose entries map pages of that size
    leaf: int  # and of the guest's, or the only, page
    host_leaf: int  # and of the host's; 0 in one dimension
    levels: int
    tlbs: np.ndarray
    walk_caches: np.ndarray
    nested: np.ndarray


def empty(shapes: Sequence[Shape], places: np.ndarray, seed: int) -> State:
    """Caches that hold nothing, the first to draw from `seed`, for pages whose rows are given."""
    caches, sets, slots = np.zeros(len(shapes) + 1, dtype=_CACHE), 0, 1
    heads, rings = [np.zeros(0, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    for i, shape in enumerate(shapes, 1):
        masked = shape.placement == MODULO and shape.sets & (shape.sets - 1) == 0
        caches[i] = (*shape, sets, slots, masked, shape.sets - 1, shape.sets.bit_length() - 1, (seed + (i << 32)) % 2**64)
        heads.append(slots + np.arange(shape.sets) * shape.ways)
        rings.append((heads[-1][:, None] + (np.arange(shape.ways) + 1) % shape.ways).ravel())
        sets, slots = sets + shape.sets, slots + shape.sets * shape.ways
    state = State(caches, np.zeros(sets, dtype=_SET), np.zeros(slots, dtype=_SLOT), places)
    state.sets["head"] = np.concatenate(heads)
    state.slots["after"] = np.concatenate(rings)
    state.slots["before"][state.slots["after"]] = np.arange(slots)
    return state


def run(stream: np.ndarray, keys: np.ndarray, plan: Plan, state: State) -> tuple[int, int, int, np.ndarray]:
    """L1 misses, walks, walks of the host's tables, and how many walks made their first reference at each level.

    stream, keys: uint64, an access an element; both are the same array where the pages' own numbers give their rows.
    """
    starts, rows = np.zeros(plan.levels + 1, dtype=np.int64), np.zeros(plan.levels + plan.host_leaf + 1, dtype=np.uint64)
    return *_run(stream, keys, plan, state, starts, rows), starts


@intrinsic
def _prefetch(_typing, array, index):
    """Fetches an element for writing, and waits for nothing."""
    def emit(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        declared = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], ir.FunctionType(
            ir.VoidType(), [pointer.type, word, word, word]))
        builder.call(declared, [pointer, word(1), word(3), word(1)])  # to write, into all levels, data
        return context.get_dummy_value()

    return types.void(array, index), emit


# Counting the references to an array at each call takes several times what the call does, and nothing here makes one, hence
# _nrt; testing each divisor for zero keeps calls from being merged into the loop, hence the error model.
@njit(cache=True, error_model="numpy", _nrt=False)
def _run(stream: np.ndarray, keys: np.ndarray, plan: Plan, state: State, starts: np.ndarray, rows: np.ndarray) -> tuple[int, int, int]:
    l1_misses = walks = host_walks = 0
    shift, key_shift, first_key, columns = uint64(plan.shift), uint64(plan.key_shift), uint64(plan.first_key), uint64(plan.columns)
    span, leaf, host_leaf, levels = plan.span, plan.leaf, plan.host_leaf, plan.levels
    tlb_1, tlb_2, walk_caches, nested, places = plan.tlbs[1], plan.tlbs[2], plan.walk_caches, plan.nested, state.places
    size = uint64(stream.size)
    for i in range(size):
        number = stream[i] >> shift
        row = _ONE + ((keys[i] >> key_shift) - first_key) * columns
        ahead = min(i + _AHEAD, size - _ONE)
        _prefetch(places, _ONE + ((keys[ahead] >> key_shift) - first_key) * columns)
        if tlb_1 and _touch(state, tlb_1, row, number):
            continue
        l1_misses += 1
        if tlb_2 and _touch(state, tlb_2, row, number):
            continue
        walks += 1
        start, upper, upper_number = levels, row, number
        for level in range(span + 1, levels + 1):
            upper = uint64(places[upper])
            upper_number >>= _INDEX
            if walk_caches[level] and _touch(state, walk_caches[level], upper, upper_number):
                start = level - 1
                break
        starts[start] += 1
        if host_leaf:
            for level in range(span, levels + host_leaf):
                rows[level] = row
                row = uint64(places[row])
            rows[levels + host_leaf] = row
            for table in range(start, leaf - 2, -1):
                level = table if table >= leaf else 0  # at last the data
                above = level + host_leaf
                shifted = number >> uint64(INDEX_BITS * (above - span))
                if not nested[level] or not _touch(state, nested[level], rows[above], shifted):
                    host_walks += 1
    return l1_misses, walks, host_walks


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _to_front(slots: np.ndarray, head: int, slot: int) -> None:
    """Take a slot out of its set's ring and put it before the head."""
    before, after = slots[slot].before, slots[slot].after
    slots[before].after = after
    slots[after].before = before
    last = slots[head].before
    slots[last].after = slot
    slots[slot].before = last
    slots[slot].after = head
    slots[head].before = slot


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _touch(state: State, cache: int, row: int, number: int) -> bool:
    """Whether the cache held the page of a row; it holds it now, as the latest used. `number`, the page's, chooses the set."""
    shape, slots, places = state.caches[cache], state.slots, state.places
    place = row + shape.column
    slot = uint64(places[place])
    held = slot != uint64(0)
    if held and (shape.replacement == RANDOM or shape.replacement == FIFO):
        return True
    at = number & shape.mask if shape.masked else _set_of(number, shape.placement, shape.sets, shape.set_bits)
    mine = state.sets[shape.first_set + at]
    if shape.replacement == LRU or shape.replacement == FIFO:
        head = mine.head
        if held:
            if slot != head:
                _to_front(slots, head, slot)
                mine.head = slot
            return True
        slot = uint64(slots[head].before)
        mine.head = slot
    else:
        first, ways = shape.first_slot + at * shape.ways, shape.ways
        if not held:
            slot = first + mine.used
            if mine.used < ways:
                mine.used += _ONE
            else:
                mine.tree = _aged(mine.tree, ways) if shape.replacement == SRRIP else mine.tree
                slot = first + _victim_of(shape, mine.tree, ways)
        mine.tree = _used(shape.replacement, mine.tree, ways, slot - first, held)
        if held:
            return True
    places[slots[slot].owner] = 0
    slots[slot].owner = place
    places[place] = slot
    return False


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _set_of(number: int, placement: int, sets: int, set_bits: int) -> int:
    if placement == XOR:
        number ^= number >> set_bits
    elif placement == HASHED:
        number = _mixed(number + _GAMMA)
    return number % sets


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _mixed(z: int) -> int:
    """The output function of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    z = (z ^ (z >> uint64(30))) * _MIX_1
    z = (z ^ (z >> uint64(27))) * _MIX_2
    return z ^ (z >> uint64(31))


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _victim(tree: int, ways: int) -> int:
    """The way that the nodes point at, from node 1, the root, on: those below node n are 2n and 2n + 1."""
    node = _ONE
    while node < ways:
        node = (node << _ONE) | ((tree >> node) & _ONE)
    return node - ways


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _pointing_away(tree: int, ways: int, way: int) -> int:
    """The tree with each node above a way pointing at its other half."""
    node = way + ways
    while node > _ONE:
        above = node >> _ONE
        tree = tree & ~(_ONE << above) if node & _ONE else tree | (_ONE << above)
        node = above
    return tree


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _victim_of(shape: np.record, tree: int, ways: int) -> int:
    """The way of a full set that a missing page takes."""
    if shape.replacement == RANDOM:
        shape.draws += _GAMMA
        return (_mixed(shape.draws) >> _HALF) * ways >> _HALF
    if shape.replacement == TREE_PLRU:
        return _victim(tree, ways)
    return _first(tree, _ONE, uint64(0)) if shape.replacement == NRU else _first(tree, _TWO, uint64(DISTANT))


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _used(replacement: int, tree: int, ways: int, way: int, held: bool) -> int:
    """A set's word after the use of a way: NRU marks it, and takes the other marks off where all would have one (SPARC T1); SRRIP foresees
    the next use at once after a hit, and late after a miss (Jaleel et al., ISCA 2010)."""
    if replacement == TREE_PLRU:
        return _pointing_away(tree, ways, way)
    if replacement == NRU:
        marks, every = tree | _ONE << way, (_ONE << (ways - _ONE) << _ONE) - _ONE
        return marks if marks != every or ways == _ONE else _ONE << way
    if replacement == SRRIP:
        return tree & ~(uint64(DISTANT) << (way + way)) | (uint64(0) if held else uint64(LONG)) << (way + way)
    return tree


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _first(word: int, bits: int, value: int) -> int:
    """The first way whose field of so many bits has the value; there is one."""
    way = uint64(0)
    while word >> way * bits & ((_ONE << bits) - _ONE) != value:
        way += _ONE
    return way


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _aged(intervals: int, ways: int) -> int:
    """All intervals longer by as much as makes the longest distant. What carries out of a way that is none goes to none."""
    longest, way = uint64(0), uint64(0)
    while way < ways:
        longest = max(longest, intervals >> (way + way) & uint64(DISTANT))
        way += _ONE
    return intervals + (uint64(DISTANT) - longest) * _EACH
