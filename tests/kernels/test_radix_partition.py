"""A radix partition is a stable sort by bits of the hash; a join by way of it finds what the naive
join and a dictionary find."""

from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kernels import checksum, run_c, splitmix64
from support.radix_partition import functions

from tlb.measure import kernels
from tlb.measure.record import KernelOutput

MODES = {"naive": [], "partitioned": ["--bits", "5"], "partition": ["--bits", "5"]}
GOLDEN = 0x9E3779B97F4A7C15
FROM_HASH = pow(
    GOLDEN, -1, 2**64
)  # the hash is a product with an odd number, so every hash has its key

pytestmark = [pytest.mark.measures, pytest.mark.slow, pytest.mark.needs("a C compiler")]


# --- partitioning and joining, by an independent account of them


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
@settings(deadline=None)
def test_partitioning_is_a_stable_sort_by_the_hashs_top_bits_in_one_pass_or_two(keys, bits):
    rows = table_of(keys)
    radix = np.array([key * GOLDEN % 2**64 >> 64 - bits for key in keys], dtype=np.int64)
    for passes in (1, 2)[:bits]:
        parts, ends = functions().partition(rows, bits, passes)
        assert parts.tolist() == rows[np.argsort(radix, kind="stable")].tolist()
        assert ends.tolist() == np.cumsum(np.bincount(radix, minlength=1 << bits)).tolist()


@given(
    keys=st.lists(KEYS, unique=True, max_size=200),
    data=st.data(),
    bits=st.integers(0, 6),
    passes=st.integers(1, 2),
)
@settings(deadline=None)
def test_every_join_finds_what_a_dictionary_finds(keys, data, bits, passes):
    probes = data.draw(st.lists(st.one_of(KEYS, st.sampled_from(keys or [0])), max_size=200))
    row_of = {key: i + 1 for i, key in enumerate(keys)}
    found = [row_of[key] * (i + 1) for i, key in enumerate(probes) if key in row_of]
    joined = functions().join(table_of(keys), table_of(probes), bits, min(passes, max(bits, 1)))
    assert joined == (len(found), sum(found))


# --- the rows


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_keys_are_the_generators_numbers_and_each_row_of_s_has_one_of_them(seed):
    r, s, due, folded = functions().fill(5000, seed)
    assert r[:, 0].tolist() == list(islice(splitmix64(seed), 5000))
    assert r[:, 1].tolist() == s[:, 1].tolist() == list(range(1, 5001))
    common, of_r, _ = np.intersect1d(r[:, 0], s[:, 0], return_indices=True)
    assert len(np.unique(r[:, 0])) == 5000 and len(common) == len(np.unique(s[:, 0]))
    row = of_r[np.searchsorted(common, s[:, 0])] + 1
    assert due == sum(int(a) * int(b) for a, b in zip(row, s[:, 1], strict=True))
    assert f"{folded:016x}" == checksum([*r[:, 0].tolist(), *s[:, 0].tolist()])
    assert 0.6 < len(common) / 5000 < 0.66  # 1 - 1/e of all rows, when as many are drawn
    assert abs(np.corrcoef(row, s[:, 1])[0, 1]) < 0.1


# What rows 10 and 11 of the partitions are replaced with: both in partition 0, of 1000 rows in 8
# partitions.
SPOILT = {
    "swapped": lambda parts: parts[[11, 10]],
    "one twice": lambda parts: parts[[10, 10]],
    "of another partition": lambda parts: parts[[10, 999]],
    "another key": lambda parts: parts[[10, 11]] ^ np.array([1, 0], dtype=np.uint64),
}


@pytest.mark.parametrize("foreign", [False, True])
def test_rows_that_are_lost_or_doubled_or_in_a_wrong_place_are_not_partitioned(foreign):
    of = functions()
    rows, seed = of.fill(1000, 5)[foreign], 5
    parts, ends = of.partition(rows, 3, 1)
    assert of.is_partitioned(parts, ends, seed, 3, foreign)
    assert not of.is_partitioned(parts, ends, seed, 3, not foreign) and not of.is_partitioned(
        rows, ends, seed, 3, foreign
    )
    for name, change in SPOILT.items():
        wrong = parts.copy()
        wrong[[10, 11]] = change(parts)
        assert not of.is_partitioned(wrong, ends, seed, 3, foreign), name
    for at in (0, 3, 7):
        assert not of.is_partitioned(
            parts, ends - (np.arange(8) == at).astype(np.uint32), seed, 3, foreign
        )


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
