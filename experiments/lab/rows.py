"""Which of the stored rows speak for a computer: those of its present state, of its kernels as they are, and of one engine."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from experiments.lab import build
from experiments.words.reasons import Unavailable

# Why a kernel that has rows cannot be built now: those rows are of another one.
_GONE = {"no-compiler", "engine-lacks", "bad-parameter"}


def current(frame: pd.DataFrame, state: str) -> pd.DataFrame:
    """The rows of this computer as it is now: of `state`, and of the kernels that would be built now, in the order of `Store.load`.

    A THP setting, an older Linux or another compiler may come and go. What was measured before it is used again when it has gone.
    Raises Unavailable, what build.kernel raises where a kernel is there and does not build.
    """
    digests: dict[tuple[str, str], str] = {}
    for kernel, engine in {*_programs(frame)}:
        try:
            digests[kernel, engine] = build.kernel(kernel, engine).digest
        except Unavailable as why:
            if why.code not in _GONE:
                raise
    now = [digests.get(program) for program in _programs(frame)]
    return frame[(frame["state"] == state) & (frame["kernel_digest"] == now)].reset_index(drop=True)


def of_one_engine(frame: pd.DataFrame, asked: Collection[tuple[str, str]], engine: str) -> pd.DataFrame:
    """The rows whose engine was asked for, so that no median mixes two.

    asked: (kernel, engine) pairs; a kernel may be asked for by both. Of a kernel that is in none the rows of `engine`, or where it
    has none those of the other.
    """
    kept = set(asked)
    kernels = {kernel for kernel, _ in asked}
    there = {*_programs(frame)}
    kept |= {pair for pair in there if pair[0] not in kernels and (pair[1] == engine or (pair[0], engine) not in there)}
    return frame.loc[[program in kept for program in _programs(frame)]].reset_index(drop=True)


def _programs(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """(kernel, engine) of each row."""
    return list(zip(frame["kernel"], frame["engine"], strict=True))
