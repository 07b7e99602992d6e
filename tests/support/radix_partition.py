"""Functions of radix_partition.c by themselves: partition, join, fill, is_partitioned."""

import ctypes
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from support.kernels import compiled
from tlb.measure import build

PROBE = f"""
#define main kernel_main
#include "{build.KERNELS_FOLDER}/radix_partition.c"
#undef main

static struct side r, s;

void probe_partition(struct row *rows, uint64_t n, struct row *parts, struct row *between,
                     uint32_t *ends, uint32_t *coarse, unsigned bits)
{{
    r.rows = (struct rows){{rows, n}}, r.parts = (struct rows){{parts, n}};
    memcpy(r.ends, ends, sizeof *ends << bits);
    partition(&r, between, coarse, bits);
    memcpy(ends, r.ends, sizeof *ends << bits);
}}

void probe_join(struct row *of_r, uint64_t r_n, struct row *of_s, uint64_t s_n, struct row *table,
                struct answer *found)
{{
    *found = join((struct rows){{of_r, r_n}}, (struct rows){{of_s, s_n}}, table, 0);
}}

void probe_join_parts(struct row *of_r, const uint32_t *r_ends, struct row *of_s,
                      const uint32_t *s_ends, struct row *table, unsigned bits,
                      struct answer *found)
{{
    r.parts.at = of_r, s.parts.at = of_s;
    memcpy(r.ends, r_ends, sizeof *r_ends << bits);
    memcpy(s.ends, s_ends, sizeof *s_ends << bits);
    *found = join_parts(&r, &s, table, bits);
}}

void probe_fill(struct row *of_r, struct row *of_s, uint64_t n, uint64_t seed, uint64_t *told)
{{
    told[1] = FNV_BASIS;
    told[0] = fill((struct rows){{of_r, n}}, (struct rows){{of_s, n}}, seed, told + 1).sum;
}}

int probe_is_partitioned(struct row *parts, uint64_t n, const uint32_t *ends, uint64_t seed,
                         unsigned bits, int foreign)
{{
    r.parts = (struct rows){{parts, n}};
    memcpy(r.ends, ends, sizeof *ends << bits);
    return is_partitioned(&r, seed, bits, foreign);
}}
"""


class Functions:
    """Rows are uint64 (n, 2): key, number. What is written to holds garbage before."""

    def __init__(self) -> None:
        with TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(PROBE)
            self.library = ctypes.CDLL(
                str(compiled(source, Path(folder, "probe.so"), "-shared", "-fPIC"))
            )

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

    def fill(self, tuples: int, seed: int) -> tuple[np.ndarray, np.ndarray, int, int]:
        """(R, S, the expected sum, the checksum)."""
        r, s = np.zeros((2, tuples, 2), dtype=np.uint64)
        answer = np.zeros(2, dtype=np.uint64)
        self._call("fill", r, s, tuples, seed, answer)
        return r, s, int(answer[0]), int(answer[1])

    def is_partitioned(
        self, parts: np.ndarray, ends: np.ndarray, seed: int, bits: int, foreign: bool
    ) -> bool:
        return bool(self._call("is_partitioned", parts, len(parts), ends, seed, bits, foreign))

    def _call(self, name: str, *given: np.ndarray | int | None) -> int:
        """Arrays by their address; numbers as 64 bits, of which a smaller one is the lower part."""

        def argument(value: np.ndarray | int | None) -> object:
            if isinstance(value, np.ndarray):
                return ctypes.c_void_p(value.ctypes.data)
            return None if value is None else ctypes.c_uint64(value)

        return int(getattr(self.library, f"probe_{name}")(*map(argument, given)))


functions = cache(Functions)
