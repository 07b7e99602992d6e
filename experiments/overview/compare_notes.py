"""Sentences about a comparison: what to know of both sides, and which points only one has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tlb.lab import states
from tlb.prose import count, listed
from tlb.reasons import if_available
from tlb.report.setting import point_columns
from tlb.report.verdicts import WRONG_BY_CHANCE

if TYPE_CHECKING:
    from experiments.overview.compare import Compared, Side

_LEFT_OUT = {
    "measured-differently": "Left out, since one side was measured with an earlier version of the "
    "kernel",
    "other-kernels": "Left out as of other code, or of another compiler",
}


def broken_lines(counts: dict[str, int]) -> str:
    """Return a phrase about lines that do not prove whole."""
    lines = listed(f"{count(number)} of {kernel}.jsonl" for kernel, number in counts.items())
    return f"lines do not prove whole: {lines}"


def alone(a: pd.DataFrame, b: pd.DataFrame, chapters: Sequence[str]) -> Iterator[str]:
    """Yield a sentence a chapter of which only one side has some points."""
    for chapter in chapters:
        sides = [side[side["chapter"] == chapter] for side in (a, b)]
        by = [*dict.fromkeys(name for side in sides for name in point_columns(side))]
        points = [side.reindex(columns=by).drop_duplicates() for side in sides]
        one, two = ({*map(str, side.itertuples(index=False))} for side in points)
        alone = (("A", len(one - two)), ("B", len(two - one)))
        words = [f"{count(number)} of {letter} alone" for letter, number in alone if number]
        if words:
            yield f"Of {chapter} these points are measured on one side: {listed(words)}."


def notes(
    sides: tuple[Side, Side], quantities: list[Compared], left_out: dict[str, set[str]]
) -> Iterator[str]:
    """Yield what to know of both sides."""
    among = count(sum(quantity.can_tell for quantity in quantities))
    yield (
        f"{count(len(quantities))} quantities of points that both have measured are compared, of "
        f"which {among} are of five processes or more on both sides: the interval of each ratio is "
        f"as wide as one of {among} needs (Bonferroni), so of tables like this one about machines "
        f"that are alike at most {WRONG_BY_CHANCE:.0%} name any difference."
    )
    for place, side in enumerate(sides):
        letter, days = "AB"[place], sorted({*side.rows["started_at"].str[:10]})
        several = sum(quantity.pair.runs[place] > 1 for quantity in quantities)
        when = (
            f"{letter} is {side.name}, measured {' to '.join(dict.fromkeys((days[0], days[-1])))}."
        )
        if several:
            yield (
                f"{when} Several runs are behind {count(several)} of its quantities, and a "
                "difference counts beyond what these differ by."
            )
        else:
            yield (
                f"{when} Each of its quantities is of one run, so what differs may be the hour and "
                "not the computer."
            )
        if len(boots := states.boots_of(side.rows)) > 1:
            each = f"{len(boots)} boots, {listed(boots)}"
            yield f"{letter} has rows of {each}; compare one alone as NAME@BOOT."
        if if_available(states.described, side.store, side.machine, side.state) is None:
            yield (
                f"Nothing says what {side.name} was in the state {side.state}; it is described as "
                "it was inspected last."
            )
        if side.broken:
            yield f"Of {side.name} {broken_lines(side.broken)}. They are left out."
    for code, names in left_out.items():
        if names:
            yield f"{_LEFT_OUT[code]}: {listed(sorted(names))}."
