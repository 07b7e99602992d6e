"""The TLB that `tlb where` simulates (tool/tlb.h), against plain searches of lists."""

import ctypes
import random

import pytest
from support.common import needs_c
from support.where import built

from tlb.machine.cpuid import Tlb
from tlb.programs.where import valgrind
from tlb.programs.where.valgrind import Levels

pytestmark = needs_c
FIRST, SECOND, WAYS = 8, 32, 4
LEAST_SHIFT, SIZES = 6, 12  # of the curve
SOURCE = f"""
#include "{valgrind.VALGRIND_TOOL_SOURCE_FILE.parent}/tlb.h"
static struct tlb t;
static struct curve c;
void clear(void) {{ tlb_clear(&t, (struct geometry){{{FIRST}, {SECOND}, {WAYS}}}); curve_clear(&c); }}
int visit(uint64_t page) {{ uint64_t left; return tlb_access(&t, page, &left); }}
int draw(uint64_t page) {{ return (int)curve_access(&c, page); }}
void forget(uint64_t from, uint64_t to) {{ tlb_drop(&t, from, to); curve_drop(&c, from, to); }}
"""


class Plain:
    """The same TLB by searching lists."""

    def __init__(self) -> None:
        self.first = list[int | None]()  # None: forgotten, until it is the oldest
        self.sets = [list[int]() for _ in range(SECOND // WAYS)]

    def access(self, page: int) -> int:
        if page in self.first:
            self.first.remove(page)
            self.first.append(page)
            return 0
        self.first = [*self.first, page][-FIRST:]
        kept = self.sets[page % len(self.sets)]
        found = page in kept
        if found:
            kept.remove(page)
        kept.append(page)
        del kept[:-WAYS]
        return 1 if found else 2

    def forget(self, pages: range) -> None:
        self.first = [None if page is None or page in pages else page for page in self.first]
        self.sets = [[page for page in kept if page not in pages] for kept in self.sets]


@pytest.fixture
def library(tmp_path) -> ctypes.CDLL:
    source = tmp_path / "tlb.c"
    source.write_text(SOURCE)
    made = ctypes.CDLL(built(tmp_path, source, "-shared", "-fPIC"))
    made.visit.argtypes = made.draw.argtypes = [ctypes.c_uint64]
    made.forget.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    made.clear()
    return made


def test_the_tlb_is_that_of_a_plain_search(library):
    plain, drawn = Plain(), random.Random(1)
    # Pages that are a multiple of 1,025 apart share a bucket.
    strides = (1, 1025)
    pages = [
        drawn.choice(strides) * drawn.randrange(drawn.choice((6, 20, 60, 5000)))
        for _ in range(20_000)
    ]
    assert [library.visit(page) for page in pages] == [plain.access(page) for page in pages]


@pytest.mark.parametrize("most", [2, 7, 100, 10**9])
def test_forgotten_pages_are_those_of_a_plain_search(library, most):
    plain, drawn = Plain(), random.Random(most)
    for _ in range(5_000):
        page = drawn.randrange(drawn.choice((6, 20, 60, 5000)))
        if drawn.random() < 0.05:
            pages = range(page, page + drawn.randrange(most))
            library.forget(pages.start, pages.stop)
            plain.forget(pages)
        assert library.visit(page) == plain.access(page)


def test_the_curve_forgets_pages(library):
    pages = range(100)
    assert {library.draw(page) for page in pages} == {SIZES}
    library.forget(10, 20)
    found = [library.draw(page) for page in pages]
    assert [page for page in pages if found[page] == SIZES] == [*range(10, 20)]
    assert SIZES not in {library.draw(page) for page in pages}


def test_the_curve_has_the_hits_of_a_list_of_each_size(library):
    drawn, kept = random.Random(2), list[int]()
    for _ in range(6_000):
        page = drawn.randrange(drawn.choice((70, 140, 1000, 5000)))
        age = kept[::-1].index(page) if page in kept else None
        if age is not None:
            kept.remove(page)
        kept.append(page)
        size = SIZES if age is None else (age >> LEAST_SHIFT).bit_length()
        assert library.draw(page) == size


def test_a_page_that_the_largest_size_lost_is_a_miss(library):
    most = 1 << (LEAST_SHIFT + SIZES - 1)
    assert {library.draw(page) for page in range(most + 1)} == {SIZES}
    assert [library.draw(page) for page in (0, 2, most)] == [SIZES, SIZES - 1, 0]


@pytest.mark.parametrize(
    ("entries", "ways", "between", "found"),
    [
        (3072, None, (8, 15), (3072, 12)),  # 256 sets
        (3149, None, (8, 15), (3144, 12)),  # as measured: whole sets
        (1024, 0, None, (1024, 1024)),  # one set
        (1536, None, None, (1536, 8)),
    ],
)
def test_a_second_level_has_whole_sets_of_the_ways_that_cpuid_states(entries, ways, between, found):
    stated = {"entries": 3072, "ways": ways, "ways_between": between, "source": "CPUID"}
    second = Tlb(level=2, kind="data", pages=("4k",), **stated)
    assert Levels.of([72, entries], [second, second]) == (72, *found)
