"""A radix partition is a stable sort by bits of the hash; a join by way of it finds what the naive
join and a dictionary find."""

import ctypes
from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import SUPPORT
from support.kernels import checksum, compiled, run_c, splitmix64

from tlb.measure import kernels
from tlb.measure.record import KernelOutput

MODES = {"naive": [], "partitioned": ["--bits", "5"], "partition": ["--bits", "5"]}
GOLDEN = 0x9E3779B97F4A7C15
FROM_HASH = pow(
    GOLDEN, -1, 2**64
)  # the hash is a product with an odd number, so every hash has its key

pytestmark = [pytest.mark.measures, pytest.mark.slow, pytest.mark.needs("a C compiler")]


# --- partitioning and joining, by an independent account of them


class Functions:
    """partition and join of radix_partition.c. Rows are uint64 (n, 2): key, number. What is written
    to holds garbage before."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def partition(self, rows: np.ndarray, bits: int, passes: int) -> tuple[np.ndarray, np.ndarray]:
        """(partitions, where each of them ends)."""
        parts, between = np.full_like(rows, 99), np.full_like(rows, 99)
        ends = np.full(1 << bits, 77, dtype=np.uint32)
        coarse = np.full(1 << bits - bits // 2, 55, dtype=np.uint32) if passes == 2 else None
        self._call("partition", rows, len(rows), parts, between, ends, coarse, bits)
        return parts, ends

    def join(self, r: np.ndarray, s: np.ndarray, bits: int, passes: int) -> tuple[int, int]:
        """(pairs, sum); 0 bits are the naive join."""
        table = np.full((2 * len(r), 2), 99, dtype=np.uint64)
        found = np.zeros(2, dtype=np.uint64)
        if bits:
            (r, r_ends), (s, s_ends) = (self.partition(rows, bits, passes) for rows in (r, s))
            self._call("join_parts", r, r_ends, s, s_ends, table, bits, found)
        else:
            self._call("join", r, len(r), s, len(s), table, found)
        return tuple(found.tolist())

    def _call(self, name: str, *given: np.ndarray | int | None) -> None:
        """Arrays by their address; numbers as 64 bits, of which a smaller one is the lower part."""

        def argument(value: np.ndarray | int | None) -> object:
            if isinstance(value, np.ndarray):
                return ctypes.c_void_p(value.ctypes.data)
            return None if value is None else ctypes.c_uint64(value)

        getattr(self.library, f"probe_{name}")(*map(argument, given))


@pytest.fixture(scope="module")
def functions(tmp_path_factory) -> Functions:
    target = tmp_path_factory.mktemp("probe") / "probe.so"
    source = SUPPORT / "probe_radix_partition.c"
    return Functions(ctypes.CDLL(str(compiled(source, target, "-shared", "-fPIC"))))


def key_with(hashed: int) -> int:
    return hashed * FROM_HASH % 2**64


# Uniform hashes, dense keys, and hashes that begin or end in the same bits: all in one partition,
# at one slot, or at the last.
KEYS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 300),
    st.integers(0, 50).map(key_with),
    st.integers(2**64 - 50, 2**64 - 1).map(key_with),
    st.integers(0, 7).map(lambda top: key_with(top << 61)),
)


def table_of(keys: list[int]) -> np.ndarray:
    """Rows, numbered from 1."""
    return np.array([(key, i + 1) for i, key in enumerate(keys)], dtype=np.uint64).reshape(-1, 2)


@given(keys=st.lists(KEYS, max_size=300), bits=st.integers(1, 10))
def test_partitioning_is_a_stable_sort_by_the_hashs_top_bits_in_one_pass_or_two(
    functions, keys, bits
):
    rows = table_of(keys)
    radix = np.array([key * GOLDEN % 2**64 >> 64 - bits for key in keys], dtype=np.int64)
    for passes in (1, 2)[:bits]:
        parts, ends = functions.partition(rows, bits, passes)
        assert parts.tolist() == rows[np.argsort(radix, kind="stable")].tolist()
        assert ends.tolist() == np.cumsum(np.bincount(radix, minlength=1 << bits)).tolist()


@given(
    keys=st.lists(KEYS, unique=True, max_size=200),
    data=st.data(),
    bits=st.integers(0, 6),
    passes=st.integers(1, 2),
)
def test_every_join_finds_what_a_dictionary_finds(functions, keys, data, bits, passes):
    probes = data.draw(st.lists(st.one_of(KEYS, st.sampled_from(keys or [0])), max_size=200))
    row_of = {key: i + 1 for i, key in enumerate(keys)}
    found = [row_of[key] * (i + 1) for i, key in enumerate(probes) if key in row_of]
    joined = functions.join(table_of(keys), table_of(probes), bits, min(passes, max(bits, 1)))
    assert joined == (len(found), sum(found))


# --- the whole kernel


def asked(mode: str, tuples: int, *more: str, pages: str = "4k") -> list[str]:
    lines = kernels.shape("radix_partition", {"tuples": tuples})["lines"]
    return [
        "--mode",
        mode,
        "--tuples",
        str(tuples),
        "--lines",
        str(lines),
        "--seed",
        "7",
        "--region-ms",
        "1",
        "--pages",
        pages,
        *more,
    ]


def report_of(given: list[str]) -> KernelOutput:
    """An answer that was wrong in any round would be kernel-failed."""
    done = run_c("radix_partition", given)
    assert (done.returncode, done.stderr) == (0, "")
    return KernelOutput.model_validate_json(done.stdout)


def expected(tuples: int, seed: int = 7) -> str:
    """The checksum of the keys of R, the generator's numbers, and of those of S, each of a row of R
    that another seed draws."""
    keys, drawn = (
        list(islice(splitmix64(seed), tuples)),
        islice(splitmix64(2**64 - 1 - seed), tuples),
    )
    return checksum(keys + [keys[(z >> 32) * tuples >> 32] for z in drawn])


SIZES = (1024, 1027)
WAYS = [
    (mode, *more, *passes)
    for mode, more in MODES.items()
    for passes in ([], ["--passes", "2"])[: 1 + bool(more)]
]


def test_all_modes_have_the_same_rows_and_the_same_answer():
    for way, size in product(WAYS, SIZES):
        report = report_of(asked(way[0], size, *way[1:]))
        assert report.checksum == expected(size)
        assert (report.mode, report.engine, report.layout, report.order) == (
            way[0],
            "c",
            "packed",
            "random",
        )
        assert dict(report.options) == {"tuples": size} | {
            way[i][2:]: int(way[i + 1]) for i in range(1, len(way), 2)
        }
        assert report.lines == 6 * -(-size // 4) and report.working_set_bytes == 64 * report.lines
        assert report.arena_bytes == -(-report.working_set_bytes // 4096) * 4096
        rows_a_round = 2 * size if way[0] == "partition" else size
        assert report.accesses % (rows_a_round * len(report.batch_ns_per_access)) == 0
        assert report.also.keys() == (
            {"histogram_ns_per_access"} if way[0] == "partition" else set()
        )
        assert all(ns > 0 for ns in report.also.values())
