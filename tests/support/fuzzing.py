"""Texts that are almost right: valid ones, broken by a seeded generator that knows numbers and lines."""

import os
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

# `make endurance` (pytest -m endurance) asks for all of what the suite does a sample of; another
# seed finds other things.
ENDURANCE = os.environ.get("TLB_ENDURANCE") == "1"
SEED = int(os.environ.get("TLB_SEED", "1"))

NUMBERS = [
    *b"0 -0 -1 1 2 1.5 -1e-9 1e308 0x10 007 1,5 4294967296 9223372036854775808".split(),
    *(b"18446744073709551616", b"9" * 40, b"1" * 5000, "１２".encode()),
]
PIECES = [
    *(b"\0", b"\n", b"\r\n", b"\n\n", b"\xff\xfe", b" ", b"\t", b" kB", b":", b"-"),
    *("\u2028".encode(), b"a" * 3000),
    *NUMBERS,
]
_NUMBER = re.compile(rb"-?\d+")


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    at = rng.randrange(len(data) + 1)
    return at, min(len(data), at + int(rng.paretovariate(0.7)))


def _with_another_number(rng: random.Random, data: bytes) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    at = rng.choice(found)
    other = rng.choice([*NUMBERS, b"-" + at[0], at[0] + b"0", at[0] + b"e9"])
    return data[: at.start()] + other + data[at.end() :]


def _with_other_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    a, b = rng.randrange(len(lines) + 1), rng.randrange(len(lines) + 1)
    match rng.randrange(4):
        case 0:
            del lines[a : a + rng.randint(1, 3)]
        case 1:
            lines[b:b] = lines[a : a + rng.randint(1, 3)]
        case 2:
            lines[a : a + 2] = reversed(lines[a : a + 2])
        case 3:
            return data[: rng.randrange(len(data) + 1)]
    return b"".join(lines)


def mutated(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, broken in one to four places. It may come out whole, where breaks undo each
    other."""
    data = rng.choice(seeds)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
        start, end = _span(rng, data)
        match rng.randrange(7):
            case 0 if data:
                bit = rng.randrange(8 * len(data))
                flipped = bytes([data[bit // 8] ^ 1 << bit % 8])
                data = data[: bit // 8] + flipped + data[bit // 8 + 1 :]
            case 1:
                data = data[:start] + data[end:]
            case 2:
                data = data[:start] + data[start:end] * 2 + data[end:]
            case 3:
                other = rng.choice(seeds)
                part = other[_span(rng, other)[0] :][: rng.randrange(200)]
                data = data[:start] + part + data[end:]
            case 4:
                keeps = rng.random() < 0.5
                data = data[:start] + rng.choice(PIECES) + data[start if keeps else end :]
            case 5:
                data = _with_another_number(rng, data)
            case 6:
                data = _with_other_lines(rng, data)
    return data


def sampled(test: Any) -> Any:
    """Marks a test that is a sample of itself in the suite and whole in `make endurance`."""
    return pytest.mark.endurance(test) if ENDURANCE else test


def times(name: str, whole: int, sample: int = 1) -> pytest.MarkDecorator:
    """Runs a test so often, with its number as the argument `name`."""
    numbers = [pytest.param(n, marks=pytest.mark.endurance) for n in range(whole)]
    return pytest.mark.parametrize(name, numbers if ENDURANCE else range(sample))
