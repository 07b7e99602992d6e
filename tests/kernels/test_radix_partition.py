"""A radix partition is a stable sort by bits of the hash; a join by way of it finds what the naive join and a dictionary find."""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kernels import (
    assert_refused,
    checksum,
    measured,
    needs_thp,
    reason,
    reason_of,
    run_twins,
    splitmix64,
    unless_fragmented,
    why_not,
)

from experiments.lab import build, kernels
from experiments.lab.record import KernelReport, Point
from kernels.twins import radix_partition as rp

MODES = {"naive": [], "partitioned": ["--bits", "5"], "partition": ["--bits", "5"]}
GOLDEN = 0x9E3779B97F4A7C15
FROM_HASH = pow(GOLDEN, -1, 2**64)  # the hash is a product with an odd number, so every hash has its key

pytestmark = [pytest.mark.measures, pytest.mark.slow]


# --- partitioning and joining, by an independent account of them


def key_with(hashed: int) -> int:
    return hashed * FROM_HASH % 2**64


# Uniform hashes, dense keys, and hashes that begin or end in the same bits: all in one partition, at one slot, or at the last.
KEYS = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 300), st.integers(0, 50).map(key_with),
                 st.integers(2**64 - 50, 2**64 - 1).map(key_with), st.integers(0, 7).map(lambda top: key_with(top << 61)))


def table_of(keys: list[int]) -> np.ndarray:
    """Rows, numbered from 1."""
    return np.array([(key, i + 1) for i, key in enumerate(keys)], dtype=np.uint64).reshape(-1, 2)


def partitioned(rows: np.ndarray, bits: int, passes: int) -> tuple[np.ndarray, np.ndarray]:
    """The partitions and where they end, by the kernel, into memory that holds garbage."""
    target, between = np.full((2, *rows.shape), 99, dtype=np.uint64)
    ends = np.full(1 << bits, 77, dtype=np.uint32)
    coarse = np.full(1 << (bits - bits // 2) if passes == 2 else 0, 55, dtype=np.uint32)
    rp.partition(rows, target, between, ends, coarse, bits)
    return target, ends


def joined(r: np.ndarray, s: np.ndarray, bits: int, passes: int) -> tuple[int, int]:
    """By the kernel; 0 bits are the naive join."""
    table = np.full((2 * len(r), 2), 99, dtype=np.uint64)
    if not bits:
        return tuple(map(int, rp.join(r, s, table, 0)))
    (r, r_ends), (s, s_ends) = partitioned(r, bits, passes), partitioned(s, bits, passes)
    return tuple(map(int, rp.join_parts(r, s, table, r_ends, s_ends, bits)))


@given(st.lists(KEYS, max_size=300), st.integers(1, 10))
@settings(deadline=None)
def test_partitioning_is_a_stable_sort_by_the_hashs_top_bits_in_one_pass_or_two(keys: list[int], bits: int):
    rows = table_of(keys)
    radix = np.array([key * GOLDEN % 2**64 >> 64 - bits for key in keys], dtype=np.int64)
    for passes in (1, 2)[: bits]:
        parts, ends = partitioned(rows, bits, passes)
        assert parts.tolist() == rows[np.argsort(radix, kind="stable")].tolist()
        assert ends.tolist() == np.cumsum(np.bincount(radix, minlength=1 << bits)).tolist()


@given(st.lists(KEYS, unique=True, max_size=200), st.data(), st.integers(0, 6), st.integers(1, 2))
@settings(deadline=None)
def test_every_join_finds_what_a_dictionary_finds(keys: list[int], data: st.DataObject, bits: int, passes: int):
    probes = data.draw(st.lists(st.one_of(KEYS, st.sampled_from(keys or [0])), max_size=200))
    row_of = {key: i + 1 for i, key in enumerate(keys)}
    found = [row_of[key] * (i + 1) for i, key in enumerate(probes) if key in row_of]
    assert joined(table_of(keys), table_of(probes), bits, min(passes, max(bits, 1))) == (len(found), sum(found))


@pytest.mark.parametrize("bits", [1, 7, 14])
def test_all_rows_of_one_key_go_into_one_partition_and_find_one_row(bits: int):
    s = table_of([12345] * 5000)
    parts, ends = partitioned(s, bits, 1)
    assert (parts == s).all() and set(ends.tolist()) <= {0, 5000} and ends[-1] == 5000
    assert joined(table_of([7, 12345]), s, bits, 1) == (5000, 2 * sum(range(5001)))


# --- the rows


def rows_of(tuples: int, seed: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    r, s = np.zeros((2, tuples, 2), dtype=np.uint64)
    due, folded = rp.fill(r, s, np.uint64(seed))
    return r, s, int(due), int(folded)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_keys_are_the_generators_numbers_and_each_row_of_s_has_one_of_them(seed: int):
    r, s, due, folded = rows_of(5000, seed)
    assert r[:, 0].tolist() == list(islice(splitmix64(seed), 5000))
    assert r[:, 1].tolist() == s[:, 1].tolist() == list(range(1, 5001))
    common, of_r, _ = np.intersect1d(r[:, 0], s[:, 0], return_indices=True)
    assert len(np.unique(r[:, 0])) == 5000 and len(common) == len(np.unique(s[:, 0]))
    row = of_r[np.searchsorted(common, s[:, 0])] + 1
    assert due == sum(int(a) * int(b) for a, b in zip(row, s[:, 1], strict=True))
    assert f"{folded:016x}" == checksum([*r[:, 0].tolist(), *s[:, 0].tolist()])
    assert 0.6 < len(common) / 5000 < 0.66  # 1 - 1/e of all rows, when as many are drawn
    assert abs(np.corrcoef(row, s[:, 1])[0, 1]) < 0.1


# What rows 10 and 11 of the partitions are replaced with: both in partition 0, of 1000 rows in 8 partitions.
SPOILT = {
    "swapped": lambda parts: parts[[11, 10]], "one twice": lambda parts: parts[[10, 10]],
    "of another partition": lambda parts: parts[[10, 999]], "wiped out": lambda parts: 0 * parts[[10, 11]],
    "another key": lambda parts: parts[[10, 11]] ^ np.array([1, 0], dtype=np.uint64),
    "beyond the rows": lambda parts: parts[[10, 11]] + np.array([0, 1000], dtype=np.uint64),
}


@pytest.mark.parametrize("foreign", [False, True])
def test_rows_that_are_lost_or_doubled_or_in_a_wrong_place_are_not_partitioned(foreign: bool):
    rows, seed = rows_of(1000, 5)[foreign], np.uint64(5)
    parts, ends = partitioned(rows, 3, 1)
    assert rp.is_partitioned(parts, ends, seed, 3, foreign)
    assert not rp.is_partitioned(parts, ends, seed, 3, not foreign) and not rp.is_partitioned(rows, ends, seed, 3, foreign)
    for name, change in SPOILT.items():
        wrong = parts.copy()
        wrong[[10, 11]] = change(parts)
        assert not rp.is_partitioned(wrong, ends, seed, 3, foreign), name
    for at in (0, 3, 7):
        assert not rp.is_partitioned(parts, ends - (np.arange(8) == at).astype(np.uint32), seed, 3, foreign)


# --- the whole kernel


def asked(mode: str, tuples: int, *more: str, pages: str = "4k") -> list[str]:
    lines = kernels.shape("radix_partition", {"tuples": tuples})["lines"]
    return ["--mode", mode, "--tuples", str(tuples), "--lines", str(lines), "--seed", "7", "--region-ms", "1", "--pages", pages, *more]


SIZES = (1024, 1027, 5000)


def test_all_modes_have_the_same_rows_and_the_same_answer():
    """An answer that was wrong in any round would be kernel-garbage."""
    ways = [(mode, *more, *passes) for mode, more in MODES.items() for passes in ([], ["--passes", "2"])[: 1 + bool(more)]]
    jobs = [(way, size) for way in ways for size in SIZES]
    done = run_twins([("radix_partition", asked(way[0], size, *way[1:])) for way, size in jobs])
    for (way, size), (status, out, err) in zip(jobs, done, strict=True):
        assert (status, err) == (0, ""), way
        report = KernelReport.model_validate_json(out)
        r, s, _, folded = rows_of(size, 7)
        assert report.checksum == f"{folded:016x}" == checksum([*r[:, 0].tolist(), *s[:, 0].tolist()])
        assert (report.mode, report.engine, report.layout, report.order) == (way[0], "numba", "packed", "random")
        assert dict(report.options) == {"tuples": size} | {way[i][2:]: int(way[i + 1]) for i in range(1, len(way), 2)}
        assert report.lines == 6 * -(-size // 4) and report.working_set_bytes == 64 * report.lines
        assert report.arena_bytes == -(-report.working_set_bytes // 4096) * 4096
        rows_a_round = 2 * size if way[0] == "partition" else size
        assert report.accesses % (rows_a_round * len(report.batch_ns_per_access)) == 0
        assert report.also.keys() == ({"histogram_ns_per_access"} if way[0] == "partition" else set())
        assert all(ns > 0 for ns in report.also.values())


@pytest.mark.endurance
def test_a_sum_beyond_63_bits_is_still_the_right_one():
    size = 3_810_000  # about size^3 / 4, which is 1.5 times 2^63
    for status, _, err in run_twins([("radix_partition", asked(mode, size)) for mode in ("naive", "partitioned")]):
        assert (status, err) == (0, "")
    assert rows_of(size, 7)[2] > 2**63


def test_without_tuples_the_arrays_are_as_long_as_the_lines_let_them():
    (status, out, err), = run_twins([("radix_partition", ["--seed", "7", "--region-ms", "1"])])
    assert (status, err) == (0, "")
    report = KernelReport.model_validate_json(out)
    assert (report.mode, report.lines, report.options) == ("naive", 4096, ())
    assert report.checksum == f"{rows_of(4096 // 6 * 4, 7)[3]:016x}"


BAD = [["--lines", "1535"], ["--tuples", "1024"], ["--tuples", "1024", "--lines", "1537"], ["--tuples", "1023", "--lines", "1536"],
       ["--tuples", str(2**28 + 1), "--lines", "402653190"], ["--lines", "402653190"], ["--bits", "0"], ["--bits", "15"],
       ["--passes", "3"], ["--passes", "0"], ["--bits", "5"], ["--mode", "naive", "--passes", "1"],
       ["--mode", "partition", "--bits", "1", "--passes", "2"], ["--mode", "touch"], ["--layout", "spread"], ["--order", "cycle"],
       ["--tuples", "1e6"]]


def test_arrays_that_are_not_the_lines_and_other_bad_arguments_are_one_sentence():
    said = run_twins([("radix_partition", bad) for bad in BAD])
    for bad, one in zip(BAD, said, strict=True):
        assert_refused(bad, *one)
    assert "--lines 1536" in said[1][2] and "1536 to 402653184" in said[0][2]


def test_a_small_limit_of_address_space_is_memory_short():
    said, = run_twins([("radix_partition", asked("naive", 1 << 26))], address_space=4 << 30)  # numba itself takes part of it
    assert reason(*said)[0] == "memory-short"


# What is left out, by a change of the source.
SCATTER = "    for i in range(len(source)):\n        p = radix"
FAULTS = {
    "rows are not moved": ("partition", {SCATTER: SCATTER.replace("len(source)", "0")}),
    "the last row is not moved": ("partition", {SCATTER: SCATTER.replace("len(source)", "len(source) - 1")}),
    "only the first round moves rows": ("partition", {SCATTER: SCATTER.replace("len(source)", "len(source) * (target[1, ROW] == 0)")}),
    "half is probed for": ("partitioned", {"range(len(s) if len(r) else 0)": "range(len(s) // 2)"}),
    "nothing is built": ("naive", {"    for i in range(len(r)):\n        at = slot_of": "    for i in range(0):\n        at = slot_of"}),
    "nothing": ("partitioned", {}),
}


@pytest.mark.parametrize("fault", [pytest.param(name, marks=[pytest.mark.endurance] * (number > 1)) for number, name in enumerate(FAULTS)])
def test_work_that_was_left_out_is_kernel_garbage(fault: str, tmp_path: Path):
    mode, changes = FAULTS[fault]
    source = build.twin("radix_partition").read_text()
    for before, after in changes.items():
        assert source.count(before) == 1, before
        source = source.replace(before, after)
    shutil.copytree(build.KERNELS / "twins", tmp_path / "kernels/twins", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "kernels/twins/radix_partition.py").write_text(source)
    done = subprocess.run([sys.executable, "-m", "kernels.twins.radix_partition", *asked(mode, 5000)], capture_output=True, text=True,
                          cwd=tmp_path, timeout=200)
    if fault == "nothing":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert reason_of(done)[0] == "kernel-garbage"


def test_transparent_huge_pages_back_all_six_arrays():
    needs_thp()
    (status, out, err), = run_twins([("radix_partition", asked("partitioned", 1 << 17, pages="thp"))])
    report = unless_fragmented(status, out, err)
    assert report.backing == "thp" and report.arena_bytes == 6 * 16 << 17


@pytest.mark.parametrize("mode", MODES)
def test_a_point_is_measured_with_its_options_and_faults_no_page_in(mode: str):
    options = {"tuples": 2000} | ({} if mode == "naive" else {"bits": 5, "passes": 2})
    point = Point(kernel="radix_partition", engine="numba", mode=mode, options=options, region_ms=1,
                  **kernels.shape("radix_partition", options))
    records = (measured(point) for _ in range(3))
    assert any(record.point == point and (record.minor_faults, record.major_faults) == (0, 0) for record in records)


def test_the_kernel_is_in_numba_alone():
    assert why_not(Point(kernel="radix_partition", layout="packed", order="random", lines=1536), "engine-lacks").endswith("numba alone")
