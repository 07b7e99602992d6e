"""The parts of radix_partition, of both engines under the same names: partition, join, fill,
is_partitioned."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from kernels.twins import radix_partition as twin
from support.kernels import compiled
from tlb.lab import build

PROBE = f"""
#define main kernel_main
#include "{build.KERNELS}/radix_partition.c"
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


def _room(
    rows: np.ndarray, bits: int, passes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Partitions, between, ends, coarse ends."""
    return (
        np.full_like(rows, 99),
        np.full_like(rows, 99),
        np.full(1 << bits, 77, dtype=np.uint32),
        np.full(1 << (bits - bits // 2) if passes == 2 else 0, 55, dtype=np.uint32),
    )


def _table(r: np.ndarray) -> np.ndarray:
    return np.full((2 * len(r), 2), 99, dtype=np.uint64)


class Parts(ABC):
    """Rows are uint64 (n, 2): key, number. What is written to holds garbage before."""

    def partition(self, rows: np.ndarray, bits: int, passes: int) -> tuple[np.ndarray, np.ndarray]:
        """(partitions, where each of them ends)."""
        parts, between, ends, coarse = _room(rows, bits, passes)
        self._partition(rows, parts, between, ends, coarse, bits)
        return parts, ends

    def join(self, r: np.ndarray, s: np.ndarray, bits: int, passes: int) -> tuple[int, int]:
        """(pairs, sum); 0 bits are the naive join."""
        table = _table(r)
        if not bits:
            return self._join(r, s, table)
        (r, r_ends), (s, s_ends) = self.partition(r, bits, passes), self.partition(s, bits, passes)
        return self._join_parts(r, s, table, r_ends, s_ends, bits)

    @abstractmethod
    def fill(self, tuples: int, seed: int) -> tuple[np.ndarray, np.ndarray, int, int]:
        """(R, S, the sum that is due, the checksum)."""

    @abstractmethod
    def is_partitioned(
        self, parts: np.ndarray, ends: np.ndarray, seed: int, bits: int, foreign: bool
    ) -> bool: ...

    @abstractmethod
    def _partition(
        self,
        rows: np.ndarray,
        parts: np.ndarray,
        between: np.ndarray,
        ends: np.ndarray,
        coarse: np.ndarray,
        bits: int,
    ) -> None: ...

    @abstractmethod
    def _join(self, r: np.ndarray, s: np.ndarray, table: np.ndarray) -> tuple[int, int]: ...

    @abstractmethod
    def _join_parts(
        self,
        r: np.ndarray,
        s: np.ndarray,
        table: np.ndarray,
        r_ends: np.ndarray,
        s_ends: np.ndarray,
        bits: int,
    ) -> tuple[int, int]: ...


class InNumba(Parts):
    def fill(self, tuples: int, seed: int) -> tuple[np.ndarray, np.ndarray, int, int]:
        r, s = np.zeros((2, tuples, 2), dtype=np.uint64)
        due, folded = twin.fill(r, s, np.uint64(seed))
        return r, s, int(due), int(folded)

    def is_partitioned(
        self, parts: np.ndarray, ends: np.ndarray, seed: int, bits: int, foreign: bool
    ) -> bool:
        return bool(twin.is_partitioned(parts, ends, np.uint64(seed), bits, foreign))

    def _partition(self, rows, parts, between, ends, coarse, bits):
        twin.partition(rows, parts, between, ends, coarse, bits)

    def _join(self, r, s, table):
        return tuple(map(int, twin.join(r, s, table, 0)))

    def _join_parts(self, r, s, table, r_ends, s_ends, bits):
        return tuple(map(int, twin.join_parts(r, s, table, r_ends, s_ends, bits)))


class InC(Parts):
    def __init__(self) -> None:
        with TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(PROBE)
            self.library = ctypes.CDLL(
                str(compiled(source, Path(folder, "probe.so"), "-shared", "-fPIC"))
            )

    def fill(self, tuples: int, seed: int) -> tuple[np.ndarray, np.ndarray, int, int]:
        r, s = np.zeros((2, tuples, 2), dtype=np.uint64)
        told = np.zeros(2, dtype=np.uint64)
        self._call("fill", r, s, tuples, seed, told)
        return r, s, int(told[0]), int(told[1])

    def is_partitioned(
        self, parts: np.ndarray, ends: np.ndarray, seed: int, bits: int, foreign: bool
    ) -> bool:
        return bool(self._call("is_partitioned", parts, len(parts), ends, seed, bits, foreign))

    def _partition(self, rows, parts, between, ends, coarse, bits):
        self._call(
            "partition",
            rows,
            len(rows),
            parts,
            between,
            ends,
            coarse if len(coarse) else None,
            bits,
        )

    def _join(self, r, s, table):
        found = np.zeros(2, dtype=np.uint64)
        self._call("join", r, len(r), s, len(s), table, found)
        return tuple(found.tolist())

    def _join_parts(self, r, s, table, r_ends, s_ends, bits):
        found = np.zeros(2, dtype=np.uint64)
        self._call("join_parts", r, r_ends, s, s_ends, table, bits, found)
        return tuple(found.tolist())

    def _call(self, name: str, *given: np.ndarray | int | None) -> int:
        """Arrays by their address; numbers as 64 bits, of which a smaller one is the lower part."""
        return int(
            getattr(self.library, f"probe_{name}")(
                *(
                    ctypes.c_void_p(one.ctypes.data)
                    if isinstance(one, np.ndarray)
                    else one
                    if one is None
                    else ctypes.c_uint64(one)
                    for one in given
                )
            )
        )


@cache
def parts_of(engine: str) -> Parts:
    return InC() if engine == "c" else InNumba()
