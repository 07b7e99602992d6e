"""A guest's page tables, by kernels/guest.h, as a walker of its own reads them: every page at its
address, and nothing else."""

import ctypes

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.fuzzing import ENDURANCE, sampled
from support.kernels import compiled

from tlb.measure import build

pytestmark = pytest.mark.needs("a C compiler")
KIB, MIB, GIB = 2**10, 2**20, 2**30
LEAF = {
    1: 4 * KIB,
    2: 2 * MIB,
    3: GIB,
}  # Intel SDM 3A, table 4-2: what an entry of a level maps where it maps a page
PRESENT, WRITABLE, USER, PAGE_SIZE = 1, 2, 4, 0x80
CANARY = 0xA5A5A5A5A5A5A5A5

EXPORTED = """
#include "guest.h"
uint64_t room_for(uint64_t bytes, int leaf, int levels) { return tables_for(bytes, leaf, levels); }
uint64_t build(char *memory, uint64_t at, uint64_t room, int leaf, int levels, uint64_t from, uint64_t to, uint64_t bytes)
{
    struct tables t = {.memory = memory, .physical = at, .room = room, .levels = levels};
    start_tables(&t);
    return map_range(&t, leaf, from, to, bytes) ? t.used : 0;
}
"""


@pytest.fixture(scope="module")
def builder(tmp_path_factory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "tables.c").write_text(EXPORTED)
    flags = ("-shared", "-fPIC", f"-I{build.KERNELS_FOLDER}")
    library = ctypes.CDLL(str(compiled(folder / "tables.c", folder / "tables.so", *flags)))
    library.room_for.restype = library.build.restype = ctypes.c_uint64
    library.room_for.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_int]
    library.build.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_int,
        *[ctypes.c_uint64] * 3,
    ]
    return library


class Tables:
    """What the builder wrote, and the walker: `physical` is the guest's address of the root."""

    def __init__(
        self,
        builder: ctypes.CDLL,
        leaf: int,
        levels: int,
        virtual: int,
        to: int,
        size: int,
        physical: int,
        room: int | None = None,
    ) -> None:
        self.levels, self.physical = levels, physical
        self.room = builder.room_for(size, leaf, levels) if room is None else room
        self.words = np.full(
            (self.room + 2) * 512, CANARY, np.uint64
        )  # not zero: memory that was something else before
        self.used = builder.build(
            self.words.ctypes.data, physical, self.room, leaf, levels, virtual, to, size
        )

    def table(self, address: int) -> np.ndarray:
        at = address - self.physical
        assert at % 4096 == 0 and 0 <= at < self.used * 4096, "an entry leads out of the tables"
        return self.words[at // 8 : at // 8 + 512]

    def leaves(self) -> dict[int, tuple[int, int]]:
        """Every page that is mapped: its virtual address, and its physical address and level."""
        found: dict[int, tuple[int, int]] = {}
        todo = [(self.levels, self.physical, 0)]
        while todo:
            level, table, base = todo.pop()
            entries = self.table(table)
            for index in np.flatnonzero(entries):
                entry, virtual = int(entries[index]), base + (int(index) << 12 + 9 * (level - 1))
                assert entry & (PRESENT | WRITABLE | USER) == PRESENT | WRITABLE | USER
                address = entry & 0x000FFFFFFFFFF000
                if level == 1 or entry & PAGE_SIZE:
                    assert (
                        level <= 3
                        and address % LEAF[level] == 0
                        and bool(entry & PAGE_SIZE) == (level > 1)
                    )
                    found[virtual] = (address, level)
                else:
                    todo.append((level - 1, address, virtual))
        return found


# The builder's own promise: both aligned to a page; the kernel's: both aligned to 1 GiB. Up to 2^47
# the address is a user's.
aligned = st.integers(0, 2**17 - 64)


@sampled
@given(
    leaf=st.integers(1, 3),
    levels=st.integers(4, 5),
    pages=st.integers(1, 3000),
    less=st.integers(0, 4095),
    from_gib=aligned,
    to_gib=st.integers(0, 2**14),
    tables_at=st.integers(0, 2**28),
)
@example(
    leaf=1, levels=4, pages=512 * 513, less=0, from_gib=511, to_gib=4, tables_at=2**19
)  # 1 GiB and a table: two directories
@example(
    leaf=3, levels=5, pages=3000, less=1, from_gib=2**17 - 3000, to_gib=4, tables_at=2**19
)  # over five roots' worth of four levels
@example(leaf=2, levels=4, pages=1, less=4095, from_gib=2**17 - 64, to_gib=0, tables_at=0)
@settings(max_examples=1000 if ENDURANCE else 50)
def test_every_page_is_mapped_once_at_its_level_for_the_user_and_nothing_else_is(
    builder, leaf, levels, pages, less, from_gib, to_gib, tables_at
):
    page = LEAF[leaf]
    virtual, to, size = from_gib * GIB, to_gib * GIB, pages * page - less * (page // 4096)
    built = Tables(builder, leaf, levels, virtual, to, size, tables_at * 4096)
    if virtual + pages * page > 2**47:
        return  # no user's address
    assert built.leaves() == {virtual + i * page: (to + i * page, leaf) for i in range(pages)}
    spans = [
        2 ** (12 + 9 * level) for level in range(leaf, levels)
    ]  # of a table of each level below the root
    assert built.used == 1 + sum(
        (virtual + size - 1) // span - virtual // span + 1 for span in spans
    )
    assert (built.words[built.used * 512 :] == CANARY).all()
