"""Inputs that are almost right: valid ones, broken by a seeded generator that knows numbers,
strings and lines."""

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

# `make endurance` (pytest -m endurance) asks for all of what the suite does a sample of; another
# seed finds other things.
ENDURANCE = os.environ.get("TLB_ENDURANCE") == "1"
SEED = int(os.environ.get("TLB_SEED", "1"))

NUMBERS = [
    *b"0 -0 -1 1 2 1.5 -1e-9 1e308 1e309 -1e999 5e-324 1_0 0x10 007 1,5 4294967296".split(),
    *b"9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616".split(),
    *(b"9" * 40, b"9" * 400, b"1" * 5000),
    *"NaN -NaN nan Infinity -Infinity inf １２ ٣".encode().split(),
]
VALUES = [
    *rb'''null true false [] {} "" "x" [1] {"a":1} "NaN" "-1" "\ud800" "\u0000"'''.split(),
    *('"é"'.encode(), b'"<not counted>"', b'"<not supported>"', b'"' + b"a" * 3000 + b'"'),
    *NUMBERS,
]
PIECES = [
    *(b"\0", b"\n", b"\r\n", b"\n\n", b"\xff\xfe", b"\xed\xa0\x80", b" ", b"\t", b" kB"),
    *rb"""" \ , : { } [ ] - <""".split(),
    "\u2028\u202e\u0085".encode(),
    *VALUES,
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_QUOTED = re.compile(rb'"[^"\n]*"')
_MEMBER = re.compile(rb'"[^"\n]*" ?: ?(?:"[^"\n]*"|[^,}\n\]\[]*),? ?')


def _nested(rng: random.Random) -> bytes:
    """Brackets as deep as breaks a recursive reader: below Python's limit, at it, far beyond."""
    deep = rng.choice([3, 60, rng.randint(900, 1010), rng.randint(4000, 6000)])
    start, end = rng.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
    return start * deep + rng.choice([b"1", b""]) + end * rng.choice([deep, deep, 0])


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    at = rng.randrange(len(data) + 1)
    return at, min(len(data), at + int(rng.paretovariate(0.7)))


def _replaced(
    rng: random.Random, data: bytes, what: re.Pattern[bytes], by: Callable[[bytes], bytes]
) -> bytes:
    found = list(what.finditer(data))
    if not found:
        return data
    at = rng.choice(found)
    return data[: at.start()] + by(at[0]) + data[at.end() :]


def _lines(rng: random.Random, data: bytes) -> bytes:
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
            return b"".join(lines)[: rng.randrange(len(data) + 1)]
    return b"".join(lines)


def mutated(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, broken in one to four places. It may come out whole, where breaks undo each
    other."""
    data = rng.choice(seeds)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
        start, end = _span(rng, data)
        how = rng.randrange(10)
        if how == 0 and data:
            bit = rng.randrange(8 * len(data))
            data = data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
        elif how == 1:
            data = data[:start] + data[end:]
        elif how == 2:
            data = data[:start] + data[start:end] * 2 + data[end:]
        elif how == 3:
            other = rng.choice(seeds)
            data = data[:start] + other[_span(rng, other)[0] :][: rng.randrange(200)] + data[end:]
        elif how == 4:
            data = data[:start] + rng.choice(PIECES) + data[end if rng.random() < 0.5 else start :]
        elif how == 5:
            data = _replaced(
                rng,
                data,
                _NUMBER,
                lambda number: rng.choice([*NUMBERS, b"-" + number, number + b"0", number + b"e9"]),
            )
        elif how == 6:
            data = _replaced(
                rng,
                data,
                _QUOTED,
                lambda _: rng.choice([*VALUES, b'"' + rng.choice(NUMBERS) + b'"']),
            )
        elif how == 7:
            data = _replaced(rng, data, _MEMBER, lambda member: member * rng.choice([0, 2]))
        elif how == 8:
            data = _lines(rng, data)
        elif rng.random() < 0.2:  # the slowest to read, so the rarest
            data = data[:start] + _nested(rng) + data[end:]
    return data


def sampled(test: Any) -> Any:
    """Marks a test that is a sample of itself in the suite and whole in `make endurance`."""
    return pytest.mark.endurance(test) if ENDURANCE else test


def times(name: str, whole: int, sample: int = 1) -> pytest.MarkDecorator:
    """Runs a test so often, with its number as the argument `name`."""
    numbers = [pytest.param(n, marks=pytest.mark.endurance) for n in range(whole)]
    return pytest.mark.parametrize(name, numbers if ENDURANCE else range(sample))


parts = times("part", 2)
COUNT = 10_000 if ENDURANCE else 1_000  # inputs of each part


def fuzz(
    part: int, make: Callable[[random.Random], Any], check: Callable[[Any], str], count: int = COUNT
) -> Counter[str]:
    """How often `check` answered what. What it raises for an input fails the test with what makes
    that input again."""
    rng = random.Random(f"{SEED} {part}")
    answers: Counter[str] = Counter()
    for number in range(count):
        case = make(rng)
        try:
            answers[check(case)] += 1
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}"[:1000]
            raise AssertionError(
                f"input {number} of part {part} with TLB_SEED={SEED}: {said}\n{str(case)[:3000]}"
            ) from error
    return answers
