"""Where a line stands, and which memory stands behind aliased and far pages."""

import ctypes
import json
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from support.common import ROOT, needs_c
from support.kernels import compiled, visits

from kernels.chase_numba import place
from tlb.measure import build

pytestmark = [pytest.mark.measures, pytest.mark.slow]


# --- where a line stands

KIB, MIB, GIB = 2**10, 2**20, 2**30
SETS = {
    "L1 of 32 KiB, 8 ways": 64,
    "L1 of 64 KiB, 4 ways": 256,
    "L2 of 2 MiB, 16 ways": 2048,
    "L3 of 32 MiB, 16 ways": 32768,
}
# From one line's page to the next one's, and the page: base pages, lines a base page apart on
# larger pages, and lines far apart.
CONTIGUOUS = [
    *(
        (base, page)
        for base in (4 * KIB, 16 * KIB, 64 * KIB)
        for page in (base, 2 * MIB, 32 * MIB, GIB)
    ),
    (2 * MIB, 2 * MIB),
    (2 * MIB, GIB),
    (GIB, GIB),
    (3 * 4 * KIB, 2 * MIB),
]
COUNTS = (1, 65, 1000, 3000, 2**15 + 77, 100_000)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    """places_in() and line_offset() of placement.h, for many lines."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "places.c").write_text(
        f'#include "{build.KERNELS_FOLDER}/placement.h"\n'
        "void at(uint64_t *lines, uint64_t n, int packed, uint64_t stride, uint64_t page)\n"
        "{ struct places p = places_in(packed, stride, page);\n"
        "  for (uint64_t i = 0; i < n; i++) lines[i] = line_offset(&p, lines[i]); }\n"
    )
    flags = ("-shared", "-fPIC", "-Wno-unused-function")
    library = ctypes.CDLL(str(compiled(folder / "places.c", folder / "places.so", *flags)))
    library.at.restype = None
    library.at.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, *[ctypes.c_uint64] * 2]
    return library


@pytest.fixture(scope="module")
def offsets(library) -> Callable[..., np.ndarray]:
    """Where lines lie, in bytes."""

    def of(lines: np.ndarray, stride: int, page: int, packed: bool = False) -> np.ndarray:
        into = lines.astype(np.uint64)
        library.at(into.ctypes.data, len(into), packed, stride, page)
        return into

    return of


def fullest(at: np.ndarray, sets: int) -> int:
    """The most lines that one set holds, of a cache that is indexed by the bits above a line's
    six."""
    return int(np.bincount((at // np.uint64(64)).astype(np.int64) % sets).max())


@needs_c
@pytest.mark.parametrize("cache", SETS)
@pytest.mark.parametrize(("stride", "page"), CONTIGUOUS)
def test_lines_fall_evenly_on_the_sets_of_every_cache(offsets, stride, page, cache):
    for count in COUNTS:
        at = offsets(np.arange(count), stride, page)
        assert fullest(at, SETS[cache]) <= -(-count // SETS[cache]) + 1, count
        assert (at // stride == np.arange(count)).all() and (at % stride < min(stride, page)).all()
        assert fullest(offsets(np.arange(count), stride, page, packed=True), SETS[cache]) <= -(
            -count // SETS[cache]
        )


@needs_c
@pytest.mark.parametrize("page", [4 * KIB, 2 * MIB, GIB])
def test_numba_puts_a_line_where_c_does(offsets, page):
    lines = np.array([*range(300), *range(4095, 4200), 2**26 - 1, 2**31 + 12345], dtype=np.uint64)
    stride, bits = np.uint64(64), np.uint64(6)
    at = [64 * int(place(np.uint64(line), stride, bits)) for line in lines]
    assert at == offsets(lines, 4 * KIB, page).tolist()


# --- aliased and far pages: which memory stands behind them


@pytest.fixture(scope="module")
def probe(tmp_path_factory) -> Callable[..., str]:
    """What tests/support/probe_chase.c says of page_chase's arguments."""
    binary = compiled(
        ROOT / "tests/support/probe_chase.c", tmp_path_factory.mktemp("probe") / "probe_chase"
    )
    return lambda *given: (
        subprocess.run(
            [binary, *map(str, given)], capture_output=True, text=True, check=True
        ).stdout
    )


@needs_c
@pytest.mark.parametrize(
    ("lines", "stride", "physical_pages"),
    [(1, 1, 8), (2**16 + 8, 1, 16), (1000, 8, 8), (2**14, 64, 128)],
)
def test_aliased_pages_are_few_pages_of_memory_in_at_most_8192_mappings_and_a_part(
    probe, lines, stride, physical_pages
):
    found = json.loads(
        probe("memory", "--layout", "alias", "--lines", lines, "--stride-pages", stride)
    )
    pages = lines * stride
    assert (found["bytes"], found["physical"]) == (pages * 4096, physical_pages * 4096)
    assert found["mappings"] == -(-pages // physical_pages) <= 8193
    assert found["aliased"] == found["mappings"]  # each begins where the one little file begins
    if not found["unknown_frames"]:  # root is told which frames stand behind the pages
        assert found["frames"] == len({page * stride % physical_pages for page in range(lines)})


@needs_c
@pytest.mark.parametrize(("lines", "stride"), [(1, 1), (7, 5), (1000, 64)])
def test_page_i_is_visited_on_its_line_8_times_i_mod_8_once_a_cycle(probe, lines, stride):
    played = [
        int(visit)
        for visit in probe(
            "visits", "--layout", "alias", "--lines", lines, "--stride-pages", stride, "--seed", 7
        ).split()
    ]
    cycle = visits("page_chase", "cycle", lines, 7, "alias")
    times = len(played) // lines
    assert times * lines == len(played) > 4096  # so many that a call costs nothing beside them
    # in lines of 64 bytes, 64 to a page
    assert played == [page * stride * 64 + page % 8 * 8 for page in cycle] * times
