"""Documents of programs that were never run: each case with a gain that is known, or a reason why
it was left out."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.your_program.analysis import Analysis
from experiments.your_program.cases import PROGRAM_CASES
from support.common import About
from support.synthetic import Stated

HELPS, HURTS, SAME, OPEN, LITTLE = 1.5, 0.8, 1.0, 1.02, 1.015
WORDS = {
    HELPS: "helps",
    HURTS: "hurts",
    SAME: "no difference",
    OPEN: "cannot tell",
    LITTLE: "differs, by less than asked",
}
SPREAD = {OPEN: 0.1}
MIB = 1 << 20


def told(case: str, gain: float = HELPS, memory: float = 1.0, alike: bool = True) -> dict[str, Any]:
    """A program that large pages make so many times as fast, and that takes so many times the
    memory on them."""
    takes = PROGRAM_CASES[case].takes
    ratio, spread = (gain if takes else 1 / gain), SPREAD.get(gain, 0.01)

    def side(large: bool) -> dict[str, Any]:
        resident = round((memory if large else 1.0) * 512 * MIB)
        return {
            "value": 1.0 if large else gain,
            "resident_bytes": resident,
            "huge_bytes": resident // 2 if large else 0,
            "table_bytes": MIB,
            "minor_faults": 100.0 if large else 1000.0,
        }

    plain = WORDS.get(gain, "helps" if gain > 1 else "hurts")
    word = {"helps": "hurts", "hurts": "helps"}.get(plain, plain) if takes else plain
    return {
        "case": case,
        "version": "1.0",
        "verdict": word,
        "pairs": 9,
        "ratio": [ratio, ratio * (1 - spread), ratio * (1 + spread), 0.99],
        "without": side(takes),
        "with_lever": side(not takes),
        "alike": alike,
        "spent_s": 20.0,
    }


def document(
    gains: Mapping[str, float] | None = None,
    memory: Mapping[str, float] | None = None,
    lacking: Mapping[str, str] | None = None,
    most: int = 990,
) -> dict[str, Any]:
    """All programs, each helped but those with another gain; without those that lack. most: of
    1,000 samples, those at one instruction."""
    gains, memory, lacking = gains or {}, memory or {}, dict(lacking or {})
    return {
        "schema_version": 1,
        "measured_at": "2026-01-02T03:04:05Z",
        "state": "00112233aabb",
        "thp": "madvise",
        "minutes": 12.0,
        "told": [
            told(case, gains.get(case, HELPS), memory.get(case, 1.0))
            for case in PROGRAM_CASES
            if case not in lacking
        ],
        "profile": None if "profile" in lacking else {"ticks": 1000, "most": most, "last": 1},
        "lacking": lacking,
    }


def analysis(content: dict[str, Any] | None = None) -> Analysis:
    """The Analysis of a document; without one where it is None."""
    documents = {} if content is None else {"your_program": content}
    return Analysis(pd.DataFrame(), About(Stated().host(), documents=documents))
